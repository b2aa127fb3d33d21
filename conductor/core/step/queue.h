/*
 * The order in which an instance serves its accepted prefills. The same code
 * picks in the worker's step loop and in the simulator, and tells the scheduler
 * how long a request would wait. No other code assumes an order.
 */
#ifndef CONDUCTOR_CORE_STEP_QUEUE_H
#define CONDUCTOR_CORE_STEP_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The order of workers unless the conductor's configuration says otherwise. */
#define QUEUE_ORDER_DEFAULT "uncached_first"
/* How long a queue may be in which prefills interrupt each other. */
#define QUEUE_PATIENCE_US 30000000
/* Without an SLO a first token is due after so many times what it would take
 * if all were served by age. */
#define QUEUE_IMPLIED_TIMES 2
/* Most items one queue can hold. */
#define QUEUE_ITEMS_MAX 65536u
/* ready_at_us of an item whose fetch has no known end. */
#define QUEUE_NOT_READY INT64_MAX

struct queue_item {
    uint64_t arrival_seq; /* grows with every accepted request */
    int64_t ready_at_us;  /* its blocks are there, and it can be served from
                             then on. A worker says 0, or QUEUE_NOT_READY
                             while it still loads */
    int64_t expected_us;  /* QUEUE_NOT_READY: when its blocks are expected; 0:
                             not known */
    int64_t cost_us;      /* estimated time of service */
    int64_t arrived_us;
    int64_t deadline_us; /* of its first token; without an SLO so long after its
                            arrival as everybody may wait */
    bool has_slo;
    int64_t slo_us; /* the time from its arrival to deadline_us; 0: not known */
    int64_t loading_until_us; /* until then its cached prefix is loaded while it
                                 could be computed; 0: it loads nothing. A
                                 worker says QUEUE_NOT_READY while it loads */
};

/* Returns the time (us) within which a prefill without an SLO is to have its
 * first token, for orders that look at deadlines: QUEUE_IMPLIED_TIMES its own
 * cost_us and ahead_us, the work that its instance had when it came. Shorter
 * ones may so pass it for as long as it would have waited anyway. It only
 * orders: nobody is refused for it. */
static inline int64_t queue_implied_us(int64_t cost_us, int64_t ahead_us)
{
    return QUEUE_IMPLIED_TIMES * (ahead_us + cost_us);
}

/* When an item is or will be ready, as far as it is known; 0: it is not. */
static inline int64_t queue_expected_us(const struct queue_item *item)
{
    return item->ready_at_us == QUEUE_NOT_READY ? item->expected_us
                                                : item->ready_at_us;
}

/* The sums over a queue's items; code that changes the queue keeps them up to
 * date. */
struct queue_load {
    int64_t cost_us;
    int64_t latest_ready_us;   /* of all items, or later; INT64_MIN: no items */
    int64_t latest_loading_us; /* likewise; 0: none is loading */
};

/* One order; the table in queue.c has them all. Its calls get it as `order`. */
struct queue_order {
    const char *name;
    /* The item to serve next among n, or -1: none is ready at now_us. It may
     * raise *until_us: the answer is the same before then. */
    int (*pick)(const struct queue_order *order, const struct queue_item *items,
                size_t n, int64_t now_us, int64_t *until_us);
    /* When an instance that is free from start_us on would begin `item`, which
     * is younger than the items, not loading, and ready some time; and how many
     * of them would be served after it. The items stand by age. INT64_MAX:
     * never. */
    int64_t (*begin_us)(const struct queue_order *order,
                        const struct queue_item *items, size_t n,
                        const struct queue_item *item, int64_t start_us,
                        uint32_t *behind);
    /* The lowest comes first among those that the order may choose from. NULL:
     * the oldest. */
    int64_t (*rank)(const struct queue_item *item);
    /* Items that are loading come after all others. */
    bool loading_last;
    /* Items that are ready, and do not come last, are served by their age. */
    bool by_age;
    /* It waits a little for what is about to be ready. */
    bool awaits;
    /* A prefill that has begun yields at the end of a chunk: yield.h. */
    bool preempts;
};

/*
 * The order of that name: "shortest_first" (the shortest that makes nobody
 * late, see shortest.h), "shortest_now" (likewise, and what is ready
 * never waits for what is not), "shortest_first_yield" and "shortest_now_yield"
 * (as these, and one that has begun yields to a much shorter one), "fifo"
 * (oldest ready item first; an item whose fetch is under way does not block the
 * ready ones behind it), "fifo_strict" (it does: oldest item first, and it is
 * waited for) or "uncached_first" (as "fifo", but items whose cached prefix is
 * being loaded after all others, as in Cake's adaptive scheduling; they wait as
 * long as others keep coming, until their load is over). Returns it, static, or
 * NULL: no such order.
 */
const struct queue_order *queue_order_by_name(const char *name);

/* The name of the i-th order, static, or NULL behind the last one. */
const char *queue_order_name(size_t i);

/*
 * Which item an idle instance serves next.
 *   items  (n), borrowed, in any sequence.
 * Returns its index, or -1: none is ready at now_us, or it is worth waiting for
 * one that soon is. Cost: O(n).
 */
int queue_pick(const struct queue_order *order, const struct queue_item *items,
               size_t n, int64_t now_us);

/*
 * As queue_pick(), for who keeps the answer.
 *   *until_us  written, behind now_us: as long as the items stay as they are,
 *              the answer is the same at all times from now_us to before then.
 *              It may be so for longer.
 */
int queue_pick_until(const struct queue_order *order,
                     const struct queue_item *items, size_t n, int64_t now_us,
                     int64_t *until_us);

/*
 * When to pick again although nothing happens, after queue_pick() returned -1:
 * what the order waits for may be late.
 * Returns a time behind now_us; INT64_MAX: never. Cost: O(n).
 */
int64_t queue_look_us(const struct queue_order *order,
                      const struct queue_item *items, size_t n, int64_t now_us);

/* Whether `a`, which came before `b`, is served before it where both are ready
 * and no deadline is near. O(1). */
static inline bool queue_comes_before(const struct queue_order *order,
                                      const struct queue_item *a,
                                      const struct queue_item *b)
{
    return !order->rank || order->rank(a) <= order->rank(b);
}

/*
 * How long from now_us until `item` would begin, if it joined `items` and no
 * other item came.
 *   items            (n), borrowed, by age: waiting, not running; n <=
 *                    QUEUE_ITEMS_MAX - 1.
 *   load             of the items.
 *   item             borrowed: younger than they are, and not loading.
 *   running_left_us  what is left of the work in service, at least 0.
 *   *behind          how many of the items would wait for it.
 * Returns microseconds; INT64_MAX if it would never be ready. Cost: O(1) for
 * orders by age as long as all are ready when the instance gets free, else
 * O(n), and O(log n) for each item that is not ready then (see wait.h).
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
