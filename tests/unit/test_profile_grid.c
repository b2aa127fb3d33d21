/* What a profile measures. */

#include "predictor/profile_grid.h"
#include "tests/unit/suite.h"

/* From the least prompt to long ones: no point beyond the limits, none twice,
 * and enough for conductor-fit (8 prefills, 6 decodes). */
static void test_plan(void)
{
    for (uint32_t m = 64; m <= 65536; m += m / 3) {
        const struct profile_limits l = {m, 64, 8 * (uint64_t)m, 16, 1, 0, 17};
        struct profile_point p[PROFILE_GRID_MAX];
        size_t n = profile_grid(&l, p), decodes = 0, cached = 0;

        CU_ASSERT(n <= PROFILE_GRID_MAX);
        for (size_t i = 0; i < n; i++) {
            CU_ASSERT(p[i].a >= 1);
            if (p[i].decode) {
                decodes++;
                CU_ASSERT(p[i].a <= 64 && p[i].b <= m);
                CU_ASSERT(p[i].b >= l.min_kv);
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
    struct profile_point p[50];
    uint64_t state = 1, sum = 0;
    size_t moved = 0;

    for (uint32_t i = 0; i < 50; i++)
        p[i] = (struct profile_point){.a = i};
    profile_shuffle(p, 50, &state);
    for (uint32_t i = 0; i < 50; i++) {
        sum += UINT64_C(1) << p[i].a;
        moved += p[i].a != i;
    }
    CU_ASSERT_EQUAL(sum, (UINT64_C(1) << 50) - 1);
    CU_ASSERT(moved > 25);
}

static const struct suite_test tests[] = {
    {"plan", test_plan},
    {"shuffle", test_shuffle},
};
SUITE("profile_grid", tests)
