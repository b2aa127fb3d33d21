/* The names that are drained: in, out, twice, and how many there can be; and
 * what their limit ends. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop/loop.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/models.h"
#include "conductor/service/setup.h"
#include "tests/unit/suite.h"

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

/* In place of request/move.c: counts the instances whose work is ended. */
static unsigned n_ended;

void __wrap_request_end_work(struct service *s, uint32_t id);
void __wrap_request_end_work(struct service *, uint32_t)
{
    n_ended++;
}

#define ENGINE(name, model)                                            \
    "{\"name\": \"" name "\", \"kind\": \"vllm\", \"model\": \"" model \
    "\", \"url\": \"http://127.0.0.1:1\"}"

/* A limit ends the work of each drained instance once: every search goes
 * through all requests. */
static void test_limit(void)
{
    static const char text[] =
        "{\"worker_listen\": \"\", \"engines\": [" ENGINE("a", "m") "," ENGINE(
            "b", "m") "," ENGINE("c", "n") "]}";
    struct loop *loop = loop_new();
    char err[CONFIG_ERROR_MAX] = "";
    struct config config;
    struct models *models;
    struct service *m, *n;

    CU_ASSERT_EQUAL_FATAL(config_parse(&config, text, strlen(text), err), 0);
    models = models_new(loop, &config, err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(models);
    m = models_find(models, "m", 1);
    n = models_find(models, "n", 1);
    CU_ASSERT_FATAL(m && n);
    CU_ASSERT_EQUAL(drains_set(&models->drains, "a", 100), 0);
    CU_ASSERT_EQUAL(drains_set(&models->drains, "c", 100), 0);
    drains_mark(m, m->engines.by_slot[0]->id, "a");
    drains_mark(n, n->engines.by_slot[0]->id, "c");
    drains_tick(m, 99);
    CU_ASSERT_EQUAL(n_ended, 0);
    drains_tick(m, 101);
    CU_ASSERT_EQUAL(n_ended, 1);
    drains_tick(m, 102);
    CU_ASSERT_EQUAL(n_ended, 1);
    drains_tick(n, 103); /* another model's, later */
    drains_tick(n, 104);
    CU_ASSERT_EQUAL(n_ended, 2);
    CU_ASSERT_EQUAL(drains_set(&models->drains, "a", 200), 0);
    drains_tick(m, 199);
    CU_ASSERT_EQUAL(n_ended, 2);
    drains_tick(m, 200);
    drains_tick(m, 201);
    CU_ASSERT_EQUAL(n_ended, 3);
    models_free(models);
    config_fini(&config);
    loop_free(loop);
}

static const struct suite_test tests[] = {
    {"in and out", test_in_and_out},
    {"bound", test_bound},
    {"limit", test_limit},
};
SUITE("drains", tests)
