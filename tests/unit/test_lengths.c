/* What answers' lengths are learnt to be: by literal cases, and against a slow
 * version that keeps every key's answers. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "conductor/core/observation/lengths.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

static struct lengths empty(void)
{
    return (struct lengths){.n_entries = 0};
}

static void test_nothing_known(void)
{
    struct lengths l = empty();

    CU_ASSERT_EQUAL(lengths_expected(&l, 1, 4096), 4096);
    for (int i = 0; i < LENGTHS_LEAST - 1; i++)
        lengths_observe(&l, 1, 10, 4096);
    CU_ASSERT_EQUAL(lengths_expected(&l, 1, 4096), 4096);
    lengths_observe(&l, 1, 10, 4096);
    CU_ASSERT_EQUAL(lengths_expected(&l, 1, 4096), 10);
    CU_ASSERT_EQUAL(lengths_expected(&l, 1, 7), 7);
    lengths_observe(&l, 1, 0, 4096); /* no answer */
    lengths_observe(&l, 1, 5, 4);
    CU_ASSERT_EQUAL(l.all.n, LENGTHS_LEAST);
}

/* Clients that ask for what they get. */
static void test_exact(void)
{
    struct lengths l = empty();

    for (int i = 1; i <= 100; i++)
        lengths_observe(&l, 1, i, i);
    CU_ASSERT_EQUAL(lengths_expected(&l, 1, 7), 7);
    CU_ASSERT_EQUAL(lengths_expected(&l, 1, 3000), 3000);
    CU_ASSERT_EQUAL(lengths_expected(&l, 2, 3000), 3000);
}

/* Most answers are much shorter than their mean. */
static void test_median(void)
{
    struct lengths l = empty();

    CU_ASSERT_EQUAL(lengths_median(&l, 1, 4096), 4096);
    for (int i = 0; i < 1000; i++)
        lengths_observe(&l, 1, i % 10 < 7 ? 6 + i % 3 : 2000, 4096);
    CU_ASSERT(lengths_expected(&l, 1, 4096) > 400);
    CU_ASSERT(lengths_median(&l, 1, 4096) >= 6 &&
              lengths_median(&l, 1, 4096) <= 9);
    CU_ASSERT_EQUAL(lengths_median(&l, 1, 4), 4);
    for (int i = 0; i < 1000; i++) /* they get longer */
        lengths_observe(&l, 1, 900, 4096);
    CU_ASSERT(lengths_median(&l, 1, 4096) > 800 &&
              lengths_median(&l, 1, 4096) < 950);
    l = empty();
    for (int i = 1; i <= 100; i++) /* clients that ask for what they get */
        lengths_observe(&l, 1, i, i);
    CU_ASSERT_EQUAL(lengths_median(&l, 1, 3000), 3000);
}

static void test_keys_differ(void)
{
    struct lengths l = empty();
    int64_t a, b;

    for (int i = 0; i < 200; i++) {
        lengths_observe(&l, 1, 100, 4096);
        lengths_observe(&l, 2, 900, 4096);
    }
    a = lengths_expected(&l, 1, 4096);
    b = lengths_expected(&l, 2, 4096);
    CU_ASSERT(a >= 100 && a < 130);
    CU_ASSERT(b > 870 && b <= 900);
    CU_ASSERT(lengths_expected(&l, 3, 4096) > 400 &&
              lengths_expected(&l, 3, 4096) < 600);
}

/* --- against a slow version -------------------------------------------- */

enum { ANSWERS = 3000, KEYS = 100 };

struct answer {
    uint64_t key;
    double tokens, most;
};

static struct answer answers[ANSWERS];

static double distance(double a, double b)
{
    return a < b ? b - a : a - b;
}

/* The prediction by answers from..to of a key (all: of any), anew. */
static double predict(size_t from, size_t to, bool all, uint64_t key,
                      double most, uint64_t *n)
{
    double tokens = 0, share = 0, tokens_off = 0, share_off = 0, weight;

    *n = 0;
    for (size_t i = from; i < to; i++) {
        const struct answer *a = &answers[i];

        if (!all && a->key != key)
            continue;
        ++*n;
        weight = *n < LENGTHS_MEMORY ? (double)*n : LENGTHS_MEMORY;
        tokens_off +=
            (distance(tokens < a->most ? tokens : a->most, a->tokens) -
             tokens_off) /
            weight;
        share_off +=
            (distance(share * a->most, a->tokens) - share_off) / weight;
        tokens += (a->tokens - tokens) / weight;
        share += (a->tokens / a->most - share) / weight;
    }
    if (share_off < tokens_off)
        return share * most;
    return tokens < most ? tokens : most;
}

/* Where the memory of a key begins: after it was last forgotten, because
 * LENGTHS_KEYS others came after its last answer. */
static size_t memory_from(size_t to, uint64_t key)
{
    size_t from = 0;
    bool seen[KEYS] = {false};
    size_t others = 0;

    for (size_t i = 0; i < to; i++) {
        if (answers[i].key == key) {
            if (others >= LENGTHS_KEYS)
                from = i;
            memset(seen, 0, sizeof(seen));
            others = 0;
        } else if (!seen[answers[i].key]) {
            seen[answers[i].key] = true;
            others++;
        }
    }
    return others >= LENGTHS_KEYS ? to : from;
}

static int64_t slow(size_t to, uint64_t key, int64_t max_tokens)
{
    uint64_t n_all, n;
    double most = (double)max_tokens;
    double all = predict(0, to, true, 0, most, &n_all);
    double own = predict(memory_from(to, key), to, false, key, most, &n);
    double mean =
        ((double)n * own + LENGTHS_LEAST * all) / ((double)n + LENGTHS_LEAST);

    if (n_all < LENGTHS_LEAST || mean + 0.5 >= most)
        return max_tokens;
    return mean < 1.0 ? 1 : (int64_t)(mean + 0.5);
}

static uint64_t below(uint64_t *state, uint64_t bound)
{
    *state = random_mix(*state);
    return *state % bound;
}

static void test_slow(uint64_t seed)
{
    uint64_t random = seed;
    struct lengths l = empty();

    for (size_t i = 0; i < ANSWERS; i++) {
        uint64_t key =
            below(&random, below(&random, 10) == 0 ? KEYS : LENGTHS_KEYS / 2);
        int64_t most = 1 + (int64_t)below(&random, 5000);
        int64_t tokens = 1 + (int64_t)below(&random, (uint64_t)most);
        int64_t ask = 1 + (int64_t)below(&random, 5000);

        if (below(&random, 4) == 0)
            tokens = most;
        if (i % 7 == 0) {
            int64_t got = lengths_expected(&l, key, ask);

            if (got != slow(i, key, ask)) {
                printf("seed %llu: answer %zu: %lld, not %lld\n",
                       (unsigned long long)seed, i, (long long)got,
                       (long long)slow(i, key, ask));
                CU_FAIL("as the slow version");
                return;
            }
        }
        answers[i] = (struct answer){key, (double)tokens, (double)most};
        lengths_observe(&l, key, tokens, most);
        if (l.n_entries > LENGTHS_KEYS)
            CU_FAIL("bounded");
    }
}

static void test_random(void)
{
    for (uint64_t seed = 1; seed <= 4; seed++)
        test_slow(seed);
}

static const struct suite_test tests[] = {
    {"nothing known", test_nothing_known},
    {"exact", test_exact},
    {"median", test_median},
    {"keys differ", test_keys_differ},
    {"random", test_random},
};
SUITE("lengths", tests)
