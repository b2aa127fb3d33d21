/* Which instances were lost in the last ten minutes, against a linear count. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "conductor/json/text_buf.h"
#include "conductor/service/drains.h"
#include "conductor/service/losses.h"
#include "tests/unit/suite.h"

/* Returns the value in the line of an instance; 0 = it has no line. */
static unsigned told(const struct losses *l, const struct drains *drains,
                     const char *name, int64_t now_us)
{
    struct text_buf out;
    char line[200];
    unsigned n = 0;

    text_buf_init(&out, SIZE_MAX);
    CU_ASSERT_EQUAL(losses_write(l, drains, now_us, &out), 0);
    text_buf_add(&out, "", 1);
    snprintf(line, sizeof line, "{instance=\"%s\"} ", name);
    char *at = strstr(out.data, line);
    if (at) {
        CU_ASSERT_EQUAL(sscanf(at + strlen(line), "%u", &n), 1);
        CU_ASSERT_PTR_NULL(strstr(at + 1, line));
    }
    text_buf_fini(&out);
    return n;
}

static void test_window(void)
{
    static struct losses l;
    struct drains drains = {0};

    CU_ASSERT_EQUAL(told(&l, &drains, "a", 5), 0);
    losses_note(&l, "a", 0);
    losses_note(&l, "b", 1);
    losses_note(&l, "a", 2);
    CU_ASSERT_EQUAL(told(&l, &drains, "a", LOSSES_US), 2);
    CU_ASSERT_EQUAL(told(&l, &drains, "b", LOSSES_US), 1);
    CU_ASSERT_EQUAL(told(&l, &drains, "a", LOSSES_US + 1), 1);
    CU_ASSERT_EQUAL(told(&l, &drains, "a", LOSSES_US + 3), 0);
}

/* An operator knows of an instance that is drained. */
static void test_drained(void)
{
    static struct losses l;
    struct drains drains = {0};

    losses_note(&l, "a", 0);
    losses_note(&l, "b", 0);
    CU_ASSERT_EQUAL_FATAL(drains_set(&drains, "a", 0), 0);
    CU_ASSERT_EQUAL(told(&l, &drains, "a", 1), 0);
    CU_ASSERT_EQUAL(told(&l, &drains, "b", 1), 1);
    drains_drop(&drains, "a");
    CU_ASSERT_EQUAL(told(&l, &drains, "a", 1), 1);
    drains_fini(&drains);
}

static void test_escaped(void)
{
    static struct losses l;
    struct drains drains = {0};

    losses_note(&l, "q\"\\", 0);
    CU_ASSERT_EQUAL(told(&l, &drains, "q\\\"\\\\", 1), 1);
}

/* More than are remembered: the newest count. */
static void test_bound(void)
{
    static struct losses l;
    struct drains drains = {0};
    unsigned by_name[7] = {0};
    char name[8];

    for (unsigned i = 0; i < 3 * LOSSES_MAX + 5; i++) {
        snprintf(name, sizeof name, "w%u", i * i % 7);
        losses_note(&l, name, i);
        if (i >= 2 * LOSSES_MAX + 5)
            by_name[i * i % 7]++;
    }
    for (unsigned k = 0; k < 7; k++) {
        snprintf(name, sizeof name, "w%u", k);
        CU_ASSERT_EQUAL(told(&l, &drains, name, 1000), by_name[k]);
    }
}

static const struct suite_test tests[] = {
    {"window", test_window},
    {"drained", test_drained},
    {"escaped", test_escaped},
    {"bound", test_bound},
};
SUITE("losses", tests)
