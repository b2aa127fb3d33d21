/* Whose turn it is at an engine, and what is learned when the first request of
 * its line is refused. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/loop/loop.h"
#include "conductor/core/pool/record.h"
#include "conductor/service/engine/costs.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/models.h"
#include "conductor/service/setup.h"
#include "predictor/cost_model_json.h"
#include "tests/unit/suite.h"

static const char config_text[] =
    "{\"worker_listen\": \"\", \"engines\": [{\"name\": \"e\", \"kind\": "
    "\"vllm\", \"model\": \"m\", \"url\": \"http://127.0.0.1:1\"}]}";

enum { REQUESTS = 4, TOKENS = 100 };

struct rig {
    struct loop *loop;
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

    *r = (struct rig){.loop = loop_new()};
    CU_ASSERT_EQUAL_FATAL(
        config_parse(&r->config, config_text, strlen(config_text), err), 0);
    r->models = models_new(r->loop, &r->config, err);
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
    loop_free(r->loop);
}

static void refuse(struct rig *r, int i, int status, int64_t now_us)
{
    forward_is_refused(&r->requests[i], status);
    forward_prefill_over(&r->requests[i], false, now_us);
}

#define RIG_TEST(test) SUITE_TEST(test, struct rig, r, rig_init(r), rig_fini(r))

/* The first of the line is refused while the engine computes the two behind it,
 * in one step: that began when the refused one's turn did. */
RIG_TEST(test_refused)
{
    const struct steps_step *step;

    step = &r->engine->prefill_steps.now;
    for (uint32_t i = 0; i < REQUESTS; i++)
        join(r, i, 1000);
    forward_prefill_over(&r->requests[1], true, 60000); /* out of turn */
    refuse(r, 0, 400, 60010);
    CU_ASSERT_EQUAL(r->requests[2].attempt.turn_us, 1000);
    forward_prefill_over(&r->requests[2], true, 60020);
    CU_ASSERT_EQUAL(step->prompts, 2);
    CU_ASSERT_EQUAL(step->tokens, 2 * TOKENS);
    CU_ASSERT_EQUAL(step->us, 59020);
}

/* It cannot have been computed before it came; and one that is refused in the
 * middle of the line changes nobody's turn. */
RIG_TEST(test_came_later)
{
    join(r, 0, 1000);
    join(r, 1, 5000);
    join(r, 2, 6000);
    refuse(r, 1, 400, 7000);
    CU_ASSERT_EQUAL(r->requests[0].attempt.turn_us, 1000);
    refuse(r, 0, 503, 9000);
    CU_ASSERT_EQUAL(r->requests[2].attempt.turn_us, 6000);
}

/* An engine that fails may have computed it: the next one begins then. */
RIG_TEST(test_failed)
{
    join(r, 0, 1000);
    join(r, 1, 5000);
    refuse(r, 0, 500, 9000);
    CU_ASSERT_EQUAL(r->requests[1].attempt.turn_us, 9000);
}

static int64_t predicted_us(const struct rig *r, uint32_t i)
{
    struct pool_record_prefill p;

    CU_ASSERT_EQUAL(
        pool_read_prefill(r->service->pool, r->engine->id, i + 1, 1000, &p), 0);
    return p.request.predicted_us;
}

/* Accepted prefills of an engine are predicted by the costs that a file gives
 * it later, or the model. */
RIG_TEST(test_other_costs)
{
    struct cost_model twice = {.engine = "e",
                               .model = "m",
                               .machine = "none",
                               .date = "2026-01-01",
                               .range = {1, 32768, 32768, 64, 1000000}};
    char path[ENGINE_PATH_MAX] = "/tmp/test_forward_line.XXXXXX", err[256];
    int fd = mkstemp(path);

    CU_ASSERT_FATAL(fd >= 0);
    join(r, 0, 1000);
    join(r, 1, 1000);
    for (size_t i = 0; i < COST_MODEL_PREFILL_TERMS; i++)
        twice.prefill[i] = 2 * r->service->costs.model.prefill[i];
    twice.decode[0] = 1000;
    costs_replace(r->service, &twice);
    CU_ASSERT_EQUAL(predicted_us(r, 0), 100000);
    CU_ASSERT_EQUAL(predicted_us(r, 1), 100000);
    close(fd);
    for (size_t i = 0; i < COST_MODEL_PREFILL_TERMS; i++)
        twice.prefill[i] *= 2;
    CU_ASSERT_EQUAL_FATAL(cost_model_save_file(&twice, path, err, sizeof(err)),
                          0);
    engine_change_costs(r->service, path);
    unlink(path);
    CU_ASSERT_STRING_EQUAL(r->service->costs.source, "file");
    CU_ASSERT_EQUAL(predicted_us(r, 1), 200000);
}

static const char three_text[] =
    "{\"worker_listen\": \"\", \"engines\": ["
    "{\"name\": \"e\", \"kind\": \"vllm\", \"model\": \"m\", "
    "\"url\": \"http://127.0.0.1:1\"},"
    "{\"name\": \"f\", \"kind\": \"vllm\", \"model\": \"m\", "
    "\"url\": \"http://127.0.0.1:2\"},"
    "{\"name\": \"g\", \"kind\": \"vllm\", \"model\": \"m\", "
    "\"url\": \"http://127.0.0.1:3\"}]}";

static const struct cost_model *costs(const struct engine *e)
{
    return e->own_cost ? e->own_cost : &e->service->costs.model;
}

static void see_prefill(struct engine *e, int64_t tokens, int64_t us)
{
    (void)pool_step_done(e->service->pool, e->id,
                         cost_model_prefill_us(costs(e), tokens, 0, NULL), us);
    engine_learn_prefill(
        e, &(struct steps_step){.us = us, .tokens = tokens, .prompts = 1});
}

/* One of three engines takes three times as long. Whichever is seen first, its
 * decode steps or its prefills, no prediction counts that twice. Returns the
 * longest prediction for 2000 tokens once its prefills are known, us. */
static int64_t longest_us(bool steps_first)
{
    struct rig r = {.loop = loop_new()};
    char err[CONFIG_ERROR_MAX] = "";
    int64_t most_us = 0;

    CU_ASSERT_EQUAL_FATAL(
        config_parse(&r.config, three_text, strlen(three_text), err), 0);
    r.models = models_new(r.loop, &r.config, err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r.models);
    r.service = models_first(r.models);
    struct engine *const *all = r.service->engines.by_slot;
    const struct pool_instance *i = pool_get(r.service->pool, all[0]->id);

    for (int n = 0; n < 3000; n++) {
        int64_t tokens = 1000 + n % 7 * 500, us;

        for (int k = 2; k >= 0 && (steps_first || all[0]->prefills.unlike); k--)
            engine_learn_step(all[k], k ? 10000 : 30000);
        for (int k = 2; k >= 0 && !(steps_first && n % 2); k--)
            see_prefill(all[k], tokens, tokens * (k ? 100 : 300));
        us = correction_apply_us(
            &i->correction,
            cost_model_prefill_us(costs(all[0]), 2000, 0, NULL));
        if (all[0]->prefills.unlike && us > most_us)
            most_us = us;
    }
    CU_ASSERT(all[0]->prefills.unlike);
    models_free(r.models);
    config_fini(&r.config);
    loop_free(r.loop);
    return most_us;
}

static void test_costs_of_its_own(void)
{
    CU_ASSERT(longest_us(false) < 650000);
    CU_ASSERT(longest_us(true) < 650000);
}

static const struct suite_test tests[] = {
    {"the first is refused", test_refused},
    {"costs of its own", test_costs_of_its_own},
    {"the next one came later", test_came_later},
    {"the engine fails", test_failed},
    {"other costs for what was accepted", test_other_costs},
};
SUITE("forward_line", tests)
