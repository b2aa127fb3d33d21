/* Estimates a prefill on every instance, with own or fetched blocks. */
#include "conductor/core/schedule/internal.h"

/* Algorithm 1's condition: best_len / prefix_len > threshold, always true for
 * prefix_len 0 and best_len above 0. */
static bool worth_fetching(uint32_t best_blocks, uint32_t local_blocks,
                           double threshold)
{
    return best_blocks > 0 &&
           (double)best_blocks > threshold * (double)local_blocks;
}

/* Adds the time to read own blocks from slow tiers. */
static void add_own_load(const struct scheduler *s,
                         const struct schedule_request *request,
                         const struct pool_instance *instance,
                         const struct estimate_prefill_request *ask,
                         struct prefill_estimate *estimate)
{
    uint32_t ready = s->stored.blocks[instance->slot];
    struct schedule_own own;

    if (s->expected.blocks[instance->slot] >= ask->local_blocks ||
        !schedule_reads_any(s, instance))
        return;
    schedule_own_blocks(s, instance, schedule_lesser(ready, ask->local_blocks),
                        &own);
    if (own.n_sources > 0)
        estimate_add_own_load(
            &s->model, s->pool, instance, ask,
            schedule_own_ready_us(s, instance, &own, request->now_us),
            estimate);
}

/* Tokens of the prompt that speeds are compared by. */
#define SPEED_TOKENS 8192

double schedule_speed_of(const struct scheduler *s,
                         const struct pool_instance *i)
{
    double speed = 1.0 / correction_factor(&i->correction);

    if (!i->cost)
        return speed;
    return speed *
           (double)cost_model_prefill_us(s->model.cost, SPEED_TOKENS, 0, NULL) /
           (double)cost_model_prefill_us(i->cost, SPEED_TOKENS, 0, NULL);
}

int64_t schedule_tested_us(const struct scheduler *s,
                           const struct prefill_estimate *e)
{
    return s->rules.by_score && e->score_us > e->most_us ? e->score_us
                                                         : e->most_us;
}

int64_t schedule_deadline_us(const struct schedule_request *request)
{
    return request->slo_ttft_us > 0 ? request->now_us + request->slo_ttft_us
                                    : request->due_us;
}

int64_t schedule_due_us(const struct schedule_request *request,
                        const struct prefill_estimate *plan)
{
    int64_t due_us = schedule_deadline_us(request);
    int64_t spare_us = due_us - request->now_us - plan->ttft_us;

    if (due_us == 0 || spare_us <= 0)
        return due_us;
    return due_us - (spare_us < plan->last_us ? spare_us : plan->last_us);
}

/* Estimates every prefill instance that takes work. */
static size_t estimate_all(struct scheduler *s,
                           const struct schedule_request *request,
                           uint32_t usable_blocks,
                           const struct pool_instance *sender,
                           uint32_t best_blocks, double threshold)
{
    struct estimate_memo memo = {.predicted = false};
    struct estimate_prefill_request ask = {
        .n_tokens = request->n_tokens,
        .max_output_tokens = request->max_output_tokens,
        .deadline_us = schedule_deadline_us(request),
        .now_us = request->now_us,
    };
    const struct pool_instance *const *instances = pool_instances(s->pool);
    const uint8_t *ready = pool_ready_roles(s->pool);
    uint32_t n_slots = pool_slots(s->pool);
    size_t n = 0;

    for (uint32_t slot = 0; slot < n_slots; slot++) {
        const struct pool_instance *i = instances[slot];

        if (!schedule_may_prefill(s, request, i, ready[slot]))
            continue;
        ask.local_blocks = schedule_local_blocks(s, slot, usable_blocks);
        ask.used_blocks = ask.local_blocks;
        ask.sender = NULL;
        ask.there_blocks = 0;
        ask.pair_room_us = 0;
        if (i->pair > 0) {
            ask.there_blocks = s->there[i->pair];
            ask.pair_room_us = s->room_us[i->pair];
        }
        /* The sender is never the instance itself: its match is longer. */
        if (worth_fetching(best_blocks, ask.local_blocks, threshold)) {
            ask.used_blocks = best_blocks;
            ask.sender = sender;
        }
        estimate_prefill(&s->model, s->pool, i, &ask, &memo, &s->candidates[n]);
        if (ask.local_blocks > 0)
            add_own_load(s, request, i, &ask, &s->candidates[n]);
        n++;
    }
    schedule_spare(s, request, n);
    return n;
}

size_t schedule_estimate_own(struct scheduler *s,
                             const struct schedule_request *request,
                             uint32_t usable_blocks)
{
    return estimate_all(s, request, usable_blocks, NULL, 0, 1.0);
}

size_t schedule_estimate_fetching(struct scheduler *s,
                                  const struct schedule_request *request,
                                  uint32_t usable_blocks, double threshold)
{
    uint32_t best_blocks = 0;
    const struct pool_instance *sender =
        schedule_find_sender(s, request, usable_blocks, &best_blocks);

    return estimate_all(s, request, usable_blocks, sender, best_blocks,
                        threshold);
}
