/*
 * The search for the smallest cluster against trying every size: where more
 * nodes never hurt, and where ratios do not care how many there are.
 */
#include <CUnit/CUnit.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/cases.h"
#include "tests/unit/suite.h"
#include "tools/replay/study/size/search.h"
#include "traces/random.h"

#define SIDE 12U

/* ratio[p][d] in thousandths; the target is 900. */
struct world {
    uint32_t ratio[SIDE + 1][SIDE + 1];
    size_t asked;
    int fail_at; /* the ask that fails, 0: none */
};

static int ask(void *arg, struct search_answer *answers, size_t n)
{
    struct world *w = arg;

    for (size_t i = 0; i < n; i++) {
        uint32_t r = w->ratio[answers[i].size.prefill][answers[i].size.decode];

        answers[i].meets = r >= 900;
        answers[i].effective_ratio = r >= 900 ? r / 1000.0 : -1;
        if (++w->asked == (size_t)w->fail_at)
            return -EIO;
    }
    return 0;
}

/* Every size; found: 0 if none does. */
static struct search_answer try_all(const struct world *w, uint32_t p_max,
                                    uint32_t d_max)
{
    struct search_answer best = {0};

    for (uint32_t p = 1; p <= p_max; p++) {
        for (uint32_t d = d_max > 0 ? 1 : 0; d <= d_max; d++) {
            uint32_t n = p + d;
            uint32_t least = best.size.prefill + best.size.decode;
            double ratio = w->ratio[p][d] / 1000.0;

            if (w->ratio[p][d] >= 900 &&
                (!best.meets || n < least ||
                 (n == least && ratio > best.effective_ratio)))
                best = (struct search_answer){{p, d}, true, ratio, 0};
        }
    }
    return best;
}

/* More nodes never hurt: a random amount is needed of each. */
static void make_monotone(struct world *w, struct random_state *random)
{
    memset(w, 0, sizeof *w);
    uint32_t step = 1 + random_below(random, 200);
    for (uint32_t p = 0; p <= SIDE; p++) {
        for (uint32_t d = 0; d <= SIDE; d++) {
            uint32_t up = p > 0 ? w->ratio[p - 1][d] : 0;
            uint32_t left = d > 0 ? w->ratio[p][d - 1] : 0;

            w->ratio[p][d] =
                (up > left ? up : left) + random_below(random, step);
            if (w->ratio[p][d] > 1000)
                w->ratio[p][d] = 1000;
        }
    }
}

/* The search says what trying all says. */
static void compare(struct world *w, struct random_state *random)
{
    struct search s = {.prefill_max = 1 + random_below(random, SIDE),
                       .decode_max = random_below(random, SIDE + 1),
                       .ask = ask,
                       .arg = w};
    struct search_answer best = try_all(w, s.prefill_max, s.decode_max);

    CU_ASSERT_EQUAL_FATAL(search_run(&s), 0);
    CU_ASSERT_EQUAL_FATAL(s.found, best.meets);
    if (s.found) {
        CU_ASSERT_EQUAL(s.best.size.prefill, best.size.prefill);
        CU_ASSERT_EQUAL(s.best.size.decode, best.size.decode);
    }
    CU_ASSERT_EQUAL(w->asked, s.count); /* nothing twice */
    free(s.answers);
}

static void test_monotone(void)
{
    struct random_state random;

    random_init(&random, cases_seed((uint64_t)time(NULL)));
    for (int i = 0; i < 3000; i++) {
        struct world w;

        make_monotone(&w, &random);
        compare(&w, &random);
    }
}

static void test_any(void)
{
    struct random_state random;

    random_init(&random, cases_seed((uint64_t)time(NULL)));
    for (int i = 0; i < 3000; i++) {
        struct world w = {0};
        uint32_t most = 880 + random_below(&random, 121);

        for (uint32_t p = 0; p <= SIDE; p++)
            for (uint32_t d = 0; d <= SIDE; d++)
                w.ratio[p][d] = random_below(&random, most + 1);
        compare(&w, &random);
    }
}

static void test_ends(void)
{
    struct world w = {0};
    struct search none = {
        .prefill_max = 3, .decode_max = 3, .ask = ask, .arg = &w};

    CU_ASSERT_EQUAL(search_run(&none), 0);
    CU_ASSERT_FALSE(none.found);
    CU_ASSERT_EQUAL(none.count, 9);
    free(none.answers);
    /* One prefill node is enough, and there are no decode nodes. */
    w.ratio[1][0] = w.ratio[2][0] = w.ratio[3][0] = 950;
    struct search one = {.prefill_max = 3, .ask = ask, .arg = &w};
    CU_ASSERT_EQUAL(search_run(&one), 0);
    CU_ASSERT(one.found && one.best.size.prefill == 1 &&
              one.best.size.decode == 0);
    free(one.answers);
    for (int at = 1; at < 4; at++) {
        struct world failing = w;

        failing.asked = 0;
        failing.fail_at = at;
        struct search s = {.prefill_max = 3, .ask = ask, .arg = &failing};
        int rc = search_run(&s);
        CU_ASSERT(rc == -EIO || failing.asked < (size_t)at);
        free(s.answers);
    }
}

static const struct suite_test tests[] = {
    {"against every size, more never hurts", test_monotone},
    {"against every size, anything goes", test_any},
    {"nothing will do, one kind, errors", test_ends},
};
SUITE("replay_search", tests)
