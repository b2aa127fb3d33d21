/* What `conductor-replay profile` measures and counts. */
#include <CUnit/Basic.h>
#include <stdlib.h>

#include "tools/replay/live/grid.h"

/* From the least prompt to long ones: no point beyond the limits, none twice,
 * and enough for conductor-fit (8 prefills, 6 decodes). */
static void test_plan(void)
{
    for (uint32_t m = 64; m <= 65536; m += m / 3) {
        const struct grid_limits l = {m, 64, 8 * (uint64_t)m, 16};
        struct grid_point p[GRID_MAX];
        size_t n = grid_plan(&l, p), decodes = 0, cached = 0;

        CU_ASSERT(n <= GRID_MAX);
        for (size_t i = 0; i < n; i++) {
            CU_ASSERT(p[i].a >= 1);
            if (p[i].decode) {
                decodes++;
                CU_ASSERT(p[i].a <= 64 && p[i].b <= m);
                CU_ASSERT(p[i].b >= GRID_DECODE_TOKENS);
                CU_ASSERT((uint64_t)p[i].a * p[i].b <= l.max_kv);
            } else {
                cached += p[i].b > 0;
                CU_ASSERT(p[i].a + p[i].b <= m && p[i].b % 16 == 0);
            }
            for (size_t j = 0; j < i; j++)
                CU_ASSERT(p[i].decode != p[j].decode || p[i].a != p[j].a ||
                          p[i].b != p[j].b);
        }
        CU_ASSERT(decodes >= 6 && n - decodes >= 8 && cached >= 6);
    }
}

static void test_shuffle(void)
{
    struct grid_point p[50];
    uint64_t state = 1, sum = 0;
    size_t moved = 0;

    for (uint32_t i = 0; i < 50; i++)
        p[i] = (struct grid_point){.a = i};
    grid_shuffle(p, 50, &state);
    for (uint32_t i = 0; i < 50; i++) {
        sum += UINT64_C(1) << p[i].a;
        moved += p[i].a != i;
    }
    CU_ASSERT_EQUAL(sum, (UINT64_C(1) << 50) - 1);
    CU_ASSERT(moved > 25);
}

static void test_cached(void)
{
    static const struct {
        bool tells;
        uint32_t reused, a, b; /* a: 0 for a point that is left out */
    } cases[] = {{false, 0, 100, 64}, {true, 64, 100, 64}, {true, 0, 0, 0},
                 {true, 49, 115, 49}, {true, 48, 0, 0},    {true, 79, 85, 79},
                 {true, 80, 0, 0},    {true, 164, 0, 0}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct grid_point p = {.a = 100, .b = 64};
        struct replay_record r = {.tells_reused = cases[i].tells,
                                  .reused_tokens = cases[i].reused};
        bool good = grid_take_cached(&p, &r, 16);

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

    CU_ASSERT_DOUBLE_EQUAL(grid_step_us(r, 1), 100, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(grid_step_us(r, 2), 105, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(grid_step_us(r, 3), 110, 1e-9);
    /* One behind the other. */
    r[2].first_token_us += 1000;
    r[2].end_us += 1000;
    CU_ASSERT(grid_step_us(r, 3) < 0);
    r[0].generated_tokens = 1;
    CU_ASSERT(grid_step_us(r, 1) < 0);
}

int main(void)
{
    CU_initialize_registry();
    CU_pSuite s = CU_add_suite("replay_grid", NULL, NULL);
    CU_add_test(s, "plan", test_plan);
    CU_add_test(s, "shuffle", test_shuffle);
    CU_add_test(s, "cached", test_cached);
    CU_add_test(s, "step", test_step);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failed = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failed > 0;
}
