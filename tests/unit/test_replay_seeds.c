/* The means of a comparison over several seeds. */
#include <CUnit/CUnit.h>

#include "tests/unit/suite.h"
#include "tools/replay/study/compare/compare.h"

/* Counts are means, as the ratios beside them; the latest is of all seeds. */
static void test_counts(void)
{
    static struct replay_case runs[3], mean;
    struct replay_comparison c = {
        .cases = &mean, .n_cases = 1, .runs = runs, .n_seeds = 3};

    for (unsigned i = 0; i < 3; i++) {
        runs[i].result.report = (struct replay_report){
            .completed = 100 + i,
            .rejected = 10 + i,
            .failed = 20 + i,
            .promised = 30 + i,
            .late_s = {.count = 4 + i, .mean = 1 + i, .max = 5 - i},
        };
    }
    replay_comparison_average(&c);
    CU_ASSERT_EQUAL(mean.result.report.completed, 101);
    CU_ASSERT_EQUAL(mean.result.report.rejected, 11);
    CU_ASSERT_EQUAL(mean.result.report.failed, 21);
    CU_ASSERT_EQUAL(mean.result.report.promised, 31);
    CU_ASSERT_EQUAL(mean.result.report.late_s.count, 5);
    CU_ASSERT_DOUBLE_EQUAL(mean.result.report.late_s.mean, 2, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(mean.result.report.late_s.max, 5, 1e-12);
}

static const struct suite_test tests[] = {
    {"counts", test_counts},
};
SUITE("replay_seeds", tests)
