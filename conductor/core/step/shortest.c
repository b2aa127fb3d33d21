/* Shortest first, guarded by deadlines. See shortest.h. */
#include "conductor/core/step/shortest.h"

#include <string.h>

#include "conductor/core/step/yield.h"

#define AGE_WEIGHT 50 /* us of waiting that count as 1 us of cost */
#define DROPPED UINT32_MAX
#define PASSED_MAX 32  /* most items for which late_begin_us() looks at each */
#define MARGIN_SHARE 8 /* no item passes in the last eighth of slo_us */

struct guard {
    const struct queue_item *items;
    int64_t due_us[QUEUE_ITEMS_MAX];       /* (n), of the items: due_us() */
    uint32_t by_deadline[QUEUE_ITEMS_MAX]; /* (n), items sorted; or DROPPED */
    size_t n;
    uint32_t heap[QUEUE_ITEMS_MAX]; /* places in by_deadline, first to drop */
    size_t n_heap;
};

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t later(int64_t a_us, int64_t b_us)
{
    return a_us > b_us ? a_us : b_us;
}

/* Returns when an item is due: at its deadline, or slo_us later if it cannot
 * meet that, and so on. */
static int64_t due_us(const struct queue_item *i, int64_t now_us)
{
    int64_t late_us = now_us + i->cost_us - i->deadline_us;

    if (i->slo_us <= 0 || late_us <= 0)
        return i->deadline_us;
    return i->deadline_us + (late_us + i->slo_us - 1) / i->slo_us * i->slo_us;
}

static bool due_before(const struct guard *g, uint32_t a, uint32_t b)
{
    return g->due_us[a] != g->due_us[b]
               ? g->due_us[a] < g->due_us[b]
               : g->items[a].arrival_seq < g->items[b].arrival_seq;
}

static bool shorter(const struct queue_item *a, const struct queue_item *b)
{
    return a->cost_us != b->cost_us ? a->cost_us < b->cost_us
                                    : a->arrival_seq < b->arrival_seq;
}

int64_t shortest_rank(const struct queue_item *i)
{
    return AGE_WEIGHT * i->cost_us + i->arrived_us;
}

static bool ranks_before(const struct queue_item *a, const struct queue_item *b)
{
    int64_t rank_a = shortest_rank(a), rank_b = shortest_rank(b);

    return rank_a != rank_b ? rank_a < rank_b : a->arrival_seq < b->arrival_seq;
}

/* Restores a heap of n, the last due on top: moves the entry at `at` down. */
static void sink_deadline(struct guard *g, size_t n, size_t at)
{
    uint32_t *by = g->by_deadline, moved = by[at];

    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && due_before(g, by[child], by[child + 1]))
            child++;
        if (!due_before(g, moved, by[child]))
            break;
        by[at] = by[child];
    }
    by[at] = moved;
}

/* Sorts by due time. Items are mostly sorted already. */
static void sort(struct guard *g)
{
    size_t i = 1;

    while (i < g->n && !due_before(g, g->by_deadline[i], g->by_deadline[i - 1]))
        i++;
    if (i >= g->n)
        return;
    for (size_t at = g->n / 2; at-- > 0;)
        sink_deadline(g, g->n, at);
    for (size_t n = g->n; n-- > 1;) {
        uint32_t last = g->by_deadline[0];

        g->by_deadline[0] = g->by_deadline[n];
        g->by_deadline[n] = last;
        sink_deadline(g, n, 0);
    }
}

static const struct queue_item *item_at(const struct guard *g, uint32_t place)
{
    return &g->items[g->by_deadline[place]];
}

static int64_t due_at(const struct guard *g, uint32_t place)
{
    return g->due_us[g->by_deadline[place]];
}

static bool dropped_before(const struct guard *g, uint32_t a, uint32_t b)
{
    const struct queue_item *x = item_at(g, a), *y = item_at(g, b);
    bool again_x = due_at(g, a) != x->deadline_us;
    bool again_y = due_at(g, b) != y->deadline_us;

    if (x->has_slo != y->has_slo)
        return y->has_slo;
    return again_x != again_y ? again_y : shorter(y, x);
}

static void heap_put(struct guard *g, uint32_t place)
{
    size_t at = g->n_heap++;

    for (size_t up; at > 0; at = up) {
        up = (at - 1) / 2;
        if (!dropped_before(g, place, g->heap[up]))
            break;
        g->heap[at] = g->heap[up];
    }
    g->heap[at] = place;
}

static uint32_t heap_take(struct guard *g)
{
    uint32_t top = g->heap[0], moved = g->heap[--g->n_heap];
    size_t at = 0;

    for (size_t child; (child = 2 * at + 1) < g->n_heap; at = child) {
        if (child + 1 < g->n_heap &&
            dropped_before(g, g->heap[child + 1], g->heap[child]))
            child++;
        if (!dropped_before(g, g->heap[child], moved))
            break;
        g->heap[at] = g->heap[child];
    }
    if (g->n_heap > 0)
        g->heap[at] = moved;
    return top;
}

/* Rule 1, if not all items can be in time: drops the unprotected ones. */
static void drop_late(struct guard *g, int64_t now_us)
{
    int64_t end_us = now_us;

    g->n_heap = 0;
    for (uint32_t p = 0; p < g->n; p++) {
        const struct queue_item *i = item_at(g, p);
        int64_t deadline_us = due_at(g, p);

        if (now_us + i->cost_us > deadline_us) {
            g->by_deadline[p] = DROPPED;
            continue;
        }
        heap_put(g, p);
        end_us += i->cost_us;
        while (end_us > deadline_us) {
            uint32_t drop = heap_take(g);

            end_us -= item_at(g, drop)->cost_us;
            g->by_deadline[drop] = DROPPED;
        }
    }
}

/* Returns how much later (us) all items could begin and still be in time if
 * served by due time; negative = not even now. */
static int64_t all_slack_us(const struct guard *g, int64_t now_us)
{
    int64_t end_us = now_us, slack_us = INT64_MAX;

    for (uint32_t p = 0; p < g->n && slack_us >= 0; p++) {
        end_us += item_at(g, p)->cost_us;
        slack_us = lesser(slack_us, due_at(g, p) - end_us);
    }
    return slack_us;
}

/* Rules 2 and 3. Returns a place, or g->n: no item may run.
 *   *spare_us  for how long the answer is the same, if all are protected. */
static size_t best_protected(const struct guard *g, int64_t now_us,
                             int64_t *spare_us)
{
    int64_t end_us = now_us, slack_us = INT64_MAX;
    size_t best = g->n;

    *spare_us = INT64_MAX;

    for (uint32_t p = 0; p < g->n; p++) {
        const struct queue_item *i;

        if (g->by_deadline[p] == DROPPED)
            continue;
        i = item_at(g, p);
        if (i->ready_at_us <= now_us && i->cost_us <= slack_us &&
            (best == g->n || ranks_before(i, item_at(g, (uint32_t)best)))) {
            *spare_us =
                slack_us < INT64_MAX ? slack_us - i->cost_us : INT64_MAX;
            best = p;
        }
        end_us += i->cost_us;
        slack_us =
            lesser(slack_us, due_at(g, p) - i->slo_us / MARGIN_SHARE - end_us);
    }
    return best;
}

static int first_ready(const struct queue_item *items, size_t n, int64_t now_us)
{
    int best = -1;

    for (size_t i = 0; i < n; i++)
        if (items[i].ready_at_us <= now_us &&
            (best < 0 || ranks_before(&items[i], &items[best])))
            best = (int)i;
    return best;
}

/* Returns whether `next`, begun now, would yield to `late` in in_us. */
static bool would_yield(const struct queue_order *order,
                        const struct queue_item *late,
                        const struct queue_item *next, int64_t in_us)
{
    struct queue_item rest = *next;

    rest.cost_us -= in_us;
    return order->preempts && ranks_before(late, &rest) &&
           late->cost_us <= yield_most_us(next->cost_us, rest.cost_us);
}

/* Called if no ready item may run, since each would make one late that is not
 * ready. Returns whether to wait for an expected item with an SLO: only if that
 * makes no item late. */
static bool waits_for_promised(const struct guard *g, int64_t now_us,
                               int64_t slack_us)
{
    for (uint32_t p = 0; p < g->n && slack_us >= 0; p++) {
        const struct queue_item *i = item_at(g, p);
        int64_t in_us = queue_expected_us(i) - now_us;

        if (i->has_slo && in_us > 0 && in_us <= slack_us)
            return true;
    }
    return false;
}

/* Returns the item by rules 1 to 3, or -1.
 *   *until_us  written: the answer is the same before then. */
static int best_ready(const struct queue_item *items, size_t n, int64_t now_us,
                      int64_t *until_us)
{
    struct guard g;
    int64_t slack_us, spare_us;
    size_t best, n_ready = 0;

    g.items = items;
    g.n = n;
    *until_us = INT64_MAX;
    for (uint32_t i = 0; i < n; i++)
        if (items[i].ready_at_us <= now_us)
            n_ready++;
        else if (queue_expected_us(&items[i]) > now_us)
            *until_us = lesser(*until_us, queue_expected_us(&items[i]));
    if (n_ready == 0)
        return -1;
    if (n == 1) /* also for now_us = INT64_MAX, where sums overflow */
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        g.by_deadline[i] = i;
        g.due_us[i] = due_us(&items[i], now_us);
    }
    sort(&g);
    slack_us = all_slack_us(&g, now_us);
    if (slack_us < 0)
        drop_late(&g, now_us);
    best = best_protected(&g, now_us, &spare_us);
    spare_us = lesser(spare_us, slack_us);
    if (spare_us < *until_us - now_us)
        *until_us = now_us + spare_us + 1;
    if (best < g.n)
        return (int)g.by_deadline[best];
    return waits_for_promised(&g, now_us, slack_us)
               ? -1
               : first_ready(items, n, now_us);
}

int shortest_pick(const struct queue_order *, const struct queue_item *items,
                  size_t n, int64_t now_us, int64_t *until_us)
{
    int64_t least_us = *until_us;
    int next = best_ready(items, n, now_us, until_us);

    *until_us = later(*until_us, least_us);
    return next;
}

/* Finds the items that rank next behind `item`, sorted by rank. Returns their
 * number, at most PASSED_MAX. */
static size_t behind_of(const struct queue_item *items, size_t n,
                        const struct queue_item *item,
                        const struct queue_item **next)
{
    size_t n_next = 0;

    for (size_t i = 0; i < n; i++) {
        size_t at = n_next;

        if (!ranks_before(item, &items[i]))
            continue;
        while (at > 0 && ranks_before(&items[i], next[at - 1]))
            at--;
        if (at == PASSED_MAX)
            continue;
        if (n_next < PASSED_MAX)
            n_next++;
        memmove(&next[at + 1], &next[at], (n_next - 1 - at) * sizeof(next[0]));
        next[at] = &items[i];
    }
    return n_next;
}

/* Returns when an item begins that is not ready when the instance is free:
 * meanwhile the next items are served, or the instance waits. */
static int64_t late_begin_us(const struct queue_order *order,
                             const struct queue_item *items, size_t n,
                             const struct queue_item *item, int64_t start_us,
                             uint32_t *behind)
{
    const struct queue_item *next[PASSED_MAX];
    size_t n_next = behind_of(items, n, item, next);

    for (size_t i = 0; i < n_next && item->ready_at_us > start_us; i++) {
        if (would_yield(order, item, next[i], item->ready_at_us - start_us))
            break;
        start_us += next[i]->cost_us;
        *behind -= *behind > 0;
    }
    return later(item->ready_at_us, start_us);
}

int64_t shortest_begin_us(const struct queue_order *order,
                          const struct queue_item *items, size_t n,
                          const struct queue_item *item, int64_t start_us,
                          uint32_t *behind)
{
    int64_t rank = shortest_rank(item), ahead_us = 0;
    uint32_t n_ahead = 0;

    for (size_t i = 0; i < n; i++) {
        const struct queue_item *q = &items[i];
        /* Without branches, since they would be mispredicted. */
        unsigned ahead = (unsigned)(shortest_rank(q) <= rank) &
                         (start_us + q->cost_us <= q->deadline_us);

        ahead_us += q->cost_us & -(int64_t)ahead;
        n_ahead += ahead;
    }
    *behind = (uint32_t)n - n_ahead;
    start_us += ahead_us;
    return item->ready_at_us > start_us
               ? late_begin_us(order, items, n, item, start_us, behind)
               : start_us;
}
