/* A connection of the worker to one of its conductors: connects, says HELLO,
 * waits for WELCOME, and begins again with growing pauses when the connection
 * is lost. A refusal is the end, but for a name in use: a worker that was never
 * taken waits 15 s for the name, one that was waits for ever.
 */
#ifndef WORKERS_LINK_CONDUCTOR_LINK_H
#define WORKERS_LINK_CONDUCTOR_LINK_H

#include <stdbool.h>

#include "base/address.h"
#include "proto/message.h"

struct event_base;
struct evdns_base;
struct secret;
struct tls;
struct conductor_link;

struct conductor_link_ops {
    /* WELCOME came, which is borrowed: send the inventory; frames may flow.
     * Returns NULL, or why this worker cannot serve such a conductor. */
    const char *(*up)(void *arg, const struct msg_welcome *welcome);
    /* A frame after WELCOME. Returns 0, -EBADMSG (malformed) or -EPROTO (out
     * of place): these two end the connection. */
    int (*frame)(void *arg, const struct frame_header *h,
                 const uint8_t *payload);
    /* Time for a STATUS. */
    void (*heartbeat)(void *arg);
    /* The connection that was up is lost; connecting again is under way. */
    void (*down)(void *arg);
    /* The conductor will never take this worker; `why` is for people. No
     * further attempt is made. */
    void (*refused)(void *arg, const char *why);
};

struct conductor_link_config {
    struct event_base *base;     /* borrowed */
    struct evdns_base *dns;      /* borrowed */
    const struct secret *secret; /* borrowed; NULL: none */
    struct tls *tls;             /* whom it trusts; borrowed; NULL: no TLS */
    struct address at;
    const struct msg_hello *hello;
};

/* Start connecting. `config` is copied but for what it says is borrowed, `ops`
 * and `arg` are borrowed. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct conductor_link *
conductor_link_new(const struct conductor_link_config *config,
                   const struct conductor_link_ops *ops, void *arg);

/* Close and free, without a callback. NULL is a no-op. */
void conductor_link_free(struct conductor_link *l);

/* Whether the kernel has all that was sent. */
bool conductor_link_sent(const struct conductor_link *l);

/* The next HELLO says this role (enum proto_role). */
void conductor_link_set_role(struct conductor_link *l, uint8_t role);

/* Close the connection and make another one; `down` comes first. Not inside a
 * callback. A no-op without a connection. */
void conductor_link_again(struct conductor_link *l, const char *why);

/* Send the frames in `buf`, which stays as it is; while the link is down they
 * are dropped, since the next conductor knows nothing of them. */
void conductor_link_send(struct conductor_link *l, const struct wire_buf *buf);

#endif
