/* Whose turn it is at an engine, and what is learned when the first request of
 * its line is refused. */
#include <CUnit/Basic.h>
#include <event2/event.h>
#include <string.h>

#include "conductor/service/engine/engine.h"
#include "conductor/service/models.h"
#include "conductor/service/setup.h"

static const char config_text[] =
    "{\"worker_listen\": \"\", \"engines\": [{\"name\": \"e\", \"kind\": "
    "\"vllm\", \"model\": \"m\", \"url\": \"http://127.0.0.1:1\"}]}";

enum { REQUESTS = 4, TOKENS = 100 };

struct rig {
    struct event_base *base;
    struct config config;
    struct models *models;
    struct service *service;
    struct engine *engine;
    struct service_request requests[REQUESTS];
    struct forward forwards[REQUESTS];
};

static void rig_init(struct rig *r)
{
    char err[CONFIG_ERROR_MAX] = "";

    *r = (struct rig){.base = event_base_new()};
    CU_ASSERT_EQUAL_FATAL(
        config_parse(&r->config, config_text, strlen(config_text), err), 0);
    r->models = models_new(r->base, &r->config, err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->models);
    r->service = models_first(r->models);
    r->engine = r->service->engines.by_slot[0];
}

/* The engine gets request i, which is streamed. */
static void join(struct rig *r, uint32_t i, int64_t now_us)
{
    struct service_request *request = &r->requests[i];
    const struct pool_prefill_request prefill = {
        .request_id = i + 1, .predicted_us = 50000, .uncached_tokens = TOKENS};

    r->forwards[i] =
        (struct forward){.engine = r->engine, .what = {.stream = true}};
    *request =
        (struct service_request){.service = r->service,
                                 .by = &engine_ops,
                                 .forward = &r->forwards[i],
                                 .state = REQUEST_SCHEDULED,
                                 .prompt = {.n_tokens = TOKENS},
                                 .attempt = {.id = i + 1,
                                             .prefill = r->engine->id,
                                             .prefill_open = true,
                                             .plan = {.predicted_us = 50000}}};
    CU_ASSERT_EQUAL(
        pool_prefill_accept(r->service->pool, r->engine->id, &prefill), 0);
    forward_join_line(request, now_us);
}

static void rig_fini(struct rig *r)
{
    for (int i = 0; i < REQUESTS; i++)
        if (r->forwards[i].in_line)
            forward_prefill_over(&r->requests[i], false, 1000000);
    models_free(r->models);
    config_fini(&r->config);
    event_base_free(r->base);
}

static void refuse(struct rig *r, int i, int status, int64_t now_us)
{
    forward_is_refused(&r->requests[i], status);
    forward_prefill_over(&r->requests[i], false, now_us);
}

/* The first of the line is refused while the engine computes the two behind it,
 * in one step: that began when the refused one's turn did. */
static void test_refused(void)
{
    struct rig r;
    const struct steps_step *step;

    rig_init(&r);
    step = &r.engine->prefill_steps.now;
    for (uint32_t i = 0; i < REQUESTS; i++)
        join(&r, i, 1000);
    forward_prefill_over(&r.requests[1], true, 60000); /* out of turn */
    refuse(&r, 0, 400, 60010);
    CU_ASSERT_EQUAL(r.forwards[2].turn_us, 1000);
    forward_prefill_over(&r.requests[2], true, 60020);
    CU_ASSERT_EQUAL(step->prompts, 2);
    CU_ASSERT_EQUAL(step->tokens, 2 * TOKENS);
    CU_ASSERT_EQUAL(step->us, 59020);
    rig_fini(&r);
}

/* It cannot have been computed before it came; and one that is refused in the
 * middle of the line changes nobody's turn. */
static void test_came_later(void)
{
    struct rig r;

    rig_init(&r);
    join(&r, 0, 1000);
    join(&r, 1, 5000);
    join(&r, 2, 6000);
    refuse(&r, 1, 400, 7000);
    CU_ASSERT_EQUAL(r.forwards[0].turn_us, 1000);
    refuse(&r, 0, 503, 9000);
    CU_ASSERT_EQUAL(r.forwards[2].turn_us, 6000);
    rig_fini(&r);
}

/* An engine that fails may have computed it: the next one begins then. */
static void test_failed(void)
{
    struct rig r;

    rig_init(&r);
    join(&r, 0, 1000);
    join(&r, 1, 5000);
    refuse(&r, 0, 500, 9000);
    CU_ASSERT_EQUAL(r.forwards[1].turn_us, 9000);
    rig_fini(&r);
}

int main(void)
{
    CU_initialize_registry();
    CU_pSuite suite = CU_add_suite("forward_line", NULL, NULL);
    CU_add_test(suite, "the first is refused", test_refused);
    CU_add_test(suite, "the next one came later", test_came_later);
    CU_add_test(suite, "the engine fails", test_failed);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failed = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failed > 0;
}
