/*
 * Simulates the service of a queue by age: when would its youngest item begin?
 *
 * Time goes from one service to the next. All ready items that do not come last
 * go before the youngest in any order, so only the sum of their costs matters.
 * Loading items that come last are in a bit set by age; future events (an item
 * gets ready, its load ends) in a heap by time.
 */
#include "conductor/core/step/wait.h"

#include <string.h>

#define WORD_ITEMS 64u
#define EVENTS_MAX 2048u

/* An item gets ready, or its load ends. */
struct event {
    int64_t at_us;
    uint32_t item;
};

struct service {
    const struct queue_item *items;
    bool loading_last;
    int64_t ready_cost_us; /* cost of all ready items not in `loading` */
    uint64_t loading[QUEUE_ITEMS_MAX / WORD_ITEMS];
    size_t n_loading;
    struct event events[EVENTS_MAX];
    size_t n_events;
};

static void put_loading(struct service *s, uint32_t item)
{
    s->loading[item / WORD_ITEMS] |= UINT64_C(1) << item % WORD_ITEMS;
    s->n_loading++;
}

/* Takes an item out of `loading`. Returns whether it was there. */
static bool take_loading(struct service *s, uint32_t item)
{
    uint64_t *word = &s->loading[item / WORD_ITEMS];
    uint64_t bit = UINT64_C(1) << item % WORD_ITEMS;

    if ((*word & bit) == 0)
        return false;
    *word &= ~bit;
    s->n_loading--;
    return true;
}

/* Serves the oldest loading item, which exists. Returns its cost. */
static int64_t serve_loading(struct service *s)
{
    uint32_t word = 0, item;

    while (s->loading[word] == 0)
        word++;
    item = word * WORD_ITEMS + (uint32_t)__builtin_ctzll(s->loading[word]);
    take_loading(s, item);
    return s->items[item].cost_us;
}

static void sift_down(struct service *s, size_t at)
{
    struct event e = s->events[at];

    for (size_t child; (child = 2 * at + 1) < s->n_events; at = child) {
        if (child + 1 < s->n_events &&
            s->events[child + 1].at_us < s->events[child].at_us)
            child++;
        if (s->events[child].at_us >= e.at_us)
            break;
        s->events[at] = s->events[child];
    }
    s->events[at] = e;
}

static int64_t next_event_us(const struct service *s)
{
    return s->n_events > 0 ? s->events[0].at_us : INT64_MAX;
}

/* Handles the events up to at_us. An item that was served while loading is in
 * no set any more when its load ends. */
static void catch_up(struct service *s, int64_t at_us)
{
    while (next_event_us(s) <= at_us) {
        uint32_t item = s->events[0].item;
        const struct queue_item *i = &s->items[item];
        bool got_ready = i->ready_at_us == s->events[0].at_us;

        s->events[0] = s->events[--s->n_events];
        if (s->n_events > 0)
            sift_down(s, 0);
        if (got_ready && s->loading_last && i->loading_until_us > at_us)
            put_loading(s, item);
        else if (got_ready || take_loading(s, item))
            s->ready_cost_us += i->cost_us;
    }
}

static bool add_event(struct service *s, int64_t at_us, uint32_t item)
{
    if (at_us == QUEUE_NOT_READY)
        return true; /* no item waits for it */
    if (s->n_events == EVENTS_MAX)
        return false;
    s->events[s->n_events++] = (struct event){at_us, item};
    return true;
}

/* Sets the queue up as of start_us. Returns whether all events had room. */
static bool set_up(struct service *s, size_t n, int64_t start_us)
{
    s->n_loading = s->n_events = 0;
    s->ready_cost_us = 0;
    memset(s->loading, 0, (n + WORD_ITEMS - 1) / WORD_ITEMS * sizeof(uint64_t));
    for (uint32_t i = 0; i < n; i++) {
        const struct queue_item *item = &s->items[i];
        int64_t ready_us = item->ready_at_us;
        int64_t loaded_us = s->loading_last ? item->loading_until_us : 0;

        if (ready_us <= start_us && loaded_us <= start_us)
            s->ready_cost_us += item->cost_us;
        else if (ready_us <= start_us)
            put_loading(s, i);
        else if (!add_event(s, ready_us, i))
            return false;
        if (loaded_us > start_us && loaded_us > ready_us &&
            !add_event(s, loaded_us, i))
            return false;
    }
    for (size_t at = s->n_events / 2; at-- > 0;)
        sift_down(s, at);
    return true;
}

/* Returns an upper bound: all items are served first, once all are ready. */
static int64_t bound_us(const struct queue_item *items, size_t n,
                        const struct queue_item *item, int64_t start_us)
{
    int64_t ready_us = item->ready_at_us;
    int64_t cost_us = 0;

    for (size_t i = 0; i < n; i++) {
        if (items[i].ready_at_us == QUEUE_NOT_READY)
            continue; /* no item waits for it */
        if (items[i].ready_at_us > ready_us)
            ready_us = items[i].ready_at_us;
        cost_us += items[i].cost_us;
    }
    return (ready_us > start_us ? ready_us : start_us) + cost_us;
}

int64_t wait_begin_us(const struct queue_item *items, size_t n,
                      const struct queue_item *item, bool loading_last,
                      int64_t start_us)
{
    struct service s;
    int64_t at_us = start_us;

    s.items = items;
    s.loading_last = loading_last;
    if (!set_up(&s, n, start_us))
        return bound_us(items, n, item, start_us);
    for (;;) {
        catch_up(&s, at_us);
        if (s.ready_cost_us > 0) {
            at_us += s.ready_cost_us;
            s.ready_cost_us = 0;
        } else if (item->ready_at_us <= at_us) {
            return at_us;
        } else if (s.n_loading > 0) {
            at_us += serve_loading(&s);
        } else {
            at_us = next_event_us(&s);
            if (at_us > item->ready_at_us)
                at_us = item->ready_at_us;
        }
    }
}
