/* A worker's connection to one of its conductors: connects, sends HELLO, waits
 * for WELCOME, and reconnects after growing pauses. A refusal is final, except
 * for a name in use: a worker that never registered waits 15 s for the name,
 * others wait forever. */
#ifndef WORKERS_LINK_CONDUCTOR_LINK_H
#define WORKERS_LINK_CONDUCTOR_LINK_H

#include <stdbool.h>

#include "base/address.h"
#include "proto/message.h"

struct conductor_link;
struct loop;
struct dns;
struct stream_loop;
struct secret;
struct tls;

struct conductor_link_ops {
    /* WELCOME (borrowed) came: send the inventory; frames may follow. Returns
     * NULL, or why this worker cannot serve the conductor: the conductor gets
     * it as ERROR, and `refused` follows when the connection is closed. */
    const char *(*up)(void *arg, const struct msg_welcome *welcome);
    /* Called for a frame after WELCOME. Returns 0, -EBADMSG (malformed) or
     * -EPROTO (out of place): these two end the connection. */
    int (*frame)(void *arg, const struct frame_header *h,
                 const uint8_t *payload);
    /* A STATUS is due. */
    void (*heartbeat)(void *arg);
    /* Called when a connection that was up is lost; the link reconnects. */
    void (*down)(void *arg);
    /* Called when the conductor will never take this worker; `why` is for
     * people. The link stops. */
    void (*refused)(void *arg, const char *why);
};

struct conductor_link_config {
    struct loop *loop;               /* borrowed */
    struct stream_loop *stream_loop; /* of its connections; borrowed */
    struct dns *dns;                 /* borrowed */
    const struct secret *secret;     /* borrowed; NULL = none */
    struct tls *tls;                 /* authorities; borrowed; NULL = no TLS */
    struct address at;
    const struct msg_hello *hello;
};

/* Starts connecting. Copies `config` and its hello; borrows its members marked
 * borrowed, `ops` and `arg`. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct conductor_link *
conductor_link_new(const struct conductor_link_config *config,
                   const struct conductor_link_ops *ops, void *arg);

/* Closes and frees, without a callback. NULL is a no-op. */
void conductor_link_free(struct conductor_link *l);

/* Returns whether the kernel has taken all output. */
bool conductor_link_sent(const struct conductor_link *l);

/* Sets the role (enum proto_role) for the next HELLO. */
void conductor_link_set_role(struct conductor_link *l, uint8_t role);

/* Closes the connection and reconnects; `down` comes first. Not inside a
 * callback. No-op without a connection. */
void conductor_link_again(struct conductor_link *l, const char *why);

/* Sends the frames in `buf`, which is unchanged. Drops them while the link is
 * down: a restarted conductor knows nothing of them. */
void conductor_link_send(struct conductor_link *l, const struct wire_buf *buf);

#endif
