/*
 * Candidates with load plans: when each instance would be done, what its
 * engine's time is worth, and which need not be worked out to know that they
 * lose.
 *
 * A candidate that was not worked out carries lower bounds of its end and of
 * its engine's work. Two hold for the end: its queue and what must be computed
 * behind all that is cached anywhere; and the end of another one that has at
 * least as much at no cost, no longer queue and no slower engine (a dominating
 * one), since it could follow the same plan. Both are exact, so leaving
 * candidates out changes nothing: test_schedule_plan compares with working out
 * all of them.
 */
#include <string.h>

#include "conductor/core/schedule/internal.h"

#define DOMINATORS_MAX 8
#define FITS_LOOKS_MAX 16

/*
 * What others wait for a second of an engine's time, in seconds. Those that
 * will come before the queue is empty wait for all that is computed before
 * them. How many that will be is not known: one if a prefill is under way
 * where this one could go, and the more the more wait now. That a quarter of
 * the mean queue is a good measure was found by simulation (decision 013), not
 * derived.
 */
static double engine_price(size_t n_instances, size_t n_waiting,
                           size_t n_running)
{
    if (n_waiting + n_running == 0)
        return 0.0;
    return 1.0 + (double)n_waiting / (4.0 * (double)n_instances);
}

/* From its ttft and the engine's work. */
static void set_score(const struct scheduler *s,
                      const struct schedule_request *request,
                      struct prefill_estimate *e)
{
    double others_us = s->engine_price * (double)e->prefill_us;

    e->score_us = others_us < (double)(ESTIMATE_NEVER_US - e->ttft_us)
                      ? e->ttft_us + (int64_t)others_us
                      : ESTIMATE_NEVER_US;
    e->late = request->slo_ttft_us > 0 && e->ttft_us > request->slo_ttft_us;
}

static void work_out(const struct scheduler *s,
                     const struct schedule_request *request,
                     uint32_t usable_blocks, const struct schedule_site *site,
                     unsigned modes, struct load_plan *plan,
                     struct prefill_estimate *e)
{
    estimate_plan(&s->model, pool_get(s->pool, e->instance),
                  &(struct estimate_plan_request){
                      .n_tokens = request->n_tokens,
                      .resident_blocks = site->resident,
                      .usable_blocks = usable_blocks,
                      .queue_us = e->queue_us,
                      .now_us = request->now_us,
                      .sources = site->loads,
                      .n_sources = site->n,
                      .modes = modes,
                  },
                  plan, e);
    set_score(s, request, e);
}

/* Most blocks that an instance could reuse, wherever they are. */
static uint32_t most_cached(const struct scheduler *s,
                            const struct pool_instance *i,
                            uint32_t usable_blocks)
{
    uint32_t most = s->ready[i->slot] > s->pending[i->slot]
                        ? s->ready[i->slot]
                        : s->pending[i->slot];

    for (size_t k = 0; k < s->peers.n; k++)
        if (s->peers.at[k].source.to_block > most)
            most = s->peers.at[k].source.to_block;
    return schedule_lesser(most, usable_blocks);
}

static const struct prefill_estimate nothing;

/* As if all that is cached anywhere were there by its turn. */
static void estimate_at_least(const struct scheduler *s,
                              const struct schedule_request *request,
                              const struct pool_instance *i,
                              uint32_t usable_blocks,
                              struct estimate_memo *memo,
                              struct prefill_estimate *out)
{
    uint32_t cached = most_cached(s, i, usable_blocks);
    int64_t tokens = (int64_t)cached * s->model.block_tokens;

    if (tokens > request->n_tokens)
        tokens = request->n_tokens;
    if (!memo->predicted || memo->cached_tokens != tokens) {
        memo->predicted = true;
        memo->cached_tokens = tokens;
        memo->predicted_us =
            tokens < request->n_tokens
                ? cost_model_prefill_us(s->model.cost,
                                        request->n_tokens - tokens, tokens,
                                        &memo->extrapolated)
                : 0;
    }
    memcpy(out, &nothing, sizeof(*out)); /* padding too */
    out->instance = i->id;
    out->slot = i->slot;
    out->planned = true;
    out->at_least = true;
    out->local_blocks = schedule_lesser(s->ready[i->slot] > s->pending[i->slot]
                                            ? s->ready[i->slot]
                                            : s->pending[i->slot],
                                        usable_blocks);
    out->split_block = out->local_blocks;
    out->used_blocks = cached;
    out->cached_tokens = tokens;
    out->transfer_end_us = request->now_us;
    out->ready_us = request->now_us;
    out->predicted_us = memo->predicted_us;
    out->extrapolated = memo->extrapolated;
    out->prefill_us = correction_apply_us(&i->correction, memo->predicted_us);
    out->queue_us = pool_queue_wait_us(
        s->pool, i, request->now_us, out->prefill_us,
        request->slo_ttft_us > 0 ? request->now_us + request->slo_ttft_us : 0,
        cached > 0, request->now_us);
    if (out->queue_us > ESTIMATE_NEVER_US)
        out->queue_us = ESTIMATE_NEVER_US;
    out->ttft_us = out->queue_us + out->prefill_us;
    if (out->ttft_us > ESTIMATE_NEVER_US)
        out->ttft_us = ESTIMATE_NEVER_US;
    out->last_prefill = i->last_prefill;
    out->queue_full = pool_prefill_full(s->pool, i);
    out->too_long =
        pool_kv_tokens(i, request->n_tokens, 1) > i->kv_capacity_tokens;
}

/* A worked-out candidate without blocks in slow tiers. */
struct dominator {
    uint32_t resident;
    int64_t queue_us;
    double ratio;
    int64_t ttft_us;
};

struct search {
    struct scheduler *s;
    const struct schedule_request *request;
    uint32_t usable_blocks;
    struct prefill_estimate *best; /* worked out; NULL: none yet */
    struct dominator dominators[DOMINATORS_MAX];
    size_t n_dominators; /* ever; the array is a ring */
};

static bool is_peer(const struct scheduler *s, uint32_t id)
{
    for (size_t k = 0; k < s->peers.n; k++)
        if (s->peers.at[k].source.instance == id)
            return true;
    return false;
}

/* Raises a candidate's bound to the ends of those that dominate it. A peer has
 * one peer less, so another one instead, which these may not have had. */
static void raise_bound(const struct search *f, struct prefill_estimate *e)
{
    const struct scheduler *s = f->s;
    const struct pool_instance *i = pool_get(s->pool, e->instance);
    size_t n =
        f->n_dominators < DOMINATORS_MAX ? f->n_dominators : DOMINATORS_MAX;

    if (is_peer(s, e->instance) ||
        (s->ready[e->slot] > 0 && schedule_has_slow_tier(i)))
        return;
    for (size_t d = 0; d < n; d++) {
        const struct dominator *other = &f->dominators[d];

        if (other->resident >= e->local_blocks &&
            other->queue_us <= e->queue_us &&
            other->ratio <= correction_factor(&i->correction) &&
            other->ttft_us > e->ttft_us)
            e->ttft_us = other->ttft_us;
    }
    set_score(s, f->request, e);
}

static void search_work_out(struct search *f, struct prefill_estimate *e)
{
    const struct pool_instance *i = pool_get(f->s->pool, e->instance);
    struct load_plan plan;
    struct schedule_site site;

    schedule_find_site(f->s, f->request, i, f->usable_blocks, &site);
    work_out(f->s, f->request, f->usable_blocks, &site, f->s->load_modes, &plan,
             e);
    if (!site.own)
        f->dominators[f->n_dominators++ % DOMINATORS_MAX] =
            (struct dominator){site.resident, e->queue_us,
                               correction_factor(&i->correction), e->ttft_us};
    if (!f->best || schedule_plan_before(e, f->best))
        f->best = e;
}

size_t schedule_plan_candidates(struct scheduler *s,
                                const struct schedule_request *request,
                                uint32_t usable_blocks)
{
    struct search f = {
        .s = s, .request = request, .usable_blocks = usable_blocks};
    struct estimate_memo memo = {.predicted = false};
    struct prefill_estimate *first = NULL;
    size_t n = 0, n_waiting = 0, n_running = 0;

    schedule_find_peers(s, request, usable_blocks);
    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++) {
        const struct pool_instance *i = pool_at(s->pool, slot);
        struct prefill_estimate *e = &s->candidates[n];

        if (!schedule_takes_work(request, i, ROLE_PREFILL))
            continue;
        estimate_at_least(s, request, i, usable_blocks, &memo, e);
        n++;
        n_waiting += i->n_waiting;
        n_running += i->n_running;
    }
    s->engine_price = engine_price(n, n_waiting, n_running);
    for (size_t c = 0; c < n; c++) {
        struct prefill_estimate *e = &s->candidates[c];

        set_score(s, request, e);
        if (!e->queue_full && !e->too_long &&
            (!first || schedule_plan_before(e, first)))
            first = e;
    }
    if (!first)
        return n;
    search_work_out(&f, first);
    for (size_t c = 0; c < n; c++) {
        struct prefill_estimate *e = &s->candidates[c];

        if (e == first || e->queue_full || e->too_long ||
            schedule_plan_before(f.best, e))
            continue;
        raise_bound(&f, e);
        if (!schedule_plan_before(f.best, e))
            search_work_out(&f, e);
    }
    return n;
}

void schedule_plan_chosen(struct scheduler *s,
                          const struct schedule_request *request,
                          uint32_t usable_blocks,
                          struct schedule_decision *decision)
{
    const unsigned loads =
        LOAD_MODE_BIT(LOAD_MODE_LOAD) | LOAD_MODE_BIT(LOAD_MODE_LAYERWISE);
    const struct pool_instance *i = pool_get(s->pool, decision->prefill);
    struct prefill_estimate load_all = decision->chosen;
    struct load_plan plan;
    struct schedule_site site;

    schedule_find_site(s, request, i, usable_blocks, &site);
    work_out(s, request, usable_blocks, &site, s->load_modes, &decision->plan,
             &decision->chosen);
    decision->n_sources = site.n;
    memcpy(decision->sources, site.sources, site.n * sizeof(site.sources[0]));
    decision->engine_price = s->engine_price;
    if (s->engine_price <= 0.0 || site.n == 0 || !(s->load_modes & loads))
        return;
    /* Later, but with less to compute; or computing all, if that ends sooner,
     * which then loses (decision 013). */
    work_out(s, request, usable_blocks, &site, s->load_modes & loads, &plan,
             &load_all);
    if (schedule_plan_before(&load_all, &decision->chosen)) {
        decision->chosen = load_all;
        decision->plan = plan;
    }
}

/* A candidate's time to first token for the same request some time later, if
 * nothing else comes. */
static int64_t ttft_later_us(const struct scheduler *s,
                             const struct schedule_request *request,
                             const struct schedule_site *site,
                             const struct prefill_estimate *candidate,
                             int64_t in_us)
{
    struct prefill_estimate e = *candidate;
    struct schedule_request later = *request;
    struct load_plan plan;

    later.now_us += in_us;
    e.queue_us = e.queue_us > in_us ? e.queue_us - in_us : 0;
    work_out(s, &later,
             estimate_usable_blocks(&s->model, UINT32_MAX, request->n_tokens),
             site, s->load_modes, &plan, &e);
    return e.ttft_us;
}

int64_t schedule_plan_fits_in_us(const struct scheduler *s,
                                 const struct schedule_request *request,
                                 const struct prefill_estimate *candidate)
{
    int64_t in_us = candidate->ttft_us - request->slo_ttft_us;
    int64_t idle_us = candidate->queue_us;
    struct schedule_site site;

    schedule_find_site(
        s, request, pool_get(s->pool, candidate->instance),
        estimate_usable_blocks(&s->model, UINT32_MAX, request->n_tokens),
        &site);
    for (size_t i = 0; i < site.n; i++)
        if (site.loads[i].free_at_us - request->now_us > idle_us)
            idle_us = site.loads[i].free_at_us - request->now_us;
    if (idle_us >= ESTIMATE_NEVER_US ||
        ttft_later_us(s, request, &site, candidate, idle_us) >
            request->slo_ttft_us)
        return -1;
    if (in_us < 0)
        in_us = 0;
    /* It ends no sooner for being asked later, so what is missing then is to
     * be waited for besides. */
    for (int looks = 1; looks < FITS_LOOKS_MAX && in_us < idle_us; looks++) {
        int64_t late_us = ttft_later_us(s, request, &site, candidate, in_us) -
                          request->slo_ttft_us;

        if (late_us <= 0)
            break;
        in_us += late_us;
    }
    return in_us < idle_us ? in_us : idle_us;
}
