/* What `conductor-replay profile` makes of answers. */

#include "tests/unit/suite.h"
#include "tools/replay/live/timing.h"

static void test_cached(void)
{
    static const struct {
        bool tells;
        uint32_t reused, a, b; /* a: 0 for a point that is left out */
    } cases[] = {{false, 0, 100, 64}, {true, 64, 100, 64}, {true, 0, 0, 0},
                 {true, 49, 115, 49}, {true, 48, 0, 0},    {true, 79, 85, 79},
                 {true, 80, 0, 0},    {true, 164, 0, 0}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct profile_point p = {.a = 100, .b = 64};
        struct replay_record r = {.tells_reused = cases[i].tells,
                                  .reused_tokens = cases[i].reused};
        bool good = timing_take_cached(&p, &r, 16);

        CU_ASSERT_EQUAL(good, cases[i].a > 0);
        CU_ASSERT(!good || (p.a == cases[i].a && p.b == cases[i].b));
    }
}

static void test_step(void)
{
    struct replay_record r[3] = {
        {.first_token_us = 100, .end_us = 1700, .generated_tokens = 17},
        {.first_token_us = 200, .end_us = 1960, .generated_tokens = 17},
        {.first_token_us = 300, .end_us = 2220, .generated_tokens = 17}};

    CU_ASSERT_DOUBLE_EQUAL(timing_step_us(r, 1), 100, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(timing_step_us(r, 2), 105, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(timing_step_us(r, 3), 110, 1e-9);
    /* One behind the other. */
    r[2].first_token_us += 1000;
    r[2].end_us += 1000;
    CU_ASSERT(timing_step_us(r, 3) < 0);
    r[0].generated_tokens = 1;
    CU_ASSERT(timing_step_us(r, 1) < 0);
}

static const struct suite_test tests[] = {
    {"cached", test_cached},
    {"step", test_step},
};
SUITE("replay_timing", tests)
