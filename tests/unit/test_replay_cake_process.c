/* The process of the Cake paper, by hand. */
#include <errno.h>

#include "tests/unit/suite.h"
#include "tools/replay/paper/cake/process.h"

/* A token takes a millisecond in steps of 100, ten are loaded in 0.05 s, the
 * last step takes half a second. */
static struct cake_engine flat_engine(int64_t n_tokens)
{
    return (struct cake_engine){
        .n_tokens = n_tokens,
        .step_tokens = 100,
        .piece_tokens = 10,
        .piece_bytes = 10000,
        .piece_extra_s = 0.03,
        .piece_s = 0.05,
        .load_fixed_s = 0.25,
        .final_step_s = 0.5,
        .cost = {.prefill = {0, 1000, 0, 0}},
    };
}

/* Steps of 50 tokens take 0.1, 0.15, 0.2, 0.25 ... s, 50 tokens to load 0.25
 * s. Of 400 tokens, 200 are computed by 0.7 s, and 140 are loaded; 250 by 1 s,
 * when 150 are to be loaded and 0.75 s would do. */
static void test_predict(void)
{
    struct cake_engine engine = flat_engine(400);
    struct cake_prediction p;

    engine.step_tokens = 50;
    engine.cost.prefill[1] = 1500;
    engine.cost.prefill[2] = 10;
    engine.cost.prefill[3] = 20;
    CU_ASSERT_EQUAL_FATAL(cake_engine_predict(&engine, &p), 0);
    CU_ASSERT_DOUBLE_EQUAL(p.cake_s, 1.5, 1e-9);
    CU_ASSERT_EQUAL(p.split_tokens, 250);
    CU_ASSERT_DOUBLE_EQUAL(p.compute_s, 2.2, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(p.load_s, 40 * 0.05 + 0.25, 1e-9);
    CU_ASSERT_EQUAL(p.best, LOAD_MODE_BOTH);
    /* 20 pieces in 0.8 s don't do by 0.7 s; in 0.7 s they do. */
    engine.piece_s = 0.04;
    CU_ASSERT_EQUAL_FATAL(cake_engine_predict(&engine, &p), 0);
    CU_ASSERT_EQUAL(p.split_tokens, 250);
    engine.piece_bytes = 2500;
    engine.piece_s = 0.03 + 0.005;
    CU_ASSERT_EQUAL_FATAL(cake_engine_predict(&engine, &p), 0);
    CU_ASSERT_EQUAL(p.split_tokens, 200);
    /* The last piece counts as a whole. */
    engine.n_tokens = 101;
    CU_ASSERT_EQUAL_FATAL(cake_engine_predict(&engine, &p), 0);
    CU_ASSERT_DOUBLE_EQUAL(p.load_s, 11 * 0.035 + 0.25, 1e-9);
    /* The last step makes a short prompt slower than one resource alone. */
    engine.n_tokens = 20;
    CU_ASSERT_EQUAL_FATAL(cake_engine_predict(&engine, &p), 0);
    CU_ASSERT_EQUAL(p.best, LOAD_MODE_COMPUTE);
    engine.n_tokens = 90;
    engine.step_tokens = 10;
    engine.piece_s = 0.001;
    engine.cost.prefill[1] = 10000;
    CU_ASSERT_EQUAL_FATAL(cake_engine_predict(&engine, &p), 0);
    CU_ASSERT_EQUAL(p.best, LOAD_MODE_LOAD);
    engine.n_tokens = 100000000;
    CU_ASSERT_EQUAL(cake_engine_predict(&engine, &p), -EINVAL);
}

/* In order, the cached prompt has 300 tokens computed by 0.3 s and 60 loaded;
 * of the next step it needs 40, the short ones get 60. They meet at 0.4 s, the
 * last step ends at 0.9 s, the 90 tokens left at 0.99 s. */
static void test_mix(void)
{
    static const int64_t tokens[] = {50, 100};
    const struct cake_engine engine = flat_engine(400);
    struct cake_mixed m;
    struct cake_mix mix = {&engine, tokens, 2, "fifo"};

    CU_ASSERT_EQUAL_FATAL(cake_mix_run(&mix, &m), 0);
    CU_ASSERT_DOUBLE_EQUAL(m.done_s, 0.99, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(m.cached_s, 0.9, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(m.short_mean_s, (0.4 + 0.99) / 2, 1e-9);
    CU_ASSERT_EQUAL(m.computed_tokens, 340);
    CU_ASSERT_DOUBLE_EQUAL(m.tokens_per_s, 550 / 0.99, 1e-6);
    /* The short ones end at 0.1 and 0.2 s; by 0.4 s 250 cached tokens are
     * computed and 80 loaded, so that 70 are left for the step to 0.47 s. */
    mix.order = "uncached_first";
    CU_ASSERT_EQUAL_FATAL(cake_mix_run(&mix, &m), 0);
    CU_ASSERT_DOUBLE_EQUAL(m.done_s, 0.97, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(m.cached_s, 0.97, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(m.short_mean_s, 0.15, 1e-9);
    CU_ASSERT_EQUAL(m.computed_tokens, 320);
    mix.n_short = 0;
    CU_ASSERT_EQUAL_FATAL(cake_mix_run(&mix, &m), 0);
    CU_ASSERT_DOUBLE_EQUAL(m.done_s, 0.84, 1e-9);
    mix.order = "none";
    CU_ASSERT_EQUAL(cake_mix_run(&mix, &m), -EINVAL);
    mix.order = "fifo";
    mix.n_short = CAKE_SHORT_MAX + 1;
    CU_ASSERT_EQUAL(cake_mix_run(&mix, &m), -EINVAL);
}

static const struct suite_test tests[] = {
    {"predict", test_predict},
    {"mix", test_mix},
};
SUITE("replay_cake_process", tests)
