/*
 * Refused prompts that workers compute in the background: carries out the
 * orders of core/warm, as sim/warm.c does in the simulator.
 *
 * A piece is a PREFILL with max_tokens 1 and no decode worker, under an attempt
 * id of its own. It is not a request: it has no slot in the table, and no
 * request metric counts it. A worker has one at most (struct worker's `warm`).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/core/observation/observation.h"
#include "conductor/service/engine/costs.h"
#include "conductor/service/models.h"

/* A refused prompt, taken over from its request. */
struct refused {
    struct warm_job job;
    char request_id[32];
    uint32_t *tokens;
    uint64_t *keys;
    uint64_t key_seed;
};

static void refused_free(struct refused *r)
{
    free(r->tokens);
    free(r->keys);
    free(r);
}

void request_warm(struct service_request *request,
                  const struct dispatch_order *order)
{
    struct service *s = request->service;
    struct refused *r;

    if (!request->prompt.tokens ||
        !warm_wants(&s->native.warm, &request->dispatch, order))
        return;
    r = calloc(1, sizeof(*r));
    if (!r)
        return; /* it is refused anyway */
    r->job = (struct warm_job){.owner = r,
                               .keys = request->prompt.keys,
                               .n_keys = request->prompt.n_keys,
                               .n_tokens = request->prompt.n_tokens,
                               .tenant = request->dispatch.tenant,
                               .place = request->dispatch.place};
    if (!warm_add(&s->native.warm, &r->job, loop_now_us(s->loop))) {
        free(r);
        return;
    }
    memcpy(r->request_id, request->request_id, sizeof(r->request_id));
    r->tokens = request->prompt.tokens;
    r->keys = request->prompt.keys;
    r->key_seed = request->prompt.key_seed;
    request->prompt.tokens = NULL;
    request->prompt.keys = NULL;
    request->dispatch.ask.keys = NULL;
    request->dispatch.ask.n_keys = 0;
    observe_warmed(request);
    log_debug("%s: %lld tokens are computed in the background", r->request_id,
              (long long)r->job.n_tokens);
}

/* Ends a worker's piece, which has left the pool. */
static void piece_ended(struct service *s, struct worker *w, bool failed)
{
    warm_end(&s->native.warm, w->warm.job, failed);
    w->warm = (struct worker_warm){.job = NULL};
    service_freed(s);
}

static void piece_given_up(struct service *s, struct worker *w)
{
    pool_prefill_cancel(s->pool, w->id, w->warm.attempt_id,
                        loop_now_us(s->loop));
    piece_ended(s, w, true);
}

static int on_started(struct service *s, struct worker *w, const uint8_t *p,
                      size_t len)
{
    struct msg_prefill_started m;

    if (msg_prefill_started_unpack(p, len, &m))
        return -EBADMSG;
    if (w->warm.started)
        return -EPROTO;
    w->warm.started = true;
    pool_prefill_started(s->pool, w->id, w->warm.attempt_id,
                         loop_now_us(s->loop));
    return 0;
}

static int on_done(struct service *s, struct worker *w, const uint8_t *p,
                   size_t len)
{
    const struct warm_piece *piece = &w->warm.piece;
    struct msg_prefill_done m;
    int64_t cached, model_us;

    if (msg_prefill_done_unpack(p, len, &m))
        return -EBADMSG;
    if (!w->warm.started || !prefill_done_ok(s, (uint32_t)piece->tokens, &m))
        return -EPROTO;
    cached = piece->tokens - m.computed_tokens;
    model_us = cost_model_prefill_us(costs_of(s, w->id), m.computed_tokens,
                                     cached, NULL);
    pool_prefill_done(s->pool, w->id, w->warm.attempt_id,
                      observation_prefill_us(&(struct observation_prefill){
                          .predicted_us = piece->predicted_us,
                          .model_us = model_us,
                          .engine_us = (int64_t)m.prefill_us}),
                      loop_now_us(s->loop));
    piece_ended(s, w, false);
    return 0;
}

static int on_failed(struct service *s, struct worker *w, const uint8_t *p,
                     size_t len)
{
    const struct refused *r = w->warm.job->owner;
    struct msg_error m;

    if (msg_error_unpack(p, len, &m))
        return -EBADMSG;
    log_info("%s: worker %s failed to compute a refused prompt (%s: %.300s)",
             r->request_id, w->hello.name, proto_code_name(m.code), m.text);
    piece_given_up(s, w);
    return 0;
}

bool request_warm_frame(struct service *s, uint32_t id,
                        const struct frame_header *h, const uint8_t *payload,
                        int *rc)
{
    struct worker *w = worker_of(s, id);

    if (!w || w->warm.attempt_id == 0 || h->request_id != w->warm.attempt_id)
        return false;
    w->warm.heard_us = loop_now_us(s->loop);
    if (h->type == FRAME_PREFILL_STARTED)
        *rc = on_started(s, w, payload, h->length);
    else if (h->type == FRAME_PREFILL_DONE)
        *rc = on_done(s, w, payload, h->length);
    else if (h->type == FRAME_FAILED)
        *rc = on_failed(s, w, payload, h->length);
    else
        *rc = -EPROTO;
    return true;
}

static void send_piece(struct service *s, struct worker *w,
                       const struct refused *r)
{
    const struct msg_prefill m = {
        .key_seed = r->key_seed,
        .max_tokens = 1,
        .cost_us = (uint64_t)w->warm.piece.predicted_us,
        .load_mode = PROTO_LOAD_COMPUTE,
        .n_tokens = (uint32_t)w->warm.piece.tokens,
        .tokens = (const uint8_t *)r->tokens,
    };

    wire_buf_reset(&s->native.out);
    msg_prefill_pack(&s->native.out, w->warm.attempt_id, &m);
    worker_link_send(w->link, &s->native.out);
}

static void begin(struct service *s, struct warm_job *job,
                  const struct warm_piece *piece)
{
    struct worker *w = worker_of(s, piece->instance);
    int64_t now_us = loop_now_us(s->loop);
    uint64_t id = s->requests.next_attempt * s->requests.size;

    if (!w || warm_begin(&s->native.warm, job, piece, id, now_us)) {
        warm_end(&s->native.warm, job, true);
        return;
    }
    s->requests.next_attempt++;
    w->warm = (struct worker_warm){
        .attempt_id = id, .job = job, .piece = *piece, .heard_us = now_us};
    tenants_sent(s->models->tenants, job->tenant,
                 (uint64_t)(piece->tokens - piece->cached_tokens));
    send_piece(s, w, job->owner);
}

void request_warm_next(struct service *s)
{
    struct warm_piece piece;
    struct warm_job *job;

    while ((job = warm_next(&s->native.warm, loop_now_us(s->loop), &piece)))
        if (piece.tokens > 0)
            begin(s, job, &piece);
        else
            refused_free(job->owner);
    s->metrics.warm = s->native.warm.counts;
}

void request_warm_left(struct service *s, struct worker *w)
{
    if (w->warm.attempt_id)
        piece_ended(s, w, true);
}

void request_warm_tick(struct service *s)
{
    int64_t limit_us = s->config.request_timeout_ms * 1000;

    for (uint32_t i = 0; s->native.warm.n_jobs > 0 && i < pool_slots(s->pool);
         i++) {
        struct worker *w = &s->native.workers[i];

        if (!w->link || !w->warm.attempt_id ||
            loop_now_us(s->loop) - w->warm.heard_us < limit_us)
            continue;
        request_send_cancel(s, w->id, w->warm.attempt_id);
        piece_given_up(s, w);
    }
    request_warm_next(s);
}

void request_warm_fini(struct service *s)
{
    struct warm_job *job;

    while ((job = TAILQ_FIRST(&s->native.warm.jobs))) {
        warm_forget(&s->native.warm, job);
        refused_free(job->owner);
    }
}
