/* Enters an accepted decision into the pool. */
#include <errno.h>

#include "conductor/core/schedule/internal.h"

/* Whether the sources that a plan uses are still there. */
static bool sources_live(const struct pool *pool,
                         const struct schedule_decision *decision)
{
    for (size_t i = 0; i < decision->n_sources; i++)
        if (decision->plan.of_source[i].n_blocks > 0 &&
            !pool_get(pool, decision->sources[i].instance))
            return false;
    return true;
}

static void book(struct scheduler *s, const struct schedule_request *request,
                 const struct schedule_decision *decision, uint32_t holder,
                 unsigned channel, int64_t until_us)
{
    /* One that has left needs no booking. */
    (void)!pool_book(s->pool, &(struct pool_booking){holder, channel, until_us},
                     decision->prefill, request->request_id, request->now_us);
}

/* Books a fetch on the links of both its ends. */
static void book_fetch(struct scheduler *s,
                       const struct schedule_request *request,
                       const struct schedule_decision *decision,
                       uint32_t sender, int64_t until_us)
{
    book(s, request, decision, sender, POOL_EGRESS, until_us);
    book(s, request, decision, decision->prefill, POOL_INGRESS, until_us);
}

/* Books the links and tiers of a plan until its loads end. */
static void book_sources(struct scheduler *s,
                         const struct schedule_request *request,
                         const struct schedule_decision *decision)
{
    for (size_t i = 0; i < decision->n_sources; i++) {
        const struct schedule_source *source = &decision->sources[i];
        const struct load_share *share = &decision->plan.of_source[i];

        if (share->n_blocks == 0)
            continue;
        if (source->instance != decision->prefill &&
            !s->model.simulated.links_unshared)
            book_fetch(s, request, decision, source->instance, share->end_us);
        if (pool_get(s->pool, source->instance)
                ->tier_bytes_per_s[source->tier] > 0.0)
            book(s, request, decision, source->instance, source->tier,
                 share->end_us);
    }
}

/* Books all reads from own slow tiers, of a decision without a plan. */
static void book_own(struct scheduler *s,
                     const struct schedule_request *request,
                     const struct schedule_decision *decision)
{
    const struct prefill_estimate *chosen = &decision->chosen;
    const struct pool_instance *i = pool_get(s->pool, chosen->instance);
    struct schedule_own own;

    if (chosen->ready_us <= request->now_us)
        return;
    schedule_own_blocks(
        s, i, schedule_lesser(s->stored.blocks[i->slot], chosen->local_blocks),
        &own);
    for (size_t o = 0; o < own.n_sources; o++)
        book(s, request, decision, i->id, own.sources[o].tier,
             chosen->ready_us);
}

static int accept_decode(struct scheduler *s,
                         const struct schedule_request *request,
                         const struct schedule_decision *decision)
{
    if (!schedule_predicts_decode(s, request))
        return pool_decode_accept(s->pool, decision->decode,
                                  request->request_id, request->n_tokens,
                                  request->max_output_tokens);
    return pool_decode_expect(
        s->pool, decision->decode,
        &(struct pool_decode_request){
            .request_id = request->request_id,
            .prompt_tokens = request->n_tokens,
            .max_output_tokens = request->max_output_tokens,
            .expected_tokens = request->expected_tokens,
            .comes_us = request->now_us + schedule_kv_in_us(&decision->chosen),
            .prefill = decision->prefill,
            .prefill_us = decision->chosen.prefill_us,
        });
}

/* Books the links and tiers that an accepted request will use. */
static void book_all(struct scheduler *s,
                     const struct schedule_request *request,
                     const struct schedule_decision *decision)
{
    const struct prefill_estimate *chosen = &decision->chosen;

    if (chosen->fetch_from != POOL_NO_INSTANCE &&
        !s->model.simulated.links_unshared)
        book_fetch(s, request, decision, chosen->fetch_from,
                   chosen->transfer_end_us);
    if (decision->decode != POOL_NO_INSTANCE &&
        decision->decode != decision->prefill &&
        !pool_is_pair(pool_get(s->pool, decision->prefill),
                      pool_get(s->pool, decision->decode)) &&
        !s->model.simulated.links_unshared) /* likewise */
        (void)!pool_book_push(
            s->pool,
            &(struct pool_push){
                .from = decision->prefill,
                .bytes = request->n_tokens * s->model.kv_bytes_per_token,
                .due_us = request->now_us + chosen->ttft_us,
            },
            decision->decode, request->request_id);
    if (chosen->planned)
        book_sources(s, request, decision);
    else
        book_own(s, request, decision);
}

/* The part of a prefill's time that all prefills in one step pay only once. */
static int64_t shared_us(const struct scheduler *s,
                         const struct prefill_estimate *chosen)
{
    const struct pool_instance *i = pool_get(s->pool, chosen->instance);

    return i ? (int64_t)estimate_cost(&s->model, i)->shared_us : 0;
}

/* The pool's record of the chosen prefill. */
static struct pool_prefill_request
prefill_of(const struct scheduler *scheduler,
           const struct schedule_request *request,
           const struct schedule_decision *decision)
{
    const struct prefill_estimate *chosen = &decision->chosen;

    return (struct pool_prefill_request){
        .request_id = request->request_id,
        .predicted_us = chosen->predicted_us + chosen->beside_us,
        .shared_us = shared_us(scheduler, chosen),
        .ready_at_us = chosen->ready_us,
        .loading_until_us = chosen->planned && decision->plan.n_pieces > 0 &&
                                    decision->plan.mode == LOAD_MODE_BOTH
                                ? chosen->transfer_end_us
                                : 0,
        .arrived_us = request->now_us,
        .deadline_us = schedule_due_us(request, chosen),
        .stage = decision->lent.n > 0,
        .uncached_tokens = request->n_tokens - chosen->cached_tokens,
        .cached_tokens = chosen->cached_tokens,
        .work = schedule_work_of(scheduler, request, chosen),
        .keys = request->keys,
        .n_keys = !scheduler->model.simulated.expected &&
                          !scheduler->model.assumes_stored
                      ? request->n_keys
                      : 0,
    };
}

int schedule_commit(struct scheduler *scheduler,
                    const struct schedule_request *request,
                    const struct schedule_decision *decision)
{
    const struct prefill_estimate *chosen = &decision->chosen;
    struct pool *pool = scheduler->pool;
    int error = 0;

    if (decision->verdict != SCHEDULE_ACCEPT)
        return -EINVAL;
    if ((chosen->fetch_from != POOL_NO_INSTANCE &&
         !pool_get(pool, chosen->fetch_from)) ||
        !sources_live(pool, decision))
        return -ESTALE;
    if (decision->decode != POOL_NO_INSTANCE)
        error = accept_decode(scheduler, request, decision);
    if (error < 0)
        return error;
    /* Accepted last: cancelling a prefill does not restore last_prefill. */
    const struct pool_prefill_request prefill =
        prefill_of(scheduler, request, decision);
    error = pool_prefill_accept(pool, decision->prefill, &prefill);
    if (error == 0) {
        error = schedule_take_lent(pool, &decision->lent, &prefill,
                                   request->now_us);
        if (error < 0)
            pool_prefill_cancel(pool, decision->prefill, request->request_id,
                                request->now_us);
    }
    if (error < 0) {
        if (decision->decode != POOL_NO_INSTANCE)
            pool_decode_done(pool, decision->decode, request->request_id);
        return error;
    }
    if (scheduler->rules.spares_decodes && decision->decode != POOL_NO_INSTANCE)
        pool_decode_likely(pool, decision->decode, request->request_id,
                           request->expected_tokens > 0
                               ? request->expected_tokens
                               : request->max_output_tokens);
    schedule_pace_add(&scheduler->pace, schedule_spent_us(decision),
                      request->now_us);
    schedule_evicted_count(scheduler, request, chosen->slot);
    book_all(scheduler, request, decision);
    return 0;
}
