/*
 * Which prefill that has begun yields to another one. Instances that are
 * interrupted at the end of a chunk serve what they have begun as a stack: the
 * last one to begin is at work, and those below it go on when it is done, the
 * last first.
 *
 * One of cost c may begin on top if
 *   - c is at most a third of what is left of the one at work;
 *   - everyone below has then stood, while others were served, for no longer
 *     than its own work takes in all: whoever has begun is done within twice
 *     that, as far as costs are as predicted; and
 *   - all that waits or has begun would be done within the patience even if it
 *     took half as much again, which is what thirds upon thirds come to. Above
 *     saturation nobody is interrupted: there the long ones would pay for it;
 *   - it could use nothing that those that have begun are yet to compute, or
 *     both would compute it; and
 *   - the queue's order picks it before what has begun, all of which is due as
 *     early as those with an SLO need that come after it (step.c).
 * Worker, estimates and simulator ask here. Pure.
 */
#ifndef CONDUCTOR_CORE_STEP_YIELD_H
#define CONDUCTOR_CORE_STEP_YIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define YIELD_SHARE 3 /* to one that takes this part of what is left */

/* One that has begun. */
struct yield_begun {
    int64_t cost_us;  /* of all of it */
    int64_t left_us;  /* of that, at least 0 */
    int64_t stood_us; /* that was spent on others since it began */
};

/*
 * One that began since_us ago, as its engine sees it: what takes longer than
 * predicted is known by its rate so far.
 *   stood_us  of that it was interrupted.
 *   done      tokens that it computed.
 *   to_do     tokens that it has yet to compute; 0: not known, as some of them
 *             are still being loaded.
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

/* How much others may begin while `b` and those below it have begun; below_us:
 * the same without `b`, INT64_MAX: there are none. It is the same at all times
 * until one begins or is done. */
static inline int64_t yield_spare_us(int64_t below_us,
                                     const struct yield_begun *b)
{
    int64_t own_us = b->cost_us - b->stood_us;

    if (below_us == INT64_MAX || own_us < below_us - b->left_us)
        return own_us;
    return below_us - b->left_us;
}

/*
 * Whether one that has begun has yet to compute blocks that a waiting one could
 * use. That one is not ready before: if it passed, both would compute them.
 *   keys    (n), borrowed: of the one that has begun.
 *   n_done  its leading blocks that are there.
 *   others  (n_others), borrowed: of the waiting one's blocks that it may
 * reuse.
 */
static inline bool yield_computes_for(const uint64_t *keys, size_t n,
                                      size_t n_done, const uint64_t *others,
                                      size_t n_others)
{
    return n_done < n && n_done < n_others && keys[n_done] == others[n_done];
}

/* Whether one with so much to do, waiting or begun, interrupts anybody. */
static inline bool yield_has_time(int64_t to_do_us, int64_t patience_us)
{
    return to_do_us <= patience_us / YIELD_SHARE * (YIELD_SHARE - 1);
}

/* The largest cost of one that may begin on top; below 1: none.
 *   spare_us  of yield_spare_us(), of the one at work. */
static inline int64_t yield_most_us(int64_t spare_us, int64_t left_us)
{
    return spare_us < left_us / YIELD_SHARE ? spare_us : left_us / YIELD_SHARE;
}

#endif
