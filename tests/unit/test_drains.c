/* The names that are drained: in, out, twice, and how many there can be. */
#include <CUnit/Basic.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "conductor/service/drains.h"

static void test_in_and_out(void)
{
    struct drains d = {0};

    CU_ASSERT_FALSE(drains_has(&d, "a"));
    drains_drop(&d, "a");
    CU_ASSERT_EQUAL(drains_set(&d, "a", 5), 0);
    CU_ASSERT_EQUAL(d.all[0].until_us, 5);
    CU_ASSERT_EQUAL(drains_set(&d, "b", 0), 0);
    CU_ASSERT_EQUAL(drains_set(&d, "a", 0), 0);
    CU_ASSERT_EQUAL(d.n, 2);
    CU_ASSERT_EQUAL(d.all[0].until_us, 0);
    drains_drop(&d, "a");
    CU_ASSERT_FALSE(drains_has(&d, "a"));
    CU_ASSERT(drains_has(&d, "b"));
    drains_drop(&d, "b");
    CU_ASSERT_EQUAL(d.n, 0);
    drains_fini(&d);
}

static void test_bound(void)
{
    struct drains d = {0};
    char name[SERVICE_NAME_BYTES];

    for (unsigned i = 0; i < DRAINS_MAX; i++) {
        snprintf(name, sizeof(name), "n%u", i);
        CU_ASSERT_EQUAL(drains_set(&d, name, 0), 0);
    }
    CU_ASSERT_EQUAL(drains_set(&d, "one more", 0), -ENOSPC);
    CU_ASSERT_EQUAL(drains_set(&d, "n7", 0), 0);
    drains_drop(&d, "n7");
    CU_ASSERT_EQUAL(drains_set(&d, "one more", 0), 0);
    CU_ASSERT(drains_has(&d, "one more"));
    CU_ASSERT_FALSE(drains_has(&d, "n7"));
    CU_ASSERT(drains_has(&d, "n4095"));
    drains_fini(&d);
}

int main(void)
{
    CU_initialize_registry();
    CU_pSuite suite = CU_add_suite("drains", NULL, NULL);
    CU_add_test(suite, "in and out", test_in_and_out);
    CU_add_test(suite, "bound", test_bound);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failures = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
