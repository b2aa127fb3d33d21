/*
 * Decides whether a prefill that has begun yields to another one. Orders that
 * interrupt at the end of a chunk keep begun prefills as a stack: the top one
 * runs, and the one below it continues when it is done.
 *
 * A prefill of cost c may begin on top if
 *   - c is at most a third of the remaining time of the prefill at work;
 *   - each prefill below will then have been interrupted for no longer than its
 *     own cost: so it is done within twice its cost, if predictions hold;
 *   - all prefills that wait or have begun would be done within the patience
 *     even if they took half as much again, the sum of a third, a third of
 *     that, and so on. Above saturation no prefill is interrupted: long ones
 *     would pay for it;
 *   - it could not reuse blocks that a prefill which has begun is yet to
 *     compute, or both would compute them; and
 *   - the queue's order picks it before the prefills that have begun, which are
 *     due early enough for the prefills with an SLO behind them (step.c).
 * Worker, estimates and simulator use it. Pure.
 */
#ifndef CONDUCTOR_CORE_STEP_YIELD_H
#define CONDUCTOR_CORE_STEP_YIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define YIELD_SHARE 3 /* least ratio of remaining time to that cost */

/* A prefill that has begun. */
struct yield_begun {
    int64_t cost_us;  /* of the whole prefill */
    int64_t left_us;  /* rest of cost_us, at least 0 */
    int64_t stood_us; /* time spent on other prefills since it began */
};

/*
 * Returns the state of a prefill that began since_us ago, as its engine sees
 * it: if it is slower than predicted, by its rate so far.
 *   stood_us  part of since_us in which it was interrupted.
 *   done      computed tokens.
 *   to_do     tokens to compute; 0 = unknown, since some are still loaded.
 */
static inline struct yield_begun yield_begun(int64_t cost_us, int64_t since_us,
                                             int64_t stood_us, uint32_t done,
                                             uint32_t to_do)
{
    int64_t worked_us = since_us - stood_us;
    int64_t left_us = cost_us > worked_us ? cost_us - worked_us : 0;
    double rate_us = done > 0 ? (double)worked_us / done * to_do : 0.0;

    if (rate_us > (double)left_us)
        left_us = (int64_t)rate_us;
    return (struct yield_begun){cost_us, left_us, stood_us};
}

/* Returns the spare time (us): how much work may still begin on top of `b` and
 * the prefills below it. It stays the same until a prefill begins or is done.
 *   below_us  spare time of the prefills below; INT64_MAX = there are none. */
static inline int64_t yield_spare_us(int64_t below_us,
                                     const struct yield_begun *b)
{
    int64_t own_us = b->cost_us - b->stood_us;

    if (below_us == INT64_MAX || own_us < below_us - b->left_us)
        return own_us;
    return below_us - b->left_us;
}

/*
 * Returns whether a prefill that has begun has yet to compute blocks that a
 * waiting one can reuse. Until then the waiting one is not ready: if it passed,
 * both would compute them.
 *   keys    (n), borrowed: of the prefill that has begun.
 *   n_done  its leading blocks done.
 *   others  (n_others), borrowed: of the blocks that the waiting prefill may
 *           reuse.
 */
static inline bool yield_computes_for(const uint64_t *keys, size_t n,
                                      size_t n_done, const uint64_t *others,
                                      size_t n_others)
{
    return n_done < n && n_done < n_others && keys[n_done] == others[n_done];
}

/* Returns whether an instance with to_do_us of accepted work may interrupt. */
static inline bool yield_has_time(int64_t to_do_us, int64_t patience_us)
{
    return to_do_us <= patience_us / YIELD_SHARE * (YIELD_SHARE - 1);
}

/* Returns the largest cost (us) of a prefill that may begin on top, or below 1.
 *   spare_us  of yield_spare_us(), for the prefill at work.
 *   left_us   its remaining time. */
static inline int64_t yield_most_us(int64_t spare_us, int64_t left_us)
{
    return spare_us < left_us / YIELD_SHARE ? spare_us : left_us / YIELD_SHARE;
}

#endif
