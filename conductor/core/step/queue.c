/* The table of queue orders, and the orders by age. */
#include "conductor/core/step/queue.h"

#include <string.h>

#include "conductor/core/step/shortest.h"
#include "conductor/core/step/wait.h"

/* The oldest ready item. */
static int fifo_pick(const struct queue_order *, const struct queue_item *items,
                     size_t n, int64_t now_us, int64_t *)
{
    int best = -1;

    for (size_t i = 0; i < n; i++)
        if (items[i].ready_at_us <= now_us &&
            (best < 0 || items[i].arrival_seq < items[best].arrival_seq))
            best = (int)i;
    return best;
}

static int64_t by_age_begin_us(const struct queue_order *order,
                               const struct queue_item *items, size_t n,
                               const struct queue_item *item, int64_t start_us,
                               uint32_t *)
{
    return wait_begin_us(items, n, item, order->loading_last, start_us);
}

/* The oldest item, once it is ready. */
static int fifo_strict_pick(const struct queue_order *,
                            const struct queue_item *items, size_t n,
                            int64_t now_us, int64_t *)
{
    size_t best = 0;

    for (size_t i = 1; i < n; i++)
        if (items[i].arrival_seq < items[best].arrival_seq)
            best = i;
    return n > 0 && items[best].ready_at_us <= now_us ? (int)best : -1;
}

/* Adds up the items one after another. */
static int64_t fifo_strict_begin_us(const struct queue_order *,
                                    const struct queue_item *items, size_t n,
                                    const struct queue_item *item,
                                    int64_t start_us, uint32_t *)
{
    int64_t begin_us = start_us;

    for (size_t i = 0; i < n; i++) {
        if (items[i].ready_at_us == QUEUE_NOT_READY)
            return INT64_MAX;
        if (items[i].ready_at_us > begin_us)
            begin_us = items[i].ready_at_us;
        begin_us += items[i].cost_us;
    }
    return item->ready_at_us > begin_us ? item->ready_at_us : begin_us;
}

/* Returns the oldest ready item that is not loading, else the oldest loading
 * one: loads go on while other items are computed (Cake's adaptive scheduling;
 * decode steps come before both and are not in this queue). */
static int uncached_first_pick(const struct queue_order *,
                               const struct queue_item *items, size_t n,
                               int64_t now_us, int64_t *)
{
    int best = -1;
    bool best_loads = false;

    for (size_t i = 0; i < n; i++) {
        bool loads = items[i].loading_until_us > now_us;

        if (items[i].ready_at_us > now_us)
            continue;
        if (best < 0 || (loads == best_loads
                             ? items[i].arrival_seq < items[best].arrival_seq
                             : best_loads)) {
            best = (int)i;
            best_loads = loads;
        }
    }
    return best;
}

static const struct queue_order orders[] = {
    {.name = "fifo",
     .pick = fifo_pick,
     .begin_us = by_age_begin_us,
     .by_age = true},
    {.name = "fifo_strict",
     .pick = fifo_strict_pick,
     .begin_us = fifo_strict_begin_us,
     .by_age = true},
    {.name = "uncached_first",
     .pick = uncached_first_pick,
     .begin_us = by_age_begin_us,
     .loading_last = true,
     .by_age = true},
    {.name = "shortest_first",
     .pick = shortest_pick,
     .begin_us = shortest_begin_us,
     .rank = shortest_rank},
    {.name = "shortest_first_yield",
     .pick = shortest_pick,
     .begin_us = shortest_begin_us,
     .rank = shortest_rank,
     .preempts = true},
};

const struct queue_order *queue_order_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
        if (strcmp(orders[i].name, name) == 0)
            return &orders[i];
    return NULL;
}

const char *queue_order_name(size_t i)
{
    return i < sizeof(orders) / sizeof(orders[0]) ? orders[i].name : NULL;
}

int queue_pick(const struct queue_order *order, const struct queue_item *items,
               size_t n, int64_t now_us)
{
    int64_t until_us;

    return queue_pick_until(order, items, n, now_us, &until_us);
}

int queue_pick_until(const struct queue_order *order,
                     const struct queue_item *items, size_t n, int64_t now_us,
                     int64_t *until_us)
{
    *until_us = now_us + 1;
    return order->pick(order, items, n, now_us, until_us);
}

int64_t queue_look_us(const struct queue_order *order,
                      const struct queue_item *items, size_t n, int64_t now_us)
{
    int64_t look_us = INT64_MAX;
    bool waits = false;

    for (size_t i = 0; !order->by_age && i < n; i++) {
        int64_t at_us = queue_expected_us(&items[i]);

        waits |= items[i].ready_at_us <= now_us;
        if (at_us > now_us && at_us < look_us)
            look_us = at_us;
    }
    return waits ? look_us : INT64_MAX;
}
