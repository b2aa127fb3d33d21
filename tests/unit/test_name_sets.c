/* The names of a model and who has each: engines that come, go, load and unload
 * adapters; names that nobody has; the bound. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/service/name_sets.h"
#include "tests/unit/suite.h"

#define SLOTS 130u

static struct engine_names list(unsigned from, unsigned to)
{
    struct engine_names names = {.n = 0};
    char name[16];

    for (unsigned i = from; i < to; i++) {
        snprintf(name, sizeof(name), "n%u", i);
        CU_ASSERT_TRUE(engine_names_add(&names, name));
    }
    return names;
}

static struct name_set *find(const struct name_sets *sets, const char *name)
{
    return name_sets_find(sets, name, strlen(name));
}

static void test_engines_load_and_unload(void)
{
    struct engine_names two = list(1, 3), one = list(2, 3), none = list(0, 0);
    struct name_sets sets;
    struct name_set *set;

    CU_ASSERT_EQUAL_FATAL(name_sets_init(&sets, SLOTS), 0);
    name_sets_take(&sets, 0, &none, &two);
    name_sets_take(&sets, 129, &one, &none);
    set = find(&sets, "n2");
    CU_ASSERT_PTR_NOT_NULL_FATAL(set);
    CU_ASSERT_EQUAL(set->name.n_engines, 2);
    CU_ASSERT_TRUE(set->name.adapter); /* one says so */
    CU_ASSERT_EQUAL(set->engines[0], 1);
    CU_ASSERT_EQUAL(set->engines[1], 0);
    CU_ASSERT_EQUAL(set->engines[2], 2);
    CU_ASSERT_EQUAL(find(&sets, "n1")->name.n_engines, 1);
    CU_ASSERT_PTR_NULL(find(&sets, "n"));
    CU_ASSERT_PTR_NULL(find(&sets, "n22"));
    CU_ASSERT_PTR_NULL(name_sets_find(&sets, "n2\0x", 4));
    set->changed = false;
    name_sets_take(&sets, 0, &none, &two); /* the same again */
    CU_ASSERT_FALSE(set->changed);
    name_sets_take(&sets, 0, NULL, NULL);
    CU_ASSERT_TRUE(set->changed);
    CU_ASSERT_EQUAL(set->name.n_engines, 1);
    CU_ASSERT_FALSE(name_set_has(set, 0));
    name_sets_take(&sets, 129, NULL, NULL);
    CU_ASSERT_PTR_EQUAL(find(&sets, "n2"), set); /* known still */
    CU_ASSERT_EQUAL(set->name.n_engines, 0);
    CU_ASSERT_EQUAL(set->engines[2], 0);
    name_sets_take(&sets, 5, &one, &none); /* it is an alias now */
    CU_ASSERT_FALSE(set->name.adapter);
    name_sets_fini(&sets);
}

/* Names that nobody has give way, the one that was lost first; not while a
 * request names them. */
static void test_bound(void)
{
    struct name_sets sets;
    struct engine_names names;
    const unsigned each = 32, n = NAME_SETS_MAX / 32;

    CU_ASSERT_EQUAL_FATAL(name_sets_init(&sets, SLOTS), 0);
    for (unsigned i = 0; i < n; i++) {
        names = list(i * each, (i + 1) * each);
        name_sets_take(&sets, i, NULL, &names);
    }
    CU_ASSERT_EQUAL(sets.n, NAME_SETS_MAX);
    names = list(9000, 9001);
    name_sets_take(&sets, 129, &names, NULL);
    CU_ASSERT_EQUAL(sets.n_dropped, 1);
    CU_ASSERT_PTR_NULL(find(&sets, "n9000"));
    find(&sets, "n64")->n_requests = 1;
    name_sets_take(&sets, 2, NULL, NULL);
    name_sets_take(&sets, 1, NULL, NULL);
    names = list(9000, 9031);
    name_sets_take(&sets, 129, &names, NULL);
    CU_ASSERT_EQUAL(sets.n_dropped, 1);
    CU_ASSERT_EQUAL(sets.n, NAME_SETS_MAX);
    CU_ASSERT_PTR_NOT_NULL(find(&sets, "n64"));
    CU_ASSERT_PTR_NULL(find(&sets, "n65"));
    CU_ASSERT_PTR_NULL(find(&sets, "n95"));
    CU_ASSERT_PTR_NOT_NULL(find(&sets, "n32"));
    for (size_t i = 1; i < sets.n; i++)
        CU_ASSERT(strcmp(sets.all[i - 1]->name.name, sets.all[i]->name.name) <
                  0);
    name_sets_fini(&sets);
}

static void test_known_without_engines(void)
{
    struct engine_names aliases = list(0, 1), adapters = list(1, 2);
    struct name_sets sets;

    CU_ASSERT_EQUAL_FATAL(name_sets_init(&sets, SLOTS), 0);
    name_sets_know(&sets, &aliases, &adapters);
    CU_ASSERT_EQUAL(sets.n, 2);
    CU_ASSERT_FALSE(find(&sets, "n0")->name.adapter);
    CU_ASSERT_TRUE(find(&sets, "n1")->name.adapter);
    CU_ASSERT_EQUAL(find(&sets, "n1")->name.n_engines, 0);
    name_sets_fini(&sets);
}

static const struct suite_test tests[] = {
    {"engines load and unload", test_engines_load_and_unload},
    {"bound", test_bound},
    {"known without engines", test_known_without_engines},
};
SUITE("name_sets", tests)
