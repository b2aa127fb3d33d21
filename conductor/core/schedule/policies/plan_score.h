/*
 * The parts of the policy plan: what a candidate's plan is and scores, which of
 * two is preferred, and when a late one will be in time. Not for other
 * policies.
 */
#ifndef CONDUCTOR_CORE_SCHEDULE_POLICIES_PLAN_SCORE_H
#define CONDUCTOR_CORE_SCHEDULE_POLICIES_PLAN_SCORE_H

#include "conductor/core/schedule/internal.h"

enum {
    PLAN_WAIT_PRICE,
    PLAN_QUEUE_PRICE,
    PLAN_LOAD_MODES,
    PLAN_SESSION,
    PLAN_DECODE_PRICE,
    PLAN_BESIDE_PRICE,
    PLAN_HELD_PRICE,
    PLAN_ORDER,
    PLAN_AWAIT,
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
    PLAN_BY_USE,
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

/* Writes what the policy has others do: see struct schedule_policy. */
void plan_rules(const double *options, struct schedule_rules *out);

/* Of the request that is decided on. */
struct plan_state {
    struct schedule_peers peers;
    double engine_price; /* see schedule_decision */
    double link_price;   /* likewise for each second of a link */
    double mean_speed;   /* of the candidates; 0: all have the same one */
    int64_t equal_us;    /* scores that differ by no more are equal */
    double room_price;   /* for each second that its KV holds room to decode
                            before it is there */
    double anywhere_us;  /* how long that waits for where it decodes, whoever
                            sends it */
};

/* What the candidates have to do, together. */
struct plan_queues {
    size_t n_instances;
    size_t n_busy; /* instances with a prefill that waits or runs */
    size_t n_waiting, n_running; /* prefills */
};

/*
 * How many seconds others wait for each second of an engine's time. Requests
 * that come before the queue is empty wait for everything that is computed
 * before them. Their number is not known: where prefills have instances of
 * their own take the share of these that are busy (option by_use), else one if
 * any prefill is under way where this one could go, and more if more wait now.
 * That a quarter of the mean queue is a good measure was found by simulation
 * (decision 013), not derived. Likewise what each counts that waits for room in
 * an aggregated pool: while they do, more come than leave (decision 017).
 *   n_held  those that wait for room.
 */
double plan_engine_price(const struct scheduler *s,
                         const struct plan_queues *queues, uint64_t n_held);

/*
 * Likewise for each second that a link sends for a request: b + 1, b being the
 * number of prompts' KV that an instance's link is busy with, on average. For a
 * request without a TBT SLO b + min(1, b) (option by_use): idle links are no
 * loss to anybody. With one its own KV leaves by the same links, soon. Fetches
 * that links send or receive count in b, and pushes that are late; those that
 * leave while their prefill goes on hold up nobody. 0 without the option links.
 */
double plan_link_price(const struct scheduler *s,
                       const struct schedule_request *request);

/*
 * Writes what it costs a request without a TBT SLO that its KV is sent late.
 * Its room to decode is held meanwhile: nobody loses by that while most of the
 * room is free, and all that come wait for it once it is full. So a second
 * costs the fourth power of the share that is taken. What decode instances can
 * receive may be less than what prefill instances can send; then its KV waits
 * for those, whichever instance it goes to, and only what it waits beyond that
 * counts. Cost: O(instances).
 */
void plan_set_room(struct scheduler *s, const struct schedule_request *request);

/* When a candidate ends, whatever comes. */
static inline int64_t plan_latest_us(const struct prefill_estimate *e)
{
    return e->most_us > e->ttft_us ? e->most_us : e->ttft_us;
}

/* Whether candidate a is preferred, both with plans: first the one that meets
 * the SLO; then the lower score, or the earlier end if both are late; the
 * shorter queue; the instance whose last prefill came longest ago, so that all
 * fill alike; the lower slot. */
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
 * By how much the scores of equal candidates differ at most. Of two instances
 * each may be off by CORRECTION_NOISE, which is not corrected, so no smaller
 * difference is known to be one. What a request itself is off by does not
 * count: that is so on either. least_us  the work of the candidate that has
 * least to compute.
 */
int64_t plan_equal_us(const struct scheduler *s, int64_t least_us);

/* Whether the instance at a slot has no room for the request's blocks beside
 * what is known to be cached there. O(1). */
bool plan_evicts(const struct scheduler *s,
                 const struct schedule_request *request, uint32_t usable_blocks,
                 uint32_t slot);

/* Whether a candidate is as good as the best one: nobody is late, their scores
 * are equal, and it takes no more of others' links: blocks that are on one
 * instance are not fetched to another for nothing. With a lower bound of its
 * score: whether it may be. */
static inline bool plan_equals(const struct plan_state *state,
                               const struct prefill_estimate *e,
                               const struct prefill_estimate *best)
{
    return !best->late && !e->late && e->tbt_late == best->tbt_late &&
           e->score_us - best->score_us <= state->equal_us &&
           e->link_us <= best->link_us;
}

/* Which of two that are as good as the best is chosen: the one that evicts
 * nothing, the instance whose last prefill came longest ago, so that all fill
 * alike, the lower slot. */
static inline bool plan_precedes(const struct prefill_estimate *a,
                                 const struct prefill_estimate *b)
{
    if (a->evicts != b->evicts)
        return b->evicts;
    if (a->last_prefill != b->last_prefill)
        return a->last_prefill < b->last_prefill;
    return a->slot < b->slot;
}

/* Writes whether a decode on a candidate's instance would miss the TBT SLO by
 * the candidate's prefill. Cost: beside_tbt_us(), where that counts. */
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

/* Writes the load plan of a candidate that ends first, and the candidate's
 * estimates and score with it.
 *   site   what it may load from; see schedule_find_site().
 *   modes  see plan_load_modes().
 *   e      in: its instance, queue and what runs beside it. */
void plan_work_out(const struct scheduler *s,
                   const struct schedule_request *request,
                   uint32_t usable_blocks, const struct schedule_site *site,
                   unsigned modes, struct load_plan *plan,
                   struct prefill_estimate *e);

/*
 * When a candidate that is late will meet the TTFT SLO if nothing else comes,
 * from now: its queue and what its sources are busy with shrink, loads that
 * they hid don't. -1: not even when all that is done. Of sources it knows those
 * that it has now; others may be better by then.
 *   candidate  of the request just decided on; may be a lower bound.
 * Cost: some plans. Where each later look finds a little missing it ends with
 * the last, which is then a little too soon.
 */
int64_t plan_fits_in_us(const struct scheduler *s,
                        const struct schedule_request *request,
                        const struct prefill_estimate *candidate);

#endif
