/* Paths: opens and frees them. */
#include <stdlib.h>
#include <string.h>

#include "workers/transfer/engine/tcp/internal.h"

void tcp_hang_up(struct op_path *path)
{
    struct tcp_path *p = (struct tcp_path *)(void *)path; /* its first member */

    for (uint32_t i = 0; i < TCP_STREAMS_MAX; i++)
        tcp_dial_free(p->dials[i]);
}

void tcp_path_free(struct op_path *p)
{
    free(p);
}

struct transport_path *tcp_open(struct transport *transport,
                                const struct transport_peer *peer,
                                const struct transport_path_ops *ops, void *arg)
{
    struct tcp *t = (struct tcp *)(void *)transport;
    struct tcp_path *p =
        peer->n_descriptor == TCP_TOKEN_BYTES ? calloc(1, sizeof(*p)) : NULL;

    if (!p)
        return NULL;
    p->tcp = t;
    memcpy(p->token, peer->descriptor, TCP_TOKEN_BYTES);
    TAILQ_INIT(&p->waiting);
    op_path_init(&p->base, &t->set, transport, &p->waiting, ops, arg);
    for (uint32_t i = 0; i < t->config.streams; i++) {
        if (tcp_dial(p, peer->host, peer->port, i) == 0)
            continue;
        pthread_mutex_lock(&t->set.lock);
        op_path_free(&p->base);
        pthread_mutex_unlock(&t->set.lock);
        return NULL;
    }
    return &p->base.base;
}
