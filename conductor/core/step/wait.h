/* How long the youngest of a queue waits. Internal to the queue's orders. */
#ifndef CONDUCTOR_CORE_STEP_WAIT_H
#define CONDUCTOR_CORE_STEP_WAIT_H

#include "conductor/core/step/queue.h"

/*
 * When an instance that is free from start_us on would begin `item`, if it
 * serves what is ready by age and never waits while something is.
 *   items         (n), by age.
 *   item          younger than they are, and not loading; it will be ready.
 *   loading_last  what is loading comes after all that is not.
 * Returns the absolute time. Cost: O(n), and O(log n) for each item that is
 * not ready or not loaded at start_us. If those are more than some thousand,
 * the answer is a bound: as if all others went first, and only when all are
 * ready.
 */
int64_t wait_begin_us(const struct queue_item *items, size_t n,
                      const struct queue_item *item, bool loading_last,
                      int64_t start_us);

#endif
