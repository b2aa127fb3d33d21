/* A stage at a member. The transfer accepted the leader's connection. */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "workers/pipeline/internal.h"

/* A stage waits this many time-outs for its leader, because earlier stages may
 * be computing; a leader gives up its group after one time-out. */
#define STAGE_PATIENCE 4

static void stage_free(struct stage *s)
{
    struct pipeline *p = s->pipeline;

    for (uint32_t i = 0; i < s->n_blocks; i++)
        kv_store_release(p->config.store, s->ids[i]);
    rows_ring_fini(&s->in);
    rows_ring_fini(&s->out);
    free(s->ids);
    free(s->blocks);
    free(s->next_token);
    TAILQ_REMOVE(&p->stages, s, link);
    p->n_stages--;
    free(s);
    p->ops->poke(p->arg);
}

void pipeline_stage_closed(struct stage *s)
{
    if (!s)
        return;
    s->conn = NULL;
    if (!s->in_turn)
        stage_free(s);
}

static int refuse(struct pipeline *p, struct frame_conn *conn, uint64_t id,
                  uint16_t code, const char *why)
{
    log_warn("a stage of request %llu is refused: %s", (unsigned long long)id,
             why);
    msg_error_like_pack(&p->sender.buf, FRAME_STAGE_REFUSE, id, code, why);
    rows_flush(&p->sender, conn);
    return 0;
}

static bool is_last(const struct stage *s)
{
    return s->kv.to_layer == s->kv.layout->layers;
}

static int take_blocks(struct stage *s)
{
    struct kv_store *store = s->pipeline->config.store;
    uint32_t bt = s->kv.layout->block_tokens;
    uint32_t n = (s->cut.n_tokens + bt - 1) / bt;

    s->ids = calloc(n, sizeof(*s->ids));
    s->blocks = calloc(n, sizeof(*s->blocks));
    if (!s->ids || !s->blocks)
        return -ENOMEM;
    int rc = kv_store_alloc(store, n, s->ids);
    if (rc < 0)
        return rc;
    s->n_blocks = n;
    for (uint32_t i = 0; i < n; i++)
        s->blocks[i] = kv_store_data(store, s->ids[i]);
    s->kv.blocks = s->blocks;
    return 0;
}

/* Returns 0, -ENOMEM or -ENOSPC. */
static int make_room(struct stage *s)
{
    uint32_t bytes = s->kv.layout->activation_bytes;
    int rc = take_blocks(s);

    s->next_token =
        calloc(s->kv.to_layer - s->kv.from_layer, sizeof(*s->next_token));
    if (!s->next_token)
        rc = -ENOMEM;
    if (rc == 0)
        rc = rows_ring_init(&s->in, &s->cut, bytes);
    if (rc == 0 && !is_last(s))
        rc = rows_ring_init(&s->out, &s->cut, bytes);
    return rc;
}

static void made_progress(struct stage *s)
{
    s->progress_us = loop_now_us(s->pipeline->config.loop);
}

static struct stage *stage_new(struct pipeline *p, struct frame_conn *conn,
                               uint64_t id, const struct msg_stage_begin *m)
{
    struct stage *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->pipeline = p;
    s->conn = conn;
    s->id = id;
    s->cut = (struct chunk_cut){m->from_token, m->n_tokens, m->chunk_tokens};
    s->kv = (struct rows_kv){.layout = p->config.layout,
                             .from_layer = m->from_layer,
                             .to_layer = m->to_layer};
    s->computed = m->from_token;
    s->sent.from_token = s->sent.end_token = m->from_token;
    made_progress(s);
    TAILQ_INSERT_TAIL(&p->stages, s, link);
    p->n_stages++;
    return s;
}

/* Returns why this worker cannot compute the stage; NULL = it can. */
static const char *misfit(const struct pipeline *p,
                          const struct msg_stage_begin *m)
{
    const struct engine_kv_layout *l = p->config.layout;

    if (l->activation_bytes == 0)
        return "this engine computes no stages";
    if (m->to_layer > l->layers || m->chunk_tokens > l->step_tokens ||
        m->n_tokens > l->window_tokens)
        return "it has too many layers, chunks or tokens";
    return NULL;
}

static int on_begin(struct pipeline *p, struct frame_conn *conn,
                    struct stage **stage, const struct frame_header *h,
                    const uint8_t *payload)
{
    struct msg_stage_begin m;

    if (msg_stage_begin_unpack(payload, h->length, &m))
        return -EBADMSG;
    const char *why = misfit(p, &m);
    if (why)
        return refuse(p, conn, h->request_id, PROTO_E_INVALID, why);
    if (p->n_stages >= PIPELINE_STAGES_MAX)
        return refuse(p, conn, h->request_id, PROTO_E_BUSY,
                      "this worker computes too many stages already");
    struct stage *s = stage_new(p, conn, h->request_id, &m);
    if (!s || make_room(s) < 0) {
        if (s)
            stage_free(s);
        return refuse(p, conn, h->request_id, PROTO_E_BUSY,
                      "this worker has no room for its KV");
    }
    *stage = s;
    log_info("request %llu: layers %u to %u of tokens %u to %u are computed "
             "here",
             (unsigned long long)s->id, m.from_layer, m.to_layer, m.from_token,
             m.n_tokens);
    msg_empty_pack(&p->sender.buf, FRAME_STAGE_READY, s->id);
    rows_flush(&p->sender, conn);
    return 0;
}

int pipeline_stage_frame(struct pipeline *p, struct frame_conn *conn,
                         struct stage **stage, const struct frame_header *h,
                         const uint8_t *payload)
{
    struct stage *s = *stage;
    int rc = -EPROTO;

    if (!s)
        return h->type == FRAME_STAGE_BEGIN
                   ? on_begin(p, conn, stage, h, payload)
                   : -EPROTO;
    if (h->request_id != s->id)
        return -EPROTO;
    if (h->type == FRAME_STAGE_KV)
        rc = rows_take_kv(&s->kv, s->next_token, s->cut.from_token, payload,
                          h->length);
    else if (h->type == FRAME_STAGE_ROWS)
        rc = rows_take(&s->in, payload, h->length);
    if (rc == 0) {
        made_progress(s);
        p->ops->poke(p->arg);
    }
    return rc;
}

static void pump(struct stage *s)
{
    struct rows_sender *to = &s->pipeline->sender;

    while (s->conn && !frame_conn_full(s->conn)) {
        if (s->out.data && s->out.taken < s->out.filled)
            rows_send(to, s->conn, s->id, &s->out);
        else if (!rows_send_kv(to, s->conn, s->id, &s->kv, &s->sent,
                               s->computed))
            break;
        made_progress(s);
    }
    s->pipeline->ops->poke(s->pipeline->arg);
}

void pipeline_stage_writable(struct stage *s)
{
    pump(s);
}

static bool has_prefix(const struct stage *s)
{
    for (uint32_t l = 0; l < s->kv.to_layer - s->kv.from_layer; l++)
        if (s->next_token[l] < s->cut.from_token)
            return false;
    return true;
}

/* Returns whether the stage's next chunk can be computed. */
static bool is_ready(const struct stage *s)
{
    return s->conn && !s->failed && s->computed < s->cut.n_tokens &&
           s->in.filled >= chunk_end(&s->cut, s->computed) && has_prefix(s) &&
           (!s->out.data || rows_ring_has_room(&s->out, s->computed));
}

void stage_tick(struct stage *s, int64_t now_us)
{
    int64_t limit_us = STAGE_PATIENCE * s->pipeline->config.timeout_us;

    if (!s->conn || s->in_turn || s->failed || is_ready(s) ||
        now_us - s->progress_us < limit_us)
        return;
    s->failed = true;
    frame_conn_fail(s->conn, "the leader of its stage is silent");
}

bool stage_form(struct stage *s, struct pipeline_turn *turn)
{
    uint32_t from = s->computed;

    if (!is_ready(s))
        return false;
    uint32_t end = chunk_end(&s->cut, from);
    turn->segment = (struct engine_segment){
        .request_id = s->id,
        .n_tokens = end - from,
        .position = from,
        .cached_tokens = s->cut.from_token,
        .want_token = is_last(s) && end == s->cut.n_tokens,
        .blocks = s->blocks,
    };
    turn->stage = (struct engine_stage){
        .from_layer = s->kv.from_layer,
        .to_layer = s->kv.to_layer,
        .in = rows_ring_at(&s->in, from),
        .out = s->out.data ? rows_ring_at(&s->out, from) : NULL,
    };
    s->in_turn = true;
    return true;
}

void stage_turned(struct stage *s, int rc, uint32_t first_token)
{
    struct rows_sender *to = &s->pipeline->sender;

    s->in_turn = false;
    if (!s->conn) {
        stage_free(s);
        return;
    }
    if (rc < 0) {
        s->failed = true;
        frame_conn_refuse(s->conn, PROTO_E_INTERNAL,
                          "the engine failed on a chunk");
        return;
    }
    made_progress(s);
    uint32_t end = chunk_end(&s->cut, s->computed);
    bool last = is_last(s) && end == s->cut.n_tokens;
    s->computed = s->in.taken = s->out.filled = end;
    struct msg_stage_done m = {end, last ? first_token : 0};
    msg_stage_done_pack(&to->buf, s->id, &m);
    rows_flush(to, s->conn);
    pump(s);
}
