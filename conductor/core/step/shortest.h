/*
 * The orders shortest_...: the shortest prefill goes first, as long as nobody
 * who can still be in time gets late by it. Internal to the queue's orders.
 */
#ifndef CONDUCTOR_CORE_STEP_SHORTEST_H
#define CONDUCTOR_CORE_STEP_SHORTEST_H

#include "conductor/core/step/queue.h"

/*
 * Which item runs next.
 *   1. Protected are as many items as can be in time (Moore and Hodgson's
 *      rule): by due time, add up the costs; skip what is late anyway; whenever
 *      now + sum is past a due time, drop the largest so far: one without an
 *      SLO if there is any, else one that was not late before. An item is due
 *      at its deadline; one with an SLO that cannot make it is due again as
 *      long after it as it had from its arrival, so that it is late by about as
 *      much at most.
 *   2. A protected item that is ready may run now if that delays none of those
 *      that are due before it into the last eighth of their time: predictions
 *      are not exact.
 *   3. Of these the smallest cost + arrival / 50 runs: a second of waiting
 *      counts as 20 ms less to compute. None may run: the smallest of all that
 *      are ready.
 *   4. If the order awaits: in front of that one the instance waits for a
 *      shorter item that is about to be ready: no longer than this takes, than
 *      a sixteenth of what that one takes more, and only if all with an SLO
 *      would be in time even as the last. It does not if that one would yield
 *      to the shorter item (yield.h).
 * Ties go to the oldest item. An item that is not ready yet counts in rules 1
 * and 2 like all others: its deadline was promised, too. If no ready item may
 * run, the instance waits for a promised one that is expected, unless that
 * breaks a promise.
 *   items      (n), in any sequence; n <= QUEUE_ITEMS_MAX.
 *   *until_us  raised where nobody is late: before then the answer stays.
 * Returns its index; -1: none is ready, or it waits. Cost: O(n), and O(n log n)
 * if deadlines do not come in the order of the items or some are past.
 */
int shortest_pick(const struct queue_order *order,
                  const struct queue_item *items, size_t n, int64_t now_us,
                  int64_t *until_us);

/*
 * When `item` would begin on an instance that is free from start_us on, by rule
 * 3 alone: behind all that are ahead by cost and age, unless they are too late
 * to be protected; and behind others, too, that begin while it is not ready.
 * Exact while all others are ready, no deadline is near, and at most 32 pass.
 *   item     younger than the items.
 *   *behind  how many of them would wait until it is done.
 * Cost: O(n), and up to 32 times that where the item is not ready by then.
 */
int64_t shortest_begin_us(const struct queue_order *order,
                          const struct queue_item *items, size_t n,
                          const struct queue_item *item, int64_t start_us,
                          uint32_t *behind);

/* What rule 3 compares: the lowest first. */
int64_t shortest_rank(const struct queue_item *item);

#endif
