/* The wait of a queue's youngest item, under orders by age. Private to this
 * folder. */
#ifndef CONDUCTOR_CORE_STEP_WAIT_H
#define CONDUCTOR_CORE_STEP_WAIT_H

#include "conductor/core/step/queue.h"

/*
 * Returns when an instance that is free from start_us on would begin `item`, if
 * it serves ready items by age and never waits while one is ready. Absolute.
 *   items         (n), sorted by age.
 *   item          younger than the items, not loading, not QUEUE_NOT_READY.
 *   loading_last  loading items come after all others.
 * Cost: O(n), and O(log n) for each item that is not ready or not loaded at
 * start_us. With more than some thousand such items the result is an upper
 * bound, as if all others went first, once all are ready.
 */
int64_t wait_begin_us(const struct queue_item *items, size_t n,
                      const struct queue_item *item, bool loading_last,
                      int64_t start_us);

#endif
