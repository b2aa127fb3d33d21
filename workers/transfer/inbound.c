/* Connections from other workers: opening, frames, timeouts, end. */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "base/loop/net.h"
#include "workers/transfer/internal.h"

/* Returns why the sender of `m` and this worker cannot exchange KV, or NULL. */
static const char *misfit(const struct transfer *t, const struct msg_hello *m)
{
    if (m->kind != PROTO_PEER_WORKER_PEER && m->kind != PROTO_PEER_WORKER_DATA)
        return "this port is for other workers";
    if (m->fingerprint != t->hello.fingerprint)
        return "another model, seed or element type";
    if (m->block_tokens != t->hello.block_tokens)
        return "another number of tokens in a block";
    return NULL;
}

static void log_stranger(const struct inbound *in, const char *what,
                         const char *why)
{
    if (log_rate_takes(&in->transfer->strangers.log, HANDSHAKE_LOG_PER_S))
        log_warn("connection from %s %s: %s", frame_conn_peer(in->conn), what,
                 why);
}

void inbound_free(struct transfer *t, struct inbound *in)
{
    serve_drop_all(in);
    guest_shut(in->guest);
    receive_shut(in, NULL);
    route_shut(in->route);
    if (in->stage)
        t->ops->stage_closed(in->stage);
    TAILQ_REMOVE(&t->inbounds, in, link);
    t->n_inbounds--;
    if (!in->welcome)
        strangers_remove(&t->strangers, &in->stranger);
    frame_conn_free(in->conn);
    free(in);
}

/* Gives a data connection, which has no frames, to the threads of tcp. */
static void hand_over(struct inbound *in)
{
    struct transfer *t = in->transfer;
    int fd = t->tcp ? frame_conn_detach(in->conn) : -ENOTSUP;

    if (fd < 0) {
        frame_conn_fail(in->conn, "a data connection that cannot be served");
        return;
    }
    tcp_transport_take(t->tcp, fd);
    inbound_free(t, in);
}

/* Admits a peer that has proven the secret, unless its KV does not fit. */
static void inbound_join(struct inbound *in)
{
    struct transfer *t = in->transfer;
    struct msg_hello *m = &in->handshake.hello;
    const char *why = misfit(t, m);

    if (why) {
        frame_conn_refuse(in->conn, PROTO_E_INCOMPATIBLE, why);
        return;
    }
    in->welcome = true;
    strangers_remove(&t->strangers, &in->stranger);
    frame_conn_take(in->conn, t->limits.payload_bytes);
    m->capabilities &= t->hello.capabilities;
    struct msg_welcome w = {.version = proto_version_common(m),
                            .capabilities = m->capabilities};
    msg_welcome_pack(&t->buf, 0, &w);
    transfer_send(t, in->conn);
    if (m->kind == PROTO_PEER_WORKER_DATA)
        hand_over(in);
    else if (m->capabilities & PROTO_CAP_TRANSPORTS)
        in->guest = guest_new(t, in->conn, m->name, TRANSFER_ACCEPTED);
}

static void inbound_opening(struct inbound *in, const struct frame_header *h,
                            const uint8_t *payload)
{
    struct handshake_refusal refusal;
    int rc = handshake_accept(&in->handshake, in->conn, h, payload, &refusal);

    if (rc > 0) {
        inbound_join(in);
    } else if (rc < 0) {
        log_stranger(in, "is refused", refusal.why);
        handshake_refuse(in->conn, &refusal);
    }
}

/* Returns the capability that frames of this type need; 0 = none. */
static uint64_t capability_of(uint16_t type)
{
    switch (type) {
    case FRAME_STAGE_BEGIN:
        return PROTO_CAP_STAGES;
    case FRAME_FETCH:
    case FRAME_KV_BEGIN:
    case FRAME_TRANSPORTS:
    case FRAME_FETCH_WANT:
        return PROTO_CAP_TRANSPORTS;
    default:
        return 0;
    }
}

static int on_stage(struct inbound *in, const struct frame_header *h,
                    const uint8_t *payload)
{
    const struct transfer *t = in->transfer;

    return t->ops->stage_frame
               ? t->ops->stage_frame(t->arg, in->conn, &in->stage, h, payload)
               : -EPROTO;
}

static int inbound_dispatch(struct inbound *in, const struct frame_header *h,
                            const uint8_t *payload)
{
    if (capability_of(h->type) & ~in->handshake.hello.capabilities)
        return -EPROTO;
    switch (h->type) {
    case FRAME_FETCH:
        return serve_on_fetch(in, h->request_id, payload, h->length);
    case FRAME_TRANSPORTS:
        return h->request_id == TRANSFER_CONNECTED
                   ? receive_on_transports(in, payload, h->length)
                   : guest_on_transports(in->guest, payload, h->length);
    case FRAME_FETCH_WANT:
        return serve_on_want(in, h->request_id, payload, h->length);
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
    case FRAME_STAGE_BEGIN:
    case FRAME_STAGE_ROWS:
    case FRAME_STAGE_KV:
        return on_stage(in, h, payload);
    default:
        return -EPROTO;
    }
}

static int on_inbound_frame(void *arg, const struct frame_header *h,
                            const uint8_t *payload)
{
    struct inbound *in = arg;

    if (!in->welcome) {
        inbound_opening(in, h, payload);
        return 0;
    }
    in->heard_us = loop_now_us(in->transfer->config.loop);
    return inbound_dispatch(in, h, payload);
}

static void on_inbound_writable(void *arg)
{
    struct inbound *in = arg;

    serve_pump(in);
    if (in->stage)
        in->transfer->ops->stage_writable(in->stage);
}

static void on_inbound_closed(void *arg, const char *reason)
{
    struct inbound *in = arg;

    if (!in->welcome)
        log_stranger(in, "ended", reason);
    else
        log_info("connection from worker %s (%s) ended: %s",
                 in->handshake.hello.name, frame_conn_peer(in->conn), reason);
    receive_shut(in, reason);
    inbound_free(in->transfer, in);
}

static const struct frame_conn_ops inbound_ops = {
    .frame = on_inbound_frame,
    .writable = on_inbound_writable,
    .closed = on_inbound_closed,
};

void inbound_tick(struct inbound *in, int64_t now_us)
{
    if (!in->welcome && now_us - in->heard_us >= HANDSHAKE_PATIENCE_US)
        frame_conn_fail(in->conn, "not opened in time");
    else
        serve_check_lease(in, now_us);
}

/* Closes a stranger's connection if there are too many. Returns whether there
 * is room: strangers' connections take no places of peers. */
static bool make_room(struct transfer *t)
{
    struct stranger *surplus = strangers_surplus(&t->strangers);

    if (surplus) {
        log_stranger(surplus->owner, "is closed", "too many have not opened");
        inbound_free(t, surplus->owner);
    }
    return t->n_inbounds - t->strangers.n < TRANSFER_CONNS_MAX;
}

void inbound_accept(void *arg, int fd)
{
    struct transfer *t = arg;
    struct frame_conn_limits limits = t->limits;
    struct inbound *in = NULL;

    if (!make_room(t) || !(in = calloc(1, sizeof(*in)))) {
        if (log_rate_takes(&t->strangers.log, HANDSHAKE_LOG_PER_S))
            log_warn("a connection was closed: %u are open, %u of them from "
                     "peers, and the limit is %u",
                     t->n_inbounds, t->n_inbounds - t->strangers.n,
                     TRANSFER_CONNS_MAX);
        net_close(t->config.loop, fd);
        return;
    }
    in->transfer = t;
    in->handshake.secret = t->config.secret;
    in->heard_us = loop_now_us(t->config.loop);
    TAILQ_INIT(&in->serves);
    TAILQ_INIT(&in->receives);
    TAILQ_INIT(&in->pieces);
    limits.payload_bytes = HANDSHAKE_PAYLOAD_BYTES;
    in->conn =
        frame_conn_new(t->config.stream_loop, fd, &limits, &inbound_ops, in);
    if (!in->conn) {
        free(in);
        return;
    }
    TAILQ_INSERT_TAIL(&t->inbounds, in, link);
    t->n_inbounds++;
    in->stranger = (struct stranger){.owner = in, .handshake = &in->handshake};
    strangers_add(&t->strangers, &in->stranger, in->conn);
}
