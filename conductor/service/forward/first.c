/* The first token of an answer, and the end of a prefill: what they teach. */
#include "conductor/service/engine/engine.h"

void forward_prefill_over(struct service_request *request, int64_t us,
                          int64_t now_us)
{
    struct service *s = request->service;
    const struct prefill_estimate *plan = &request->attempt.plan;

    if (!request->attempt.prefill_open)
        return;
    request->attempt.prefill_open = false;
    if (us >= 0) {
        engine_learn_prefill(
            engine_of(s, request->attempt.prefill),
            (int64_t)request->prompt.n_tokens - plan->cached_tokens, us);
        if (s->predicts)
            metrics_ratio_error(&s->metrics.prefill_error_ratio,
                                plan->prefill_us, us);
    }
    (void)pool_prefill_done(s->pool, request->attempt.prefill,
                            request->attempt.id, us, now_us);
    cluster_prefilled(s->peers, request->attempt.id, us);
    forward_leave_line(request, now_us);
    service_freed(s);
}

/* Those in front of it whose first token cannot be seen are through, too. */
static void pass_unseen(struct service_request *request, int64_t now_us)
{
    struct engine *e = request->forward->engine;
    struct service_request *other, *next;

    if (!request->forward->in_line)
        return;
    for (other = TAILQ_FIRST(&e->line); other != request; other = next) {
        next = TAILQ_NEXT(other, unsent);
        if (!other->forward->what.stream && !other->forward->pair)
            forward_prefill_over(other, -1, now_us);
    }
}

void forward_first_token(struct service_request *request, int64_t now_us)
{
    struct service *s = request->service;
    struct forward *f = request->forward;
    int64_t ttft_us = now_us - request->dispatch.arrived_us;

    request->output.first_token_us = now_us;
    if (f->what.stream) {
        pass_unseen(request, now_us);
        request_first_token(request, ttft_us, now_us);
        metrics_first_token(&s->metrics, ttft_us, request->dispatch.slo_ttft_us,
                            request->dispatch.retries > 0);
        if (s->predicts && !request->dispatch.retries)
            metrics_ttft_predicted(&s->metrics, &request->attempt.forecast,
                                   ttft_us);
    }
    forward_prefill_over(
        request, f->what.stream && f->turn_us ? now_us - f->turn_us : -1,
        now_us);
    (void)pool_decode_started(s->pool, request->attempt.decode,
                              request->attempt.id);
    cluster_decoding(s->peers, request->attempt.id);
    if (request->state == REQUEST_SCHEDULED)
        request_set_state(request, REQUEST_PREFILLING);
    if (request_set_state(request, REQUEST_TRANSFERRING))
        request_set_state(request, REQUEST_DECODING);
}

void forward_learn_whole(struct service_request *request, int64_t tokens)
{
    const struct forward *f = request->forward;
    int64_t us = request->output.first_token_us - f->turn_us;

    /* More than it may have: several answers, which are computed at once. */
    if (f->what.stream || f->pair || !f->alone || !f->turn_us ||
        f->engine->count.sent != f->alone ||
        tokens > request->prompt.max_tokens)
        return;
    engine_learn_whole(f->engine,
                       (int64_t)request->prompt.n_tokens -
                           request->attempt.plan.cached_tokens,
                       tokens, us);
}
