/* Frames from workers about a request, and its tokens, handed to the front. A
 * first token may wait for its prompt's KV. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/loop/loop.h"
#include "conductor/core/observation/observation.h"
#include "conductor/service/engine/costs.h"
#include "conductor/service/internal.h"

/* Hands a token to the front. False: the front has cancelled the request; it is
 * freed. */
static bool request_token(struct service_request *request, uint32_t token)
{
    struct service *s = request->service;
    uint64_t attempt_id = request->attempt.id;
    int64_t now_us = loop_now_us(s->loop);

    if (request->output.n_tokens == 0) {
        request->output.first_token_us = now_us;
        observe_first_token(request, now_us - request->dispatch.arrived_us,
                            now_us);
    } else {
        histogram_observe(&s->metrics.tbt_s,
                          (double)(now_us - request->output.last_token_us) /
                              1e6);
    }
    request->output.last_token_us = now_us;
    request->output.n_tokens++;
    s->metrics.output_tokens++;
    request->ops->token(request->arg, token);
    return service_request_find(s, attempt_id) == request;
}

/* Hands over the token that is held back, if any. False: the request is gone.
 */
static bool request_release_first(struct service_request *request)
{
    if (!request->output.holds)
        return true;
    request_drop_first(request);
    return request_token(request, request->output.held_token);
}

/* The TTFT limit is near: release the held token. */
static void on_time(void *arg)
{
    struct service_request *request = arg;

    (void)request_release_first(request);
}

/* Holds the first token back until request_release_first(), or until the TTFT
 * limit is near: see hold_first of the policy plan. False: it need not wait, or
 * out of memory. */
static bool request_hold_first(struct service_request *request, uint32_t token)
{
    struct request_output *o = &request->output;
    int64_t left_us = dispatch_holds_until_us(&request->dispatch) -
                      loop_now_us(request->service->loop);

    if (!request->attempt.holds_first || o->n_early > 0 || o->early_done ||
        left_us <= 0)
        return false;
    loop_timer_init(request->service->loop, &o->held, on_time, request);
    if (loop_timer_start(&o->held, left_us))
        return false;
    o->holds = true;
    o->held_token = token;
    return true;
}

static void request_done(struct service_request *request)
{
    request_answered(request, request->output.n_tokens);
    request_end(request, METRICS_COMPLETED, NULL);
}

/* Hands over a token of the decode worker. False: the request is gone. */
static bool request_decoded(struct service_request *request, uint32_t token)
{
    struct service *s = request->service;

    if (request->state == REQUEST_TRANSFERRING) {
        request_pushed(request);
        pool_decode_started(s->pool, request->attempt.decode,
                            request->attempt.id);
        cluster_decoding(s->peers, request->attempt.id);
        service_link_freed(s);
        if (!service_request_set_state(request, REQUEST_DECODING))
            return false;
    }
    pool_decode_progress(s->pool, request->attempt.decode, request->attempt.id,
                         request->output.n_tokens + 1);
    cluster_produced(s->peers, request->attempt.id,
                     request->output.n_tokens + 1);
    return request_token(request, token);
}

/* Keeps a token that came before token 0. */
static int request_keep_early(struct service_request *request, uint32_t token)
{
    if (!request->output.early)
        request->output.early =
            calloc(request->prompt.max_tokens, sizeof(*request->output.early));
    if (!request->output.early)
        return -ENOMEM;
    request->output.early[request->output.n_early++] = token;
    return 0;
}

/* Hands over the tokens that came before token 0. */
static void request_release_early(struct service_request *request)
{
    for (uint32_t i = 0; i < request->output.n_early; i++)
        if (!request_decoded(request, request->output.early[i]))
            return;
    if (request->output.early_done)
        request_done(request);
}

static int on_decode_ready(struct service_request *request, uint32_t id,
                           const struct frame_header *h, const uint8_t *)
{
    if (h->length)
        return -EBADMSG;
    if (id != request->attempt.decode || request->state != REQUEST_SCHEDULED)
        return -EPROTO;
    request_clear(request);
    return 0;
}

static int on_prefill_started(struct service_request *request, uint32_t id,
                              const struct frame_header *h, const uint8_t *p)
{
    struct service *s = request->service;
    struct msg_prefill_started m;

    if (msg_prefill_started_unpack(p, h->length, &m))
        return -EBADMSG;
    if (id != request->attempt.prefill || request->state != REQUEST_SCHEDULED ||
        request->attempt.is_unsent || m.queue_us > REPORTED_MAX_US)
        return -EPROTO;
    int64_t now_us = loop_now_us(s->loop);
    request->spans.prefill_us = now_us;
    pool_prefill_started(s->pool, id, request->attempt.id, now_us);
    pool_decode_comes(s->pool, request->attempt.decode, request->attempt.id,
                      now_us);
    cluster_started(s->peers, request->attempt.id);
    service_freed(s); /* its place in the queue */
    /* Both without the time to load KV. */
    int64_t error_us = (int64_t)m.queue_us - request->attempt.plan.queue_us;
    if (s->costs.predicts)
        histogram_observe(&s->metrics.queue_error_s,
                          (double)(error_us < 0 ? -error_us : error_us) / 1e6);
    return service_request_set_state(request, REQUEST_PREFILLING) ? 0 : -EPROTO;
}

static int64_t comparable_us(const struct service_request *request,
                             const struct msg_prefill_done *m)
{
    int64_t cached_tokens = (int64_t)m->local_tokens + m->fetched_tokens +
                            m->disk_tokens + m->shared_tokens;
    bool as_planned = cached_tokens == request->attempt.plan.cached_tokens;

    return observation_prefill_us(&(struct observation_prefill){
        .predicted_us = request->attempt.plan.predicted_us,
        .model_us = as_planned ? request->attempt.plan.predicted_us
                               : cost_model_prefill_us(
                                     costs_of(request->service,
                                              request->attempt.prefill),
                                     m->computed_tokens, cached_tokens, NULL),
        .engine_us = (int64_t)m->prefill_us,
        .by_layer = m->load_mode == PROTO_LOAD_LAYERWISE,
    });
}

/* Learns the overhead of a first token, decided at planned_us and handed over
 * now. */
static void learn_overhead(struct service *s, int64_t planned_us,
                           const struct msg_prefill_done *m)
{
    int64_t passed_us = loop_now_us(s->loop) - planned_us;
    int64_t told_us = (int64_t)m->queue_us + (int64_t)m->prefill_us;

    /* Waiting for a load is no overhead, and a worker may report more time than
     * has passed. */
    if (!m->load_us && !m->fetch_us && told_us <= passed_us)
        s->dispatch.overhead_us =
            observation_overhead(&s->requests.overheads,
                                 s->dispatch.overhead_us, passed_us - told_us);
}

static void count_prefill(struct service_request *request,
                          const struct msg_prefill_done *m)
{
    struct service *s = request->service;
    struct metrics *x = &s->metrics;
    bool lent = request->attempt.lent.n > 0; /* others computed part of it */
    int64_t comparable = lent ? -1 : comparable_us(request, m);

    x->disk_bytes += m->disk_bytes;
    x->shared_bytes += m->shared_bytes;
    x->load_modes[m->load_mode - PROTO_LOAD_COMPUTE]++;
    x->fetched_blocks += m->fetched_tokens / (uint32_t)s->config.block_tokens;
    x->fetched_bytes += m->fetch_bytes;
    histogram_observe(&x->queue_s, (double)m->queue_us / 1e6);
    histogram_observe(&x->prefill_s, (double)m->prefill_us / 1e6);
    if (s->costs.predicts)
        metrics_ratio_error(&x->prefill_error_ratio,
                            request->attempt.plan.prefill_us,
                            lent ? (int64_t)m->prefill_us : comparable);
    request_loaded(request, m);
    pool_prefill_done(s->pool, request->attempt.prefill, request->attempt.id,
                      comparable, loop_now_us(s->loop));
    schedule_give_back(s->pool, &request->attempt.lent, request->attempt.id,
                       loop_now_us(s->loop));
    cluster_prefilled(s->peers, request->attempt.id, comparable);
    request->attempt.prefill_open = false;
}

static void take_result(struct service_request *request,
                        const struct msg_prefill_done *m)
{
    request->result = (struct service_result){
        .prompt_tokens = request->prompt.n_tokens,
        .prompt_by = SERVICE_BY_TOKENS,
        .cached_by = SERVICE_BY_TOLD,
        .local_tokens = m->local_tokens,
        .fetched_tokens = m->fetched_tokens,
        .disk_tokens = m->disk_tokens,
        .shared_tokens = m->shared_tokens,
        .computed_tokens = m->computed_tokens,
        .queue_us = (int64_t)m->queue_us,
        .prefill_us = (int64_t)m->prefill_us,
    };
    observe_prompt(request);
}

static int on_prefill_done(struct service_request *request, uint32_t id,
                           const struct frame_header *h, const uint8_t *p)
{
    struct msg_prefill_done m;

    if (msg_prefill_done_unpack(p, h->length, &m))
        return -EBADMSG;
    if (id != request->attempt.prefill ||
        request->state != REQUEST_PREFILLING ||
        !prefill_done_ok(request->service, request->prompt.n_tokens, &m))
        return -EPROTO;
    struct service *s = request->service;
    int64_t planned_us = request->attempt.planned_us;
    count_prefill(request, &m);
    take_result(request, &m);
    observe_prefilled(request, &m);
    if (!service_request_set_state(request, REQUEST_TRANSFERRING))
        return -EPROTO;
    service_freed(s);
    request->spans.prefilled_us = loop_now_us(request->service->loop);
    request->spans.held = request_hold_first(request, m.first_token);
    bool lives = request->spans.held || request_token(request, m.first_token);
    learn_overhead(s, planned_us, &m); /* writing the answer is part of it */
    if (lives && !request->output.holds)
        request_release_early(request);
    return 0;
}

static int on_done(struct service_request *request, uint32_t id,
                   const struct frame_header *h, const uint8_t *p)
{
    struct msg_done m;

    if (msg_done_unpack(p, h->length, &m))
        return -EBADMSG;
    uint32_t last = request->attempt.decode ? request->attempt.decode
                                            : request->attempt.prefill;
    uint32_t had = request->output.n_tokens ? request->output.n_tokens
                                            : 1 + request->output.n_early;
    if (id != last || request->attempt.is_unsent || m.output_tokens != had)
        return -EPROTO;
    if (!request_release_first(request))
        return 0;
    if (request->output.n_tokens)
        request_done(request);
    else if (request->attempt.decode == request->attempt.prefill ||
             !request->attempt.decode)
        return -EPROTO; /* one connection: its PREFILL_DONE comes first */
    else
        request->output.early_done = true;
    return 0;
}

/* PROTO_E_PEER blames the other instance, any other code the reporter. */
static int on_failed(struct service_request *request, uint32_t id,
                     const struct frame_header *h, const uint8_t *p)
{
    struct msg_error m;
    char why[MSG_TEXT_MAX + 128];

    if (msg_error_unpack(p, h->length, &m))
        return -EBADMSG;
    uint32_t blamed = id;
    if (m.code == PROTO_E_PEER)
        blamed = id == request->attempt.prefill ? request->attempt.decode
                                                : request->attempt.prefill;
    const struct worker *w = worker_of(request->service, id);
    const struct worker *b = worker_of(request->service, blamed);
    if (blamed == id)
        snprintf(why, sizeof(why), "worker %s failed (%s: %.300s)",
                 w ? w->hello.name : "?", proto_code_name(m.code), m.text);
    else
        snprintf(why, sizeof(why),
                 "worker %s reports that worker %s failed: %.300s",
                 w ? w->hello.name : "?", b ? b->hello.name : "?", m.text);
    request_instance_lost(request, blamed, why);
    return 0;
}

/* Whether the id was given to an attempt, live or ended. */
static bool was_given(const struct service *s, uint64_t attempt_id)
{
    uint64_t n = attempt_id / s->requests.size;

    return n >= s->requests.first_attempt && n < s->requests.next_attempt;
}

static int on_tokens(struct service *s, uint32_t id,
                     const struct frame_header *h, const uint8_t *p)
{
    struct msg_tokens m;

    if (msg_tokens_unpack(p, h->length, &m))
        return -EBADMSG;
    for (uint32_t i = 0; i < m.n; i++) {
        struct msg_token t = msg_tokens_at(&m, i);
        struct service_request *request = service_request_find(s, t.request_id);

        if (!was_given(s, t.request_id))
            return -EPROTO;
        if (!request)
            continue; /* cancelled while the frame was on its way */
        uint32_t expected = request->output.n_tokens
                                ? request->output.n_tokens
                                : 1 + request->output.n_early;
        if (id != request->attempt.decode || request->attempt.is_unsent ||
            t.index != expected || t.index >= request->prompt.max_tokens ||
            t.token >= s->model.vocab || request->output.early_done)
            return -EPROTO;
        if (!request_release_first(request))
            continue;
        if (request->output.n_tokens)
            request_decoded(request, t.token);
        else if (request_keep_early(request, t.token))
            return -ENOMEM;
    }
    return 0;
}

typedef int frame_taker(struct service_request *request, uint32_t id,
                        const struct frame_header *h, const uint8_t *payload);

/* Handlers of frames about one request, by type. */
static frame_taker *const takers[] = {
    [FRAME_DECODE_READY] = on_decode_ready,
    [FRAME_PREFILL_STARTED] = on_prefill_started,
    [FRAME_PREFILL_DONE] = on_prefill_done,
    [FRAME_DONE] = on_done,
    [FRAME_FAILED] = on_failed,
};

int request_frame(struct service *service, uint32_t id,
                  const struct frame_header *h, const uint8_t *payload)
{
    struct service_request *request =
        service_request_find(service, h->request_id);
    int rc;

    if (h->type == FRAME_TOKENS)
        return on_tokens(service, id, h, payload);
    if (request_warm_frame(service, id, h, payload, &rc))
        return rc;
    if (copies_frame(service, id, h, payload, &rc))
        return rc;
    if (h->type == FRAME_COPIED) /* of a copy that was given up */
        return was_given(service, h->request_id) ? 0 : -EPROTO;
    if (h->type >= sizeof(takers) / sizeof(*takers) || !takers[h->type] ||
        !was_given(service, h->request_id))
        return -EPROTO;
    if (!request)
        return 0; /* an attempt that was cancelled or given up */
    if (id != request->attempt.prefill && id != request->attempt.decode)
        return -EPROTO;
    request->attempt.heard_us = loop_now_us(service->loop);
    return takers[h->type](request, id, h, payload);
}
