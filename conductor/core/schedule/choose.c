/* The mechanism of choosing: matches, candidates, reasons. The policy decides
 * which candidate wins. */
#include "conductor/core/plan/place.h"
#include "conductor/core/plan/traffic.h"
#include "conductor/core/schedule/internal.h"

/* Pooled caches: each instance counts as having the longest match. */
static void match_pooled(struct scheduler *s)
{
    uint32_t most = 0;

    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++)
        if (s->stored.blocks[slot] > most)
            most = s->stored.blocks[slot];
    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++)
        s->stored.blocks[slot] = most;
}

static uint32_t whole_steps(uint32_t blocks, uint32_t usable_blocks,
                            uint32_t step)
{
    blocks = schedule_lesser(blocks, usable_blocks);
    return blocks - blocks % step;
}

/* An engine with larger blocks than the index reuses only whole blocks. */
static void match_steps(struct scheduler *s, uint32_t usable_blocks)
{
    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++) {
        const struct pool_instance *i = pool_at(s->pool, slot);
        uint32_t *stored = &s->stored.blocks[slot];
        uint32_t *expected = &s->expected.blocks[slot];

        if (!i || i->reuse_blocks <= 1)
            continue;
        *stored = whole_steps(*stored, usable_blocks, i->reuse_blocks);
        *expected = whole_steps(*expected, usable_blocks, i->reuse_blocks);
    }
}

void schedule_share(const struct pool *pool, uint32_t store,
                    enum block_tier tier, struct prefix_match *match)
{
    for (uint32_t slot = 0; match->blocks[store] > 0 && slot < pool_slots(pool);
         slot++) {
        const struct pool_instance *i = pool_at(pool, slot);

        if (i && i->tier_bytes_per_s[tier] > 0.0)
            prefix_match_share(match, slot, store, tier);
    }
}

void schedule_match(struct scheduler *s, const struct schedule_request *request,
                    uint32_t usable_blocks, bool shared)
{
    prefix_index_match(s->index, request->keys, request->n_keys, &s->stored);
    if (shared && s->model.shared_store)
        schedule_share(s->pool, s->model.shared_store,
                       (enum block_tier)s->model.shared_tier, &s->stored);
    if (s->model.simulated.expected)
        prefix_index_match(s->model.simulated.expected, request->keys,
                           request->n_keys, &s->expected);
    else
        pool_pending_match(s->pool, request->keys, request->n_keys,
                           &s->expected);
    if (s->model.simulated.pooled_cache)
        match_pooled(s);
    if (pool_reuses_in_steps(s->pool))
        match_steps(s, usable_blocks);
}

/* Returns SCHEDULE_TOO_LONG if the request exceeds the KV of every eligible
 * instance of the role, whatever its health; else no_instance. */
static enum schedule_verdict why_none(const struct scheduler *s,
                                      const struct schedule_request *request,
                                      unsigned role, int64_t max_output_tokens,
                                      enum schedule_verdict no_instance)
{
    bool any = false;

    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++) {
        const struct pool_instance *i = pool_at(s->pool, slot);

        if (!i || (i->role & role) == 0 || i->health == HEALTH_GONE ||
            schedule_ineligible(request, slot))
            continue;
        if (!pool_too_long(i, request->n_tokens, max_output_tokens))
            return no_instance;
        any = true;
    }
    return any ? SCHEDULE_TOO_LONG : no_instance;
}

/* Time until one of the full queues has a place; -1 = none is full. */
static int64_t place_in_us(const struct scheduler *s,
                           const struct schedule_decision *decision,
                           int64_t now_us)
{
    int64_t best_us = -1;

    for (size_t c = 0; c < decision->n_candidates; c++) {
        const struct pool_instance *i =
            pool_get(s->pool, decision->candidates[c].instance);
        int64_t left_us = pool_running_left_us(i, now_us);

        if (decision->candidates[c].queue_full &&
            !decision->candidates[c].too_long &&
            (best_us < 0 || left_us < best_us))
            best_us = left_us;
    }
    return best_us;
}

bool schedule_choose_prefill(struct scheduler *s,
                             const struct schedule_request *request,
                             struct schedule_decision *decision)
{
    uint32_t usable_blocks =
        estimate_usable_blocks(&s->model, UINT32_MAX, request->n_tokens);
    const struct schedule_policy *policy = s->policy;
    bool full = false;
    size_t best;

    schedule_match(s, request, usable_blocks, true);
    if (s->model.coupled)
        schedule_find_pairs(s, request, usable_blocks);
    decision->candidates = s->candidates;
    decision->n_candidates =
        policy->estimate ? policy->estimate(s, request, usable_blocks)
                         : schedule_estimate_own(s, request, usable_blocks);
    best = policy->choose(&(struct policy_choice){
        .request = request,
        .candidates = s->candidates,
        .n = decision->n_candidates,
        .options = s->options,
        .state = s->state,
    });
    if (best < decision->n_candidates) {
        decision->chosen = s->candidates[best];
        decision->prefill = decision->chosen.instance;
        if (policy->complete)
            policy->complete(s, request, usable_blocks, decision);
        return true;
    }
    for (size_t c = 0; c < decision->n_candidates; c++)
        full |= s->candidates[c].queue_full && !s->candidates[c].too_long;
    if (full) {
        decision->verdict = SCHEDULE_QUEUE_FULL;
        decision->retry_after_us = place_in_us(s, decision, request->now_us);
    } else {
        decision->verdict =
            why_none(s, request, ROLE_PREFILL,
                     s->model.coupled ? request->max_output_tokens : 1,
                     SCHEDULE_NO_PREFILL_INSTANCE);
    }
    return false;
}

/* The push of a request's KV from its prefill instance. */
struct push {
    struct traffic_push way;
    double sent_us;   /* by traffic_sent_us() */
    int64_t n_slowed; /* a tenth of the request's token intervals, at least 1 */
};

static struct push push_of(const struct scheduler *s,
                           const struct schedule_request *request,
                           const struct schedule_decision *decision)
{
    int64_t n_output = schedule_predicts_decode(s, request)
                           ? request->median_tokens
                           : request->max_output_tokens;
    struct push push = {
        .way = {.n_tokens = request->n_tokens,
                .kv_bytes_per_token = s->model.kv_bytes_per_token,
                .layers = s->model.layers,
                .due_us = request->now_us + decision->chosen.ttft_us,
                .now_us = request->now_us},
        .n_slowed = n_output > 2 ? (n_output + 8) / 10 : 1,
    };

    push.sent_us =
        traffic_sent_us(pool_get(s->pool, decision->prefill), &push.way);
    return push;
}

static void estimate_place(const struct scheduler *s,
                           const struct schedule_request *request,
                           const struct prefill_estimate *prefill,
                           const struct pool_instance *i,
                           struct decode_estimate *out)
{
    if (!schedule_predicts_decode(s, request)) {
        estimate_decode(&s->model, i, request->n_tokens,
                        request->max_output_tokens, out);
        return;
    }
    place_estimate(&s->model, i,
                   &(struct place_request){
                       .n_tokens = request->n_tokens,
                       .max_output_tokens = request->max_output_tokens,
                       .expected_tokens = request->expected_tokens,
                       .pool = s->pool,
                       .comes_us = request->now_us + schedule_kv_in_us(prefill),
                       .ready_us = request->now_us + prefill->ttft_us,
                       .overhang_steps = s->rules.overhang_steps,
                       .slo_tbt_us = request->slo_tbt_us,
                       .now_us = request->now_us,
                   },
                   out);
}

struct pool_work schedule_work_of(const struct scheduler *s,
                                  const struct schedule_request *request,
                                  const struct prefill_estimate *prefill)
{
    const struct pool_instance *i = pool_get(s->pool, prefill->instance);

    if (!s->rules.spares_decodes)
        return (struct pool_work){0};
    return beside_work_of(estimate_cost(&s->model, i), s->model.step_tokens, i,
                          request->n_tokens - prefill->cached_tokens,
                          prefill->cached_tokens);
}

int64_t schedule_beside_tbt_us(const struct scheduler *s,
                               const struct schedule_request *request,
                               const struct prefill_estimate *prefill)
{
    const struct pool_instance *i = pool_get(s->pool, prefill->instance);

    if (!schedule_guards_tbt(s, request) || request->max_output_tokens <= 1 ||
        (i->role & ROLE_DECODE) == 0)
        return 0;
    return beside_tbt_us(estimate_cost(&s->model, i), s->model.step_tokens, i,
                         &(struct beside_request){
                             .work = schedule_work_of(s, request, prefill),
                             .now_us = request->now_us,
                         });
}

/* Scales an instance's load by its own step time. Otherwise a fast instance,
 * with the shortest steps, would get all requests until it is full. */
static int64_t relative_load_us(const struct scheduler *s,
                                const struct pool_instance *i, int64_t load_us)
{
    if (!i->cost)
        return load_us;
    return (
        int64_t)((double)load_us *
                 (double)cost_model_decode_step_us(s->model.cost, 1, 0, NULL) /
                 (double)cost_model_decode_step_us(i->cost, 1, 0, NULL));
}

/* Adds the wait for KV to a request's TBT, which is the mean of the longest
 * tenth of its token intervals. */
static void add_gap(struct decode_estimate *c, const struct push *push,
                    const struct pool_instance *i)
{
    int64_t us;

    c->gap_us = traffic_gap_us(push->sent_us, i, &push->way);
    us = c->gap_us / push->n_slowed;
    c->behind_us = traffic_behind_us(i, &push->way);
    c->tbt_us += us;
    c->load_us += us;
}

/* Adds the push to a pair's decode instance: the push counts as part of the
 * answer's time, spread over its tokens. */
static void add_pair(const struct scheduler *s,
                     const struct schedule_request *request,
                     struct decode_estimate *c)
{
    int64_t n_output = request->expected_tokens > 0
                           ? request->expected_tokens
                           : request->max_output_tokens;
    uint32_t usable = estimate_usable_blocks(
        &s->model, s->stored.blocks[c->slot], request->n_tokens);

    c->push_tokens = schedule_push_tokens(s, request, usable);
    c->push_us = estimate_push_us(&s->model, c->push_tokens);
    c->load_us += c->push_us / n_output;
}

/* Replaces the estimate's push by the push to the chosen decode instance. */
static void set_push(struct prefill_estimate *e,
                     const struct decode_estimate *decode)
{
    int64_t more_us = decode->push_us - e->push_us;

    e->push_us += more_us;
    e->push_tokens = decode->push_tokens;
    e->ttft_us += more_us;
    e->most_us += more_us;
    e->score_us += more_us;
}

/* The TBT that admission tests: the highest of all decodes on the instance. */
static int64_t worst_tbt_us(const struct scheduler *s,
                            const struct schedule_request *request,
                            const struct schedule_decision *decision,
                            const struct decode_estimate *c)
{
    const struct pool_instance *i = pool_get(s->pool, c->instance);
    int64_t step_us = cost_model_decode_step_us(estimate_cost(&s->model, i),
                                                c->batch, c->kv_tokens, NULL);
    int64_t worst_us =
        decision->prefill == c->instance
            ? schedule_beside_tbt_us(s, request, &decision->chosen)
            : 0;

    return worst_us > step_us ? worst_us : step_us;
}

/* Whether a candidate with room is better than another: first by keeping the
 * TBT SLO, then by the lower load. */
static bool decodes_better(const struct schedule_request *request,
                           const struct decode_estimate *a,
                           const struct decode_estimate *b)
{
    int64_t slo_us = request->slo_tbt_us;
    bool late_a = slo_us > 0 && a->tbt_us > slo_us;
    bool late_b = slo_us > 0 && b->tbt_us > slo_us;

    return late_a != late_b ? late_b : a->load_us < b->load_us;
}

/* SelectDecodingInstance: the lowest predicted TBT among those with room. */
bool schedule_choose_decode(struct scheduler *s,
                            const struct schedule_request *request,
                            struct schedule_decision *decision)
{
    const struct decode_estimate *best = NULL;
    const struct decode_estimate *roomiest = NULL;
    const struct pool_instance *p = pool_get(s->pool, decision->prefill);
    const struct pool_instance *const *instances = pool_instances(s->pool);
    const uint8_t *ready = pool_ready_roles(s->pool);
    uint32_t n_slots = pool_slots(s->pool);
    struct push push;
    size_t n = 0;

    if (request->max_output_tokens <= 1)
        return true;
    push = push_of(s, request, decision);
    for (uint32_t slot = 0; slot < n_slots; slot++) {
        struct decode_estimate *c = &s->decode_candidates[n];
        const struct pool_instance *i = instances[slot];

        if ((ready[slot] & ROLE_DECODE) == 0 || schedule_excluded(request, i) ||
            !schedule_may_decode(s, p, i))
            continue;
        estimate_place(s, request, &decision->chosen, i, c);
        if (i->awaited_tokens > 0 && i->id != decision->prefill)
            c->no_room = true; /* its room is kept for another request */
        if (schedule_guards_tbt(s, request))
            c->tbt_us = worst_tbt_us(s, request, decision, c);
        c->load_us = relative_load_us(s, i, c->load_us);
        if (s->rules.sees_pushes && i != p)
            add_gap(c, &push, i);
        if (pool_is_pair(p, i))
            add_pair(s, request, c);
        n++;
        if (c->too_long)
            continue;
        if (!c->no_room && (!best || decodes_better(request, c, best)))
            best = c;
        if (!roomiest || c->room_tokens > roomiest->room_tokens)
            roomiest = c;
    }
    decision->decode_candidates = s->decode_candidates;
    decision->n_decode_candidates = n;
    if (best) {
        decision->decode = best->instance;
        if (pool_is_pair(p, pool_at(s->pool, best->slot)))
            set_push(&decision->chosen, best);
        decision->tbt_us = best->tbt_us;
        decision->behind_us = best->behind_us;
        decision->gap_us = best->gap_us;
        decision->n_slowed = push.n_slowed;
        return true;
    }
    if (roomiest) {
        decision->verdict = SCHEDULE_DECODE_FULL;
        decision->retry_after_us = schedule_decode_fits_in_us(
            s, request, roomiest, decision->chosen.ttft_us);
    } else {
        decision->verdict =
            why_none(s, request, ROLE_DECODE, request->max_output_tokens,
                     SCHEDULE_NO_DECODE_INSTANCE);
    }
    return false;
}
