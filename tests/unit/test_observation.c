/* What a finished prefill teaches. */

#include "conductor/core/observation/observation.h"
#include "predictor/cost_model.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/suite.h"

static void test_prefill(void)
{
    struct observation_prefill seen = {
        .predicted_us = 1000, .model_us = 1000, .engine_us = 1300};

    CU_ASSERT_EQUAL(observation_prefill_us(&seen), 1300);
    /* Twice as much was computed as planned: half of its time. */
    seen.model_us = 2000;
    CU_ASSERT_EQUAL(observation_prefill_us(&seen), 650);
    seen.model_us = 500;
    CU_ASSERT_EQUAL(observation_prefill_us(&seen), 2600);
    seen.model_us = 1;
    seen.engine_us = COST_MODEL_MAX_US;
    CU_ASSERT_EQUAL(observation_prefill_us(&seen), COST_MODEL_MAX_US);
    seen.model_us = 0; /* nothing was computed */
    CU_ASSERT_EQUAL(observation_prefill_us(&seen), -1);
}

/* Who loaded layer by layer waited for some: that is not the engine's time. */
static void test_by_layer(void)
{
    struct observation_prefill seen = {.predicted_us = 1000,
                                       .model_us = 1000,
                                       .engine_us = 1300,
                                       .by_layer = true};

    CU_ASSERT_EQUAL(observation_prefill_us(&seen), -1);
}

static void test_load(void)
{
    struct pool *pool = pool_new(&pool_config_default);
    struct observation_load seen = {.link_bytes = 3000000, .us = 1000000};
    const double *rate;
    uint32_t id;

    id = ADDED(pool, .role = ROLE_PREFILL, .kv_capacity_tokens = 1000,
               .link_bytes_per_s = 1e6);
    rate = &pool_get(pool, id)->link_bytes_per_s;
    observation_load(pool, &seen); /* nobody knows whose */
    seen.holder = id;
    seen.tier_bytes = 1;
    observation_load(pool, &seen); /* nor what the link alone would do */
    CU_ASSERT_EQUAL(*rate, 1e6);
    seen.tier_bytes = 0;
    observation_load(pool, &seen);
    CU_ASSERT_EQUAL(*rate, 1.5e6);
    pool_free(pool);
}

static void test_overhead(void)
{
    struct observation_overheads seen = {0};
    int64_t us = 0;

    us = observation_overhead(&seen, us, 300);
    CU_ASSERT_EQUAL(us, 300); /* one request is enough */
    for (int i = 0; i < 3; i++)
        us = observation_overhead(&seen, us, 280 + 10 * i);
    CU_ASSERT_EQUAL(us, 290);
    for (int i = 0; i < 3; i++) /* the first stalls change little */
        us = observation_overhead(&seen, us, 16000);
    CU_ASSERT_EQUAL(us, 300);
    for (int i = 0; i < 100; i++)
        us = observation_overhead(&seen, us, i % 3 == 0 ? 900 : 400);
    CU_ASSERT_EQUAL(us, 400);
    for (int i = 0; i < 100; i++)
        us = observation_overhead(&seen, us, -5);
    CU_ASSERT_EQUAL(us, 0);
}

/* Who lies about it raises it by a millisecond in half a ring of requests. */
static void test_overhead_is_bounded(void)
{
    struct observation_overheads seen = {0};
    int64_t us = 0;

    for (int i = 0; i < OBSERVATION_OVERHEADS; i++)
        us = observation_overhead(&seen, us, 100);
    for (int i = 0; i < 7; i++)
        us = observation_overhead(&seen, us, COST_MODEL_MAX_US);
    CU_ASSERT_EQUAL(us, 100);
    us = observation_overhead(&seen, us, COST_MODEL_MAX_US);
    CU_ASSERT_EQUAL(us, 1100);
    us = observation_overhead(&(struct observation_overheads){0}, 0,
                              COST_MODEL_MAX_US);
    CU_ASSERT_EQUAL(us, 1000);
}

static const struct suite_test tests[] = {
    {"prefill", test_prefill},
    {"by layer", test_by_layer},
    {"load", test_load},
    {"overhead", test_overhead},
    {"overhead is bounded", test_overhead_is_bounded},
};
SUITE("observation", tests)
