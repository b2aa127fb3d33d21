/*
 * The orders shortest_...: the shortest prefill goes first, unless that makes
 * another one late that can still be in time. Private to this folder.
 */
#ifndef CONDUCTOR_CORE_STEP_SHORTEST_H
#define CONDUCTOR_CORE_STEP_SHORTEST_H

#include "conductor/core/step/queue.h"

/*
 * Returns the index of the item that runs next; -1 = none is ready, or the
 * instance waits.
 *   1. As many items as can be in time are protected (Moore and Hodgson's
 *      rule): by due time, add up the costs; skip items that are late anyway;
 *      whenever now + sum is past a due time, drop the largest so far: one
 *      without an SLO if there is any, else one that was not late before. An
 *      item is due at its deadline; one that cannot make it is due again slo_us
 *      later, so that it is late by about slo_us at most.
 *   2. A protected item that is ready may run now if that delays no item due
 *      before it into the last eighth of that item's slo_us: predictions are
 *      not exact.
 *   3. Of the items allowed by rule 2, the one with the smallest cost +
 *      arrival / 50 runs: a second of waiting counts as 20 ms less to compute.
 *      If none is allowed, the smallest of all ready items runs.
 * Ties go to the oldest item. An item that is not ready yet counts in rules 1
 * and 2 like all others: its deadline was promised, too. If no ready item may
 * run, the instance waits for an expected one with an SLO, unless that breaks
 * the promise to another.
 *   items      (n), in any sequence; n <= QUEUE_ITEMS_MAX.
 *   *until_us  raised if no item is late: the answer is the same before then.
 * Cost: O(n), and O(n log n) if deadlines are not in the order of the items or
 * some are past.
 */
int shortest_pick(const struct queue_order *order,
                  const struct queue_item *items, size_t n, int64_t now_us,
                  int64_t *until_us);

/*
 * Returns when `item` would begin on an instance that is free from start_us on,
 * by rule 3 alone: behind all items of lower rank, unless they are too late to
 * be protected, and behind others that begin while it is not ready. Exact while
 * all others are ready, no deadline is near, and at most 32 pass it.
 *   item     younger than the items.
 *   *behind  written: how many of the items would wait until it is done.
 * Cost: O(n), and up to 32 times that if the item is not ready by then.
 */
int64_t shortest_begin_us(const struct queue_order *order,
                          const struct queue_item *items, size_t n,
                          const struct queue_item *item, int64_t start_us,
                          uint32_t *behind);

/* Returns the rank that rule 3 compares: the lowest runs first. */
int64_t shortest_rank(const struct queue_item *item);

#endif
