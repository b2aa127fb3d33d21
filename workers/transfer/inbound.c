/* Connections from other workers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "workers/transfer/internal.h"

/* NULL if this worker and the one that says `m` understand each other's KV. */
static const char *misfit(const struct transfer *t, const struct msg_hello *m)
{
    if (m->version_min > PROTO_VERSION || m->version_max < PROTO_VERSION)
        return "no common protocol version";
    if (m->kind != PROTO_PEER_WORKER_PEER)
        return "this port is for other workers";
    if (m->fingerprint != t->hello.fingerprint)
        return "another model, seed or element type";
    if (m->block_tokens != t->hello.block_tokens)
        return "another number of tokens in a block";
    return NULL;
}

static int inbound_hello(struct inbound *in, const uint8_t *payload, size_t len)
{
    struct transfer *t = in->transfer;
    struct msg_hello m;

    if (msg_hello_unpack(payload, len, &m))
        return -EBADMSG;
    const char *why = misfit(t, &m);
    if (why) {
        bool version =
            m.version_min > PROTO_VERSION || m.version_max < PROTO_VERSION;

        frame_conn_refuse(
            in->conn, version ? PROTO_E_VERSION : PROTO_E_INCOMPATIBLE, why);
        return 0;
    }
    memcpy(in->name, m.name, sizeof(in->name));
    in->hello = true;
    struct msg_welcome w = {.version = PROTO_VERSION,
                            .capabilities =
                                m.capabilities & t->hello.capabilities};
    msg_welcome_pack(&t->buf, 0, &w);
    transfer_send(t, in->conn);
    return 0;
}

static int inbound_dispatch(struct inbound *in, const struct frame_header *h,
                            const uint8_t *payload)
{
    if (h->type == FRAME_HELLO && !in->hello)
        return inbound_hello(in, payload, h->length);
    if (!in->hello)
        return -EPROTO;
    switch (h->type) {
    case FRAME_FETCH:
        return serve_on_fetch(in, h->request_id, payload, h->length);
    case FRAME_FETCH_READ:
        return serve_on_read(in, h->request_id, payload, h->length);
    case FRAME_FETCH_KEEP:
        return h->length == 0 ? 0 : -EBADMSG;
    case FRAME_CANCEL:
        serve_drop(in, h->request_id);
        return 0;
    case FRAME_KV_BEGIN:
        return receive_on_begin(in, h->request_id, payload, h->length);
    case FRAME_KV_LAYER:
        return receive_on_layer(in, h->request_id, payload, h->length);
    case FRAME_KV_END:
        return receive_on_end(in, h->request_id, payload, h->length);
    default:
        return -EPROTO;
    }
}

static void on_inbound_frame(void *arg, const struct frame_header *h,
                             const uint8_t *payload)
{
    struct inbound *in = arg;

    in->heard_us = clock_now_us();
    int rc = inbound_dispatch(in, h, payload);

    if (rc < 0)
        transfer_bad_frame(in->conn, h,
                           rc == -EPROTO ? "out of place" : "malformed");
}

static void on_inbound_writable(void *arg)
{
    serve_pump(arg);
}

void inbound_free(struct transfer *t, struct inbound *in)
{
    serve_drop_all(in);
    TAILQ_REMOVE(&t->inbounds, in, link);
    t->n_inbounds--;
    frame_conn_free(in->conn);
    free(in);
}

static void on_inbound_closed(void *arg, const char *reason)
{
    struct inbound *in = arg;
    struct transfer *t = in->transfer;
    struct request *r;

    log_info("connection from worker %s (%s) ended: %s",
             in->name[0] ? in->name : "?", frame_conn_peer(in->conn), reason);
    while ((r = TAILQ_FIRST(&in->receives))) {
        TAILQ_REMOVE(&in->receives, r, receive.link);
        r->receive.from = NULL;
        t->ops->receive_failed(t->arg, r, reason);
    }
    inbound_free(t, in);
}

static const struct frame_conn_ops inbound_ops = {
    .frame = on_inbound_frame,
    .writable = on_inbound_writable,
    .closed = on_inbound_closed,
};

void inbound_tick(struct inbound *in, int64_t now_us)
{
    if (!in->hello && now_us - in->heard_us >= TRANSFER_HELLO_US)
        frame_conn_fail(in->conn, "no HELLO in time");
    else
        serve_check_lease(in, now_us);
}

void inbound_accept(struct transfer *t, evutil_socket_t fd)
{
    struct inbound *in = NULL;

    if (t->n_inbounds >= TRANSFER_CONNS_MAX || !(in = calloc(1, sizeof(*in)))) {
        log_warn("a peer's connection was closed: %u are open, the limit is %u",
                 t->n_inbounds, TRANSFER_CONNS_MAX);
        evutil_closesocket(fd);
        return;
    }
    in->transfer = t;
    in->heard_us = clock_now_us();
    TAILQ_INIT(&in->serves);
    TAILQ_INIT(&in->receives);
    in->conn = frame_conn_new(t->config.base, fd, &t->limits, &inbound_ops, in);
    if (!in->conn) {
        free(in);
        return;
    }
    TAILQ_INSERT_TAIL(&t->inbounds, in, link);
    t->n_inbounds++;
}
