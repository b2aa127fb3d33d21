/*
 * The transport over TCP: data connections of their own, each served by one of
 * a few threads. They are opened and trusted like the control connection (HELLO
 * of kind 4 at the same port, the same proof of the secret), and then leave the
 * loop: the first bytes name the offer, which only its peer was told of.
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

struct evdns_base;
struct event_base;

struct tcp_config {
    struct event_base *base;       /* borrowed, as all pointers */
    struct evdns_base *dns;        /* NULL: addresses only */
    const struct secret *secret;   /* NULL: none */
    const struct msg_hello *hello; /* this worker's; its kind is replaced */
    uint32_t streams; /* to a peer, and threads: 1 to TCP_STREAMS_MAX */
};

/* Make it, with its threads. Returns it owned (ops->free), or NULL. */
[[nodiscard]] struct transport *
tcp_transport_new(const struct tcp_config *config);

/* Take the socket of a peer that has proven the secret and was said WELCOME to,
 * after HELLO of kind 4. If HANDSHAKE_STRANGERS_MAX others have not said whose
 * they are, one of these is closed for it (strangers_surplus()). Owns fd. */
void tcp_transport_take(struct transport *t, int fd);

#endif
