/* Whose orders a worker takes of those that only a leader gives. */

#include "tests/unit/suite.h"
#include "workers/service/lead.h"

static void test_the_highest_counts(void)
{
    struct lead l = {0};

    CU_ASSERT_TRUE(lead_counts(&l, 0)); /* nobody told one */
    lead_take(&l, 7, 100);
    lead_take(&l, 5, 200);
    CU_ASSERT_TRUE(lead_counts(&l, 7));
    CU_ASSERT_FALSE(lead_counts(&l, 5));
    CU_ASSERT_FALSE(lead_counts(&l, 0));
}

/* The leader was gone for a moment: those before it still do not count. Where
 * none is left that knows of a lead, all do. */
static void test_forgotten(void)
{
    struct lead l = {0};

    lead_take(&l, 7, 100);
    CU_ASSERT_FALSE(lead_look(&l, 7, 50000000));
    CU_ASSERT_FALSE(lead_look(&l, 0, 50000000 + LEAD_FORGET_US - 1));
    CU_ASSERT_FALSE(lead_counts(&l, 0));
    CU_ASSERT_TRUE(lead_look(&l, 0, 50000000 + LEAD_FORGET_US));
    CU_ASSERT_TRUE(lead_counts(&l, 0));
    CU_ASSERT_FALSE(lead_look(&l, 0, 90000000));
    lead_take(&l, 5, 90000000);
    CU_ASSERT_FALSE(lead_look(&l, 0, 90000001));
    CU_ASSERT_FALSE(lead_counts(&l, 0));
}

/* The state is another one, and all conductors are: the new leader has a lower
 * token than the one before, and counts once that one is forgotten. */
static void test_lower_leader(void)
{
    struct lead l = {0};

    lead_take(&l, 7, 100);
    lead_take(&l, 5, 200);
    CU_ASSERT_FALSE(lead_look(&l, 5, 100 + LEAD_FORGET_US - 1));
    CU_ASSERT_FALSE(lead_counts(&l, 5));
    CU_ASSERT_TRUE(lead_look(&l, 5, 100 + LEAD_FORGET_US));
    CU_ASSERT_TRUE(lead_counts(&l, 5));
    CU_ASSERT_FALSE(lead_counts(&l, 0));
    CU_ASSERT_FALSE(lead_look(&l, 5, 100 + 2 * LEAD_FORGET_US));
}

static const struct suite_test tests[] = {
    {"the highest counts", test_the_highest_counts},
    {"forgotten", test_forgotten},
    {"a lower leader", test_lower_leader},
};
SUITE("lead", tests)
