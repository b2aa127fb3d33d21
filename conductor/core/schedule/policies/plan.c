/*
 * plan: every prefill instance gets the load plan (load_plan.h) that finishes
 * first, from its own slow tiers and the best other holders. Candidates that
 * meet the TTFT SLO come first, then the lowest finishing time + engine work x
 * engine_price + the worth of what the blocks evict, less session_ms for the
 * instance that served the request's session last. Among candidates that
 * predictions cannot tell from the best, one that evicts nothing wins, then the
 * instance whose last prefill came longest ago, then the lower slot. On the
 * chosen instance, loading all takes the plan's place if it scores lower,
 * unless computing all would end before it.
 *
 * A candidate without a worked-out plan has lower bounds of its end and its
 * engine's work. Its end is bounded twice: by its queue plus the computing
 * behind all blocks cached anywhere; and by the end of a candidate that
 * dominates it: with as many blocks at no cost, or the same in tiers as fast,
 * no longer queue and no slower engine of the same cost model, it could follow
 * the same plan. The bounds are safe, so skipping candidates changes no choice:
 * test_schedule_plan compares with working out all of them.
 */
#include <string.h>

#include "conductor/core/schedule/internal.h"
#include "conductor/core/schedule/policies/plan_score.h"

#define DOMINATORS_MAX 8

static const struct plan_state *state_of(const struct scheduler *s)
{
    return s->state;
}

/* Most blocks that any peer has. */
static uint32_t most_sent(const struct schedule_peers *peers,
                          uint32_t usable_blocks)
{
    uint32_t most = 0;

    for (size_t k = 0; k < peers->n; k++)
        if (peers->at[k].source.to_block > most)
            most = peers->at[k].source.to_block;
    return schedule_lesser(most, usable_blocks);
}

/* Blocks of waiting prefills and of the request that will exceed the room of an
 * instance's tiers. */
static uint32_t blocks_over(const struct scheduler *s,
                            const struct schedule_request *request,
                            const struct pool_instance *i)
{
    size_t there = s->expected.blocks[i->slot];

    if (!i->order->rank || s->model.simulated.expected ||
        there > request->n_keys)
        return 0;
    return pool_blocks_over(s->pool, i, (uint32_t)(request->n_keys - there));
}

/* Sets lower bounds, as if all blocks cached anywhere were on the instance. */
static void estimate_at_least(const struct scheduler *s,
                              const struct schedule_request *request,
                              const struct pool_instance *i,
                              uint32_t usable_blocks, uint32_t local_blocks,
                              uint32_t used_blocks, struct estimate_memo *memo,
                              struct prefill_estimate *out)
{
    bool pair = i->pair > 0;
    const struct estimate_prefill_request ask = {
        .n_tokens = request->n_tokens,
        .max_output_tokens = request->max_output_tokens,
        .local_blocks = local_blocks,
        .used_blocks = used_blocks,
        .there_blocks = pair ? s->there[i->pair] : 0,
        .pair_room_us = pair ? s->room_us[i->pair] : 0,
        .over_blocks = blocks_over(s, request, i),
        .deadline_us = schedule_deadline_us(request),
        .now_us = request->now_us,
    };

    estimate_prefill(&s->model, s->pool, i, &ask, memo, out);
    if (out->ttft_us > ESTIMATE_NEVER_US)
        out->ttft_us = ESTIMATE_NEVER_US;
    out->most_us -= out->beside.step_us; /* the step ends during the wait */
    out->planned = true;
    out->at_least = true;
    out->split_block = out->local_blocks;
    out->last_prefill = i->last_prefill;
    out->evicted_tokens =
        schedule_evicted_tokens(s, request, usable_blocks, i->slot);
    if (request->queue_most_us > 0 &&
        out->queue_most_us > request->queue_most_us)
        out->queue_full = true;
}

/* A worked-out candidate that is no peer or has no blocks in slow tiers. */
struct dominator {
    const struct pool_instance *instance;
    uint32_t resident;
    int64_t queue_us;
    double ratio;
    const struct cost_model *cost;
    int64_t ingress_free_us;
    double link_bytes_per_s;
    struct beside beside;
    int64_t end_us; /* without the step under way and without the push */
};

struct search {
    struct scheduler *s;
    const struct schedule_request *request;
    uint32_t usable_blocks;
    struct prefill_estimate *best; /* worked out; NULL: none yet */
    struct dominator dominators[DOMINATORS_MAX];
    size_t n_dominators; /* in all; the array is a ring */
};

static bool is_peer(const struct scheduler *s, uint32_t id)
{
    const struct schedule_peers *peers = &state_of(s)->peers;

    for (size_t k = 0; k < peers->n; k++)
        if (peers->at[k].source.instance == id)
            return true;
    return false;
}

/* Whether an instance has the same blocks in the same tiers as another one, and
 * reads them at the same rates and no later. */
static bool reads_alike(const struct scheduler *s,
                        const struct pool_instance *i,
                        const struct pool_instance *other)
{
    if (s->stored.last_run[i->slot] != s->stored.last_run[other->slot] ||
        s->stored.blocks[i->slot] != s->stored.blocks[other->slot] ||
        s->expected.blocks[i->slot] != s->expected.blocks[other->slot])
        return false;
    for (unsigned t = 0; t < LOAD_TIERS; t++)
        if (i->tier_bytes_per_s[t] != other->tier_bytes_per_s[t] ||
            i->tier_free_us[t] > other->tier_free_us[t])
            return false;
    return true;
}

/* Whether peers send to an instance at least as fast as to another one. On a
 * shared link exactly as fast: a faster peer leaves less to the next. */
static bool is_sent_alike(const struct scheduler *s,
                          const struct pool_instance *i,
                          const struct pool_instance *other)
{
    const struct schedule_peers *peers = &state_of(s)->peers;

    if (i->n_paths == 0 && other->n_paths == 0)
        return true;
    for (size_t k = 0; k < peers->n; k++) {
        uint32_t from = peers->at[k].source.instance;

        double rate = schedule_path_rate(s, i, from);
        double than = schedule_path_rate(s, other, from);

        if (rate < than || (s->rules.sees_links && rate != than))
            return false;
    }
    return true;
}

/* Raises a candidate's bound to the ends of its dominators. A candidate that is
 * itself a peer keeps its bound: in its place it loads from another peer, which
 * dominators may not have had. */
static void raise_bound(const struct search *f, struct prefill_estimate *e)
{
    const struct scheduler *s = f->s;
    const struct pool_instance *i = pool_get(s->pool, e->instance);
    bool reads = s->stored.blocks[e->slot] > 0 && schedule_has_slow_tier(i);
    size_t n =
        f->n_dominators < DOMINATORS_MAX ? f->n_dominators : DOMINATORS_MAX;

    if (is_peer(s, e->instance))
        return;
    for (size_t d = 0; d < n; d++) {
        const struct dominator *other = &f->dominators[d];

        if (other->end_us + e->beside.step_us + e->push_us > e->ttft_us &&
            other->queue_us <= e->queue_us &&
            other->ratio <= correction_factor(&i->correction) &&
            other->cost == i->cost &&
            other->beside.prompt_us <= e->beside.prompt_us &&
            other->beside.token_us <= e->beside.token_us &&
            (!s->rules.sees_links ||
             (other->ingress_free_us <= i->ingress_free_us &&
              other->link_bytes_per_s >= i->link_bytes_per_s)) &&
            is_sent_alike(s, other->instance, i) &&
            (reads ? reads_alike(s, other->instance, i)
                   : other->resident >= e->local_blocks))
            e->ttft_us = other->end_us + e->beside.step_us + e->push_us;
    }
    plan_set_score(s, f->request, e);
}

static struct pool_place place_at(const struct search *f,
                                  const struct pool_instance *i,
                                  const struct prefill_estimate *e,
                                  int64_t ready_us)
{
    const struct estimate_model *model = &f->s->model;
    int64_t now_us = f->request->now_us;
    struct pool_place place =
        pool_queue_place(f->s->pool, i, ready_us, e->prefill_us,
                         schedule_deadline_us(f->request), now_us);

    if (model->step_tokens > 0)
        place.wait_us +=
            beside_shared_us(estimate_cost(model, i), model->step_tokens, i,
                             &e->beside, place.wait_us, e->prefill_us, now_us);
    return place;
}

/* Queue place and plan depend on each other: the plan was made for the best
 * place; now the candidate takes the place that the plan allows. Returns
 * whether it is later, so that another plan is needed. */
static bool take_place(const struct search *f, const struct pool_instance *i,
                       const struct schedule_site *site,
                       struct prefill_estimate *e)
{
    int64_t before_us = e->queue_us, now_us = f->request->now_us;
    struct pool_place place, late;

    if (i->order->by_age)
        return false;
    place = place_at(f, i, e, now_us);
    if (e->ready_us > now_us) {
        late = place_at(f, i, e, e->ready_us);
        /* Another prefill begins while the blocks come, or computes them. */
        if (late.wait_us > e->ready_us - now_us || site->computed_us > now_us)
            place = late;
    }
    e->behind = place.behind;
    if (place.wait_us > e->queue_us)
        e->queue_us = place.wait_us;
    /* The step under way ends while the request waits. */
    e->beside.step_us = e->beside.step_us > e->queue_us - before_us
                            ? e->beside.step_us - (e->queue_us - before_us)
                            : 0;
    e->most_us -= e->queue_most_us + e->doubt_us;
    e->queue_most_us =
        place.most_us > e->queue_us ? place.most_us : e->queue_us;
    e->doubt_us = place.doubt_us;
    e->most_us += e->queue_most_us + e->doubt_us;
    plan_set_score(f->s, f->request, e);
    return e->queue_us > before_us;
}

/* Works out a candidate's plan in its place in the queue. */
static void work_out_placed(const struct search *f,
                            const struct pool_instance *i,
                            const struct schedule_site *site,
                            struct prefill_estimate *e)
{
    struct load_plan plan;

    plan_work_out(f->s, f->request, f->usable_blocks, site,
                  plan_load_modes(f->s), &plan, e);
    if (take_place(f, i, site, e))
        plan_work_out(f->s, f->request, f->usable_blocks, site,
                      plan_load_modes(f->s), &plan, e);
}

/* Works out a candidate's plan, without fetches if it scores lower that way. */
static void search_work_out(struct search *f, struct prefill_estimate *e)
{
    const struct pool_instance *i = pool_get(f->s->pool, e->instance);
    struct prefill_estimate without = *e;
    struct schedule_site site;

    schedule_find_site(f->s, f->request, i, f->usable_blocks,
                       &state_of(f->s)->peers, &site);
    work_out_placed(f, i, &site, e);
    if (site.n_own == 0 || !is_peer(f->s, e->instance))
        f->dominators[f->n_dominators++ % DOMINATORS_MAX] =
            (struct dominator){i,
                               site.resident,
                               e->queue_us,
                               correction_factor(&i->correction),
                               i->cost,
                               i->ingress_free_us,
                               i->link_bytes_per_s,
                               e->beside,
                               e->ttft_us - e->beside.step_us - e->push_us};
    if (e->link_us > 0 && state_of(f->s)->link_price > 0.0) {
        site.n = site.n_own;
        work_out_placed(f, i, &site, &without);
        if (plan_before(&without, e))
            *e = without;
    }
    if (!f->best || plan_before(e, f->best))
        f->best = e;
}

/* Whether the policy may choose a candidate, worked out or not. */
static bool may_win(const struct prefill_estimate *e)
{
    return !e->queue_full && !e->too_long && !e->spared;
}

/* Returns the preferred one of the candidates as good as the best, worked out
 * or not; NULL: none is preferred to `first`. */
static struct prefill_estimate *
next_of_equal(const struct search *f, size_t n,
              const struct prefill_estimate *first)
{
    const struct plan_state *state = state_of(f->s);
    struct prefill_estimate *next = NULL;

    for (size_t c = 0; c < n; c++) {
        struct prefill_estimate *e = &f->s->candidates[c];

        if (!may_win(e) || !plan_equals(state, e, f->best) ||
            !plan_precedes(e, next ? next : first))
            continue;
        next = e;
    }
    return next;
}

/* Works out the preferred one of the candidates as good as the best. */
static void search_equals(struct search *f, size_t n)
{
    const struct plan_state *state = state_of(f->s);
    const struct prefill_estimate *first = f->best;
    struct prefill_estimate *next;

    for (size_t c = 0; c < n; c++) {
        struct prefill_estimate *e = &f->s->candidates[c];

        if (!may_win(e) || !plan_equals(state, e, f->best) ||
            !plan_precedes(e, first))
            continue;
        if (e->at_least)
            raise_bound(f, e);
    }
    while ((next = next_of_equal(f, n, first))) {
        if (next->at_least)
            search_work_out(f, next);
        if (plan_equals(state, next, f->best))
            first = next;
    }
}

static size_t estimate(struct scheduler *s,
                       const struct schedule_request *request,
                       uint32_t usable_blocks)
{
    struct plan_state *state = s->state;
    struct search f = {
        .s = s, .request = request, .usable_blocks = usable_blocks};
    struct estimate_memo memo = {.predicted = false};
    const struct pool_instance *const *instances = pool_instances(s->pool);
    const uint8_t *ready = pool_ready_roles(s->pool);
    uint32_t n_slots = pool_slots(s->pool), sent;
    struct prefill_estimate *first = NULL;
    struct plan_queues queues = {.n_instances = 0};
    size_t n = 0;
    bool unequal = pool_costs_differ(s->pool);
    double speed = 0.0;
    int64_t least_us = INT64_MAX;

    schedule_find_peers(s, request, usable_blocks, &state->peers);
    sent = most_sent(&state->peers, usable_blocks);
    for (uint32_t slot = 0; slot < n_slots; slot++) {
        const struct pool_instance *i = instances[slot];
        uint32_t local = schedule_local_blocks(s, slot, usable_blocks);
        struct prefill_estimate *e = &s->candidates[n];

        if (!schedule_may_prefill(s, request, i, ready[slot]))
            continue;
        estimate_at_least(s, request, i, usable_blocks, local,
                          local > sent ? local : sent, &memo, e);
        n++;
        queues.n_busy += i->n_waiting + i->n_running > 0;
        queues.n_waiting += i->n_waiting;
        queues.n_running += i->n_running;
        speed += schedule_speed_of(s, i);
        unequal = unequal || correction_factor(&i->correction) != 1.0;
    }
    schedule_spare(s, request, n);
    state->mean_speed = unequal && n > 0 ? speed / (double)n : 0.0;
    queues.n_instances = n;
    state->engine_price = plan_engine_price(s, &queues, request->n_held);
    state->link_price = plan_link_price(s, request);
    state->evicted_us = plan_evicted_us(s, state->engine_price);
    plan_set_room(s, request);
    for (size_t c = 0; c < n; c++) {
        struct prefill_estimate *e = &s->candidates[c];

        plan_set_score(s, request, e);
        if (!may_win(e))
            continue;
        if (!first || plan_before(e, first))
            first = e;
        if (e->predicted_us < least_us)
            least_us = e->predicted_us;
    }
    if (!first)
        return n;
    state->equal_us = plan_equal_us(s, least_us);
    search_work_out(&f, first);
    for (size_t c = 0; c < n; c++) {
        struct prefill_estimate *e = &s->candidates[c];

        if (e == first || !may_win(e) || plan_before(f.best, e))
            continue;
        raise_bound(&f, e);
        if (plan_before(f.best, e))
            continue;
        plan_set_tbt(s, request, e); /* expensive: for few */
        if (!plan_before(f.best, e))
            search_work_out(&f, e);
    }
    search_equals(&f, n);
    return n;
}

/* A candidate with only a lower bound never wins: it has lost to another. */
static size_t choose(const struct policy_choice *choice)
{
    const struct prefill_estimate *candidates = choice->candidates;
    size_t best = choice->n, first;

    for (size_t i = 0; i < choice->n; i++)
        if (policy_may_take(&candidates[i]) &&
            (best == choice->n ||
             plan_before(&candidates[i], &candidates[best])))
            best = i;
    first = best;
    for (size_t i = 0; i < choice->n; i++)
        if (policy_may_take(&candidates[i]) &&
            plan_equals(choice->state, &candidates[i], &candidates[best]) &&
            plan_precedes(&candidates[i], &candidates[first]))
            first = i;
    return first;
}

/* Works out the plan of the chosen candidate in full, and lets it load all
 * blocks if other requests wait for the engine. */
static void complete(struct scheduler *s,
                     const struct schedule_request *request,
                     uint32_t usable_blocks, struct schedule_decision *decision)
{
    const unsigned loads =
        LOAD_MODE_BIT(LOAD_MODE_LOAD) | LOAD_MODE_BIT(LOAD_MODE_LAYERWISE);
    const struct pool_instance *i = pool_get(s->pool, decision->prefill);
    struct prefill_estimate load_all = decision->chosen;
    struct load_plan plan;
    struct schedule_site site;

    schedule_find_site(s, request, i, usable_blocks, &state_of(s)->peers,
                       &site);
    decision->n_sources = site.n;
    if (s->rules.sees_links && decision->chosen.link_us == 0)
        site.n = site.n_own; /* the sources it was chosen with */
    plan_work_out(s, request, usable_blocks, &site, plan_load_modes(s),
                  &decision->plan, &decision->chosen);
    site.n = decision->n_sources;
    memcpy(decision->sources, site.sources, site.n * sizeof(site.sources[0]));
    decision->engine_price = state_of(s)->engine_price;
    decision->evicted_us = state_of(s)->evicted_us;
    decision->equal_us = state_of(s)->equal_us;
    if (decision->engine_price <= 0.0 || site.n == 0 ||
        !(plan_load_modes(s) & loads))
        return;
    /* Loading all ends later but computes less. If computing all would end
     * sooner, this plan computes all, and loses (decision 013). */
    plan_work_out(s, request, usable_blocks, &site, plan_load_modes(s) & loads,
                  &plan, &load_all);
    if (plan_before(&load_all, &decision->chosen)) {
        decision->chosen = load_all;
        decision->plan = plan;
    }
}

_Static_assert(PLAN_OPTIONS <= POLICY_OPTIONS_MAX, "options of plan");

const struct schedule_policy policy_plan = {
    .name = "plan",
    .help = "the instance and the plan (blocks to compute, blocks to load, and "
            "from where) with the lowest score",
    .options = plan_options,
    .n_options = PLAN_OPTIONS,
    .rules = plan_rules,
    .state_bytes = sizeof(struct plan_state),
    .estimate = estimate,
    .choose = choose,
    .complete = complete,
    .fits_in_us = plan_fits_in_us,
};
