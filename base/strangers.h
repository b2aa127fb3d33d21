/*
 * The connections at a port that have not proven yet who they are. There are
 * few places for them, and when all are taken one is closed for the next: so
 * that nobody who floods the port keeps others out, one of the address that has
 * the most. IPv6 addresses of one /64 count as one.
 */
#ifndef BASE_STRANGERS_H
#define BASE_STRANGERS_H

#include <sys/queue.h>

#include "base/frame_conn.h"
#include "base/handshake.h"
#include "base/log.h"

/* One of them; the owner keeps it. */
struct stranger {
    TAILQ_ENTRY(stranger) link;
    void *owner;
    const struct handshake *handshake; /* borrowed; NULL: it has none */
    uint64_t host; /* equal for those that count as one address */
};

struct strangers {
    TAILQ_HEAD(, stranger) list; /* the oldest first */
    unsigned n;
    struct log_rate log; /* of the lines that they cause */
};

/* strangers_init(s): there are none. */
void strangers_init(struct strangers *s);

/* strangers_add(s, x, conn): x, whose owner and handshake are set, has come on
 * conn. */
void strangers_add(struct strangers *s, struct stranger *x,
                   const struct frame_conn *conn);

/* strangers_add_socket(s, x, fd): likewise, on a socket without frames. */
void strangers_add_socket(struct strangers *s, struct stranger *x, int fd);

/* strangers_remove(s, x): x is gone, or is none any more. */
void strangers_remove(struct strangers *s, struct stranger *x);

/* strangers_surplus(s): the one to close before another one comes; NULL: there
 * is room. Of the address that has the most of them, one that has said nothing,
 * if there is one, and of these the oldest. Cost: the square of
 * HANDSHAKE_STRANGERS_MAX. */
struct stranger *strangers_surplus(const struct strangers *s);

#endif
