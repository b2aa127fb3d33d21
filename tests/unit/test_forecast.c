/* How sure a predicted TTFT is. */

#include "conductor/core/observation/forecast.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

static void came(struct forecasts *known, int64_t estimated_us, int64_t us)
{
    struct forecast f = {.estimated_us = estimated_us};

    forecast_came(known, &f, us);
}

/* Until enough came, the estimate stands, and nothing is said of how sure it
 * is. */
static void test_first(void)
{
    struct forecasts known = {0};
    struct forecast f;

    for (uint32_t i = 0; i + 1 < FORECAST_LEAST; i++)
        came(&known, 1000, 3000);
    f = forecast_make(&known, 50, 1000);
    CU_ASSERT_EQUAL(f.ttft_us, 1050);
    CU_ASSERT_EQUAL(f.p50_us, 0);
    CU_ASSERT_EQUAL(f.p90_us, 0);
    came(&known, 1000, 3000);
    f = forecast_make(&known, 50, 1000);
    CU_ASSERT_EQUAL(f.known_us, 50);
    CU_ASSERT_EQUAL(f.estimated_us, 1000);
    CU_ASSERT_EQUAL(f.ttft_us, 3050);
    CU_ASSERT_EQUAL(f.p50_us, 3050);
    CU_ASSERT_EQUAL(f.p90_us, 3050);
}

/* What repeats exactly is within its 90th percentile. */
static void test_exact(void)
{
    struct forecasts known = {0};

    for (int64_t us = 1; us < 5000000000; us += us / 7 + 1) {
        struct forecast f = forecast_make(&known, 0, us);

        CU_ASSERT_EQUAL(f.ttft_us, us);
        CU_ASSERT(f.p90_us == 0 || f.p90_us >= us);
        forecast_came(&known, &f, us);
    }
}

/* Of 19 times 10 ms and one 210 ms the mean is twice the median. */
static void test_skew(void)
{
    struct forecasts known = {0};
    struct forecast f;

    for (int i = 0; i < 20; i++)
        came(&known, 10000, i == 3 ? 210000 : 10000);
    f = forecast_make(&known, 0, 10000);
    CU_ASSERT_EQUAL(f.ttft_us, 20000);
    CU_ASSERT_EQUAL(f.p50_us, 10000);
    CU_ASSERT_EQUAL(f.p90_us, 10000);
    for (int i = 0; i < 2; i++)
        came(&known, 10000, 30000);
    f = forecast_make(&known, 0, 10000);
    CU_ASSERT_EQUAL(f.p90_us, 30000);
}

/* The mean is right for the sum, not for each ratio. */
static void test_mean_of_sums(void)
{
    struct forecasts known = {0};

    for (int i = 0; i < 10; i++) {
        came(&known, 1100, 11000);
        came(&known, 2000, 2000);
    }
    CU_ASSERT_EQUAL(forecast_make(&known, 0, 1100).ttft_us +
                        forecast_make(&known, 0, 2000).ttft_us,
                    13000);
}

/* Long waits say nothing of short ones; what is seldom is like all. */
static void test_octaves(void)
{
    struct forecasts known = {0};

    for (int i = 0; i < 20; i++) {
        came(&known, 1000, 1000);
        came(&known, 1000000, 4000000);
    }
    CU_ASSERT_EQUAL(forecast_make(&known, 0, 900).ttft_us, 900);
    CU_ASSERT_EQUAL(forecast_make(&known, 0, 1000000).ttft_us, 4000000);
    CU_ASSERT_DOUBLE_EQUAL((double)forecast_make(&known, 0, 100000).ttft_us /
                               100000,
                           4001.0 / 1001.0, 1e-4);
    /* None is too short or too long. */
    came(&known, 0, 5);
    came(&known, INT64_MAX / 4, INT64_MAX / 4);
    CU_ASSERT_EQUAL(forecast_make(&known, 7, 0).ttft_us, 7);
    CU_ASSERT(forecast_make(&known, 0, INT64_MAX / 4).p90_us <= INT64_MAX / 4);
}

/* After as many as it remembers, what was before is forgotten. */
static void test_forgets(void)
{
    struct forecasts known = {0};

    for (uint32_t i = 0; i < 3 * FORECAST_LAST; i++)
        came(&known, 1000, 1000 + 37 * (i % 91));
    for (uint32_t i = 0; i < FORECAST_LAST; i++)
        came(&known, 1000, 1500);
    CU_ASSERT_EQUAL(forecast_make(&known, 0, 1000).ttft_us, 1500);
    CU_ASSERT_EQUAL(forecast_make(&known, 0, 1000).p50_us, 1500);
    CU_ASSERT_EQUAL(forecast_make(&known, 0, 1000).p90_us, 1500);
}

/* Of 20,000 drawn times whose spread grows with their length, 9 of 10 are
 * within the 90th percentile, half within the median, and the mean is right. */
static void test_covers(void)
{
    struct forecasts known = {0};
    struct random_state random;
    double predicted = 0, actual = 0;
    int n = 0, below_90 = 0, below_50 = 0;

    random_init(&random, 20261125);
    for (int i = 0; i < 20000; i++) {
        double long_ms = random_below(&random, 1000);
        double u = random_below(&random, 1000) / 1e3;
        int64_t estimated_us = 1000 + (int64_t)(long_ms * 1000);
        int64_t us =
            (int64_t)((double)estimated_us * (1 + long_ms / 100 * u * u * u));
        struct forecast f = forecast_make(&known, 0, estimated_us);

        forecast_came(&known, &f, us);
        if (f.p90_us == 0)
            continue;
        n++;
        below_90 += us <= f.p90_us;
        below_50 += us <= f.p50_us;
        predicted += (double)f.ttft_us;
        actual += (double)us;
    }
    CU_ASSERT_DOUBLE_EQUAL((double)below_90 / n, 0.9, 0.01);
    CU_ASSERT_DOUBLE_EQUAL((double)below_50 / n, 0.5, 0.02);
    CU_ASSERT_DOUBLE_EQUAL(predicted / actual, 1.0, 0.01);
}

static const struct suite_test tests[] = {
    {"first", test_first},     {"exact", test_exact},
    {"skew", test_skew},       {"mean of sums", test_mean_of_sums},
    {"octaves", test_octaves}, {"forgets", test_forgets},
    {"covers", test_covers},
};
SUITE("forecast", tests)
