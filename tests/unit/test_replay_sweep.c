/* The load of a sweep's case, and the order of requests of one timestamp. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "tools/replay/study/sweep/work.h"
#include "tools/replay/trace/stream.h"
#include "traces/random.h"

/* A list, newest first, beside the ring. */
static void check_lru(uint64_t capacity, uint64_t seed)
{
    struct sweep_lru *lru = sweep_lru_new(capacity, 1000);
    struct random_state random;
    uint64_t list[64], seen = 0, new_blocks = 0;
    size_t n = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(lru);
    random_init(&random, seed);
    for (int k = 0; k < 2000; k++) {
        uint64_t ids[6];
        size_t n_ids = 1 + random_below(&random, 6), leading, hits = 0;

        for (size_t i = 0; i < n_ids; i++) {
            ids[i] = 10 * i + random_below(&random, i < 2 ? 3 : 6);
            seen |= UINT64_C(1) << ids[i];
        }
        for (size_t i = 0, at = 0; i < n_ids && at < n; i++) {
            for (at = 0; at < n && list[at] != ids[i];)
                at++;
            hits += at < n;
        }
        for (size_t i = n_ids; i > 0; i--) {
            size_t at = 0;

            while (at < n && list[at] != ids[i - 1])
                at++;
            if (at == n)
                at = n < capacity ? n++ : n - 1;
            memmove(list + 1, list, at * sizeof(list[0]));
            list[0] = ids[i - 1];
        }
        CU_ASSERT_EQUAL(sweep_lru_use(lru, ids, n_ids, &leading, &new_blocks),
                        0);
        CU_ASSERT_EQUAL(leading, hits);
    }
    CU_ASSERT_EQUAL(new_blocks, (uint64_t)__builtin_popcountll(seen));
    sweep_lru_free(lru);
}

static void test_lru(void)
{
    for (uint64_t capacity = 1; capacity < 40; capacity += 3)
        check_lru(capacity, capacity);
    sweep_lru_free(NULL);
}

static void test_least(void)
{
    const struct sweep_work work = {
        .prefill_s = 100, .decode_s = 60, .kv_bytes = 4e9, .span_s = 10};
    struct cluster c = {
        .prefill_nodes = 4, .decode_nodes = 2, .link_bytes_per_s = 1e9};

    CU_ASSERT_DOUBLE_EQUAL(sweep_work_least_s(&work, &c), 30, 1e-9);
    c.decode_nodes = 3;
    CU_ASSERT_DOUBLE_EQUAL(sweep_work_least_s(&work, &c), 25, 1e-9);
    c.reality.n_speeds = 2;
    c.reality.node_speed[0] = c.reality.node_speed[1] = 0.5;
    CU_ASSERT_DOUBLE_EQUAL(sweep_work_least_s(&work, &c), 100.0 / 3, 1e-9);
    c.link_bytes_per_s = 1e7;
    CU_ASSERT_DOUBLE_EQUAL(sweep_work_least_s(&work, &c), 400.0 / 3, 1e-9);
    c.link_bytes_per_s = 1e9;
    c.cost.prefill[1] = c.cost.decode[1] = 10;
    c.n_groups = 1; /* the last two take twice as long */
    c.groups[0] = (struct cluster_group){
        .first = 2, .nodes = 2, .has_prefill = true, .prefill_us = {0, 20}};
    CU_ASSERT_DOUBLE_EQUAL(sweep_work_least_s(&work, &c), 50, 1e-9);
    c = (struct cluster){.coupled_nodes = 8};
    CU_ASSERT_DOUBLE_EQUAL(sweep_work_least_s(&work, &c), 20, 1e-9);
}

/* n requests, `together` of which have the same timestamp. */
struct source {
    uint32_t n, given, together;
};

static int next(void *arg, struct trace_request *t)
{
    struct source *s = arg;

    if (s->given == s->n)
        return 0;
    CU_ASSERT_EQUAL_FATAL(trace_request_reserve(t, 1), 0);
    t->arrival_us = s->given / s->together;
    t->input_tokens = s->given;
    t->hash_ids[0] = s->given++;
    t->block_count = 1;
    return 1;
}

static void check_ties(uint32_t n, uint32_t together, uint64_t seed)
{
    struct replay_ties ties = {.n = 0};
    struct source s = {n, 0, together};
    struct trace_request t = {0};
    uint8_t *seen = calloc(n + 1, 1);
    int64_t last_us = 0;
    uint32_t moved = 0, i = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(seen);
    replay_ties_init(&ties, seed);
    for (; replay_ties_next(&ties, next, &s, &t) == 1; i++) {
        CU_ASSERT_FATAL(t.input_tokens < n && !seen[t.input_tokens]);
        CU_ASSERT_EQUAL(t.hash_ids[0], t.input_tokens);
        CU_ASSERT(t.arrival_us >= last_us);
        last_us = t.arrival_us;
        seen[t.input_tokens] = 1;
        moved += t.input_tokens != i;
    }
    CU_ASSERT_EQUAL(i, n);
    CU_ASSERT_EQUAL(replay_ties_next(&ties, next, &s, &t), 0);
    CU_ASSERT(together == 1 ? moved == 0 : n < 100 || moved > n / 2);
    free(seen);
    trace_request_fini(&t);
    replay_ties_fini(&ties);
}

/* All come, once, at their time. */
static void test_ties(void)
{
    check_ties(0, 1, 1);
    check_ties(1, 1, 1);
    check_ties(1000, 1, 2);
    check_ties(1000, 7, 3);
    check_ties(64, 64, 4);
    check_ties(3 * REPLAY_TIES_MAX + 5, 2 * REPLAY_TIES_MAX + 1, 5);
}

static const struct suite_test tests[] = {
    {"lru", test_lru},
    {"least", test_least},
    {"ties", test_ties},
};
SUITE("replay sweep", tests)
