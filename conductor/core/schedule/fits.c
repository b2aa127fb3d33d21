/* Estimates when a request that misses an SLO, or finds no room, would fit. */
#include "conductor/core/schedule/internal.h"

static int64_t lesser_us(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t greater_us(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The part of a transfer's time spent behind other transfers of the sender. */
static int64_t congestion_us(const struct scheduler *s,
                             const struct schedule_request *request,
                             const struct prefill_estimate *e)
{
    const struct pool_instance *sender = pool_get(s->pool, e->fetch_from);

    if (!sender || s->model.simulated.links_unshared)
        return 0;
    return lesser_us(e->transfer_us,
                     greater_us(sender->egress_free_us - request->now_us, 0));
}

/* The part of the reads from the instance's own slow tiers spent behind reads
 * for other requests. */
static int64_t own_wait_us(const struct scheduler *s,
                           const struct schedule_request *request,
                           const struct prefill_estimate *e)
{
    const struct pool_instance *i = pool_get(s->pool, e->instance);
    int64_t us = 0;

    if (e->ready_us <= e->transfer_end_us)
        return 0;
    for (unsigned t = 0; t < LOAD_TIERS; t++)
        us = greater_us(us, i->tier_free_us[t] - request->now_us);
    return lesser_us(us, e->ready_us - request->now_us);
}

/* candidate_fits_in_us() under the rule by_score. Each second, the score falls
 * by one for the queue and one for congestion, while both last. */
static int64_t score_fits_in_us(const struct scheduler *s,
                                const struct schedule_request *request,
                                const struct prefill_estimate *e)
{
    int64_t late_us = schedule_tested_us(s, e) - request->slo_ttft_us;
    int64_t link_us = congestion_us(s, request, e);
    int64_t both_us = lesser_us(link_us, e->queue_most_us);

    if (late_us > link_us + e->queue_most_us + e->beside_us)
        return -1;
    if (late_us <= 0)
        return 0;
    return late_us <= 2 * both_us ? (late_us + 1) / 2 : late_us - both_us;
}

/* Time until a candidate's queue and the backlogs of its links and tiers have
 * shrunk enough; -1 = never. Each shrinks by a second per second. The request's
 * own transfer and prefill do not, except for the time that decodes add. */
static int64_t candidate_fits_in_us(const struct scheduler *s,
                                    const struct schedule_request *request,
                                    const struct prefill_estimate *e)
{
    int64_t load_us = e->ready_us - request->now_us;

    if (s->policy->fits_in_us)
        return s->policy->fits_in_us(s, request, e);
    if (s->rules.by_score)
        return score_fits_in_us(s, request, e);
    load_us -=
        greater_us(congestion_us(s, request, e), own_wait_us(s, request, e));
    if (load_us + e->prefill_us - e->beside_us > request->slo_ttft_us)
        return -1;
    return greater_us(e->most_us - request->slo_ttft_us, 0);
}

int64_t schedule_fits_in_us(const struct scheduler *s,
                            const struct schedule_request *request,
                            const struct schedule_decision *decision)
{
    int64_t best_us = candidate_fits_in_us(s, request, &decision->chosen);

    for (size_t c = 0; c < decision->n_candidates; c++) {
        const struct prefill_estimate *e = &decision->candidates[c];
        int64_t in_us = schedule_tested_us(s, e) - request->slo_ttft_us;

        /* A candidate needs at least the time by which it misses the SLO, or
         * half where queue and congestion both shrink: most need no look. */
        if (s->rules.by_score)
            in_us /= 2;
        if (e->too_long || e->queue_full || e->spared ||
            e->instance == decision->prefill ||
            (best_us >= 0 && in_us >= best_us))
            continue;
        in_us = candidate_fits_in_us(s, request, e);
        if (in_us >= 0 && (best_us < 0 || in_us < best_us))
            best_us = in_us;
    }
    return best_us;
}

int64_t schedule_decode_fits_in_us(const struct scheduler *s,
                                   const struct schedule_request *request,
                                   const struct decode_estimate *candidate,
                                   int64_t prefill_us)
{
    const struct pool_instance *i = pool_get(s->pool, candidate->instance);
    bool predicts = schedule_predicts_decode(s, request);
    int64_t us = estimate_decode_fits_in_us(
        &s->model, i, request->n_tokens,
        predicts ? request->expected_tokens : request->max_output_tokens,
        request->slo_tbt_us, s->decode_ends);
    int64_t prefills_us =
        pool_running_left_us(i, request->now_us) + i->load.cost_us;

    if (us == ESTIMATE_NEVER_US)
        return -1;
    if (predicts) /* the decode begins after the prefill */
        us = us > prefill_us ? us - prefill_us : 1;
    /* Prefills in its steps make them too long: wait until all are done. */
    return estimate_decodes_here(&s->model, i) && request->slo_tbt_us > 0 &&
                   candidate->tbt_us > request->slo_tbt_us && us < prefills_us
               ? prefills_us
               : us;
}
