/*
 * The connections at a port whose peers have not proven their identity yet.
 * Their number is bounded: at the bound, a new one replaces one of the address
 * with the most, so that flooding the port does not keep others out. IPv6
 * addresses of one /64 count as one.
 */
#ifndef BASE_STRANGERS_H
#define BASE_STRANGERS_H

#include <sys/queue.h>

#include "base/frame_conn.h"
#include "base/handshake.h"
#include "base/log.h"

struct loop;

/* A stranger's connection, part of the owner's struct. */
struct stranger {
    TAILQ_ENTRY(stranger) link;
    void *owner;
    const struct handshake *handshake; /* borrowed; NULL = none */
    uint64_t host;                     /* host_key() of its address */
};

struct strangers {
    TAILQ_HEAD(, stranger) list; /* the oldest first */
    unsigned n;
    struct log_rate log; /* rate limit of log lines about strangers */
};

/* strangers_init(s): sets up an empty list. */
void strangers_init(struct strangers *s);

/* strangers_add(s, x, conn): adds x, whose owner and handshake are set, with
 * the address of conn. */
void strangers_add(struct strangers *s, struct stranger *x,
                   const struct frame_conn *conn);

/* strangers_add_socket(s, x, loop, fd): as strangers_add(), for a socket of
 * this loop that has no frames. */
void strangers_add_socket(struct strangers *s, struct stranger *x,
                          struct loop *loop, int fd);

/* strangers_remove(s, x): removes x: it closed, or has proven its
 * identity. */
void strangers_remove(struct strangers *s, struct stranger *x);

/* strangers_surplus(s): returns the stranger to close before another one is
 * added; NULL = there is room. Of the address with the most strangers, it is
 * the oldest that has sent nothing, else the oldest.
 * O(HANDSHAKE_STRANGERS_MAX^2). */
struct stranger *strangers_surplus(const struct strangers *s);

#endif
