/* The leader's connection to one member. */
#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "workers/pipeline/internal.h"

/* Buffered output at which sending pauses. */
#define WATERMARK_BYTES ((size_t)1 << 20)

uint32_t member_from_layer(const struct member *m)
{
    return m == m->group->members ? m->group->to_layer : m[-1].to_layer;
}

static struct member *next_member(const struct member *m)
{
    const struct group *g = m->group;
    size_t i = (size_t)(m - g->members) + 1;

    return i < g->n_members ? &m->group->members[i] : NULL;
}

static void send_begin(struct member *m)
{
    struct group *g = m->group;
    struct rows_sender *s = &g->pipeline->sender;
    struct msg_stage_begin b = {
        .n_tokens = g->cut.n_tokens,
        .from_token = g->cut.from_token,
        .chunk_tokens = g->cut.chunk_tokens,
        .from_layer = m->kv.from_layer,
        .to_layer = m->kv.to_layer,
    };

    msg_stage_begin_pack(&s->buf, g->r->id, &b);
    rows_flush(s, m->conn);
}

/* Returns whether the next rows may be sent: the member has room for their
 * chunk, and the next member's ring for its result. */
static bool may_send(const struct member *m)
{
    const struct member *next = next_member(m);
    uint32_t t = m->ring.taken;

    return t < m->ring.filled &&
           chunk_in_window(&m->group->cut, t, m->computed) &&
           (!next || rows_ring_has_room(&next->ring, t));
}

/* Sends one frame, if it can. Returns whether it did. */
static bool pump_one(struct member *m)
{
    struct group *g = m->group;
    struct rows_sender *s = &g->pipeline->sender;

    if (rows_send_kv(s, m->conn, g->r->id, &m->kv, &m->prefix,
                     g->cut.from_token))
        return true;
    if (!may_send(m))
        return false;
    rows_send(s, m->conn, g->r->id, &m->ring);
    return true;
}

void member_pump(struct member *m)
{
    bool sent = false;

    while (m->ready && !frame_conn_full(m->conn) && pump_one(m))
        sent = true;
    if (!sent)
        return;
    m->group->progress_us = loop_now_us(m->group->pipeline->config.loop);
    /* The ring has room again. */
    m->group->pipeline->ops->poke(m->group->pipeline->arg);
}

/* A frame before WELCOME. */
static int on_opening(struct member *m, const struct frame_header *h,
                      const uint8_t *payload)
{
    struct pipeline *p = m->group->pipeline;
    struct msg_welcome w;
    char why[MSG_TEXT_MAX];
    int rc = handshake_answer(&m->handshake, m->conn, h, payload, &w, why);

    if (rc == -EACCES)
        frame_conn_fail(m->conn, why);
    if (rc <= 0)
        return rc == -EACCES ? 0 : rc;
    if (!(w.capabilities & p->hello.capabilities & PROTO_CAP_STAGES)) {
        frame_conn_fail(m->conn, "the worker computes no stages");
        return 0;
    }
    m->welcome = true;
    frame_conn_take(m->conn, (uint32_t)p->sender.piece_bytes + 4096);
    send_begin(m);
    return 0;
}

static int on_refuse(struct member *m, const uint8_t *payload, size_t len)
{
    struct msg_error e;

    if (msg_error_unpack(payload, len, &e))
        return -EBADMSG;
    frame_conn_fail(m->conn, e.text);
    return 0;
}

static int on_done(struct member *m, const uint8_t *payload, size_t len)
{
    struct group *g = m->group;
    struct msg_stage_done d;

    if (msg_stage_done_unpack(payload, len, &d) ||
        m->computed == g->cut.n_tokens ||
        d.to_token != chunk_end(&g->cut, m->computed) ||
        d.to_token > m->ring.taken ||
        d.first_token >= g->pipeline->config.layout->vocab)
        return -EBADMSG;
    m->computed = d.to_token;
    if (!next_member(m) && d.to_token == g->cut.n_tokens) {
        g->has_token = true;
        g->first_token = d.first_token;
    }
    g->member_ops->advanced(g);
    return 0;
}

static int on_rows(struct member *m, const uint8_t *payload, size_t len)
{
    struct member *next = next_member(m);

    if (!next || next->ring.filled >= m->computed ||
        rows_take(&next->ring, payload, len))
        return -EBADMSG;
    m->group->member_ops->advanced(m->group);
    return 0;
}

static int on_kv(struct member *m, const uint8_t *payload, size_t len)
{
    if (rows_take_kv(&m->kv, m->next_token, m->computed, payload, len))
        return -EBADMSG;
    m->group->member_ops->advanced(m->group);
    return 0;
}

static int on_frame(void *arg, const struct frame_header *h,
                    const uint8_t *payload)
{
    struct member *m = arg;

    if (h->type == FRAME_ERROR)
        return handshake_refused(m->conn, payload, h->length,
                                 "refused by the member");
    if (!m->welcome)
        return on_opening(m, h, payload);
    if (h->request_id != m->group->r->id)
        return -EPROTO;
    if (h->type == FRAME_STAGE_REFUSE)
        return on_refuse(m, payload, h->length);
    if (!m->ready) {
        if (h->type != FRAME_STAGE_READY || h->length != 0)
            return -EPROTO;
        m->ready = true;
        m->group->member_ops->advanced(m->group);
        return 0;
    }
    switch (h->type) {
    case FRAME_STAGE_DONE:
        return on_done(m, payload, h->length);
    case FRAME_STAGE_ROWS:
        return on_rows(m, payload, h->length);
    case FRAME_STAGE_KV:
        return on_kv(m, payload, h->length);
    default:
        return -EPROTO;
    }
}

static void on_writable(void *arg)
{
    member_pump(arg);
}

static void on_closed(void *arg, const char *reason)
{
    struct member *m = arg;
    char why[MSG_TEXT_MAX + MSG_HOST_MAX];

    snprintf(why, sizeof(why), "%s:%u: %s", m->host, m->port, reason);
    m->group->member_ops->failed(m->group, why);
}

static const struct frame_conn_ops conn_ops = {
    .frame = on_frame,
    .writable = on_writable,
    .closed = on_closed,
};

int member_connect(struct member *m)
{
    struct pipeline *p = m->group->pipeline;
    const struct frame_conn_limits limits = {
        .payload_bytes = HANDSHAKE_PAYLOAD_BYTES,
        .output_watermark_bytes = WATERMARK_BYTES,
        .output_limit_bytes =
            WATERMARK_BYTES + p->sender.piece_bytes + (1u << 20),
    };

    m->conn = frame_conn_connect(p->config.stream_loop, p->config.dns, m->host,
                                 m->port, &limits, &conn_ops, m);
    if (!m->conn)
        return -ENOMEM;
    return handshake_connect(&m->handshake, p->config.secret, &p->hello,
                             m->conn);
}
