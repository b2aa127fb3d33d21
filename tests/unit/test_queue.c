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
    const struct queue_item late = {.arrival_seq = 10};
    const struct queue_item cached = {.arrival_seq = 10,
                                      .loading_until_us = QUEUE_NOT_READY};

    CU_ASSERT_PTR_NOT_NULL_FATAL(order);
    CU_ASSERT_EQUAL(queue_pick(order, items, 0, 0), -1);
    CU_ASSERT_EQUAL(queue_pick(order, items, 2, 0), 1);
    CU_ASSERT_EQUAL(queue_pick(order, items, 5, 0), 2);
    CU_ASSERT_EQUAL(queue_pick(order, items, 5, 50), 3);
    CU_ASSERT_EQUAL(queue_pick(order, items + 3, 2, 49), -1);
    /* Behind the three of its own kind, before those that load. */
    CU_ASSERT_EQUAL(queue_wait_us(order, items, 5, &late, 60, 0), 72);
    CU_ASSERT_EQUAL(queue_wait_us(order, items, 5, &cached, 60, 0), 72);
    /* Once loaded it goes by its age. */
    items[0].loading_until_us = 65;
    items[0].cost_us = 100;
    CU_ASSERT_EQUAL(queue_wait_us(order, items, 5, &late, 60, 0), 172);
    items[0].cost_us = 0;
    items[0].loading_until_us = QUEUE_NOT_READY;
    CU_ASSERT_EQUAL(queue_wait_us(order, items, 1, &late, 0, 0), 0);
}

/* More items than are thought through one by one. */
static void test_wait_long(void)
{
    enum { N = QUEUE_THOUGHT_ITEMS_MAX + 10 };
    struct queue_item *items = calloc(N, sizeof(*items));
    struct queue_item item = {.arrival_seq = N};

    CU_ASSERT_PTR_NOT_NULL_FATAL(items);
    for (size_t i = 0; i < N; i++)
        items[i] = (struct queue_item){.arrival_seq = i, .cost_us = 10};
    CU_ASSERT_EQUAL(queue_wait_us(fifo(), items, N, &item, 5, 100), 10 * N + 5);
    CU_ASSERT_EQUAL(queue_wait_us(fifo_strict(), items, N, &item, 5, 100),
                    10 * N + 5);
    /* A gap: the bound for one, exact for the other. */
    items[0].ready_at_us = 300;
    CU_ASSERT_EQUAL(queue_wait_us(fifo(), items, N, &item, 5, 100),
                    200 + 10 * N);
    CU_ASSERT_EQUAL(queue_wait_us(fifo_strict(), items, N, &item, 5, 100),
                    200 + 10 * N);
    items[0].ready_at_us = QUEUE_NOT_READY;
    CU_ASSERT_EQUAL(queue_wait_us(fifo(), items, N, &item, 5, 100),
                    10 * (N - 1) + 5);
    CU_ASSERT_EQUAL(queue_wait_us(fifo_strict(), items, N, &item, 5, 100),
                    INT64_MAX);
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
    CU_ASSERT_EQUAL(queue_wait_us(fifo(), NULL, 0, &item, 0, 1000), 0);
    CU_ASSERT_EQUAL(queue_wait_us(fifo(), NULL, 0, &item, 30, 1000), 30);
    CU_ASSERT_EQUAL(queue_wait_us(fifo(), items, 3, &item, 30, 1000), 137);
    /* It waits for its own blocks, and meets 2 at 5000. */
    item.ready_at_us = 4000;
    CU_ASSERT_EQUAL(queue_wait_us(fifo(), items, 3, &item, 30, 1000), 3000);
    item.ready_at_us = 5000;
    CU_ASSERT_EQUAL(queue_wait_us(fifo(), items, 3, &item, 30, 1000), 4040);
    item.ready_at_us = QUEUE_NOT_READY;
    CU_ASSERT_EQUAL(queue_wait_us(fifo(), items, 3, &item, 30, 1000),
                    INT64_MAX);
}

static int64_t draw(unsigned *state, int64_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (int64_t)(*state >> 8) % below;
}

/* Half of the items are loading, until then or for ever. */
static int64_t draw_loading(unsigned *state)
{
    switch (draw(state, 4)) {
    case 0:
        return 900 + draw(state, 1500);
    case 1:
        return QUEUE_NOT_READY;
    default:
        return 0;
    }
}

/* The short way of an order agrees with serving the queue step by step. */
static void check_short_way(const struct queue_order *order)
{
    const struct queue_order slow = {"slow", order->pick, NULL,
                                     order->loading_last, false};
    unsigned state = 12345;

    for (int round = 0; round < 20000; round++) {
        struct queue_item items[8];
        struct queue_item item;
        size_t n;

        n = (size_t)draw(&state, 9);
        for (size_t i = 0; i < n; i++)
            items[i] =
                (struct queue_item){.arrival_seq = 2 * i + 1,
                                    .ready_at_us = 900 + draw(&state, 300),
                                    .cost_us = draw(&state, 200),
                                    .loading_until_us = draw_loading(&state)};
        item = (struct queue_item){.arrival_seq = (uint64_t)draw(&state, 9) * 2,
                                   .ready_at_us = 900 + draw(&state, 500),
                                   .loading_until_us = draw_loading(&state)};
        int64_t left_us = draw(&state, 300);
        if (queue_wait_us(order, items, n, &item, left_us, 1000) !=
            queue_wait_us(&slow, items, n, &item, left_us, 1000)) {
            CU_FAIL("the short way differs");
            return;
        }
    }
    CU_PASS("the short way agrees");
}

/* The youngest item, from what the others add up to, and from each of them. */
static void check_youngest(const struct queue_order *order)
{
    unsigned state = 54321;
    int n_short = 0;

    for (int round = 0; round < 20000; round++) {
        struct queue_load load = {.latest_ready_us = INT64_MIN};
        struct queue_item items[8];
        struct queue_item item = {.arrival_seq = 100};
        size_t n = (size_t)draw(&state, 9);
        int64_t left_us = draw(&state, 300);

        for (size_t i = 0; i < n; i++) {
            items[i] =
                (struct queue_item){.arrival_seq = i,
                                    .ready_at_us = 900 + draw(&state, 200),
                                    .cost_us = draw(&state, 200)};
            if (order->loading_last && round % 4 == 0)
                items[i].loading_until_us = draw_loading(&state);
            load.cost_us += items[i].cost_us;
            if (items[i].loading_until_us > load.latest_loading_us)
                load.latest_loading_us = items[i].loading_until_us;
            if (items[i].ready_at_us > load.latest_ready_us)
                load.latest_ready_us = items[i].ready_at_us;
        }
        item.ready_at_us = 900 + draw(&state, 500);
        n_short += load.latest_ready_us <= 1000 + left_us;
        if (queue_wait_us(order, items, n, &item, left_us, 1000) !=
            queue_wait_youngest_us(order, items, n, &load, &item, left_us,
                                   1000)) {
            CU_FAIL("the youngest waits for another time");
            return;
        }
    }
    CU_ASSERT(n_short > 5000 && n_short < 19000);
}

static void test_youngest(void)
{
    check_youngest(fifo());
    check_youngest(fifo_strict());
    check_youngest(queue_order_by_name("uncached_first"));
}

static void test_short_way(void)
{
    check_short_way(fifo());
    check_short_way(fifo_strict());
    check_short_way(queue_order_by_name("uncached_first"));
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
    CU_add_test(suite, "short way", test_short_way);
    CU_add_test(suite, "youngest", test_youngest);
    CU_basic_run_tests();
    unsigned failed = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
