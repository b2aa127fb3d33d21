/* Queue orders: what is picked, and how long one waits for it. */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>

#include "conductor/core/step/queue.h"

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

    return queue_wait_us(order, items, n, &load, item, left_us, now_us);
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

static uint64_t draw(uint64_t *state, uint64_t below)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
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
                              .cost_us = (int64_t)draw(state, mix->cost_us)};

    if (draw(state, 8) < mix->late_in_8)
        item.ready_at_us = 900 + (int64_t)draw(state, mix->time_us);
    if (draw(state, 40) == 0 && mix->late_in_8 > 0)
        item.ready_at_us = QUEUE_NOT_READY;
    if (draw(state, 8) < mix->loading_in_8)
        item.loading_until_us = draw(state, 4) == 0
                                    ? QUEUE_NOT_READY
                                    : 900 + (int64_t)draw(state, mix->time_us);
    return item;
}

/* A wait is what serving the queue step by step takes. */
static void check_waits(const struct queue_order *order, uint64_t seed)
{
    enum { MOST = 200 };
    uint64_t state = seed;
    struct queue_item items[MOST], all[MOST + 1];

    for (int round = 0; round < 20000; round++) {
        const struct mix mix = {draw(&state, 9), draw(&state, 9),
                                1 + draw(&state, 5000), 1 + draw(&state, 200)};
        size_t n = (size_t)draw(&state, round % 16 == 0 ? MOST + 1 : 12);
        struct queue_item item = {.arrival_seq = MOST};
        int64_t left_us = (int64_t)draw(&state, 300), expected_us;

        for (size_t i = 0; i < n; i++)
            all[i] = items[i] = draw_item(&state, &mix, i);
        if (draw(&state, 2) == 0)
            item.ready_at_us = 900 + (int64_t)draw(&state, mix.time_us);
        all[n] = item;
        expected_us = serve_us(order, all, n + 1, n, 1000 + left_us);
        if (expected_us != INT64_MAX)
            expected_us -= 1000;
        if (wait_us(order, items, n, &item, left_us, 1000) != expected_us) {
            printf("\n%s, seed %llu, round %d: a wait of %lld, not %lld us\n",
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

int main(void)
{
    CU_initialize_registry();
    CU_pSuite suite = CU_add_suite("queue", NULL, NULL);
    CU_add_test(suite, "names", test_names);
    CU_add_test(suite, "pick", test_pick);
    CU_add_test(suite, "pick strict", test_pick_strict);
    CU_add_test(suite, "pick uncached first", test_pick_uncached_first);
    CU_add_test(suite, "wait", test_wait);
    CU_add_test(suite, "wait long", test_wait_long);
    CU_add_test(suite, "random waits", test_random_waits);
    CU_basic_run_tests();
    unsigned failed = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
