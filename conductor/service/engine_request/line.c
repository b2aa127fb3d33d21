/*
 * The line of an engine: its requests without a first token, as sent.
 *
 * Engines compute prompts roughly in the order of arrival: the first request of
 * the line counts as being computed, and its first byte ends that time, which
 * teaches what its step costs.
 */
#include <stdlib.h>

#include "base/loop/loop.h"
#include "conductor/core/pool/record.h"
#include "conductor/service/engine/engine.h"

/* Begins the first request of the line: the engine was free for it since
 * from_us, or since it joined the line, if that was later. */
static void next_turn(struct engine *e, int64_t from_us, int64_t now_us)
{
    struct service_request *first = TAILQ_FIRST(&e->line);
    struct forward *f;

    if (!first || first->attempt.turn_us)
        return;
    f = first->forward;
    first->attempt.turn_us = from_us > f->line_us ? from_us : f->line_us;
    pool_prefill_started(e->service->pool, e->id, first->attempt.id, now_us);
    cluster_started(e->service->peers, first->attempt.id);
    if (first->state == REQUEST_SCHEDULED)
        service_request_set_state(first, REQUEST_PREFILLING);
}

void forward_join_line(struct service_request *request, int64_t now_us)
{
    struct forward *f = request->forward;

    f->alone =
        upstream_busy(f->engine->upstream) == 1 && TAILQ_EMPTY(&f->engine->line)
            ? f->engine->count.sent
            : 0;
    TAILQ_INSERT_TAIL(&f->engine->line, request, unsent);
    f->in_line = true;
    f->line_us = now_us;
    next_turn(f->engine, now_us, now_us);
}

static void leave(struct service_request *request, int64_t from_us,
                  int64_t now_us)
{
    struct forward *f = request->forward;

    if (!f->in_line)
        return;
    TAILQ_REMOVE(&f->engine->line, request, unsent);
    f->in_line = false;
    next_turn(f->engine, from_us, now_us);
}

void forward_refused_in_line(struct service_request *request, int64_t now_us)
{
    leave(request, request->attempt.turn_us, now_us);
}

void forward_abort(struct service_request *request)
{
    struct forward *f = request->forward;

    upstream_cancel(f->exchange);
    f->exchange = NULL;
    if (f->engine) {
        int64_t now_us = loop_now_us(request->service->loop);

        leave(request, now_us, now_us);
        expect_failed(request);
    }
    free(f->headers);
    f->headers = NULL;
    f->engine = NULL;
    f->silent = POOL_NO_INSTANCE;
    request->attempt.turn_us = 0;
    f->alone = 0;
    f->refused = f->paused = false;
    f->n_tail = 0;
    f->n_had = 0;
    f->n_bytes = 0;
    memset(&f->read, 0, sizeof(f->read));
}

/* Learns the engine's costs, and their correction, from a completed step. */
static void learn(struct engine *e, const struct steps_step *step)
{
    struct service *s = e->service;
    const struct pool_instance *i = pool_get(s->pool, e->id);
    int64_t us;

    if (step->prompts == 0 || step->us <= 0 || !i)
        return;
    us = correction_apply_us(&i->correction, step->predicted_us);
    /* First: the costs that predicted the step may change then. */
    (void)pool_step_done(s->pool, e->id, step->predicted_us, step->us);
    engine_learn_prefill(e, step);
    if (s->costs.predicts)
        metrics_ratio_error(&s->metrics.prefill_error_ratio, us, step->us);
}

/* Returns a prefill's predicted time, by the costs that its engine has now. */
static int64_t predicted_us(const struct service_request *request,
                            int64_t now_us)
{
    const struct prefill_estimate *plan = &request->attempt.plan;
    struct pool_record_prefill p;

    return pool_read_prefill(request->service->pool, request->attempt.prefill,
                             request->attempt.id, now_us, &p) == 0
               ? p.request.predicted_us
               : plan->predicted_us + plan->beside_us;
}

/* Notes the end of a prefill: if seen, the prompt joins a step; if not, the
 * running step ends. */
static void note_end(struct engine *e, const struct service_request *request,
                     bool seen, int64_t now_us)
{
    const struct prefill_estimate *plan = &request->attempt.plan;
    const struct forward *f = request->forward;
    const struct cost_model *cost =
        e->own_cost ? e->own_cost : &e->service->costs.model;
    struct steps_step over;

    if (seen)
        steps_first_token(
            &e->prefill_steps,
            &(struct steps_token){.tokens = (int64_t)request->prompt.n_tokens -
                                            plan->cached_tokens,
                                  .us = request->attempt.turn_us
                                            ? now_us - request->attempt.turn_us
                                            : -1,
                                  .now_us = now_us,
                                  .sent_us = f->line_us,
                                  .predicted_us = predicted_us(request, now_us),
                                  .shared_us = (int64_t)cost->shared_us},
            cost->prefill[0], &over);
    else
        steps_end(&e->prefill_steps, &over);
    learn(e, &over);
}

void forward_prefill_over(struct service_request *request, bool seen,
                          int64_t now_us)
{
    struct service *s = request->service;
    struct engine *e = engine_of(s, request->attempt.prefill);
    struct steps_step over;

    if (!request->attempt.prefill_open)
        return;
    request->attempt.prefill_open = false;
    /* A refused request has left the line: the running step goes on. */
    if (e && (seen || request->forward->in_line))
        note_end(e, request, seen, now_us);
    (void)pool_prefill_done(s->pool, request->attempt.prefill,
                            request->attempt.id, -1, now_us);
    cluster_prefilled(s->peers, request->attempt.id, -1);
    leave(request, now_us, now_us);
    if (e && TAILQ_EMPTY(&e->line)) {
        steps_end(&e->prefill_steps, &over);
        learn(e, &over);
    }
    service_freed(s);
}

/* Ends the prefills in front of it whose first token cannot be seen. */
static void pass_unseen(struct service_request *request, int64_t now_us)
{
    struct engine *e = request->forward->engine;
    struct service_request *other, *next;

    if (!request->forward->in_line)
        return;
    for (other = TAILQ_FIRST(&e->line); other != request; other = next) {
        next = TAILQ_NEXT(other, unsent);
        if (!other->forward->what.stream && !other->by->two_legs)
            forward_prefill_over(other, false, now_us);
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
        observe_first_token(request, ttft_us, now_us);
    }
    forward_prefill_over(request, f->what.stream, now_us);
    (void)pool_decode_started(s->pool, request->attempt.decode,
                              request->attempt.id);
    cluster_decoding(s->peers, request->attempt.id);
    if (request->state == REQUEST_SCHEDULED)
        service_request_set_state(request, REQUEST_PREFILLING);
    if (service_request_set_state(request, REQUEST_TRANSFERRING))
        service_request_set_state(request, REQUEST_DECODING);
}

void forward_learn_whole(struct service_request *request, int64_t tokens)
{
    const struct forward *f = request->forward;
    int64_t us = request->output.first_token_us - request->attempt.turn_us;

    /* More tokens than max_tokens: several answers, which are computed
     * together. */
    if (f->what.stream || request->by->two_legs || !f->alone ||
        !request->attempt.turn_us || f->engine->count.sent != f->alone ||
        tokens > request->prompt.max_tokens)
        return;
    engine_learn_whole(f->engine,
                       (int64_t)request->prompt.n_tokens -
                           request->attempt.plan.cached_tokens,
                       tokens, us);
}
