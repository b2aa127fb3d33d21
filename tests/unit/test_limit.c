/* How much may be asked for a minute, against a record of all that was taken.
 */
#include <stdio.h>
#include <stdlib.h>

#include "conductor/core/share/limit.h"
#include "tests/unit/cases.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

#define SEED 20261123

/* From 0 to 1. */
static double fraction(struct random_state *r)
{
    return random_below(r, 1000001) / 1e6;
}

static void test_drains(void)
{
    struct limit l = {.per_minute = 60};

    for (int i = 0; i < 60; i++) {
        CU_ASSERT_EQUAL(limit_wait_us(&l, 1, 1000), 0);
        limit_take(&l, 1, 1000);
    }
    CU_ASSERT_EQUAL(limit_wait_us(&l, 1, 1000), 1000000);
    CU_ASSERT_EQUAL(limit_wait_us(&l, 1, 1000999), 1);
    CU_ASSERT_EQUAL(limit_wait_us(&l, 1, 1001000), 0);
    CU_ASSERT_EQUAL(limit_wait_us(&l, 1, 0), 1000000); /* an earlier time */
    /* More than a minute's worth is let in once nothing is left. */
    CU_ASSERT_EQUAL(limit_wait_us(&l, 1000, 1000), 60000000);
    CU_ASSERT_EQUAL(limit_wait_us(&l, 1000, 60001000), 0);
}

static void test_none(void)
{
    struct limit l = {0};

    limit_take(&l, 1e12, 5);
    CU_ASSERT_EQUAL(limit_wait_us(&l, 1e12, 6), 0);
    l.per_minute = 1; /* from then on */
    CU_ASSERT_EQUAL(limit_wait_us(&l, 1, 7), 0);
}

/* Who asks again when he is told to gets in, and not a millisecond before; and
 * of no minute is there more than twice its limit. */
static void test_waits_are_exact(void)
{
    struct random_state r;

    random_init(&r, SEED);
    for (uint32_t c = 0; c < cases_of(200); c++) {
        struct limit l = {.per_minute = 1 + fraction(&r) * 5000};
        int64_t now_us = 0, begin_us = 0;
        double in_minute = 0;

        for (int i = 0; i < 500; i++) {
            double amount = fraction(&r) * l.per_minute / 5;
            int64_t wait_us = limit_wait_us(&l, amount, now_us);

            if (wait_us) {
                if (wait_us > 1000)
                    CU_ASSERT(
                        limit_wait_us(&l, amount, now_us + wait_us - 1000) > 0);
                now_us += wait_us;
                CU_ASSERT_EQUAL(limit_wait_us(&l, amount, now_us), 0);
            }
            if (now_us - begin_us > 60000000) {
                begin_us = now_us;
                in_minute = 0;
            }
            limit_take(&l, amount, now_us);
            in_minute += amount;
            CU_ASSERT(in_minute <= l.per_minute * 2.0001);
            now_us += (int64_t)(fraction(&r) * 4e6);
        }
    }
    printf("seed %d ", SEED);
}

static const struct suite_test tests[] = {
    {"drains", test_drains},
    {"none", test_none},
    {"waits are exact", test_waits_are_exact},
};
SUITE("limit", tests)
