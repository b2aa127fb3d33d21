/*
 * The parts of the policy plan: a candidate's plan and score, which of two is
 * preferred, and when a late one will be in time. For plan's files only.
 */
#ifndef CONDUCTOR_CORE_SCHEDULE_POLICIES_PLAN_SCORE_H
#define CONDUCTOR_CORE_SCHEDULE_POLICIES_PLAN_SCORE_H

#include "conductor/core/schedule/internal.h"

enum {
    PLAN_WAIT_PRICE,
    PLAN_QUEUE_PRICE,
    PLAN_LOAD_MODES,
    PLAN_SESSION,
    PLAN_EVICT_PRICE,
    PLAN_BESIDE_PRICE,
    PLAN_HELD_PRICE,
    PLAN_ORDER,
    PLAN_PREEMPT,
    PLAN_BEHIND_PRICE,
    PLAN_CORRECTION,
    PLAN_LENGTHS,
    PLAN_OVERHANG,
    PLAN_BYPASS,
    PLAN_LINKS,
    PLAN_LINK_WAIT,
    PLAN_LINK_LAST,
    PLAN_HOLD_FIRST,
    PLAN_LINK_PRICE,
    PLAN_PUSH_PRICE,
    PLAN_SHARES,
    PLAN_BESIDE_TBT,
    PLAN_WARM,
    PLAN_REPLICATE,
    PLAN_SWITCH_ROLES,
    PLAN_LEND,
    PLAN_LEND_FROM,
    PLAN_LEND_EFFICIENCY,
    PLAN_PRICE,
    PLAN_RHO,
    PLAN_RHO_EASES,
    PLAN_PRICE_FLOOR,
    PLAN_OPTIONS,
};

extern const struct policy_option plan_options[PLAN_OPTIONS];

/* Writes the policy's rules: see struct schedule_policy. */
void plan_rules(const double *options, struct schedule_rules *out);

/* State of the decision under way. */
struct plan_state {
    struct schedule_peers peers;
    double engine_price; /* see schedule_decision */
    double link_price;   /* the same for each second of a link */
    double mean_speed;   /* mean speed of the candidates; 0 = all are alike */
    double evicted_us;   /* the same for each token that is evicted */
    int64_t equal_us;    /* scores that differ by no more are equal */
    double room_price;   /* cost of each second that room to decode is held
                            before its KV comes */
    double anywhere_us;  /* how long this KV waits for decode instances' links,
                            whatever instance sends it */
};

/* The queues of all candidates together. */
struct plan_queues {
    size_t n_instances;
    size_t n_busy; /* instances with a prefill that waits or runs */
    size_t n_waiting, n_running; /* prefills */
};

/*
 * Returns the seconds that other requests wait for each second of an engine's
 * time. Requests that come before the queue is empty wait for everything
 * computed before them. Their number is estimated: where prefills have
 * instances of their own as the share of these that are busy, else as
 * one if any prefill waits or runs; plus a quarter of the mean queue, a factor
 * found by simulation (decision 013). In an aggregated pool each request that
 * waits for room adds to it: more requests come than leave (decision 017).
 *   n_held  requests that wait for room.
 */
double plan_engine_price(const struct scheduler *s,
                         const struct plan_queues *queues, uint64_t n_held);

/*
 * Returns the seconds that other requests wait for each second that a link
 * sends for this one: b + 1, where b is the mean backlog of a link, in KV of
 * this prompt. Without a TBT SLO it is b + min(1, b), since using an
 * idle link delays nobody; with one, the request's own KV soon uses the same
 * links. b counts fetches, sent or received, and late pushes; pushes that keep
 * up with their prefill delay nothing. 0 without the rule `links`.
 */
double plan_link_price(const struct scheduler *s,
                       const struct schedule_request *request);

/*
 * Returns the seconds that requests wait for each token that a placement
 * evicts: whoever asks for it again waits for its prefill, and others for that
 * engine time.
 *   engine_price  of plan_engine_price().
 */
double plan_evicted_us(const struct scheduler *s, double engine_price);

/*
 * Writes the cost of late KV for a request without a TBT SLO. The request takes
 * room to decode meanwhile: no loss while most of it is free, but a delay for
 * all requests once it is full. So a second costs the fourth power of the share
 * in use. If decode instances receive less than prefill instances can send, KV
 * waits for them wherever it comes from; only longer waits count. O(instances).
 */
void plan_set_room(struct scheduler *s, const struct schedule_request *request);

/* Returns the latest end of a candidate, from now. */
static inline int64_t plan_latest_us(const struct prefill_estimate *e)
{
    return e->most_us > e->ttft_us ? e->most_us : e->ttft_us;
}

/* Returns whether candidate a is preferred: first by meeting the TTFT SLO, then
 * the TBT SLO; then by the lower score, or the earlier end if both are late;
 * the shorter queue; the longest time since its instance's last prefill, so
 * that all caches fill alike; the lower slot. */
static inline bool plan_before(const struct prefill_estimate *a,
                               const struct prefill_estimate *b)
{
    int64_t end_a = a->late ? plan_latest_us(a) : a->score_us;
    int64_t end_b = b->late ? plan_latest_us(b) : b->score_us;

    if (a->late != b->late)
        return b->late;
    if (a->tbt_late != b->tbt_late)
        return b->tbt_late;
    if (end_a != end_b)
        return end_a < end_b;
    if (a->queue_us != b->queue_us)
        return a->queue_us < b->queue_us;
    if (a->last_prefill != b->last_prefill)
        return a->last_prefill < b->last_prefill;
    return a->slot < b->slot;
}

/*
 * Returns the largest difference between scores that count as equal. Corrected
 * predictions of each instance are still off by CORRECTION_NOISE, so smaller
 * differences mean nothing. An error in the request itself is the same on all
 * instances.
 *   least_us  the least work of any candidate.
 */
int64_t plan_equal_us(const struct scheduler *s, int64_t least_us);

/* Returns whether a candidate is as good as the best one: both in time, equal
 * scores, and no more use of others' links, so that no block is fetched for
 * nothing. Of a candidate with a lower bound: whether it may be as good. */
static inline bool plan_equals(const struct plan_state *state,
                               const struct prefill_estimate *e,
                               const struct prefill_estimate *best)
{
    return !best->late && !e->late && e->tbt_late == best->tbt_late &&
           e->score_us - best->score_us <= state->equal_us &&
           e->link_us <= best->link_us;
}

/* Returns whether a is preferred to b where both are as good as the best: by
 * evicting nothing, by the longest time since the instance's last prefill, so
 * that all caches fill alike, by the lower slot. */
static inline bool plan_precedes(const struct prefill_estimate *a,
                                 const struct prefill_estimate *b)
{
    if ((a->evicted_tokens > 0) != (b->evicted_tokens > 0))
        return b->evicted_tokens > 0;
    if (a->last_prefill != b->last_prefill)
        return a->last_prefill < b->last_prefill;
    return a->slot < b->slot;
}

/* Writes whether the candidate's prefill makes a decode beside it miss the TBT
 * SLO. Cost: beside_tbt_us(), where this counts. */
void plan_set_tbt(const struct scheduler *s,
                  const struct schedule_request *request,
                  struct prefill_estimate *e);

/* Writes the score of a candidate, from its ttft, the engine's work and the
 * session, and whether it is late. */
void plan_set_score(const struct scheduler *s,
                    const struct schedule_request *request,
                    struct prefill_estimate *e);

/* The load modes that plans may use, as LOAD_MODE_BITs. */
unsigned plan_load_modes(const struct scheduler *s);

/* Writes the load plan with which a candidate ends first, and its estimates and
 * score.
 *   site   its sources; see schedule_find_site().
 *   modes  see plan_load_modes().
 *   e      in: its instance, queue and the work beside it. */
void plan_work_out(const struct scheduler *s,
                   const struct schedule_request *request,
                   uint32_t usable_blocks, const struct schedule_site *site,
                   unsigned modes, struct load_plan *plan,
                   struct prefill_estimate *e);

/*
 * Returns the time from now until a late candidate meets the TTFT SLO if
 * nothing else comes; -1 = not even with all queues empty. Its queue and the
 * backlogs of its sources shrink; loads that were hidden behind them do not.
 * Only its present sources count.
 *   candidate  of the request just decided on; may be a lower bound.
 * Cost: some plans. If the last look still finds a little missing, the result
 * is a little too soon.
 */
int64_t plan_fits_in_us(const struct scheduler *s,
                        const struct schedule_request *request,
                        const struct prefill_estimate *candidate);

#endif
