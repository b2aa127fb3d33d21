/* The suite of a CUnit binary: a table with a row for each test. */
#ifndef TESTS_UNIT_SUITE_H
#define TESTS_UNIT_SUITE_H

#include <CUnit/Basic.h>
#include <stddef.h>
#include <stdlib.h>

struct suite_test {
    const char *name;
    void (*run)(void);
};

/* Runs the `n` tests and returns the exit status of their program. */
static inline int suite_run(const char *name, const struct suite_test *tests,
                            size_t n)
{
    unsigned failed = 0;
    CU_pSuite suite;

    if (CU_initialize_registry() != CUE_SUCCESS ||
        !(suite = CU_add_suite(name, NULL, NULL)))
        return EXIT_FAILURE;
    for (size_t i = 0; i < n; i++)
        failed += !CU_add_test(suite, tests[i].name, tests[i].run);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    failed += CU_get_number_of_failures();
    CU_cleanup_registry();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Runs an array of struct suite_test. */
#define SUITE_RUN(name, tests) \
    suite_run(name, tests, sizeof(tests) / sizeof((tests)[0]))

/* Defines main() of a program that needs nothing else before its suite. */
#define SUITE(name, tests)             \
    int main(void)                     \
    {                                  \
        return SUITE_RUN(name, tests); \
    }

/* Defines a test whose body has a fixture, `type *held`: `begin` prepares it
 * before the body, `end` cleans it up behind it. */
#define SUITE_TEST(test, type, held, begin, end) \
    static void test##_body(type *(held));       \
    static void test(void)                       \
    {                                            \
        type fixture, *held = &fixture;          \
                                                 \
        begin;                                   \
        test##_body(held);                       \
        end;                                     \
    }                                            \
    static void test##_body(type *held)

/* Likewise with a fixture that `make` returns. */
#define SUITE_TEST_OF(test, type, held, make, end) \
    static void test##_body(type *(held));         \
    static void test(void)                         \
    {                                              \
        type *held = make;                         \
                                                   \
        test##_body(held);                         \
        end;                                       \
    }                                              \
    static void test##_body(type *held)

#endif
