/* The table of connections to other workers: one per peer, shared by all
 * fetches and pushes. What they have to say waits until the peer has said
 * WELCOME; what the peer says then goes up through transfer.peer_ops. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "workers/transfer/internal.h"

/* A frame before WELCOME. */
static int peer_opening(struct peer *p, const struct frame_header *h,
                        const uint8_t *payload)
{
    struct msg_welcome m;
    char why[MSG_TEXT_MAX];
    int rc = handshake_answer(&p->handshake, p->conn, h, payload, &m, why);

    if (rc == -EACCES)
        frame_conn_fail(p->conn, why);
    if (rc <= 0)
        return rc == -EACCES ? 0 : rc;
    p->welcome = true;
    p->capabilities = m.capabilities & p->transfer->hello.capabilities;
    frame_conn_take(p->conn, p->transfer->limits.payload_bytes);
    p->transfer->peer_ops->welcome(p);
    return 0;
}

static int on_peer_frame(void *arg, const struct frame_header *h,
                         const uint8_t *payload)
{
    struct peer *p = arg;

    if (h->type == FRAME_ERROR)
        return handshake_refused(p->conn, payload, h->length,
                                 "refused by the peer");
    if (!p->welcome)
        return peer_opening(p, h, payload);
    return p->transfer->peer_ops->frame(p, h, payload);
}

static void *on_peer_body(void *arg, const struct frame_header *h,
                          const uint8_t *head)
{
    struct peer *p = arg;

    return p->welcome ? p->transfer->peer_ops->body(p, h, head) : NULL;
}

static void on_peer_writable(void *arg)
{
    struct peer *p = arg;

    p->transfer->peer_ops->writable(p);
}

static void on_peer_closed(void *arg, const char *reason)
{
    struct peer *p = arg;
    struct transfer *t = p->transfer;

    log_info("connection to worker %s:%u ended: %s", p->host, p->port, reason);
    TAILQ_REMOVE(&t->peers, p, link);
    t->n_peers--;
    t->peer_ops->lost(p, reason);
    frame_conn_free(p->conn);
    free(p);
}

static const struct frame_conn_ops peer_ops = {
    .body = on_peer_body,
    .frame = on_peer_frame,
    .writable = on_peer_writable,
    .closed = on_peer_closed,
};

void peer_free(struct transfer *t, struct peer *p)
{
    TAILQ_REMOVE(&t->peers, p, link);
    t->n_peers--;
    frame_conn_free(p->conn);
    free(p);
}

static bool peer_idle(const struct peer *p)
{
    return TAILQ_EMPTY(&p->fetches) && TAILQ_EMPTY(&p->pushes);
}

/* Room for one more outbound connection, at the expense of an idle one. */
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
    limits.split = (struct frame_split){.type = FRAME_FETCH_DATA,
                                        .head_bytes = MSG_FETCH_DATA_BYTES};
    limits.payload_bytes = HANDSHAKE_PAYLOAD_BYTES;
    p->conn = frame_conn_connect(t->config.base, t->config.dns, host, port,
                                 &limits, &peer_ops, p);
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
