/* The learned cost model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "predictor/learned.h"
#include "tests/unit/suite.h"

static void test_guess(void)
{
    struct learned l;
    struct cost_model m = {.block_tokens = 16};

    learned_init(&l);
    learned_write(&l, &m);
    CU_ASSERT_DOUBLE_EQUAL(m.prefill[0], LEARNED_PREFILL_US, 1e-3);
    CU_ASSERT_DOUBLE_EQUAL(m.prefill[1], LEARNED_TOKEN_US, 1e-6);
    CU_ASSERT_EQUAL(m.block_tokens, 16);
    CU_ASSERT_FALSE(learned_enough(&l));
}

/* Whatever the guess: an engine a hundred times as fast, and as slow. */
static void test_learns(void)
{
    const double speeds[] = {0.01, 1, 100};

    for (int k = 0; k < 3; k++) {
        struct learned l;
        struct cost_model m = {0};

        learned_init(&l);
        for (int i = 0; i < 100; i++)
            learned_prefill(
                &l, 100 + 37 * (i % 50),
                (int64_t)(speeds[k] * (5000 + 80 * (100 + 37 * (i % 50)))));
        learned_write(&l, &m);
        for (int u = 100; u < 2000; u += 300) {
            double is = speeds[k] * (5000 + 80.0 * u);
            double says = (double)cost_model_prefill_us(&m, u, 0, NULL);

            CU_ASSERT_TRUE(fabs(says - is) < 0.2 * is + 200);
        }
        CU_ASSERT_TRUE(learned_enough(&l));
    }
}

static void test_no_negative_terms(void)
{
    struct learned l;
    struct cost_model m = {0};

    learned_init(&l);
    for (int i = 0; i < 30; i++) { /* long prompts are faster: a lie */
        learned_prefill(&l, 100, 90000);
        learned_prefill(&l, 5000, 1000);
    }
    learned_write(&l, &m);
    CU_ASSERT_TRUE(m.prefill[0] >= 0 && m.prefill[1] >= 0);
    learned_init(&l);
    for (int i = 0; i < 30; i++) {
        learned_prefill(&l, 100, 10);
        learned_prefill(&l, 5000, 900000);
    }
    learned_write(&l, &m);
    CU_ASSERT_TRUE(m.prefill[0] >= 0 && m.prefill[1] >= 0);
    /* Nonsense. */
    uint64_t n = l.prefills;
    learned_prefill(&l, 0, 10);
    learned_prefill(&l, 10, 0);
    learned_prefill(&l, 10, INT64_MAX);
    CU_ASSERT_EQUAL(l.prefills, n);
}

static void test_steps(void)
{
    struct learned l;
    struct cost_model m = {0};

    learned_init(&l);
    for (int i = 0; i < 200; i++)
        learned_step(&l, 3000);
    learned_write(&l, &m);
    CU_ASSERT_DOUBLE_EQUAL(m.decode[0], 3000, 10);
    CU_ASSERT_EQUAL(cost_model_decode_step_us(&m, 40, 5000, NULL),
                    (int64_t)lround(m.decode[0]));
}

/* One that is begun from another's says the same. */
static void test_from(void)
{
    struct learned all, l;
    double a[2], b[2];

    learned_init(&all);
    for (int i = 0; i < 100; i++)
        learned_prefill(&all, 100 + 37 * (i % 50),
                        5000 + 80 * (100 + 37 * (i % 50)));
    learned_init_from(&l, &all);
    learned_terms(&all, &a[0], &b[0]);
    learned_terms(&l, &a[1], &b[1]);
    CU_ASSERT_DOUBLE_EQUAL(a[1], a[0], 1e-3);
    CU_ASSERT_DOUBLE_EQUAL(b[1], b[0], 1e-6);
    CU_ASSERT_EQUAL(l.step_us, all.step_us);
}

/* What answers that come whole tell: of prefills beside few steps that are
 * known, of steps beside a short prefill, else nothing. */
static void test_whole(void)
{
    const struct {
        int64_t tokens, us;
        uint64_t steps;
        struct learned_whole told;
    } cases[] = {
        {1, 60000, 0, {60000, 0}},
        {3, 60000, 0, {0, 0}},
        {3, 60000, 9, {0, 0}},
        {3, 80000, 9, {40000, 0}},
        {2, 140000, 9, {120000, 0}},
        {101, 2020000, 0, {0, 20000}},
        {101, 2020000, 9, {0, 20000}},
        {0, 60000, 9, {0, 0}},
        {1, 0, 9, {0, 0}},
        {-1, 60000, 9, {0, 0}},
    };
    struct learned l;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        learned_init(&l); /* 20 ms for 100 tokens, and a step */
        l.steps = cases[i].steps;
        struct learned_whole told =
            learned_whole(&l, 100, cases[i].tokens, cases[i].us);

        if (told.prefill_us != cases[i].told.prefill_us ||
            llabs(told.step_us - cases[i].told.step_us) > 1)
            printf("case %zu: %lld, %lld\n", i, (long long)told.prefill_us,
                   (long long)told.step_us);
        CU_ASSERT_EQUAL(told.prefill_us, cases[i].told.prefill_us);
        CU_ASSERT(llabs(told.step_us - cases[i].told.step_us) <= 1);
    }
}

/* By answers that come whole alone, long and short ones: both parts are found,
 * however far off the guess is. */
static void test_whole_alone(void)
{
    const double speeds[] = {0.1, 1, 10};

    for (int k = 0; k < 3; k++) {
        double a, b, prefill = speeds[k] * (5000 + 80 * 500);
        double step = speeds[k] * 9000;
        struct learned l;

        learned_init(&l);
        for (int i = 0; i < 200; i++) {
            int64_t n = i % 2 ? 2 : 400;
            struct learned_whole told = learned_whole(
                &l, 500, n, (int64_t)(prefill + (double)(n - 1) * step));

            learned_prefill(&l, 500, told.prefill_us);
            learned_step(&l, told.step_us);
        }
        learned_terms(&l, &a, &b);
        CU_ASSERT(fabs(a + 500 * b - prefill) < 0.02 * prefill);
        CU_ASSERT(fabs(l.step_us - step) < 0.02 * step);
    }
}

static const struct suite_test tests[] = {
    {"the guess", test_guess},
    {"any speed", test_learns},
    {"no negative terms", test_no_negative_terms},
    {"decode steps", test_steps},
    {"begun from another", test_from},
    {"answers that come whole", test_whole},
    {"nothing but answers that come whole", test_whole_alone},
};
SUITE("learned", tests)
