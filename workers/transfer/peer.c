/* The table of connections to other workers: one per peer, shared by all
 * fetches and pushes, which send nothing before WELCOME. The frames of peers go
 * to transfer.peer_ops. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workers/transfer/internal.h"

void peer_free(struct transfer *t, struct peer *p)
{
    struct fetch *f;

    while (!TAILQ_EMPTY(&p->pushes))
        push_drop(TAILQ_FIRST(&p->pushes));
    while ((f = TAILQ_FIRST(&p->fetches))) {
        TAILQ_REMOVE(&p->fetches, f, link);
        f->peer = NULL; /* its last move frees it */
    }
    route_shut(p->route);
    guest_shut(p->guest);
    TAILQ_REMOVE(&t->peers, p, link);
    t->n_peers--;
    frame_conn_free(p->conn);
    free(p);
}

static bool peer_idle(const struct peer *p)
{
    return TAILQ_EMPTY(&p->fetches) && TAILQ_EMPTY(&p->pushes);
}

/* Makes room for one more outbound connection; may close an idle one. */
static bool make_room(struct transfer *t)
{
    struct peer *p;

    if (t->n_peers < TRANSFER_CONNS_MAX)
        return true;
    TAILQ_FOREACH(p, &t->peers, link)
    {
        if (peer_idle(p)) {
            peer_free(t, p);
            return true;
        }
    }
    return false;
}

/* Returns the rate of `p` measured by the loader; 0 = none. */
static uint64_t measured_bytes_per_s(const struct peer *p)
{
    char name[MSG_HOST_MAX + 8];

    snprintf(name, sizeof(name), "%s:%u", p->host, p->port);
    const struct loader_source *s =
        loader_find_source(p->transfer->config.loader, name);
    return s ? (uint64_t)loader_source_bytes_per_s(s) : 0;
}

void transfer_paths(const struct transfer *t, struct msg_paths *m)
{
    const struct peer *p;

    m->n = 0;
    TAILQ_FOREACH(p, &t->peers, link)
    {
        const char *transport = route_transport(p->route);
        uint64_t bytes_per_s = transport ? measured_bytes_per_s(p) : 0;

        if (bytes_per_s == 0)
            continue;
        struct msg_path *path = &m->list[m->n++];
        path->port = p->port;
        path->bytes_per_s = bytes_per_s;
        snprintf(path->host, sizeof(path->host), "%s", p->host);
        snprintf(path->transport, sizeof(path->transport), "%s", transport);
        if (m->n == MSG_PATHS_MAX)
            return;
    }
}

struct peer *transfer_peer(struct transfer *t, const char *host, uint16_t port)
{
    struct peer *p;

    TAILQ_FOREACH(p, &t->peers, link)
    {
        if (p->port == port && strcmp(p->host, host) == 0)
            return p;
    }
    if (!make_room(t) || !(p = calloc(1, sizeof(*p))))
        return NULL;
    p->transfer = t;
    p->port = port;
    snprintf(p->host, sizeof(p->host), "%s", host);
    TAILQ_INIT(&p->fetches);
    TAILQ_INIT(&p->pushes);
    struct frame_conn_limits limits = t->limits;
    limits.payload_bytes = HANDSHAKE_PAYLOAD_BYTES;
    p->conn = frame_conn_connect(t->config.stream_loop, t->config.dns, host,
                                 port, &limits, t->peer_ops, p);
    if (!p->conn) {
        free(p);
        return NULL;
    }
    TAILQ_INSERT_TAIL(&t->peers, p, link);
    t->n_peers++;
    if (handshake_connect(&p->handshake, t->config.secret, &t->hello, p->conn))
        frame_conn_fail(p->conn, "no random numbers for HELLO");
    return p;
}
