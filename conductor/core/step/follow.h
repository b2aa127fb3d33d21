/*
 * Decides whether a waiting prefill follows another one of its instance. A
 * prefill counts on blocks that earlier prefills will leave there. If it passed
 * the prefill that makes them, both would compute them, and the estimates by
 * which the whole queue was accepted would not hold. So it waits for the
 * earlier one, if the order would serve the earlier one first even where both
 * compute the shared blocks. A short prompt does not wait for a long one that
 * shares a few blocks with it and would be served later. Orders by age do not
 * follow. Worker and simulator use it. Pure.
 */
#ifndef CONDUCTOR_CORE_STEP_FOLLOW_H
#define CONDUCTOR_CORE_STEP_FOLLOW_H

#include "conductor/core/step/queue.h"

/* The blocks of a prompt. Keys are chained: where two are equal, all before
 * them are. */
struct follow_prompt {
    const uint64_t *keys; /* (n), borrowed */
    uint32_t n;           /* blocks that it will have, or may reuse */
    uint32_t n_there;     /* leading blocks that the instance has now */
    uint32_t n_loaded;    /* blocks behind n_there that its load will bring */
};

/* Returns whether `other` will make the next block that `own` lacks. O(1). */
static inline bool follow_makes(const struct follow_prompt *other,
                                const struct follow_prompt *own)
{
    uint32_t next = own->n_there;

    return next >= other->n_there && next < other->n && next < own->n &&
           other->keys[next] == own->keys[next];
}

/* Returns the extra time (us) of `own` if it were served first, and computed
 * the blocks that `other` will leave.
 *   other_us  cost of `other`, spread evenly over the blocks that it does not
 *             load.
 * Requires follow_makes(other, own). O(log n). */
static inline int64_t follow_shared_us(const struct follow_prompt *other,
                                       int64_t other_us,
                                       const struct follow_prompt *own)
{
    uint32_t from = own->n_there, low = from + 1;
    uint32_t high = other->n < own->n ? other->n : own->n;

    while (low < high) { /* the first `low` blocks are equal */
        uint32_t mid = low + (high - low + 1) / 2;

        if (other->keys[mid - 1] == own->keys[mid - 1])
            low = mid;
        else
            high = mid - 1;
    }
    high = other->n - other->n_there;
    high = other->n_loaded < high ? high - other->n_loaded : 1;
    return (int64_t)((double)other_us * (low - from) / high);
}

/* Returns whether a waiting `item` waits for `other`, which came before it and
 * makes blocks that it lacks. An item with an SLO always does: its deadline and
 * later ones were promised for its cost with these blocks, and it was accepted
 * as in time behind all items before it. shared_us: from follow_shared_us().
 * O(1). */
static inline bool follow_waits(const struct queue_order *order,
                                const struct queue_item *other,
                                const struct queue_item *item,
                                int64_t shared_us)
{
    struct queue_item alone = *item;

    alone.cost_us += shared_us;
    return item->has_slo || queue_comes_before(order, other, &alone);
}

#endif
