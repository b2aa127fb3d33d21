/* Which end point has to go when there are too many. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/cases.h"
#include "tests/unit/suite.h"
#include "workers/transfer/engine/rdma/sieve.h"

static char owners[64];

static struct sieve *filled(uint32_t n)
{
    struct sieve *s;

    CU_ASSERT_EQUAL_FATAL(sieve_new(n, &s), 0);
    for (uint32_t i = 0; i < n; i++)
        CU_ASSERT_EQUAL(sieve_add(s, &owners[i]), i);
    CU_ASSERT_EQUAL(sieve_add(s, &owners[n]), SIEVE_NONE);
    return s;
}

/* Takes the victim out and puts another in its place. Returns the place. */
static uint32_t replace(struct sieve *s)
{
    uint32_t place = sieve_victim(s);

    sieve_remove(s, place);
    CU_ASSERT_EQUAL(sieve_add(s, &owners[63]), place);
    return place;
}

static uint32_t used(const struct sieve *s, uint32_t places)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < places; i++)
        n += sieve_owner(s, i) ? 1 : 0;
    return n;
}

static void test_bad(void)
{
    struct sieve *s;

    CU_ASSERT_EQUAL(sieve_new(0, &s), -22);
    CU_ASSERT_EQUAL_FATAL(sieve_new(3, &s), 0);
    CU_ASSERT_EQUAL(sieve_victim(s), SIEVE_NONE);
    CU_ASSERT_PTR_NULL(sieve_owner(s, 0));
    sieve_free(s);
    sieve_free(NULL);
}

#define SIEVE_TEST(test, ...) \
    SUITE_TEST_OF(test, struct sieve, s, filled(__VA_ARGS__), sieve_free(s))

/* The paper's example: the hand passes over what was used, once, and new ones
 * go to the other end. */
SIEVE_TEST(test_order, 4)
{
    sieve_touch(s, 0);
    sieve_touch(s, 2);
    CU_ASSERT_EQUAL(replace(s), 1); /* 0 was used; its mark is gone */
    CU_ASSERT_EQUAL(replace(s), 3); /* the hand is at 2, which was used */
    /* Now the order is 3' 1' 2 0, and the hand stands at 1'. */
    CU_ASSERT_EQUAL(replace(s), 1);
    CU_ASSERT_EQUAL(used(s, 4), 4);
}

/* All were used: the oldest goes. */
SIEVE_TEST(test_all_used, 3)
{
    for (uint32_t i = 0; i < 3; i++)
        sieve_touch(s, i);
    CU_ASSERT_EQUAL(sieve_victim(s), 0);
    CU_ASSERT_EQUAL(sieve_victim(s), 0);
}

SIEVE_TEST(test_pinned, 3)
{
    for (uint32_t i = 0; i < 3; i++)
        sieve_pin(s, i, true);
    CU_ASSERT_EQUAL(sieve_victim(s), SIEVE_NONE);
    sieve_pin(s, 1, false);
    sieve_touch(s, 1);
    CU_ASSERT_EQUAL(sieve_victim(s), 1);
    CU_ASSERT_PTR_EQUAL(sieve_owner(s, 1), &owners[1]);
}

/* SIEVE as its paper has it, written out slowly: an array, the newest first. */
struct slow {
    uint32_t n;
    uint32_t order[64];
    bool used[64], pinned[64];
    uint32_t hand; /* the place it looks at next; SIEVE_NONE: the oldest */
};

static uint32_t slow_at(const struct slow *m, uint32_t place)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (m->order[i] == place)
            return i;
    return SIEVE_NONE;
}

static uint32_t slow_newer(const struct slow *m, uint32_t place)
{
    uint32_t at = slow_at(m, place);

    return at == 0 ? SIEVE_NONE : m->order[at - 1];
}

static uint32_t slow_victim(struct slow *m)
{
    for (uint32_t i = 0; i < 2 * m->n; i++) {
        if (m->hand == SIEVE_NONE)
            m->hand = m->order[m->n - 1];
        if (!m->used[m->hand] && !m->pinned[m->hand])
            return m->hand;
        if (!m->pinned[m->hand])
            m->used[m->hand] = false;
        m->hand = slow_newer(m, m->hand);
    }
    return SIEVE_NONE;
}

static void slow_remove(struct slow *m, uint32_t place)
{
    uint32_t at = slow_at(m, place);

    if (m->hand == place)
        m->hand = slow_newer(m, place);
    for (m->n--; at < m->n; at++)
        m->order[at] = m->order[at + 1];
}

static void slow_add(struct slow *m, uint32_t place)
{
    for (uint32_t i = m->n++; i > 0; i--)
        m->order[i] = m->order[i - 1];
    m->order[0] = place;
    m->used[place] = m->pinned[place] = false;
}

static void one_case(unsigned seed)
{
    uint32_t n = 1 + (uint32_t)rand() % 40;
    struct slow m = {.hand = SIEVE_NONE};
    struct sieve *s;

    CU_ASSERT_EQUAL_FATAL(sieve_new(n, &s), 0);
    for (uint32_t i = 0; i < 400; i++) {
        uint32_t place = (uint32_t)rand() % n, kind = (uint32_t)rand() % 6;

        if (kind == 0 && m.n < n) {
            slow_add(&m, sieve_add(s, &owners[0]));
        } else if (kind == 1 && sieve_owner(s, place)) {
            sieve_remove(s, place);
            slow_remove(&m, place);
        } else if (kind == 2 && sieve_owner(s, place)) {
            bool pinned = rand() % 2;

            sieve_pin(s, place, pinned);
            m.pinned[place] = pinned;
        } else if (kind < 5 && sieve_owner(s, place)) {
            sieve_touch(s, place);
            m.used[place] = true;
        } else {
            uint32_t want = slow_victim(&m), got = sieve_victim(s);

            if (got != want)
                printf("seed %u, step %u: %u, not %u\n", seed, i, got, want);
            CU_ASSERT_EQUAL_FATAL(got, want);
        }
        CU_ASSERT_EQUAL(used(s, n), m.n);
    }
    sieve_free(s);
}

static void test_random(void)
{
    for (unsigned seed = 1; seed <= cases_of(300); seed++) {
        srand(seed);
        one_case(seed);
    }
}

static const struct suite_test tests[] = {
    {"bad", test_bad},
    {"order", test_order},
    {"all used", test_all_used},
    {"pinned", test_pinned},
    {"as the slow one, random", test_random},
};
SUITE("rdma_sieve", tests)
