/* The sketch of what is asked for, against exact counts of everything. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "conductor/core/replication/access.h"
#include "tests/unit/cases.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

enum { HALF_US = 5000000, KEYS = 4096, LONGEST = 24, CHAINS = 40 };

/* What is exact: each key with its decayed count. */
struct exact {
    uint64_t key[KEYS];
    double count[KEYS];
    int64_t at_us[KEYS];
    size_t n;
    double sum;
    int64_t sum_at_us;
};

static double decayed(double count, int64_t us)
{
    return count * pow(2.0, -(double)us / HALF_US);
}

static void exact_add(struct exact *e, const uint64_t *keys, size_t n,
                      int64_t now_us)
{
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;

        while (k < e->n && e->key[k] != keys[i])
            k++;
        if (k == e->n) {
            CU_ASSERT_FATAL(e->n < KEYS);
            e->key[e->n++] = keys[i];
            e->count[k] = 0.0;
            e->at_us[k] = now_us;
        }
        e->count[k] = decayed(e->count[k], now_us - e->at_us[k]) + 1.0;
        e->at_us[k] = now_us;
    }
    e->sum = decayed(e->sum, now_us - e->sum_at_us) + (double)n;
    e->sum_at_us = now_us;
}

static double per_s(double count)
{
    return count * log(2.0) * 1e6 / HALF_US;
}

static struct access_sketch *sketch_of(uint64_t bytes, uint64_t seed)
{
    struct access_sketch *s = access_new(&(struct access_config){
        .max_bytes = bytes, .half_us = HALF_US, .seed = seed});

    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    return s;
}

/* Block b of chain c; chains of one family share their first blocks. */
static uint64_t key_at(uint64_t c, uint64_t b)
{
    uint64_t family = b < 6 ? c % 4 : b < 12 ? c % 16 : c;

    return random_mix(family * 1000 + b +
                      (b < 6    ? 0
                       : b < 12 ? 1u << 20
                                : 1u << 21)) |
           1;
}

static size_t chain_of(uint64_t c, uint64_t *keys)
{
    size_t n = 1 + (c * 7) % LONGEST;

    for (size_t b = 0; b < n; b++)
        keys[b] = key_at(c, b);
    return n;
}

static void test_rates(void)
{
    struct access_sketch *s = sketch_of(1 << 20, 1);
    const uint64_t keys[3] = {11, 12, 13};

    CU_ASSERT_EQUAL(access_rate(s, 11, 0), 0.0);
    access_add(s, keys, 3, 900, 77, 0);
    CU_ASSERT_DOUBLE_EQUAL(access_rate(s, 13, 0), log(2.0) / 5, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(access_rate(s, 13, HALF_US), log(2.0) / 10, 1e-12);
    access_add(s, keys, 2, 500, 77, HALF_US);
    CU_ASSERT_DOUBLE_EQUAL(access_rate(s, 12, HALF_US), log(2.0) * 0.3, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(access_rate(s, 13, HALF_US), log(2.0) / 10, 1e-12);
    /* Ten a second for a minute. */
    for (int i = 0; i < 600; i++)
        access_add(s, keys + 2, 1, 100, 77, HALF_US + i * 100000);
    CU_ASSERT_DOUBLE_EQUAL(access_rate(s, 13, HALF_US + 59900000), 10.0, 0.1);
    CU_ASSERT(access_check(s));
    access_free(s);
    access_free(NULL);
}

static void test_bounds(void)
{
    CU_ASSERT_PTR_NULL(access_new(&(struct access_config){
        .max_bytes = ACCESS_BYTES_MIN - 1, .half_us = 1}));
    CU_ASSERT_PTR_NULL(access_new(
        &(struct access_config){.max_bytes = ACCESS_BYTES_MIN, .half_us = 0}));
    struct access_sketch *s = sketch_of(ACCESS_BYTES_MIN, 1);
    uint64_t keys[1024];

    CU_ASSERT(access_places(s) > 100 && access_places(s) < 400);
    for (uint64_t i = 0; i < 1024; i++)
        keys[i] = i + 1;
    access_add(s, keys, 1024, 1 << 20, 77, 0); /* longer than it has places */
    CU_ASSERT(access_check(s));
    CU_ASSERT(access_rate(s, 1, 0) > 0.0);
    CU_ASSERT_EQUAL(access_rate(s, 1024, 0), 0.0);
    /* Of equal counts the deepest block leaves first. */
    for (uint64_t i = 0; i < 50; i++) {
        keys[0] = 5000 + i;
        access_add(s, keys, 1, 100, 77, 0);
    }
    for (uint64_t i = 1; i <= access_places(s) - 50; i++)
        CU_ASSERT(access_rate(s, i, 0) > 0.0);
    access_free(s);
}

static void test_tips(void)
{
    struct access_sketch *s = sketch_of(1 << 20, 1);
    struct access_tip tips[4];
    uint64_t a[8], b[8], chain[8];

    for (uint64_t i = 0; i < 8; i++) {
        a[i] = 100 + i;
        b[i] = i < 3 ? a[i] : 200 + i;
    }
    /* Ten questions behind five blocks, one goes on as the others do not; two
     * behind the first three. */
    for (int i = 0; i < 10; i++) {
        a[5] = 1000 + (uint64_t)i;
        access_add(s, a, 6, 1600, 77, 0);
    }
    access_add(s, b, 8, 2200, 77, 0);
    access_add(s, b, 8, 2200, 77, 0);
    CU_ASSERT_EQUAL_FATAL(access_tips(s, 0.2, 0, tips, 4), 2);
    CU_ASSERT_EQUAL(tips[0].key, a[4]);
    CU_ASSERT_EQUAL(tips[0].n_blocks, 5);
    CU_ASSERT_EQUAL(tips[0].tag, 77);
    CU_ASSERT_DOUBLE_EQUAL(tips[0].per_s, per_s(10), 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(tips[0].mean_tokens, 1600, 1e-9);
    CU_ASSERT_EQUAL(tips[1].key, b[7]);
    CU_ASSERT(access_chain(s, &tips[0], chain));
    CU_ASSERT_EQUAL(memcmp(chain, a, 5 * sizeof(chain[0])), 0);
    CU_ASSERT(access_chain(s, &tips[1], chain));
    CU_ASSERT_EQUAL(memcmp(chain, b, sizeof(chain)), 0);
    CU_ASSERT_EQUAL(access_tips(s, 0.2, 0, tips, 1), 1);
    CU_ASSERT_EQUAL(tips[0].key, a[4]);
    /* A minute later nobody asks for them. */
    CU_ASSERT_EQUAL(access_tips(s, 0.2, 60000000, tips, 4), 0);
    access_free(s);
}

/* With room for all, counts are exact; the tips are those of a look at every
 * pair. */
static bool exact_case(uint64_t seed)
{
    static struct exact e;
    struct access_sketch *s = sketch_of(1 << 20, seed);
    struct random_state random;
    unsigned failed = CU_get_number_of_failures();
    uint64_t keys[LONGEST];
    int64_t now_us = 0;

    e = (struct exact){.n = 0};
    random_init(&random, seed);
    for (int i = 0; i < 400; i++) {
        uint64_t c = random_below(&random, CHAINS);
        size_t n = chain_of(c * c / CHAINS, keys);

        now_us += random_below(&random, i % 50 == 0 ? 400000000 : 1000000);
        access_add(s, keys, n, 100, 77, now_us);
        exact_add(&e, keys, n, now_us);
    }
    CU_ASSERT(access_check(s));
    for (size_t k = 0; k < e.n; k++)
        CU_ASSERT_DOUBLE_EQUAL(access_rate(s, e.key[k], now_us),
                               per_s(decayed(e.count[k], now_us - e.at_us[k])),
                               1e-6);
    access_free(s);
    return CU_get_number_of_failures() == failed;
}

/* With few places: never more than the truth, and what is asked for more often
 * than the sum divided by the places is kept, chain and all. */
static bool crowded_case(uint64_t seed)
{
    static struct exact e;
    struct access_sketch *s = sketch_of(ACCESS_BYTES_MIN, seed);
    struct random_state random;
    unsigned failed = CU_get_number_of_failures();
    uint64_t keys[LONGEST], fresh = 1, hot[LONGEST];
    size_t n_hot = chain_of(3, hot);
    int64_t now_us = 0;

    e = (struct exact){.n = 0};
    random_init(&random, seed);
    for (int i = 0; i < 500; i++) {
        size_t n;

        now_us += random_below(&random, 50000);
        if (random_below(&random, 3) == 0) {
            n = n_hot;
            memcpy(keys, hot, n * sizeof(keys[0]));
        } else { /* an adversary's: nobody asks for it again */
            n = 1 + random_below(&random, 10);
            for (size_t b = 0; b < n; b++)
                keys[b] = fresh++ << 32 | 1;
        }
        access_add(s, keys, n, 100, 77, now_us);
        exact_add(&e, keys, n, now_us);
        CU_ASSERT_FATAL(i % 50 != 0 || access_check(s));
    }
    double sum = decayed(e.sum, now_us - e.sum_at_us);

    for (size_t k = 0; k < e.n; k++) {
        double c = decayed(e.count[k], now_us - e.at_us[k]);
        double told = access_rate(s, e.key[k], now_us);

        CU_ASSERT(told <= per_s(c) * (1 + 1e-9));
        if (c > sum / access_places(s) * (1 + 1e-9))
            CU_ASSERT(told > 0.0);
    }
    CU_ASSERT(access_chain(s,
                           &(struct access_tip){.key = hot[n_hot - 1],
                                                .n_blocks = (uint32_t)n_hot},
                           keys));
    CU_ASSERT_EQUAL(memcmp(keys, hot, n_hot * sizeof(hot[0])), 0);
    CU_ASSERT(access_check(s));
    access_free(s);
    return CU_get_number_of_failures() == failed;
}

static void run_cases(bool (*one)(uint64_t seed))
{
    uint32_t n = cases_of(100);

    for (uint64_t seed = 1; seed <= n; seed++)
        if (!one(seed)) {
            printf("seed %llu\n", (unsigned long long)seed);
            return;
        }
}

static void test_exact(void)
{
    run_cases(exact_case);
}

static void test_crowded(void)
{
    run_cases(crowded_case);
}

/* Keys that no prompt has: the same one twice in a chain, parents that point
 * at each other. */
static void test_nonsense(void)
{
    struct access_sketch *s = sketch_of(ACCESS_BYTES_MIN, 1);
    const uint64_t loop[4] = {5, 6, 5, 6}, back[2] = {6, 5};
    struct access_tip tips[8];
    uint64_t keys[LONGEST];

    for (int i = 0; i < 50; i++) {
        access_add(s, loop, 4, 100, 77, i);
        access_add(s, back, 2, 100, 77, i);
        access_add(s, back, 0, 100, 77, i);
        CU_ASSERT(access_check(s));
    }
    for (size_t t = access_tips(s, 0.1, 50, tips, 8); t-- > 0;)
        if (tips[t].n_blocks <= LONGEST)
            (void)access_chain(s, &tips[t], keys);
    access_free(s);
}

static const struct suite_test tests[] = {
    {"rates", test_rates},     {"bounds", test_bounds},
    {"tips", test_tips},       {"exact", test_exact},
    {"crowded", test_crowded}, {"nonsense", test_nonsense},
};
SUITE("access", tests)
