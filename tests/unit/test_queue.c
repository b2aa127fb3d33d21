/* Queue orders: what is picked, and how long one waits for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/step/follow.h"
#include "conductor/core/step/queue.h"
#include "tests/unit/cases.h"
#include "tests/unit/suite.h"

static const struct queue_order *fifo(void)
{
    return queue_order_by_name("fifo");
}

static const struct queue_order *fifo_strict(void)
{
    return queue_order_by_name("fifo_strict");
}

static struct queue_load load_of(const struct queue_item *items, size_t n)
{
    struct queue_load load = {.latest_ready_us = INT64_MIN};

    for (size_t i = 0; i < n; i++) {
        load.cost_us += items[i].cost_us;
        if (items[i].loading_until_us > load.latest_loading_us)
            load.latest_loading_us = items[i].loading_until_us;
        if (items[i].ready_at_us > load.latest_ready_us)
            load.latest_ready_us = items[i].ready_at_us;
    }
    return load;
}

static int64_t wait_us(const struct queue_order *order,
                       const struct queue_item *items, size_t n,
                       const struct queue_item *item, int64_t left_us,
                       int64_t now_us)
{
    struct queue_load load = load_of(items, n);
    uint32_t behind;

    return queue_wait_us(order, items, n, &load, item, left_us, now_us,
                         &behind);
}

static void test_names(void)
{
    CU_ASSERT_PTR_NOT_NULL_FATAL(fifo());
    CU_ASSERT_STRING_EQUAL(fifo()->name, "fifo");
    CU_ASSERT_PTR_NOT_NULL_FATAL(fifo_strict());
    CU_ASSERT_PTR_NULL(queue_order_by_name("sjf"));
}

/* The oldest that is ready, wherever it stands in the array. */
static void test_pick(void)
{
    const struct queue_item items[] = {
        {.arrival_seq = 7, .ready_at_us = 0},
        {.arrival_seq = 3, .ready_at_us = 100},
        {.arrival_seq = 5, .ready_at_us = 50},
        {.arrival_seq = 1, .ready_at_us = QUEUE_NOT_READY},
    };

    CU_ASSERT_EQUAL(queue_pick(fifo(), items, 0, 10), -1);
    CU_ASSERT_EQUAL(queue_pick(fifo(), items + 1, 1, 99), -1);
    CU_ASSERT_EQUAL(queue_pick(fifo(), items, 4, 49), 0);
    CU_ASSERT_EQUAL(queue_pick(fifo(), items, 4, 50), 2);
    CU_ASSERT_EQUAL(queue_pick(fifo(), items, 4, 100), 1);
}

/* The oldest, and nothing while that is not ready. */
static void test_pick_strict(void)
{
    const struct queue_item items[] = {
        {.arrival_seq = 7, .ready_at_us = 0},
        {.arrival_seq = 3, .ready_at_us = 100},
    };

    CU_ASSERT_EQUAL(queue_pick(fifo_strict(), items, 0, 10), -1);
    CU_ASSERT_EQUAL(queue_pick(fifo_strict(), items, 2, 99), -1);
    CU_ASSERT_EQUAL(queue_pick(fifo_strict(), items, 2, 100), 1);
    CU_ASSERT_EQUAL(queue_pick(fifo_strict(), items, 1, 0), 0);
}

/* What is not loading first, each kind by age. */
static void test_pick_uncached_first(void)
{
    const struct queue_order *order = queue_order_by_name("uncached_first");
    struct queue_item items[] = {
        {.arrival_seq = 2, .loading_until_us = QUEUE_NOT_READY},
        {.arrival_seq = 1, .loading_until_us = QUEUE_NOT_READY},
        {.arrival_seq = 9, .cost_us = 5},
        {.arrival_seq = 7, .ready_at_us = 50, .cost_us = 3},
        {.arrival_seq = 8, .ready_at_us = 50, .cost_us = 4},
    };
    struct queue_item by_age[] = {items[1], items[0], items[3], items[4],
                                  items[2]};
    const struct queue_item late = {.arrival_seq = 10};

    CU_ASSERT_PTR_NOT_NULL_FATAL(order);
    CU_ASSERT_EQUAL(queue_pick(order, items, 0, 0), -1);
    CU_ASSERT_EQUAL(queue_pick(order, items, 2, 0), 1);
    CU_ASSERT_EQUAL(queue_pick(order, items, 5, 0), 2);
    CU_ASSERT_EQUAL(queue_pick(order, items, 5, 50), 3);
    CU_ASSERT_EQUAL(queue_pick(order, items + 3, 2, 49), -1);
    /* Behind the three of its own kind, before those that load. */
    CU_ASSERT_EQUAL(wait_us(order, by_age, 5, &late, 60, 0), 72);
    CU_ASSERT_EQUAL(wait_us(order, by_age, 1, &late, 0, 0), 0);
    /* Once loaded it goes by its age. */
    by_age[1].loading_until_us = 65;
    by_age[1].cost_us = 100;
    CU_ASSERT_EQUAL(wait_us(order, by_age, 5, &late, 60, 0), 172);
}

/* More items that are not ready than have room in thought: a bound for one,
 * exact for the other. */
static void test_wait_long(void)
{
    enum { N = 4000 };
    struct queue_item *items = calloc(N, sizeof(*items));
    struct queue_item item = {.arrival_seq = N};

    CU_ASSERT_PTR_NOT_NULL_FATAL(items);
    for (size_t i = 0; i < N; i++)
        items[i] = (struct queue_item){.arrival_seq = i, .cost_us = 10};
    CU_ASSERT_EQUAL(wait_us(fifo(), items, N, &item, 5, 100), 10 * N + 5);
    CU_ASSERT_EQUAL(wait_us(fifo_strict(), items, N, &item, 5, 100),
                    10 * N + 5);
    /* A gap that others fill; the strict order waits. */
    items[0].ready_at_us = 300;
    CU_ASSERT_EQUAL(wait_us(fifo(), items, N, &item, 5, 100), 10 * N + 5);
    CU_ASSERT_EQUAL(wait_us(fifo_strict(), items, N, &item, 5, 100),
                    200 + 10 * N);
    items[0].ready_at_us = QUEUE_NOT_READY;
    CU_ASSERT_EQUAL(wait_us(fifo(), items, N, &item, 5, 100), 10 * (N - 1) + 5);
    CU_ASSERT_EQUAL(wait_us(fifo_strict(), items, N, &item, 5, 100), INT64_MAX);
    for (size_t i = 1; i < N; i++)
        items[i].ready_at_us = 300;
    CU_ASSERT_EQUAL(wait_us(fifo(), items, N, &item, 5, 100),
                    200 + 10 * (N - 1));
    free(items);
}

static void test_wait(void)
{
    const struct queue_item items[] = {
        {.arrival_seq = 1, .ready_at_us = 0, .cost_us = 100},
        {.arrival_seq = 2, .ready_at_us = 5000, .cost_us = 40},
        {.arrival_seq = 3, .ready_at_us = 0, .cost_us = 7},
    };
    struct queue_item item = {.arrival_seq = 4, .cost_us = 1};

    /* Nothing in the way; then what runs; then 1 and 3, passing 2. */
    CU_ASSERT_EQUAL(wait_us(fifo(), NULL, 0, &item, 0, 1000), 0);
    CU_ASSERT_EQUAL(wait_us(fifo(), NULL, 0, &item, 30, 1000), 30);
    CU_ASSERT_EQUAL(wait_us(fifo(), items, 3, &item, 30, 1000), 137);
    /* It waits for its own blocks, and meets 2 at 5000. */
    item.ready_at_us = 4000;
    CU_ASSERT_EQUAL(wait_us(fifo(), items, 3, &item, 30, 1000), 3000);
    item.ready_at_us = 5000;
    CU_ASSERT_EQUAL(wait_us(fifo(), items, 3, &item, 30, 1000), 4040);
    item.ready_at_us = QUEUE_NOT_READY;
    CU_ASSERT_EQUAL(wait_us(fifo(), items, 3, &item, 30, 1000), INT64_MAX);
}

/* Serves the queue step by step until it takes up items[mine]: slow, obvious.
 */
static int64_t serve_us(const struct queue_order *order,
                        struct queue_item *items, size_t n, size_t mine,
                        int64_t start_us)
{
    int64_t at_us = start_us;

    for (;;) {
        int64_t next_us = QUEUE_NOT_READY;
        int next = queue_pick(order, items, n, at_us);

        if ((size_t)next == mine)
            return at_us;
        if (next >= 0) {
            int64_t late_us = items[mine].ready_at_us - at_us;
            int64_t left_us = items[next].cost_us - late_us;

            if (order->preempts && late_us > 0 &&
                3 * items[mine].cost_us <= left_us &&
                50 * items[mine].cost_us + items[mine].arrived_us <
                    50 * left_us + items[next].arrived_us)
                return items[mine].ready_at_us;
            at_us += items[next].cost_us;
            items[next] = items[--n];
            if (mine == n)
                mine = (size_t)next;
            continue;
        }
        for (size_t i = 0; i < n; i++)
            if (items[i].ready_at_us > at_us && items[i].ready_at_us < next_us)
                next_us = items[i].ready_at_us;
        if (next_us == QUEUE_NOT_READY)
            return INT64_MAX; /* the order will not take it */
        at_us = next_us;
    }
}

/* What a round's items have: none, some or most of them are late, in a short
 * or a long time. */
struct mix {
    uint64_t late_in_8, loading_in_8;
    uint64_t time_us, cost_us;
};

static struct queue_item draw_item(uint64_t *state, const struct mix *mix,
                                   uint64_t arrival_seq)
{
    struct queue_item item = {.arrival_seq = arrival_seq,
                              .cost_us =
                                  (int64_t)draw_below(state, mix->cost_us)};

    if (draw_below(state, 8) < mix->late_in_8)
        item.ready_at_us = 900 + (int64_t)draw_below(state, mix->time_us);
    if (draw_below(state, 40) == 0 && mix->late_in_8 > 0)
        item.ready_at_us = QUEUE_NOT_READY;
    if (draw_below(state, 8) < mix->loading_in_8)
        item.loading_until_us =
            draw_below(state, 4) == 0
                ? QUEUE_NOT_READY
                : 900 + (int64_t)draw_below(state, mix->time_us);
    return item;
}

/* The order that looks at deadlines promises its waits only where none is near
 * and all are ready. */
static void calm(struct queue_item *item, int64_t arrived_us)
{
    item->ready_at_us = 0;
    item->arrived_us = arrived_us;
    item->deadline_us = INT64_MAX / 2;
}

/* A wait is what serving the queue step by step takes. */
static void check_waits(const struct queue_order *order, uint64_t seed)
{
    enum { MOST = 200 };
    uint64_t state = seed;
    struct queue_item items[MOST], all[MOST + 1];

    for (uint32_t round = 0; round < cases_of(20000); round++) {
        const struct mix mix = {draw_below(&state, 9), draw_below(&state, 9),
                                1 + draw_below(&state, 5000),
                                1 + draw_below(&state, 200)};
        size_t n = (size_t)draw_below(&state, round % 16 == 0 ? MOST + 1 : 12);
        struct queue_item item = {.arrival_seq = MOST};
        int64_t left_us = (int64_t)draw_below(&state, 300), expected_us;

        for (size_t i = 0; i < n; i++)
            items[i] = draw_item(&state, &mix, i);
        if (draw_below(&state, 2) == 0)
            item.ready_at_us = 900 + (int64_t)draw_below(&state, mix.time_us);
        item.cost_us = (int64_t)draw_below(&state, mix.cost_us);
        for (size_t i = 0; !order->by_age && i < n; i++)
            calm(&items[i], (int64_t)(i * mix.time_us / MOST));
        if (!order->by_age) {
            int64_t ready_us = n <= 32 ? item.ready_at_us : 0;

            calm(&item, (int64_t)mix.time_us);
            item.ready_at_us = ready_us;
        }
        memcpy(all, items, n * sizeof(*all));
        all[n] = item;
        expected_us = serve_us(order, all, n + 1, n, 1000 + left_us);
        if (expected_us != INT64_MAX)
            expected_us -= 1000;
        if (wait_us(order, items, n, &item, left_us, 1000) != expected_us) {
            printf("\n%s, seed %llu, round %u: a wait of %lld, not %lld us\n",
                   order->name, (unsigned long long)seed, round,
                   (long long)wait_us(order, items, n, &item, left_us, 1000),
                   (long long)expected_us);
            CU_FAIL("a wait differs");
            return;
        }
    }
    CU_PASS("the waits agree");
}

static void test_random_waits(void)
{
    const char *name;

    for (size_t i = 0; (name = queue_order_name(i)); i++)
        for (uint64_t seed = 1; seed <= 3; seed++)
            check_waits(queue_order_by_name(name), seed);
}

/* One by one, from the words in shortest.h. */
struct obvious {
    const struct queue_item *items;
    size_t n;
    int64_t due_us[64]; /* (n) of the items */
    size_t due[64];     /* by due time */
    size_t n_due;
    bool in[64]; /* protected, by place in `due` */
};

static void obvious_sort(struct obvious *o, int64_t now_us)
{
    o->n_due = o->n;
    for (size_t i = 0; i < o->n; i++) {
        const struct queue_item *item = &o->items[i];

        o->due[i] = i;
        o->due_us[i] = item->deadline_us;
        while (item->slo_us > 0 && now_us + item->cost_us > o->due_us[i])
            o->due_us[i] += item->slo_us;
    }
    for (size_t i = 0; i < o->n_due; i++)
        for (size_t k = i + 1; k < o->n_due; k++) {
            const struct queue_item *a = &o->items[o->due[i]];
            const struct queue_item *b = &o->items[o->due[k]];
            size_t swap = o->due[i];

            if (o->due_us[o->due[k]] < o->due_us[swap] ||
                (o->due_us[o->due[k]] == o->due_us[swap] &&
                 b->arrival_seq < a->arrival_seq)) {
                o->due[i] = o->due[k];
                o->due[k] = swap;
            }
        }
}

static int64_t obvious_sum(const struct obvious *o)
{
    int64_t us = 0;

    for (size_t p = 0; p < o->n_due; p++)
        us += o->in[p] ? o->items[o->due[p]].cost_us : 0;
    return us;
}

static bool obvious_again(const struct obvious *o, size_t place)
{
    return o->due_us[o->due[place]] != o->items[o->due[place]].deadline_us;
}

/* The largest of the protected; without an SLO before those with one, and those
 * that are due for the first time before the others. */
static void obvious_drop(struct obvious *o)
{
    size_t worst = o->n_due;

    for (size_t p = 0; p < o->n_due; p++) {
        const struct queue_item *i = &o->items[o->due[p]];
        const struct queue_item *w =
            worst < o->n_due ? &o->items[o->due[worst]] : NULL;

        if (o->in[p] &&
            (!w || (w->has_slo && !i->has_slo) ||
             (w->has_slo == i->has_slo && obvious_again(o, worst) &&
              !obvious_again(o, p)) ||
             (w->has_slo == i->has_slo &&
              obvious_again(o, worst) == obvious_again(o, p) &&
              (i->cost_us > w->cost_us ||
               (i->cost_us == w->cost_us && i->arrival_seq > w->arrival_seq)))))
            worst = p;
    }
    o->in[worst] = false;
}

static void obvious_protect(struct obvious *o, int64_t now_us)
{
    for (size_t p = 0; p < o->n_due; p++)
        o->in[p] = false;
    for (size_t p = 0; p < o->n_due; p++) {
        const struct queue_item *i = &o->items[o->due[p]];

        o->in[p] = now_us + i->cost_us <= o->due_us[o->due[p]];
        if (!o->in[p])
            continue;
        while (now_us + obvious_sum(o) > o->due_us[o->due[p]])
            obvious_drop(o);
    }
}

static bool obvious_may_run(const struct obvious *o, size_t place,
                            int64_t now_us)
{
    const struct queue_item *mine = &o->items[o->due[place]];
    int64_t end_us = now_us + mine->cost_us;

    for (size_t p = 0; p < place; p++) {
        if (!o->in[p])
            continue;
        const struct queue_item *i = &o->items[o->due[p]];

        end_us += i->cost_us;
        if (end_us > o->due_us[o->due[p]] - i->slo_us / 8)
            return false;
    }
    return o->in[place] && mine->ready_at_us <= now_us;
}

static int64_t obvious_rank(const struct queue_item *i)
{
    return 50 * i->cost_us + i->arrived_us;
}

/* Whether it waits for one with an SLO, by which nobody gets late. */
static bool obvious_keeps(const struct obvious *o, int64_t now_us)
{
    bool keeps = false;

    for (size_t k = 0; k < o->n && !keeps; k++) {
        const struct queue_item *i = &o->items[k];
        int64_t end_us =
            i->ready_at_us == QUEUE_NOT_READY ? i->expected_us : i->ready_at_us;

        keeps = i->has_slo && end_us > now_us;
        for (size_t p = 0; p < o->n_due && keeps; p++) {
            end_us += o->items[o->due[p]].cost_us;
            keeps = end_us <= o->due_us[o->due[p]];
        }
    }
    return keeps;
}

static const struct queue_item *obvious_first(const struct obvious *o,
                                              int64_t now_us)
{
    const struct queue_item *best = NULL;

    for (size_t k = 0; k < o->n; k++) {
        const struct queue_item *i = &o->items[k];

        if (i->ready_at_us <= now_us &&
            (!best || obvious_rank(i) < obvious_rank(best) ||
             (obvious_rank(i) == obvious_rank(best) &&
              i->arrival_seq < best->arrival_seq)))
            best = i;
    }
    return best;
}

static int obvious_pick(struct obvious *o, int64_t now_us)
{
    const struct queue_item *best = NULL;

    obvious_sort(o, now_us);
    obvious_protect(o, now_us);
    for (size_t p = 0; p < o->n_due; p++) {
        const struct queue_item *i = &o->items[o->due[p]];
        int64_t rank = obvious_rank(i);
        int64_t best_rank = best ? obvious_rank(best) : 0;

        if (obvious_may_run(o, p, now_us) &&
            (!best || rank < best_rank ||
             (rank == best_rank && i->arrival_seq < best->arrival_seq)))
            best = i;
    }
    if (!best && !obvious_keeps(o, now_us))
        best = obvious_first(o, now_us);
    return best ? (int)(best - o->items) : -1;
}

/* Queues of one SLO, of several and of none, from easy to hopeless. */
static struct queue_item draw_due(uint64_t *state, uint64_t seq, uint64_t n,
                                  uint64_t slo_us, uint64_t kind)
{
    struct queue_item i = {.arrival_seq = seq,
                           .cost_us = 1 + (int64_t)draw_below(state, 100)};
    uint64_t mine_us = kind % 2 == 0 ? slo_us : 1 + draw_below(state, slo_us);

    i.has_slo = kind < 2 || (kind < 4 && draw_below(state, 2) == 0);
    i.arrived_us = (int64_t)(seq * 1000 / n);
    i.deadline_us = i.arrived_us + (int64_t)(i.has_slo ? mine_us : slo_us);
    if (i.has_slo && draw_below(state, 8) > 0)
        i.slo_us = i.deadline_us - i.arrived_us;
    if (draw_below(state, 8) == 0)
        i.ready_at_us = 900 + (int64_t)draw_below(state, 200);
    if (draw_below(state, 4) == 0) {
        i.ready_at_us = QUEUE_NOT_READY;
        i.expected_us = 995 + (int64_t)draw_below(state, 15);
    }
    return i;
}

/* Whether a pick at 1000 says that it stays for a while; then it does. */
static bool is_kept(const struct queue_order *order,
                    const struct queue_item *items, size_t n, int picked,
                    uint64_t *rng)
{
    int64_t until_us, last_us;

    CU_ASSERT_EQUAL(queue_pick_until(order, items, n, 1000, &until_us), picked);
    CU_ASSERT_FATAL(until_us > 1000);
    last_us = until_us < 10000000 ? until_us - 1 : 10000000;
    for (int look = 0; look < 4; look++) {
        CU_ASSERT_EQUAL(queue_pick(order, items, n, last_us), picked);
        last_us = 1000 + (int64_t)draw_below(rng, (uint64_t)(last_us - 999));
    }
    return until_us > 1001;
}

static void check_picks(uint64_t seed)
{
    const struct queue_order *order = queue_order_by_name("shortest_first");
    uint64_t rng = seed, n_waits = 0, n_kept = 0;

    for (uint32_t round = 0; round < cases_of(20000); round++) {
        struct queue_item items[64];
        struct obvious o = {.items = items,
                            .n = draw_below(&rng, round % 16 == 0 ? 64 : 12)};
        uint64_t slo_us = 1 + draw_below(&rng, 1 + o.n * 200),
                 kind = draw_below(&rng, 6);
        int got, expected;

        for (size_t i = 0; i < o.n; i++)
            items[i] = draw_due(&rng, i, o.n, slo_us, kind);
        for (size_t i = 0; i < o.n; i++) {
            size_t k = draw_below(&rng, o.n);
            struct queue_item swap = items[i];

            items[i] = items[k];
            items[k] = swap;
        }
        got = queue_pick(order, items, o.n, 1000);
        expected = obvious_pick(&o, 1000);
        n_waits += got < 0 && o.n_due > 0;
        n_kept += is_kept(order, items, o.n, got, &rng);
        if (got != expected) {
            printf("\nseed %llu, round %u: item %d of %zu, not %d\n",
                   (unsigned long long)seed, round, got, o.n, expected);
            CU_FAIL("a pick differs");
            return;
        }
    }
    CU_ASSERT_TRUE(n_waits > cases_of(100));
    CU_ASSERT_TRUE(n_kept > cases_of(1000));
}

/* A ready item that would make a promised item late waits, but no
 * longer than until that was expected. */
static void test_look(void)
{
    const struct queue_order *order = queue_order_by_name("shortest_first");
    struct queue_item items[] = {{.arrival_seq = 1,
                                  .cost_us = 4000,
                                  .deadline_us = 50000,
                                  .has_slo = true},
                                 {.arrival_seq = 2,
                                  .ready_at_us = QUEUE_NOT_READY,
                                  .expected_us = 1100,
                                  .cost_us = 200,
                                  .deadline_us = 1400,
                                  .has_slo = true}};

    CU_ASSERT_EQUAL(queue_pick(order, items, 2, 1000), -1);
    CU_ASSERT_EQUAL(queue_look_us(order, items, 2, 1000), 1100);
    CU_ASSERT_EQUAL(queue_look_us(order, items + 1, 1, 1000), INT64_MAX);
    CU_ASSERT_EQUAL(queue_look_us(fifo(), items, 2, 1000), INT64_MAX);
    CU_ASSERT_EQUAL(queue_pick(order, items, 2, 1100), 0);
    CU_ASSERT_EQUAL(queue_look_us(order, items, 2, 1100), INT64_MAX);
    items[1].has_slo = false;
    CU_ASSERT_EQUAL(queue_pick(order, items, 2, 1000), 0);
}

static void test_pick_shortest(void)
{
    for (uint64_t seed = 1; seed <= 3; seed++)
        check_picks(seed);
}

/* What is not ready yet was promised its time, too, of which the last eighth is
 * nobody else's. */
static void test_promise_of_unready(void)
{
    struct queue_item items[] = {
        {.arrival_seq = 1,
         .ready_at_us = 1050,
         .cost_us = 500,
         .deadline_us = 1900,
         .has_slo = true,
         .slo_us = 800},
        {.arrival_seq = 2,
         .cost_us = 301,
         .arrived_us = -9000,
         .deadline_us = 90000,
         .has_slo = true},
        {.arrival_seq = 3,
         .cost_us = 300,
         .deadline_us = 90000,
         .has_slo = true},
    };
    const struct queue_order *order = queue_order_by_name("shortest_first");

    CU_ASSERT_EQUAL(queue_pick(order, items, 3, 1000), 2);
    CU_ASSERT_EQUAL(queue_pick(order, items, 3, 999), 1);
    items[0].ready_at_us = 1000;
    CU_ASSERT_EQUAL(queue_pick(order, items, 3, 1000), 2);
    items[0].ready_at_us = 1050;
    items[0].slo_us = 0;
    CU_ASSERT_EQUAL(queue_pick(order, items, 3, 1000), 1);
    items[0].deadline_us = 1800;
    CU_ASSERT_EQUAL(queue_pick(order, items, 3, 1000), 2);
}

/* One that cannot be in time any more is due again after as much time as it
 * had, and then comes before those that can wait. */
static void test_due_again(void)
{
    struct queue_item items[] = {{.arrival_seq = 1,
                                  .cost_us = 900,
                                  .deadline_us = 2000,
                                  .has_slo = true,
                                  .slo_us = 1000},
                                 {.arrival_seq = 2,
                                  .cost_us = 300,
                                  .deadline_us = 2900,
                                  .has_slo = true,
                                  .slo_us = 1000}};
    const struct queue_order *order = queue_order_by_name("shortest_first");

    CU_ASSERT_EQUAL(queue_pick(order, items, 2, 1000), 0);
    CU_ASSERT_EQUAL(queue_pick(order, items, 2, 1101), 1);
    items[1].deadline_us = 4000;
    CU_ASSERT_EQUAL(queue_pick(order, items, 2, 1675), 1);
    CU_ASSERT_EQUAL(queue_pick(order, items, 2, 1676), 0);
    CU_ASSERT_EQUAL(queue_pick(order, items, 2, 2100), 0);
    CU_ASSERT_EQUAL(queue_pick(order, items, 2, 2101), 1);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Random pairs of prompts, against a walk along both. */
static void test_follow(void)
{
    uint64_t state = 41;

    for (int i = 0; i < 20000; i++) {
        uint64_t a[32], b[32];
        uint32_t same = (uint32_t)draw_below(&state, 33), shared = 0;
        struct follow_prompt other = {.keys = a,
                                      .n = (uint32_t)draw_below(&state, 33)};
        struct follow_prompt own = {.keys = b,
                                    .n = (uint32_t)draw_below(&state, 33)};
        int64_t us = (int64_t)draw_below(&state, 1000);

        for (uint32_t k = 0; k < 32; k++) {
            a[k] = k + 1;
            b[k] = k < same ? a[k] : 100 + k;
        }
        own.n_there = (uint32_t)draw_below(&state, own.n + 1);
        other.n_there = least(own.n_there, (uint32_t)draw_below(&state, 33));
        for (uint32_t k = own.n_there; k < least(own.n, other.n) && k < same;
             k++)
            shared++;
        CU_ASSERT_EQUAL_FATAL(follow_makes(&other, &own), shared > 0);
        if (shared == 0)
            continue;
        CU_ASSERT_EQUAL_FATAL(follow_shared_us(&other, us, &own),
                              us * shared / (other.n - other.n_there));
        /* Its cost is of what its load does not bring, of one at least. */
        other.n_loaded = (uint32_t)draw_below(&state, 33);
        int64_t computed = (int64_t)other.n - other.n_there - other.n_loaded;
        CU_ASSERT_EQUAL_FATAL(follow_shared_us(&other, us, &own),
                              us * shared / (computed > 0 ? computed : 1));
    }
}

/* It waits for one that would be served first if both made the shared blocks,
 * and with an SLO always. */
static void test_follow_waits(void)
{
    const struct queue_order *order = queue_order_by_name("shortest_first");
    struct queue_item other = {.arrival_seq = 1, .cost_us = 1000};
    struct queue_item item = {.arrival_seq = 2, .cost_us = 10};

    CU_ASSERT_TRUE(follow_waits(order, &other, &item, 1000));
    CU_ASSERT_TRUE(follow_waits(order, &other, &item, 990));
    CU_ASSERT_FALSE(follow_waits(order, &other, &item, 989));
    item.arrived_us = 50;
    CU_ASSERT_TRUE(follow_waits(order, &other, &item, 989));
    item.has_slo = true;
    CU_ASSERT_TRUE(follow_waits(order, &other, &item, 1));
    item.has_slo = false;
    CU_ASSERT_TRUE(follow_waits(queue_order_by_name("fifo"), &other, &item, 1));
}

/* When the first of those that are not ready will be. */
static int64_t next_ready_us(const struct queue_item *items, size_t n,
                             int64_t now_us)
{
    int64_t next_us = INT64_MAX;

    for (size_t i = 0; i < n; i++)
        if (items[i].ready_at_us > now_us && items[i].ready_at_us < next_us)
            next_us = items[i].ready_at_us;
    return next_us;
}

/* Serves random arrivals, each taken if all that waits and itself would be done
 * by its deadline, or without an SLO: none with an SLO may get late. Some
 * get ready later. */
static void check_promises(uint64_t seed)
{
    enum { MOST = 256 };
    const struct queue_order *order = queue_order_by_name("shortest_first");
    struct queue_item items[MOST];
    uint64_t rng = seed, n_taken = 0, n_passed = 0;
    int64_t now_us = 0, left_until_us = 0, waiting_us = 0;
    size_t n = 0;

    for (uint64_t seq = 0; seq < 20000; seq++) {
        struct queue_item item = {
            .arrival_seq = seq, .cost_us = 1 + (int64_t)draw_below(&rng, 1000)};
        int64_t left_us, slo_us = 1 + (int64_t)draw_below(&rng, 8000);

        now_us += (int64_t)draw_below(&rng, 800);
        while (n > 0 && left_until_us <= now_us) {
            int next = queue_pick(order, items, n, left_until_us);

            if (next < 0) {
                int64_t at_us = next_ready_us(items, n, left_until_us);

                left_until_us = at_us < now_us ? at_us : now_us;
                if (at_us > now_us)
                    break;
                continue;
            }
            left_until_us += items[next].cost_us;
            waiting_us -= items[next].cost_us;
            n_passed += items[next].arrival_seq != items[0].arrival_seq;
            if (items[next].has_slo &&
                left_until_us > items[next].deadline_us) {
                printf("\nseed %llu: request %llu is late\n",
                       (unsigned long long)seed,
                       (unsigned long long)items[next].arrival_seq);
                CU_FAIL("a promise is broken");
                return;
            }
            n--;
            memmove(items + next, items + next + 1,
                    (n - (size_t)next) * sizeof(*items));
        }
        if (left_until_us < now_us)
            left_until_us = now_us;
        left_us = left_until_us - now_us;
        item.has_slo = draw_below(&rng, 4) > 0;
        item.arrived_us = now_us;
        item.deadline_us = now_us + (item.has_slo ? slo_us : 3000);
        item.slo_us = item.has_slo ? slo_us : 0;
        item.ready_at_us = now_us + (int64_t)draw_below(&rng, 80);
        if (n == MOST ||
            (item.has_slo && left_us + waiting_us + item.cost_us + 80 > slo_us))
            continue;
        n_taken++;
        waiting_us += item.cost_us;
        items[n++] = item;
    }
    CU_ASSERT_TRUE(n_taken > 1000);
    CU_ASSERT_TRUE(n_passed > 100);
}

static void test_promises(void)
{
    for (uint64_t seed = 1; seed <= 20; seed++)
        check_promises(seed);
}

static const struct suite_test tests[] = {
    {"names", test_names},
    {"pick", test_pick},
    {"pick strict", test_pick_strict},
    {"pick uncached first", test_pick_uncached_first},
    {"wait", test_wait},
    {"wait long", test_wait_long},
    {"random waits", test_random_waits},
    {"pick shortest", test_pick_shortest},
    {"when to look again", test_look},
    {"promises", test_promises},
    {"promise of one that is not ready", test_promise_of_unready},
    {"due again", test_due_again},
    {"follow", test_follow},
    {"follow waits", test_follow_waits},
};
SUITE("queue", tests)
