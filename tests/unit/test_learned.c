/* The learned cost model. */
#include <CUnit/Basic.h>
#include <math.h>

#include "predictor/learned.h"

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

static void see(struct learned *l, double speed, int from, int n)
{
    for (int i = from; i < from + n; i++)
        learned_prefill(l, 100 + 37 * (i % 50),
                        (int64_t)(speed * (5000 + 80 * (100 + 37 * (i % 50)))));
}

/* One that is begun from another's says the same, and is told from it once it
 * has seen enough that is unlike. */
static void test_unlike(void)
{
    const struct {
        double speed;
        int64_t step_us;
        bool unlike;
    } cases[] = {{1, 20000, false},    {1.1, 20000, false}, {0.9, 20000, false},
                 {1.5, 20000, true},   {0.5, 20000, true},  {1, 40000, true},
                 {0.001, 20000, true}, {1, 22000, false}};
    struct learned all;
    double a[2], b[2];

    learned_init(&all);
    see(&all, 1, 0, 100);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct learned l;

        learned_init_from(&l, &all);
        learned_terms(&all, &a[0], &b[0]);
        learned_terms(&l, &a[1], &b[1]);
        CU_ASSERT_DOUBLE_EQUAL(a[1], a[0], 1e-3);
        CU_ASSERT_DOUBLE_EQUAL(b[1], b[0], 1e-6);
        CU_ASSERT_EQUAL(l.step_us, all.step_us);
        CU_ASSERT_FALSE(learned_unlike(&l, &all));
        see(&l, cases[i].speed, 0, LEARNED_APART - 1);
        for (int k = 0; k < 100; k++)
            learned_step(&l, cases[i].step_us);
        CU_ASSERT_FALSE(learned_unlike(&l, &all));
        see(&l, cases[i].speed, LEARNED_APART, 1);
        CU_ASSERT_EQUAL(learned_unlike(&l, &all), cases[i].unlike);
    }
}

/* The guess of decode steps is forgotten alike by who sees few and many, and
 * differences of less than a millisecond are none. */
static void test_alike(void)
{
    struct learned all, few;

    learned_init(&all);
    learned_init_from(&few, &all);
    for (int k = 0; k < 64; k++) {
        learned_prefill(&all, 100 + k, k % 4 ? 300 : 900);
        learned_step(&all, 2000);
        if (k % 4)
            continue;
        learned_prefill(&few, 100 + k, 900);
        learned_step(&few, 2000);
    }
    CU_ASSERT_DOUBLE_EQUAL(few.step_us, 2000, 1e-6);
    CU_ASSERT_FALSE(learned_unlike(&few, &all));
}

int main(void)
{
    CU_initialize_registry();
    CU_pSuite s = CU_add_suite("learned", NULL, NULL);
    CU_add_test(s, "the guess", test_guess);
    CU_add_test(s, "any speed", test_learns);
    CU_add_test(s, "no negative terms", test_no_negative_terms);
    CU_add_test(s, "decode steps", test_steps);
    CU_add_test(s, "unlike another", test_unlike);
    CU_add_test(s, "alike", test_alike);
    CU_basic_run_tests();
    unsigned failures = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failures ? 1 : 0;
}
