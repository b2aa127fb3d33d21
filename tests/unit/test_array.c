/* Arrays at the ends of size_t. */
#include <stdint.h>

#include "base/array.h"
#include "tests/unit/suite.h"

static void test_too_many(void)
{
    /* volatile: no compiler warns of the size. */
    volatile size_t half = SIZE_MAX / 2 + 2, of_16 = SIZE_MAX / 16 + 2;
    size_t capacity = 0;

    CU_ASSERT_PTR_NULL(array_room(NULL, &capacity, of_16, 16));
    CU_ASSERT_EQUAL(capacity, 0);
    CU_ASSERT_PTR_NULL(array_room(NULL, &capacity, half, 2));
    CU_ASSERT_EQUAL(capacity, 0);
}

static void test_doubles(void)
{
    uint32_t *items = NULL;
    size_t capacity = 0;

    CU_ASSERT_EQUAL_FATAL(array_reserve(items, capacity, 1), 0);
    CU_ASSERT_EQUAL(capacity, 64);
    CU_ASSERT_EQUAL_FATAL(array_reserve(items, capacity, 129), 0);
    CU_ASSERT_EQUAL(capacity, 256);
    free(items);
}

static const struct suite_test tests[] = {
    {"doubles", test_doubles},
    {"more than there can be", test_too_many},
};
SUITE("array", tests)
