/* The mechanism of scheduling; which candidate wins is a policy's word. */
#include "conductor/core/schedule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/schedule_policy.h"

struct scheduler {
    struct estimate_model model;
    const struct schedule_policy *policy;
    const struct admission_policy *admission;
    struct policy_state state;
    double threshold;
    struct pool *pool;
    struct prefix_index *index;
    uint32_t *ready;   /* (index instances): leading blocks stored */
    uint32_t *pending; /* (pool instances): leading blocks expected */
    struct prefill_estimate *candidates;
    struct decode_estimate *decode_candidates;
};

static const char *const verdict_names[SCHEDULE_VERDICTS] = {
    [SCHEDULE_ACCEPT] = "accept",
    [SCHEDULE_REJECT_TTFT] = "reject_slo_ttft",
    [SCHEDULE_REJECT_TBT] = "reject_slo_tbt",
    [SCHEDULE_NO_PREFILL_INSTANCE] = "no_prefill_instance",
    [SCHEDULE_NO_DECODE_INSTANCE] = "no_decode_instance",
    [SCHEDULE_DECODE_FULL] = "decode_full",
    [SCHEDULE_QUEUE_FULL] = "queue_full",
    [SCHEDULE_TOO_LONG] = "too_long",
};

const struct schedule_config schedule_config_default = {
    .policy = "global_cache",
    .admission = "plain",
    .kvcache_balancing_threshold = 1.0,
    .seed = 1,
};

struct scheduler *scheduler_new(const struct schedule_config *config,
                                const struct estimate_model *model,
                                struct pool *pool, struct prefix_index *index)
{
    size_t n = pool_max_instances(pool);
    struct scheduler *s;

    if (prefix_index_max_instances(index) < n || model->block_tokens == 0 ||
        model->kv_bytes_per_token < 1 ||
        !(config->kvcache_balancing_threshold >= 1.0))
        return NULL;
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->model = *model;
    s->policy = schedule_policy_by_name(config->policy);
    s->admission = admission_policy_by_name(config->admission);
    s->state.rng = config->seed;
    s->state.turn = UINT32_MAX;
    s->threshold = config->kvcache_balancing_threshold;
    s->pool = pool;
    s->index = index;
    s->ready = calloc(prefix_index_max_instances(index), sizeof(*s->ready));
    s->pending = calloc(n, sizeof(*s->pending));
    s->candidates = calloc(n, sizeof(*s->candidates));
    s->decode_candidates = calloc(n, sizeof(*s->decode_candidates));
    if (s->policy == NULL || s->admission == NULL || s->ready == NULL ||
        s->pending == NULL || s->candidates == NULL ||
        s->decode_candidates == NULL) {
        scheduler_free(s);
        return NULL;
    }
    return s;
}

void scheduler_free(struct scheduler *scheduler)
{
    if (scheduler == NULL)
        return;
    free(scheduler->decode_candidates);
    free(scheduler->candidates);
    free(scheduler->pending);
    free(scheduler->ready);
    free(scheduler);
}

static bool excluded(const struct schedule_request *request, uint32_t id)
{
    for (size_t i = 0; i < request->n_exclude; i++)
        if (request->exclude[i] == id)
            return true;
    return false;
}

/* Whether an instance may be chosen for a role. */
static bool takes_work(const struct schedule_request *request,
                       const struct pool_instance *instance, unsigned role)
{
    return instance != NULL && (instance->role & role) != 0 &&
           instance->health == HEALTH_READY && !excluded(request, instance->id);
}

static uint32_t usable(const struct scheduler *s,
                       const struct schedule_request *request, uint32_t blocks)
{
    return estimate_usable_blocks(blocks, request->n_tokens,
                                  s->model.block_tokens);
}

static int64_t busy_until_us(const struct pool_instance *instance,
                             const struct schedule_request *request)
{
    return instance->egress_free_us > request->now_us ? instance->egress_free_us
                                                      : request->now_us;
}

/* FindBestPrefixMatch: who can send the most leading blocks, counting only
 * stored ones. Ties go to the link that is free first, then to the lowest
 * slot. Returns NULL if nobody has any. */
static const struct pool_instance *
find_sender(const struct scheduler *s, const struct schedule_request *request,
            uint32_t *best_blocks)
{
    const struct pool_instance *best = NULL;

    *best_blocks = 0;
    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++) {
        const struct pool_instance *i = pool_at(s->pool, slot);
        uint32_t blocks = usable(s, request, s->ready[slot]);

        if (blocks == 0 || blocks < *best_blocks || i == NULL ||
            !(i->link_bytes_per_s > 0.0) || excluded(request, i->id) ||
            (i->health != HEALTH_READY && i->health != HEALTH_DRAINING))
            continue;
        if (blocks == *best_blocks &&
            busy_until_us(i, request) >= busy_until_us(best, request))
            continue;
        *best_blocks = blocks;
        best = i;
    }
    return best;
}

/* Algorithm 1's condition: best_len / prefix_len > threshold, where a
 * prefix_len of 0 is above any threshold if there is a best_len. */
static bool worth_fetching(const struct scheduler *s, uint32_t best_blocks,
                           uint32_t local_blocks)
{
    return best_blocks > 0 &&
           (double)best_blocks > s->threshold * (double)local_blocks;
}

/* Estimates every prefill instance that takes work. */
static size_t estimate_candidates(struct scheduler *s,
                                  const struct schedule_request *request)
{
    const struct pool_instance *sender = NULL;
    uint32_t best_blocks = 0;
    size_t n = 0;
    int64_t deadline_us =
        request->slo_ttft_us > 0 ? request->now_us + request->slo_ttft_us : 0;

    prefix_index_match(s->index, request->keys, request->n_keys, s->ready);
    pool_pending_match(s->pool, request->keys, request->n_keys, s->pending);
    if (s->policy->fetches)
        sender = find_sender(s, request, &best_blocks);
    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++) {
        const struct pool_instance *i = pool_at(s->pool, slot);
        uint32_t matched = s->ready[slot] > s->pending[slot] ? s->ready[slot]
                                                             : s->pending[slot];
        uint32_t local = usable(s, request, matched);
        bool fetch = sender != i && worth_fetching(s, best_blocks, local);

        if (!takes_work(request, i, ROLE_PREFILL))
            continue;
        estimate_prefill(&s->model, s->pool, i, request->n_tokens, local,
                         fetch ? best_blocks : local, fetch ? sender : NULL,
                         deadline_us, request->now_us, &s->candidates[n++]);
    }
    return n;
}

/* Why nothing was eligible: no instance of the role, whatever its health, is
 * large enough; or those that are don't take work. */
static enum schedule_verdict why_none(const struct scheduler *s, unsigned role,
                                      int64_t need_tokens,
                                      enum schedule_verdict no_instance)
{
    bool any = false;

    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++) {
        const struct pool_instance *i = pool_at(s->pool, slot);

        if (i == NULL || (i->role & role) == 0 || i->health == HEALTH_GONE)
            continue;
        if (need_tokens <= i->kv_capacity_tokens)
            return no_instance;
        any = true;
    }
    return any ? SCHEDULE_TOO_LONG : no_instance;
}

/* When the first of the full queues will have a place, from now. */
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

static bool choose_prefill(struct scheduler *s,
                           const struct schedule_request *request,
                           struct schedule_decision *decision)
{
    bool full = false;
    size_t best;

    decision->candidates = s->candidates;
    decision->n_candidates = estimate_candidates(s, request);
    best = s->policy->choose(&s->state, s->candidates, decision->n_candidates);
    if (best < decision->n_candidates) {
        decision->chosen = s->candidates[best];
        decision->prefill = decision->chosen.instance;
        return true;
    }
    for (size_t c = 0; c < decision->n_candidates; c++)
        full |= s->candidates[c].queue_full && !s->candidates[c].too_long;
    if (full) {
        decision->verdict = SCHEDULE_QUEUE_FULL;
        decision->retry_after_us = place_in_us(s, decision, request->now_us);
    } else {
        decision->verdict = why_none(s, ROLE_PREFILL, request->n_tokens,
                                     SCHEDULE_NO_PREFILL_INSTANCE);
    }
    return false;
}

/* The instance of a decode candidate that would fit soonest, from now. */
static int64_t decode_fits_in_us(const struct scheduler *s,
                                 const struct schedule_request *request,
                                 const struct decode_estimate *candidate)
{
    int64_t us = estimate_decode_fits_in_us(
        &s->model, s->pool, pool_get(s->pool, candidate->instance),
        request->n_tokens, request->max_output_tokens, request->slo_tbt_us);

    return us == ESTIMATE_NEVER_US ? -1 : us;
}

/* SelectDecodingInstance: the lowest predicted TBT among those with room. */
static bool choose_decode(struct scheduler *s,
                          const struct schedule_request *request,
                          struct schedule_decision *decision)
{
    const struct decode_estimate *best = NULL;
    const struct decode_estimate *roomiest = NULL;
    size_t n = 0;

    if (request->max_output_tokens <= 1)
        return true;
    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++) {
        const struct pool_instance *i = pool_at(s->pool, slot);
        struct decode_estimate *c = &s->decode_candidates[n];

        if (!takes_work(request, i, ROLE_DECODE))
            continue;
        estimate_decode(&s->model, s->pool, i, request->n_tokens,
                        request->max_output_tokens, c);
        n++;
        if (c->too_long)
            continue;
        if (!c->no_room && (best == NULL || c->tbt_us < best->tbt_us))
            best = c;
        if (roomiest == NULL || c->room_tokens > roomiest->room_tokens)
            roomiest = c;
    }
    decision->decode_candidates = s->decode_candidates;
    decision->n_decode_candidates = n;
    if (best != NULL) {
        decision->decode = best->instance;
        decision->tbt_us = best->tbt_us;
        return true;
    }
    if (roomiest != NULL) {
        decision->verdict = SCHEDULE_DECODE_FULL;
        decision->retry_after_us = decode_fits_in_us(s, request, roomiest);
    } else {
        decision->verdict = why_none(
            s, ROLE_DECODE, request->n_tokens + request->max_output_tokens,
            SCHEDULE_NO_DECODE_INSTANCE);
    }
    return false;
}

/* When some candidate's queue will have shrunk enough for the TTFT SLO: its
 * wait falls by a second each second, its transfer and its prefill don't. */
static int64_t ttft_fits_in_us(const struct schedule_request *request,
                               const struct schedule_decision *decision)
{
    int64_t best_us = -1;

    for (size_t c = 0; c < decision->n_candidates; c++) {
        const struct prefill_estimate *e = &decision->candidates[c];
        int64_t in_us = e->ttft_us - request->slo_ttft_us;

        if (e->too_long || e->queue_full ||
            e->transfer_us + e->prefill_us > request->slo_ttft_us)
            continue;
        if (in_us < 0)
            in_us = 0;
        if (best_us < 0 || in_us < best_us)
            best_us = in_us;
    }
    return best_us;
}

static void admit(struct scheduler *s, const struct schedule_request *request,
                  struct schedule_decision *decision)
{
    struct admission_request ask = {
        .ttft_us = decision->chosen.ttft_us,
        .tbt_us = decision->tbt_us,
        .slo_ttft_us = request->slo_ttft_us,
        .slo_tbt_us = request->slo_tbt_us,
    };

    switch (s->admission->decide(&ask)) {
    case ADMISSION_ACCEPT:
        decision->verdict = SCHEDULE_ACCEPT;
        decision->retry_after_us = 0;
        break;
    case ADMISSION_REJECT_TTFT:
        decision->verdict = SCHEDULE_REJECT_TTFT;
        decision->retry_after_us = ttft_fits_in_us(request, decision);
        break;
    case ADMISSION_REJECT_TBT:
        decision->verdict = SCHEDULE_REJECT_TBT;
        for (size_t c = 0; c < decision->n_decode_candidates; c++)
            if (s->decode_candidates[c].instance == decision->decode)
                decision->retry_after_us =
                    decode_fits_in_us(s, request, &s->decode_candidates[c]);
        break;
    }
}

void schedule_decide(struct scheduler *scheduler,
                     const struct schedule_request *request,
                     struct schedule_decision *decision)
{
    memset(decision, 0, sizeof(*decision));
    decision->retry_after_us = -1;
    if (choose_prefill(scheduler, request, decision) &&
        choose_decode(scheduler, request, decision))
        admit(scheduler, request, decision);
}

int schedule_commit(struct scheduler *scheduler,
                    const struct schedule_request *request,
                    const struct schedule_decision *decision)
{
    const struct prefill_estimate *chosen = &decision->chosen;
    struct pool *pool = scheduler->pool;
    int error;

    if (decision->verdict != SCHEDULE_ACCEPT)
        return -EINVAL;
    if (chosen->fetch_from != POOL_NO_INSTANCE &&
        pool_get(pool, chosen->fetch_from) == NULL)
        return -ESTALE;
    error = pool_prefill_accept(
        pool, decision->prefill,
        &(struct pool_prefill_request){
            .request_id = request->request_id,
            .predicted_us = chosen->predicted_us,
            .ready_at_us = chosen->transfer_end_us,
            .deadline_us = request->slo_ttft_us > 0
                               ? request->now_us + request->slo_ttft_us
                               : 0,
            .uncached_tokens = request->n_tokens - chosen->cached_tokens,
            .cached_tokens = chosen->cached_tokens,
            .keys = request->keys,
            .n_keys = request->n_keys,
        });
    if (error < 0)
        return error;
    if (decision->decode != POOL_NO_INSTANCE)
        error =
            pool_decode_accept(pool, decision->decode, request->request_id,
                               request->n_tokens, request->max_output_tokens);
    if (error < 0) {
        (void)pool_prefill_cancel(pool, decision->prefill, request->request_id);
        return error;
    }
    if (chosen->fetch_from != POOL_NO_INSTANCE)
        (void)pool_egress_book(pool, chosen->fetch_from,
                               chosen->transfer_end_us);
    return 0;
}

const char *schedule_verdict_name(enum schedule_verdict verdict)
{
    return (unsigned)verdict < SCHEDULE_VERDICTS ? verdict_names[verdict] : "?";
}

const char *schedule_policy_name(size_t i)
{
    const struct schedule_policy *policy = schedule_policy_at(i);

    return policy == NULL ? NULL : policy->name;
}
