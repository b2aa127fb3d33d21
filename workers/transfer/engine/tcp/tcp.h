/*
 * The transport over TCP: data connections, each served by one of a few
 * threads. They are opened like the control connection (HELLO of kind 4 at the
 * same port, the same proof of the secret), and then go from the loop to a
 * thread. Their first bytes are the token of an offer, which only its peer
 * knows.
 *
 *   asker                               holder
 *   path    waiting ops
 *    |  \   each stream takes the next part of the next op
 *   stream stream   ---- request ---->  stream stream     (threads)
 *                   <--- answer ------    under a use of the grant
 */
#ifndef WORKERS_TRANSFER_ENGINE_TCP_TCP_H
#define WORKERS_TRANSFER_ENGINE_TCP_TCP_H

#include "base/handshake.h"
#include "workers/transfer/engine/transport.h"

#define TCP_STREAMS_MAX 8u

struct loop;
struct dns;
struct stream_loop;

struct tcp_config {
    struct loop *loop;               /* borrowed, like all pointers here */
    struct stream_loop *stream_loop; /* of its connections; borrowed */
    struct dns *dns;                 /* NULL = addresses only */
    const struct secret *secret;     /* NULL = none */
    const struct msg_hello *hello;   /* this worker's, with another kind */
    uint32_t streams; /* to each peer, and threads: 1 to TCP_STREAMS_MAX */
};

/* Makes the transport and starts its threads. Returns it owned (free it with
 * ops->free), or NULL. */
[[nodiscard]] struct transport *
tcp_transport_new(const struct tcp_config *config);

/* Takes over `fd`, a data connection that was sent WELCOME. If
 * HANDSHAKE_STRANGERS_MAX others have sent no token yet, closes one of them to
 * make room (strangers_surplus()). */
void tcp_transport_take(struct transport *t, int fd);

#endif
