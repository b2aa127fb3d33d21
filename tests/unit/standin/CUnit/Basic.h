/* As much of CUnit as this project uses, for machines without it: a GPU
 * machine that cannot install anything (-Dparts=engine). One suite a program,
 * as everywhere in this folder; a failed check is printed with file and line,
 * and a *_FATAL one leaves its test. All of CUnit's checks are here, so that a
 * test need not know with which of the two it is built.
 */
#ifndef STANDIN_CUNIT_BASIC_H
#define STANDIN_CUNIT_BASIC_H

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#define CUE_SUCCESS 0
#define CU_BRM_VERBOSE 2
#define STANDIN_MAX_TESTS 64

typedef struct standin_suite *CU_pSuite;

/* The program's only suite. */
static struct standin_suite {
    const char *name;
    const char *test_names[STANDIN_MAX_TESTS];
    void (*tests[STANDIN_MAX_TESTS])(void);
    unsigned n_tests;
    unsigned failures;
    jmp_buf next; /* leaves a test */
} standin;

static inline int CU_initialize_registry(void)
{
    return CUE_SUCCESS;
}

static inline void CU_cleanup_registry(void)
{
}

static inline void CU_basic_set_mode(int mode)
{
    (void)mode;
}

/* `init` and `clean` are always NULL in this project. */
static inline CU_pSuite CU_add_suite(const char *name, int (*init)(void),
                                     int (*clean)(void))
{
    (void)init;
    (void)clean;
    standin.name = name;
    return &standin;
}

/* Returns the suite, or NULL if there is no room: a test that is left out
 * counts as a failure. */
static inline CU_pSuite CU_add_test(CU_pSuite suite, const char *name,
                                    void (*test)(void))
{
    if (suite->n_tests == STANDIN_MAX_TESTS) {
        suite->failures++;
        return NULL;
    }
    suite->test_names[suite->n_tests] = name;
    suite->tests[suite->n_tests++] = test;
    return suite;
}

static inline int CU_basic_run_tests(void)
{
    for (volatile unsigned i = 0; i < standin.n_tests; i++) {
        unsigned before = standin.failures;

        printf("  %s: %s ...", standin.name, standin.test_names[i]);
        fflush(stdout);
        if (setjmp(standin.next) == 0)
            standin.tests[i]();
        puts(standin.failures == before ? " passed" : "");
    }
    printf("%u tests, %u failed checks\n", standin.n_tests, standin.failures);
    return CUE_SUCCESS;
}

static inline unsigned CU_get_number_of_failures(void)
{
    return standin.failures;
}

static inline void standin_check(int ok, const char *what, const char *file,
                                 int line, int fatal)
{
    if (ok)
        return;
    standin.failures++;
    printf("\n    %s:%d: %s", file, line, what);
    if (fatal)
        longjmp(standin.next, 1);
}

#define STANDIN_CHECK(ok, what, fatal) \
    standin_check((ok) ? 1 : 0, what, __FILE__, __LINE__, fatal)
#define STANDIN_NEAR(a, b, by) \
    (fabs((double)(a) - (double)(b)) <= fabs((double)(by)))
#define STANDIN_SAME(a, b) ((const void *)(a) == (const void *)(b))

#define CU_PASS(text) STANDIN_CHECK(1, text, 0)
#define CU_FAIL(text) STANDIN_CHECK(0, text, 0)
#define CU_FAIL_FATAL(text) STANDIN_CHECK(0, text, 1)
#define CU_TEST(a) STANDIN_CHECK(a, #a, 0)
#define CU_TEST_FATAL(a) STANDIN_CHECK(a, #a, 1)
#define CU_ASSERT(a) STANDIN_CHECK(a, #a, 0)
#define CU_ASSERT_FATAL(a) STANDIN_CHECK(a, #a, 1)
#define CU_ASSERT_TRUE(a) STANDIN_CHECK(a, #a, 0)
#define CU_ASSERT_TRUE_FATAL(a) STANDIN_CHECK(a, #a, 1)
#define CU_ASSERT_FALSE(a) STANDIN_CHECK(!(a), "not " #a, 0)
#define CU_ASSERT_FALSE_FATAL(a) STANDIN_CHECK(!(a), "not " #a, 1)
#define CU_ASSERT_EQUAL(a, b) STANDIN_CHECK((a) == (b), #a " == " #b, 0)
#define CU_ASSERT_EQUAL_FATAL(a, b) STANDIN_CHECK((a) == (b), #a " == " #b, 1)
#define CU_ASSERT_NOT_EQUAL(a, b) STANDIN_CHECK((a) != (b), #a " != " #b, 0)
#define CU_ASSERT_NOT_EQUAL_FATAL(a, b) \
    STANDIN_CHECK((a) != (b), #a " != " #b, 1)
#define CU_ASSERT_PTR_EQUAL(a, b) \
    STANDIN_CHECK(STANDIN_SAME(a, b), #a " == " #b, 0)
#define CU_ASSERT_PTR_EQUAL_FATAL(a, b) \
    STANDIN_CHECK(STANDIN_SAME(a, b), #a " == " #b, 1)
#define CU_ASSERT_PTR_NOT_EQUAL(a, b) \
    STANDIN_CHECK(!STANDIN_SAME(a, b), #a " != " #b, 0)
#define CU_ASSERT_PTR_NOT_EQUAL_FATAL(a, b) \
    STANDIN_CHECK(!STANDIN_SAME(a, b), #a " != " #b, 1)
#define CU_ASSERT_PTR_NULL(a) STANDIN_CHECK(!(a), #a " is NULL", 0)
#define CU_ASSERT_PTR_NULL_FATAL(a) STANDIN_CHECK(!(a), #a " is NULL", 1)
#define CU_ASSERT_PTR_NOT_NULL(a) STANDIN_CHECK((a), #a " is not NULL", 0)
#define CU_ASSERT_PTR_NOT_NULL_FATAL(a) STANDIN_CHECK((a), #a " is not NULL", 1)
#define CU_ASSERT_STRING_EQUAL(a, b) \
    STANDIN_CHECK(strcmp(a, b) == 0, #a " is " #b, 0)
#define CU_ASSERT_STRING_EQUAL_FATAL(a, b) \
    STANDIN_CHECK(strcmp(a, b) == 0, #a " is " #b, 1)
#define CU_ASSERT_STRING_NOT_EQUAL(a, b) \
    STANDIN_CHECK(strcmp(a, b) != 0, #a " is not " #b, 0)
#define CU_ASSERT_STRING_NOT_EQUAL_FATAL(a, b) \
    STANDIN_CHECK(strcmp(a, b) != 0, #a " is not " #b, 1)
#define CU_ASSERT_NSTRING_EQUAL(a, b, n) \
    STANDIN_CHECK(strncmp(a, b, n) == 0, #a " begins as " #b, 0)
#define CU_ASSERT_NSTRING_EQUAL_FATAL(a, b, n) \
    STANDIN_CHECK(strncmp(a, b, n) == 0, #a " begins as " #b, 1)
#define CU_ASSERT_NSTRING_NOT_EQUAL(a, b, n) \
    STANDIN_CHECK(strncmp(a, b, n) != 0, #a " begins not as " #b, 0)
#define CU_ASSERT_NSTRING_NOT_EQUAL_FATAL(a, b, n) \
    STANDIN_CHECK(strncmp(a, b, n) != 0, #a " begins not as " #b, 1)
#define CU_ASSERT_DOUBLE_EQUAL(a, b, by) \
    STANDIN_CHECK(STANDIN_NEAR(a, b, by), #a " is near " #b, 0)
#define CU_ASSERT_DOUBLE_EQUAL_FATAL(a, b, by) \
    STANDIN_CHECK(STANDIN_NEAR(a, b, by), #a " is near " #b, 1)
#define CU_ASSERT_DOUBLE_NOT_EQUAL(a, b, by) \
    STANDIN_CHECK(!STANDIN_NEAR(a, b, by), #a " is not near " #b, 0)
#define CU_ASSERT_DOUBLE_NOT_EQUAL_FATAL(a, b, by) \
    STANDIN_CHECK(!STANDIN_NEAR(a, b, by), #a " is not near " #b, 1)

#endif
