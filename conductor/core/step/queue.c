/* Queue orders, and how long one waits under them. */
#include "conductor/core/step/queue.h"

#include <string.h>

/* The oldest ready item. */
static int fifo_pick(const struct queue_item *items, size_t n, int64_t now_us)
{
    int best = -1;

    for (size_t i = 0; i < n; i++)
        if (items[i].ready_at_us <= now_us &&
            (best < 0 || items[i].arrival_seq < items[best].arrival_seq))
            best = (int)i;
    return best;
}

/* As long as each older item is ready by the time that those listed before
 * it are served, there is no gap: all older ones go first, one after another,
 * and younger ones never pass an item that is ready by then. */
static int64_t fifo_begin_us(const struct queue_item *items, size_t n,
                             const struct queue_item *item, int64_t start_us)
{
    int64_t begin_us = start_us;

    for (size_t i = 0; i < n; i++) {
        if (items[i].arrival_seq > item->arrival_seq)
            continue;
        if (items[i].ready_at_us > begin_us)
            return -1;
        begin_us += items[i].cost_us;
    }
    return item->ready_at_us <= begin_us ? begin_us : -1;
}

/* The oldest, once it is ready. */
static int fifo_strict_pick(const struct queue_item *items, size_t n,
                            int64_t now_us)
{
    size_t best = 0;

    for (size_t i = 1; i < n; i++)
        if (items[i].arrival_seq < items[best].arrival_seq)
            best = i;
    return n > 0 && items[best].ready_at_us <= now_us ? (int)best : -1;
}

/* One after another, if they stand in their order as the pool has them. */
static int64_t fifo_strict_begin_us(const struct queue_item *items, size_t n,
                                    const struct queue_item *item,
                                    int64_t start_us)
{
    int64_t begin_us = start_us;

    for (size_t i = 0; i < n; i++) {
        if (i > 0 && items[i].arrival_seq < items[i - 1].arrival_seq)
            return -1;
        if (items[i].arrival_seq > item->arrival_seq)
            continue;
        if (items[i].ready_at_us == QUEUE_NOT_READY)
            return INT64_MAX;
        if (items[i].ready_at_us > begin_us)
            begin_us = items[i].ready_at_us;
        begin_us += items[i].cost_us;
    }
    return item->ready_at_us > begin_us ? item->ready_at_us : begin_us;
}

/* The oldest ready item that is not loading, or else the oldest that is: what
 * is cached can be loaded while others are computed (Cake's adaptive
 * scheduling; decode steps come before both and aren't in this queue). */
static int uncached_first_pick(const struct queue_item *items, size_t n,
                               int64_t now_us)
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

/* As fifo_begin_us() among those that are not loading, unless a load ends by
 * then: what is loading is passed. */
static int64_t uncached_first_begin_us(const struct queue_item *items, size_t n,
                                       const struct queue_item *item,
                                       int64_t start_us)
{
    int64_t begin_us = start_us;
    int64_t loaded_us = INT64_MAX; /* the first end of a load */

    for (size_t i = 0; i < n; i++) {
        if (items[i].arrival_seq > item->arrival_seq)
            continue;
        if (items[i].loading_until_us > start_us) {
            if (items[i].loading_until_us < loaded_us)
                loaded_us = items[i].loading_until_us;
            continue;
        }
        if (items[i].ready_at_us > begin_us)
            return -1;
        begin_us += items[i].cost_us;
    }
    return item->ready_at_us <= begin_us &&
                   item->loading_until_us <= begin_us && begin_us < loaded_us
               ? begin_us
               : -1;
}

static const struct queue_order orders[] = {
    {"fifo", fifo_pick, fifo_begin_us, false, true},
    {"fifo_strict", fifo_strict_pick, fifo_strict_begin_us, false, true},
    {"uncached_first", uncached_first_pick, uncached_first_begin_us, true,
     true},
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
    return order->pick(items, n, now_us);
}

/* When the next item will be ready that is not at at_us. */
static int64_t next_ready_us(const struct queue_item *items, size_t n,
                             int64_t at_us)
{
    int64_t next_us = QUEUE_NOT_READY;

    for (size_t i = 0; i < n; i++)
        if (items[i].ready_at_us > at_us && items[i].ready_at_us < next_us)
            next_us = items[i].ready_at_us;
    return next_us;
}

/* Serves the queue in thought until it takes up items[mine]. */
static int64_t simulate_us(const struct queue_order *order,
                           struct queue_item *items, size_t n, size_t mine,
                           int64_t start_us)
{
    int64_t at_us = start_us;

    for (;;) {
        int next = order->pick(items, n, at_us);

        if (next < 0) {
            at_us = next_ready_us(items, n, at_us);
            if (at_us == QUEUE_NOT_READY)
                return INT64_MAX; /* the order will not take it */
            continue;
        }
        if ((size_t)next == mine)
            return at_us;
        at_us += items[next].cost_us;
        n--;
        items[next] = items[n];
        if (mine == n)
            mine = (size_t)next;
    }
}

/* No later than this, if every item will be ready. */
static int64_t bound_us(const struct queue_item *items, size_t n,
                        const struct queue_item *item, int64_t start_us)
{
    int64_t ready_us = item->ready_at_us;
    int64_t cost_us = 0;

    for (size_t i = 0; i < n; i++) {
        if (items[i].ready_at_us == QUEUE_NOT_READY)
            continue; /* nobody waits for it for ever */
        if (items[i].ready_at_us > ready_us)
            ready_us = items[i].ready_at_us;
        cost_us += items[i].cost_us;
    }
    return (ready_us > start_us ? ready_us : start_us) + cost_us;
}

int64_t queue_wait_us(const struct queue_order *order,
                      const struct queue_item *items, size_t n,
                      const struct queue_item *item, int64_t running_left_us,
                      int64_t now_us)
{
    struct queue_item all[QUEUE_THOUGHT_ITEMS_MAX];
    int64_t start_us = now_us + running_left_us;
    int64_t begin_us = -1;

    if (item->ready_at_us == QUEUE_NOT_READY)
        return INT64_MAX;
    if (order->begin_us)
        begin_us = order->begin_us(items, n, item, start_us);
    if (begin_us < 0 && n >= QUEUE_THOUGHT_ITEMS_MAX) {
        begin_us = bound_us(items, n, item, start_us);
    } else if (begin_us < 0) {
        if (n > 0)
            memcpy(all, items, n * sizeof(*items));
        all[n] = *item;
        begin_us = simulate_us(order, all, n + 1, n, start_us);
    }
    return begin_us == INT64_MAX ? INT64_MAX : begin_us - now_us;
}

int64_t queue_wait_youngest_us(const struct queue_order *order,
                               const struct queue_item *items, size_t n,
                               const struct queue_load *load,
                               const struct queue_item *item,
                               int64_t running_left_us, int64_t now_us)
{
    int64_t start_us = now_us + running_left_us;

    if (order->by_age && load->latest_ready_us <= start_us &&
        (!order->loading_last || load->latest_loading_us <= start_us) &&
        item->ready_at_us <= start_us + load->cost_us)
        return running_left_us + load->cost_us;
    return queue_wait_us(order, items, n, item, running_left_us, now_us);
}
