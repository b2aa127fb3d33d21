/* The predicted cache against a slow one: an array in the order of use. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/predicted.h"
#include "tests/unit/suite.h"

#define MOST 64

/* used[0] was used last. */
struct slow {
    uint64_t used[2 * MOST];
    size_t n, capacity;
};

static uint64_t gone[4 * MOST];
static size_t n_gone, had;

static void on_evicted(void *arg, uint64_t key)
{
    (void)arg;
    gone[n_gone++] = key;
}

static size_t slow_find(const struct slow *s, uint64_t key)
{
    size_t i = 0;

    while (i < s->n && s->used[i] != key)
        i++;
    return i;
}

static void slow_use(struct slow *s, const uint64_t *keys, size_t n)
{
    n = n < s->capacity ? n : s->capacity;
    for (size_t k = n; k-- > 0;) {
        size_t at = slow_find(s, keys[k]);

        if (at == s->n)
            s->n++;
        memmove(s->used + 1, s->used, at * sizeof(s->used[0]));
        s->used[0] = keys[k];
    }
    if (s->n > s->capacity)
        s->n = s->capacity;
}

/* The keys behind the first `from` leave. */
static void slow_drop(struct slow *s, const uint64_t *keys, size_t from,
                      size_t n)
{
    for (size_t k = from; k < n; k++) {
        size_t at = slow_find(s, keys[k]);

        if (at == s->n)
            continue;
        s->n--;
        memmove(s->used + at, s->used + at + 1,
                (s->n - at) * sizeof(s->used[0]));
    }
}

static void test_order(void)
{
    struct predicted *p = predicted_new(4, 1);
    const uint64_t a[] = {1, 2, 3}, b[] = {1, 9}, c[] = {5, 6, 7, 8, 9, 10};

    n_gone = 0;
    CU_ASSERT_EQUAL(predicted_use(p, a, 3, &had, on_evicted, NULL), 3);
    CU_ASSERT_EQUAL(predicted_use(p, b, 2, &had, on_evicted, NULL), 2);
    CU_ASSERT_EQUAL(n_gone, 0);
    /* 3, the last of a prompt, leaves before 2. */
    CU_ASSERT_EQUAL(predicted_use(p, c, 1, &had, on_evicted, NULL), 1);
    CU_ASSERT_EQUAL(n_gone, 1);
    CU_ASSERT_EQUAL(gone[0], 3);
    CU_ASSERT_TRUE(predicted_has(p, 2));
    /* Longer than the cache: its beginning. */
    CU_ASSERT_EQUAL(predicted_use(p, c, 6, &had, on_evicted, NULL), 4);
    CU_ASSERT_TRUE(predicted_has(p, 8));
    CU_ASSERT_FALSE(predicted_has(p, 9));
    CU_ASSERT_EQUAL(predicted_held(p), 4);
    predicted_clear(p);
    CU_ASSERT_EQUAL(predicted_held(p), 0);
    CU_ASSERT_TRUE(predicted_check(p));
    predicted_free(p);
    CU_ASSERT_PTR_NULL(predicted_new(0, 1));
    predicted_free(NULL);
}

#define PREDICTED_TEST(test, ...)                                        \
    SUITE_TEST_OF(test, struct predicted, p, predicted_new(__VA_ARGS__), \
                  predicted_free(p))

/* Another capacity, and what is left is in the same order of use. */
PREDICTED_TEST(test_resize, 8, 1)
{
    const uint64_t a[] = {1, 2, 3}, b[] = {4, 5, 6}, c[] = {7, 8};

    (void)predicted_use(p, a, 3, &had, on_evicted, NULL);
    (void)predicted_use(p, b, 3, &had, on_evicted, NULL);
    n_gone = 0;
    CU_ASSERT_EQUAL(predicted_resize(p, 5, on_evicted, NULL), 0);
    CU_ASSERT_EQUAL(n_gone, 1);
    CU_ASSERT_EQUAL(gone[0], 3);
    CU_ASSERT_EQUAL(predicted_held(p), 5);
    (void)predicted_use(p, c, 2, &had, on_evicted, NULL);
    CU_ASSERT_EQUAL(n_gone, 3);
    CU_ASSERT_EQUAL(gone[1], 2);
    CU_ASSERT_EQUAL(gone[2], 1);
    CU_ASSERT_EQUAL(predicted_resize(p, 100, on_evicted, NULL), 0);
    CU_ASSERT_EQUAL(n_gone, 3);
    CU_ASSERT_EQUAL(predicted_capacity(p), 100);
    CU_ASSERT_TRUE(predicted_has(p, 4) && predicted_has(p, 8));
    CU_ASSERT_TRUE(predicted_check(p));
    CU_ASSERT_NOT_EQUAL(predicted_resize(p, 0, on_evicted, NULL), 0);
    CU_ASSERT_TRUE(predicted_check(p));
}

/* Pages in memory. */
static long resident(void)
{
    long all = 0, here = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    CU_ASSERT_FATAL(f && fscanf(f, "%ld %ld", &all, &here) == 2);
    fclose(f);
    return here;
}

/* What was never used takes no memory, also when it is forgotten. */
PREDICTED_TEST(test_clear_of_a_large_one, 1u << 24, 1)
{
    uint64_t keys[100];
    long before;

    for (size_t i = 0; i < 100; i++)
        keys[i] = 7 * i + 1;
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    CU_ASSERT_EQUAL(predicted_use(p, keys, 100, &had, on_evicted, NULL), 100);
    before = resident();
    predicted_clear(p);
    CU_ASSERT(resident() - before < 4096); /* of 128 MiB */
    CU_ASSERT_EQUAL(predicted_held(p), 0);
    CU_ASSERT_FALSE(predicted_has(p, 1));
    CU_ASSERT_EQUAL(predicted_use(p, keys, 100, &had, on_evicted, NULL), 100);
    CU_ASSERT_TRUE(predicted_check(p));
}

/* Fills it with n blocks, forgets them, and looks whether all is empty. */
PREDICTED_TEST(test_clear, 4096, 5)
{
    for (uint64_t n = 1; n <= 4096; n *= 2) {
        for (uint64_t key = 1; key <= n; key++)
            (void)predicted_use(p, &key, 1, &had, on_evicted, NULL);
        CU_ASSERT_EQUAL(predicted_held(p), n);
        predicted_clear(p);
        CU_ASSERT_EQUAL(predicted_held(p), 0);
        CU_ASSERT_TRUE(predicted_check(p));
    }
}

/* Keys that differ in their highest or lowest bits alone stand apart, as do
 * others, also in a table of another size. */
static void test_alike_keys(void)
{
    for (unsigned shift = 0; shift <= 52; shift += 4) {
        struct predicted *p = predicted_new(4096, shift);

        for (uint64_t k = 1; k < 4096; k++) {
            uint64_t key = k << shift;

            (void)predicted_use(p, &key, 1, &had, on_evicted, NULL);
        }
        CU_ASSERT_EQUAL(predicted_held(p), 4095);
        CU_ASSERT_TRUE(predicted_check(p));
        CU_ASSERT_EQUAL(predicted_resize(p, 8192, on_evicted, NULL), 0);
        CU_ASSERT_TRUE(predicted_check(p));
        predicted_free(p);
    }
}

static void one_world(unsigned seed)
{
    struct slow s = {.capacity = 1 + (unsigned)rand_r(&seed) % MOST};
    struct predicted *p = predicted_new((uint32_t)s.capacity, seed);

    for (int step = 0; step < 400; step++) {
        uint64_t keys[MOST];
        uint64_t chain = 1 + (unsigned)rand_r(&seed) % 6;
        size_t n = (unsigned)rand_r(&seed) % MOST;
        size_t shared = (unsigned)rand_r(&seed) % 20;
        struct slow before = s;

        /* Chains that begin alike. */
        for (size_t i = 0; i < n; i++)
            keys[i] =
                i < shared ? 1000 + i : chain * 100000 + shared * 1000 + i;
        n_gone = 0;
        slow_use(&s, keys, n);
        size_t held = 0, most = n < s.capacity ? n : s.capacity;
        while (held < most && slow_find(&before, keys[held]) < before.n)
            held++;
        CU_ASSERT_EQUAL_FATAL(predicted_use(p, keys, n, &had, on_evicted, NULL),
                              most);
        CU_ASSERT_EQUAL_FATAL(had, held);
        CU_ASSERT_EQUAL_FATAL(predicted_held(p), s.n);
        for (size_t i = 0; i < s.n; i++)
            CU_ASSERT_TRUE_FATAL(predicted_has(p, s.used[i]));
        for (size_t i = 0; i < n_gone; i++)
            CU_ASSERT_TRUE(slow_find(&before, gone[i]) < before.n &&
                           slow_find(&s, gone[i]) == s.n);
        CU_ASSERT_TRUE_FATAL(predicted_check(p));
        if (step % 3 || n == 0)
            continue;
        size_t from = (unsigned)rand_r(&seed) % n;
        held = s.n;
        n_gone = 0;
        slow_drop(&s, keys, from, n);
        predicted_drop(p, keys + from, n - from, on_evicted, NULL);
        CU_ASSERT_EQUAL_FATAL(predicted_held(p), s.n);
        CU_ASSERT_EQUAL(n_gone, held - s.n);
        for (size_t i = 0; i < s.n; i++)
            CU_ASSERT_TRUE_FATAL(predicted_has(p, s.used[i]));
        CU_ASSERT_TRUE_FATAL(predicted_check(p));
    }
    predicted_free(p);
}

static void test_random(void)
{
    for (unsigned seed = 1; seed <= 40; seed++)
        one_world(seed);
}

static const struct suite_test tests[] = {
    {"order of leaving", test_order},
    {"another capacity", test_resize},
    {"all forgotten", test_clear},
    {"a large one forgotten", test_clear_of_a_large_one},
    {"alike keys", test_alike_keys},
    {"random, against an array", test_random},
};
SUITE("predicted", tests)
