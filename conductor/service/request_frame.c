/* What workers report about a request. */
#include "conductor/service/state.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a worker may report at most: far above any real value, far below what
 * sums and products of them could overflow. */
#define REPORTED_MAX_US ((uint64_t)COST_MODEL_MAX_US)
#define REPORTED_MAX_BYTES (UINT64_C(1) << 50)

/* Hands a token over. The callback may cancel the call: false, if so. */
static bool call_token(struct service_call *call, uint32_t token)
{
    struct service *s = call->service;
    uint64_t wire_id = call->wire_id;
    int64_t now_us = clock_now_us();
    if (call->n_output == 0) {
        call->first_token_us = now_us;
        explain_first_token(s->explain, call, now_us - call->arrived_us);
        histogram_observe(&s->metrics.ttft_s,
                          (double)(now_us - call->arrived_us) / 1e6);
        if (!call->retries)
            metrics_ratio_error(&s->metrics.ttft_error_ratio,
                                call->predicted_ttft_us,
                                now_us - call->arrived_us);
    } else {
        histogram_observe(&s->metrics.tbt_s,
                          (double)(now_us - call->last_token_us) / 1e6);
    }
    call->last_token_us = now_us;
    call->n_output++;
    s->metrics.output_tokens++;
    call->ops->token(call->arg, token);
    return call_find(s, wire_id) == call;
}

static void call_done(struct service_call *call)
{
    struct service *s = call->service;
    if (call->n_output > 1)
        metrics_ratio_error(&s->metrics.tbt_error_ratio, call->predicted_tbt_us,
                            (call->last_token_us - call->first_token_us) /
                                (call->n_output - 1));
    call_close_pool(call);
    call->wire_id = 0;
    if (!call_set_state(call, CALL_ENDED))
        return;
    s->metrics.requests[METRICS_COMPLETED]++;
    explain_ended(s->explain, call, "completed", NULL);
    call->result.output_tokens = call->n_output;
    call->result.retries = call->retries;
    call->ops->done(call->arg, &call->result);
    call_free(call);
    event_active(s->inbox_event, EV_TIMEOUT, 0);
}

/* Hands over a token of the decode worker. False: the call is gone. */
static bool call_decoded(struct service_call *call, uint32_t token)
{
    struct service *s = call->service;
    if (call->state == CALL_TRANSFERRING) {
        (void)pool_decode_started(s->pool, call->decode, call->wire_id);
        if (!call_set_state(call, CALL_DECODING))
            return false;
    }
    (void)pool_decode_progress(s->pool, call->decode, call->wire_id,
                               call->n_output + 1);
    return call_token(call, token);
}

/* Keeps a token that came before token 0. */
static int call_keep_early(struct service_call *call, uint32_t token)
{
    if (!call->early)
        call->early = calloc(call->max_tokens, sizeof(*call->early));
    if (!call->early)
        return -ENOMEM;
    call->early[call->n_early++] = token;
    return 0;
}

/* Hands over what came before token 0, now that this is out. */
static void call_release_early(struct service_call *call)
{
    for (uint32_t i = 0; i < call->n_early; i++) {
        if (!call_decoded(call, call->early[i]))
            return;
    }
    if (call->early_done)
        call_done(call);
}

static int on_decode_ready(struct service_call *call, uint32_t id,
                           const struct frame_header *h, const uint8_t *p)
{
    (void)p;
    if (h->length)
        return -EBADMSG;
    if (id != call->decode || call->state != CALL_SCHEDULED)
        return -EPROTO;
    call_clear(call);
    return 0;
}

static int on_prefill_started(struct service_call *call, uint32_t id,
                              const struct frame_header *h, const uint8_t *p)
{
    struct service *s = call->service;
    struct msg_prefill_started m;
    if (msg_prefill_started_decode(p, h->length, &m))
        return -EBADMSG;
    if (id != call->prefill || call->state != CALL_SCHEDULED ||
        m.queue_us > REPORTED_MAX_US)
        return -EPROTO;
    int64_t now_us = clock_now_us();
    (void)pool_prefill_started(s->pool, id, call->wire_id, now_us);
    /* Both without what is loaded. */
    int64_t error_us = (int64_t)m.queue_us - call->plan.queue_us;
    histogram_observe(&s->metrics.queue_error_s,
                      (double)(error_us < 0 ? -error_us : error_us) / 1e6);
    return call_set_state(call, CALL_PREFILLING) ? 0 : -EPROTO;
}

/* What was observed, scaled to what was planned: the correction compares like
 * with like even if more or fewer blocks were reused than expected. */
static int64_t comparable_us(const struct service_call *call,
                             const struct msg_prefill_done *m)
{
    /* With layers still coming, time is not the engine's alone. */
    if (m->load_mode == PROTO_LOAD_LAYERWISE)
        return -1;
    if (m->computed_tokens == call->n_tokens - call->plan.cached_tokens)
        return (int64_t)m->prefill_us;
    int64_t actual_us = cost_model_prefill_us(
        &call->service->cost, m->computed_tokens,
        (int64_t)m->local_tokens + m->fetched_tokens + m->disk_tokens, NULL);
    double us = (double)m->prefill_us * (double)call->plan.predicted_us /
                (double)actual_us;
    return us < (double)COST_MODEL_MAX_US ? (int64_t)us : COST_MODEL_MAX_US;
}

/* Follows the overhead by an eighth of the difference, which counts for at
 * most 1 ms: one stall of the machine says nothing about the next request. */
static void learn_overhead(struct service_call *call,
                           const struct msg_prefill_done *m)
{
    struct service *s = call->service;
    if (m->load_us || m->fetch_us)
        return; /* what was waited for a load is no overhead */
    int64_t seen_us = clock_now_us() - call->planned_us - (int64_t)m->queue_us -
                      (int64_t)m->prefill_us;
    int64_t off_us = seen_us - s->overhead_us;
    if (off_us > 1000)
        off_us = 1000;
    if (off_us < -1000)
        off_us = -1000;
    s->overhead_us += off_us / 8;
    if (s->overhead_us < 0)
        s->overhead_us = 0;
}

/* The only instance that a call fetches from; none if there are several, whose
 * shares of what was observed nobody knows. */
static uint32_t only_peer(const struct service_call *call)
{
    uint32_t peer = POOL_NO_INSTANCE;
    for (uint32_t i = 0; i < call->n_sources; i++) {
        uint32_t from = call->sources[i].instance;
        if (from == call->prefill || from == peer)
            continue;
        if (peer != POOL_NO_INSTANCE)
            return POOL_NO_INSTANCE;
        peer = from;
    }
    return peer;
}

/* Rates of disks come with STATUS, smoothed by who reads. */
static void learn_loads(struct service_call *call,
                        const struct msg_prefill_done *m)
{
    struct service *s = call->service;
    uint64_t us = m->load_us ? m->load_us : m->fetch_us;
    if (m->fetch_bytes || m->disk_bytes)
        metrics_ratio_error(&s->metrics.transfer_error_ratio,
                            call->plan.transfer_us, (int64_t)us);
    /* Not by fetch_us, which begins when the prefill arrives and has the wait
     * for room and for other loads in it. What a disk took as well cannot be
     * told apart. */
    if (m->fetch_bytes && !m->disk_bytes)
        (void)pool_link_observed(s->pool, only_peer(call),
                                 (int64_t)m->fetch_bytes, (int64_t)m->load_us);
}

static void count_prefill(struct service_call *call,
                          const struct msg_prefill_done *m)
{
    struct service *s = call->service;
    struct metrics *x = &s->metrics;
    int64_t comparable = comparable_us(call, m);
    x->prompt_tokens += call->n_tokens;
    x->local_tokens += m->local_tokens;
    x->fetched_tokens += m->fetched_tokens;
    x->disk_tokens += m->disk_tokens;
    x->disk_bytes += m->disk_bytes;
    x->load_modes[m->load_mode - PROTO_LOAD_COMPUTE]++;
    x->computed_tokens += m->computed_tokens;
    x->fetched_blocks += m->fetched_tokens / (uint32_t)s->config.block_tokens;
    x->fetched_bytes += m->fetch_bytes;
    histogram_observe(&x->queue_s, (double)m->queue_us / 1e6);
    histogram_observe(&x->prefill_s, (double)m->prefill_us / 1e6);
    metrics_ratio_error(&x->prefill_error_ratio, call->plan.prefill_us,
                        comparable);
    learn_loads(call, m);
    (void)pool_prefill_done(s->pool, call->prefill, call->wire_id, comparable);
    call->prefill_open = false;
}

static bool prefill_done_ok(const struct service_call *call,
                            const struct msg_prefill_done *m)
{
    uint64_t sum = (uint64_t)m->local_tokens + m->fetched_tokens +
                   m->disk_tokens + m->computed_tokens;
    return sum == call->n_tokens && m->computed_tokens > 0 &&
           m->first_token < call->service->model.vocab &&
           m->queue_us <= REPORTED_MAX_US && m->fetch_us <= REPORTED_MAX_US &&
           m->prefill_us <= REPORTED_MAX_US && m->load_us <= REPORTED_MAX_US &&
           m->fetch_bytes <= REPORTED_MAX_BYTES &&
           m->disk_bytes <= REPORTED_MAX_BYTES;
}

static int on_prefill_done(struct service_call *call, uint32_t id,
                           const struct frame_header *h, const uint8_t *p)
{
    struct msg_prefill_done m;
    if (msg_prefill_done_decode(p, h->length, &m))
        return -EBADMSG;
    if (id != call->prefill || call->state != CALL_PREFILLING ||
        !prefill_done_ok(call, &m))
        return -EPROTO;
    count_prefill(call, &m);
    learn_overhead(call, &m);
    explain_prefilled(call->service->explain, call, &m);
    call->result.local_tokens = m.local_tokens;
    call->result.fetched_tokens = m.fetched_tokens;
    call->result.disk_tokens = m.disk_tokens;
    call->result.computed_tokens = m.computed_tokens;
    call->result.queue_us = (int64_t)m.queue_us;
    call->result.prefill_us = (int64_t)m.prefill_us;
    if (!call_set_state(call, CALL_TRANSFERRING))
        return -EPROTO;
    event_active(call->service->inbox_event, EV_TIMEOUT, 0);
    if (call_token(call, m.first_token))
        call_release_early(call);
    return 0;
}

static int on_done(struct service_call *call, uint32_t id,
                   const struct frame_header *h, const uint8_t *p)
{
    struct msg_done m;
    if (msg_done_decode(p, h->length, &m))
        return -EBADMSG;
    uint32_t last = call->decode ? call->decode : call->prefill;
    uint32_t had = call->n_output ? call->n_output : 1 + call->n_early;
    if (id != last || m.output_tokens != had)
        return -EPROTO;
    if (call->n_output)
        call_done(call);
    else if (call->decode == call->prefill || !call->decode)
        return -EPROTO; /* one connection: its PREFILL_DONE comes first */
    else
        call->early_done = true;
    return 0;
}

/* Who is to blame: for a failed peer the other instance, else the reporter. */
static int on_failed(struct service_call *call, uint32_t id,
                     const struct frame_header *h, const uint8_t *p)
{
    struct msg_error m;
    char why[MSG_TEXT_MAX + 128];
    if (msg_error_decode(p, h->length, &m))
        return -EBADMSG;
    uint32_t blamed = id;
    if (m.code == PROTO_E_PEER)
        blamed = id == call->prefill ? call->decode : call->prefill;
    const struct worker *w = worker_of(call->service, id);
    const struct worker *b = worker_of(call->service, blamed);
    if (blamed == id)
        snprintf(why, sizeof(why), "worker %s failed (%s: %.300s)",
                 w ? w->hello.name : "?", proto_code_name(m.code), m.text);
    else
        snprintf(why, sizeof(why),
                 "worker %s says that worker %s failed: %.300s",
                 w ? w->hello.name : "?", b ? b->hello.name : "?", m.text);
    call_instance_lost(call, blamed, why);
    return 0;
}

static int on_tokens(struct service *s, uint32_t id,
                     const struct frame_header *h, const uint8_t *p)
{
    struct msg_tokens m;
    if (msg_tokens_decode(p, h->length, &m))
        return -EBADMSG;
    for (uint32_t i = 0; i < m.n; i++) {
        struct msg_token t = msg_tokens_at(&m, i);
        struct service_call *call = call_find(s, t.request_id);
        if (!call)
            continue; /* cancelled while the frame was on its way */
        uint32_t expected = call->n_output ? call->n_output : 1 + call->n_early;
        if (id != call->decode || t.index != expected ||
            t.index >= call->max_tokens || t.token >= s->model.vocab ||
            call->early_done)
            return -EPROTO;
        if (call->n_output)
            (void)call_decoded(call, t.token);
        else if (call_keep_early(call, t.token))
            return -ENOMEM;
    }
    return 0;
}

int call_frame(struct service *service, uint32_t id,
               const struct frame_header *h, const uint8_t *payload)
{
    if (h->type == FRAME_TOKENS)
        return on_tokens(service, id, h, payload);
    struct service_call *call = call_find(service, h->request_id);
    if (!call)
        return 0; /* an attempt that was cancelled or given up */
    if (id != call->prefill && id != call->decode)
        return -EPROTO;
    switch (h->type) {
    case FRAME_DECODE_READY:
        return on_decode_ready(call, id, h, payload);
    case FRAME_PREFILL_STARTED:
        return on_prefill_started(call, id, h, payload);
    case FRAME_PREFILL_DONE:
        return on_prefill_done(call, id, h, payload);
    case FRAME_DONE:
        return on_done(call, id, h, payload);
    case FRAME_FAILED:
        return on_failed(call, id, h, payload);
    default:
        return -EPROTO;
    }
}
