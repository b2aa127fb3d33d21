/*
 * The order in which an instance serves its accepted prefills. The worker's
 * step loop and the simulator use it to pick, the scheduler to estimate how
 * long a request would wait. No other code assumes an order.
 */
#ifndef CONDUCTOR_CORE_STEP_QUEUE_H
#define CONDUCTOR_CORE_STEP_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The order of workers, unless the conductor's configuration names another. */
#define QUEUE_ORDER_DEFAULT "uncached_first"
/* Prefills interrupt each other only if the queue is done within this time. */
#define QUEUE_PATIENCE_US 30000000
/* Implied SLO of a prefill without one, as a multiple of its TTFT by age:
 * queue_implied_us(). */
#define QUEUE_IMPLIED_TIMES 2
/* Most items one queue can hold. */
#define QUEUE_ITEMS_MAX 65536u
/* ready_at_us of an item whose fetch has no known end. */
#define QUEUE_NOT_READY INT64_MAX

struct queue_item {
    uint64_t arrival_seq; /* grows with every accepted request */
    int64_t ready_at_us;  /* when its blocks are there and it can be served. In
                             a worker 0, or QUEUE_NOT_READY while it loads */
    int64_t expected_us;  /* if QUEUE_NOT_READY: when its blocks are expected; 0
                             = unknown */
    int64_t cost_us;      /* estimated time of service */
    int64_t arrived_us;
    int64_t deadline_us; /* due time of its first token; without an SLO from
                            queue_implied_us() */
    bool has_slo;
    int64_t slo_us;           /* from its arrival to deadline_us; 0 = unknown */
    int64_t loading_until_us; /* its cached prefix is loaded until then, while
                                 it can be computed; 0 = no load. In a worker
                                 QUEUE_NOT_READY while it loads */
};

/* Returns the implied SLO (us) of a prefill without one, for orders that look
 * at deadlines: shorter prefills may pass it for as long as it would have
 * waited by age. It only affects the order: no request is refused by it.
 *   ahead_us  work of its instance at its arrival. */
static inline int64_t queue_implied_us(int64_t cost_us, int64_t ahead_us)
{
    return QUEUE_IMPLIED_TIMES * (ahead_us + cost_us);
}

/* Returns when an item is or will be ready; 0 = unknown. */
static inline int64_t queue_expected_us(const struct queue_item *item)
{
    return item->ready_at_us == QUEUE_NOT_READY ? item->expected_us
                                                : item->ready_at_us;
}

/* Totals over a queue's items; code that changes the queue keeps them up to
 * date. */
struct queue_load {
    int64_t cost_us;         /* sum */
    int64_t latest_ready_us; /* of all items, or later; INT64_MIN = no items */
    int64_t latest_loading_us; /* of all items, or later; 0 = no item loads */
};

/* One queue order of the table in queue.c; its calls get it as `order`. */
struct queue_order {
    const char *name;
    /* Returns the item to serve next among n, or -1: none is ready at now_us.
     * May raise *until_us: the answer is the same before then. */
    int (*pick)(const struct queue_order *order, const struct queue_item *items,
                size_t n, int64_t now_us, int64_t *until_us);
    /* Returns when an instance that is free from start_us on would begin
     * `item`: an item younger than all of `items`, not loading, and not
     * QUEUE_NOT_READY; INT64_MAX = never. *behind = items served after it.
     * `items` are sorted by age. */
    int64_t (*begin_us)(const struct queue_order *order,
                        const struct queue_item *items, size_t n,
                        const struct queue_item *item, int64_t start_us,
                        uint32_t *behind);
    /* Returns an item's rank: among items that may run, the lowest runs first.
     * NULL = the oldest first. */
    int64_t (*rank)(const struct queue_item *item);
    /* Items that are loading come after all others. */
    bool loading_last;
    /* Items that are ready and not loading are served by age. */
    bool by_age;
    /* Prefills that have begun may yield to others, see yield.h. */
    bool preempts;
};

/*
 * Returns the order of a name, static, or NULL: no such order.
 *   "shortest_first"  the shortest item that makes no other late (shortest.h).
 *   "shortest_first_yield"  the same, and a prefill that has begun yields to a
 *                     much shorter one.
 *   "fifo"            the oldest ready item; an item whose fetch is under way
 *                     does not block ready ones behind it.
 *   "fifo_strict"     the oldest item; the instance waits until it is ready.
 *   "uncached_first"  as "fifo", but items that load their cached prefix come
 *                     after all others, as in Cake's adaptive scheduling: as
 *                     long as others keep coming, until their load is over.
 */
const struct queue_order *queue_order_by_name(const char *name);

/* Returns the name of the i-th order, static, or NULL behind the last one. */
const char *queue_order_name(size_t i);

/*
 * Returns the index of the item that an idle instance serves next, or -1: none
 * is ready at now_us, or the instance waits for an item that soon is.
 *   items  (n), borrowed, in any sequence.
 * Cost: O(n).
 */
int queue_pick(const struct queue_order *order, const struct queue_item *items,
               size_t n, int64_t now_us);

/*
 * As queue_pick(), for callers that keep the answer.
 *   *until_us  written, above now_us: while the items do not change, the answer
 *              is the same from now_us to before then, perhaps longer.
 */
int queue_pick_until(const struct queue_order *order,
                     const struct queue_item *items, size_t n, int64_t now_us,
                     int64_t *until_us);

/*
 * Returns when to pick again after queue_pick() returned -1, although no item
 * changed: an item that the instance waits for may be late. Above now_us;
 * INT64_MAX = never. Cost: O(n).
 */
int64_t queue_look_us(const struct queue_order *order,
                      const struct queue_item *items, size_t n, int64_t now_us);

/* Returns whether `a`, which came before `b`, is served before it if both are
 * ready and no deadline is near. O(1). */
static inline bool queue_comes_before(const struct queue_order *order,
                                      const struct queue_item *a,
                                      const struct queue_item *b)
{
    return !order->rank || order->rank(a) <= order->rank(b);
}

/*
 * Returns the time (us) from now_us until `item` would begin if it joined
 * `items` and no other item came; INT64_MAX = it would never be ready.
 *   items            (n), borrowed, sorted by age: waiting, not running; n <=
 *                    QUEUE_ITEMS_MAX - 1.
 *   load             of the items.
 *   item             borrowed: younger than the items, and not loading.
 *   running_left_us  remaining time of running prefills, at least 0.
 *   *behind          written: how many of the items would wait for it.
 * Cost: O(1) for orders by age if all items are ready when the instance gets
 * free, else O(n), and O(log n) for each item that is not ready then (wait.h).
 */
static inline int64_t queue_wait_us(const struct queue_order *order,
                                    const struct queue_item *items, size_t n,
                                    const struct queue_load *load,
                                    const struct queue_item *item,
                                    int64_t running_left_us, int64_t now_us,
                                    uint32_t *behind)
{
    int64_t start_us = now_us + running_left_us;
    int64_t begin_us;

    *behind = 0;
    if (item->ready_at_us == QUEUE_NOT_READY)
        return INT64_MAX;
    if (order->by_age && load->latest_ready_us <= start_us &&
        (!order->loading_last || load->latest_loading_us <= start_us) &&
        item->ready_at_us <= start_us + load->cost_us)
        return running_left_us + load->cost_us;
    begin_us = order->begin_us(order, items, n, item, start_us, behind);
    return begin_us == INT64_MAX ? INT64_MAX : begin_us - now_us;
}

#endif
