/*
 * Stack distances against an LRU list that is walked from its front: every
 * capacity, random traces, a printed seed. Then gaps by hand.
 */
#include <CUnit/CUnit.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/cases.h"
#include "tests/unit/suite.h"
#include "traces/random.h"
#include "traces/reuse.h"

#define CAPACITY_MAX 64U

/* The obvious cache: ids[0] was used last. Returns whether id was there. */
struct plain_lru {
    uint64_t ids[CAPACITY_MAX];
    size_t count;
    size_t capacity;
    uint64_t hits;
};

static void plain_touch(struct plain_lru *lru, uint64_t id)
{
    size_t i = 0;

    while (i < lru->count && lru->ids[i] != id)
        i++;
    if (i < lru->count)
        lru->hits++;
    else if (lru->count < lru->capacity)
        lru->count++;
    else
        i = lru->capacity - 1;
    memmove(lru->ids + 1, lru->ids, i * sizeof lru->ids[0]);
    lru->ids[0] = id;
}

/* Many more touches than blocks, so that slots run out again and again. */
static void test_against_plain_lru(void)
{
    static struct plain_lru plain[CAPACITY_MAX + 1];
    struct random_state random;
    uint64_t touches = 0;

    random_init(&random, cases_seed((uint64_t)time(NULL)));
    memset(plain, 0, sizeof plain);
    for (size_t c = 1; c <= CAPACITY_MAX; c++)
        plain[c].capacity = c;
    struct trace_reuse *reuse = trace_reuse_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(reuse);
    for (int n = 0; n < 4000; n++) {
        uint64_t ids[8];
        struct trace_request request = {.hash_ids = ids, .arrival_us = n};

        request.block_count = random_below(&random, 9);
        for (size_t i = 0; i < request.block_count; i++) {
            uint32_t range = random_below(&random, 4) == 0 ? 100000 : 90;

            ids[i] = random_below(&random, range);
            touches++;
            for (size_t c = 1; c <= CAPACITY_MAX; c++)
                plain_touch(&plain[c], ids[i]);
        }
        CU_ASSERT_EQUAL(trace_reuse_add(reuse, &request), 0);
    }
    CU_ASSERT_EQUAL(trace_reuse_hits(reuse, 0), 0);
    for (size_t c = 1; c <= CAPACITY_MAX; c++)
        CU_ASSERT_EQUAL(trace_reuse_hits(reuse, c), plain[c].hits);
    CU_ASSERT_EQUAL(trace_reuse_hits(reuse, UINT64_MAX),
                    touches - trace_reuse_unique(reuse));
    trace_reuse_free(reuse);
}

static void touch(struct trace_reuse *reuse, int64_t at_us, uint64_t a,
                  uint64_t b)
{
    uint64_t ids[] = {a, b};
    struct trace_request request = {
        .arrival_us = at_us, .block_count = 2, .hash_ids = ids};

    CU_ASSERT_EQUAL(trace_reuse_add(reuse, &request), 0);
}

static void test_by_hand(void)
{
    struct trace_reuse *reuse = trace_reuse_new();

    CU_ASSERT_PTR_NOT_NULL_FATAL(reuse);
    CU_ASSERT_EQUAL(trace_reuse_gap_ms(reuse, 0.5), 0);
    touch(reuse, 0, 70, 71);
    touch(reuse, 3000000, 70, 72);  /* 70 after 3 s, 71 between */
    touch(reuse, 13000000, 70, 73); /* 70 after 10 s, 72 between */
    touch(reuse, 14000000, 70, 71); /* 1 s and 73; 14 s and 70, 72, 73 */
    CU_ASSERT_EQUAL(trace_reuse_unique(reuse), 4);
    CU_ASSERT_EQUAL(trace_reuse_used_once(reuse), 2);
    CU_ASSERT_EQUAL(trace_reuse_hits(reuse, 1), 0);
    CU_ASSERT_EQUAL(trace_reuse_hits(reuse, 2), 3);
    CU_ASSERT_EQUAL(trace_reuse_hits(reuse, 3), 3);
    CU_ASSERT_EQUAL(trace_reuse_hits(reuse, 4), 4);
    CU_ASSERT_EQUAL(trace_reuse_gap_ms(reuse, 0), 1000);
    CU_ASSERT_EQUAL(trace_reuse_gap_ms(reuse, 0.5), 6500);
    CU_ASSERT_EQUAL(trace_reuse_gap_ms(reuse, 1), 14000);
    uint32_t *uses = trace_reuse_popularity(reuse);
    CU_ASSERT_PTR_NOT_NULL_FATAL(uses);
    CU_ASSERT(uses[0] == 4 && uses[1] == 2 && uses[2] == 1 && uses[3] == 1);
    free(uses);
    trace_reuse_free(reuse);
    trace_reuse_free(NULL);
}

static const struct suite_test tests[] = {
    {"against a plain LRU", test_against_plain_lru},
    {"by hand", test_by_hand},
};
SUITE("trace_reuse", tests)
