/* Makes the engines of a service from their configuration, and frees them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/connector/pair.h"
#include "conductor/service/engine/costs.h"
#include "conductor/service/models.h"
#include "conductor/service/pair/pair.h"
#include "predictor/cost_model_json.h"

#define IDLE_CONNECTIONS 128
#define IDLE_US 20000000
#define ANSWER_HEAD_BYTES 65536
#define KEY_LINE "Authorization: Bearer %s\r\n"
#define KV_BLOCKS_UNTOLD 8192

int engine_read_key(const struct engine_config *config,
                    char line[ENGINE_AUTHORIZATION_BYTES],
                    char err[CONFIG_ERROR_MAX])
{
    char key[ENGINE_AUTHORIZATION_BYTES - sizeof(KEY_LINE)];

    *line = '\0';
    if (!*config->api_key_file)
        return 0;
    const char *why = file_read_key(config->api_key_file, key, sizeof(key));
    if (why)
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                         "api_key_file: \"%.200s\": %s", config->api_key_file,
                         why);
    snprintf(line, ENGINE_AUTHORIZATION_BYTES, KEY_LINE, key);
    return 0;
}

/* Checks that the cost model of an engine was fitted for its model. */
static int check_costs(const struct engine_config *config,
                       char err[CONFIG_ERROR_MAX])
{
    char why[CONFIG_ERROR_MAX - 100];
    struct cost_model cost;

    if (!*config->cost_model)
        return 0;
    if (cost_model_load_file(config->cost_model, &cost, why, sizeof(why)))
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL, "cost_model: %s", why);
    if (*config->model && strcmp(cost.model, config->model) != 0)
        return error_say(
            err, CONFIG_ERROR_MAX, -EINVAL,
            "cost_model: \"%.200s\": was fitted for model \"%.100s\", but "
            "model is \"%.100s\"",
            config->cost_model, cost.model, config->model);
    return 0;
}

static int check_tls(const struct engine_config *config,
                     char err[CONFIG_ERROR_MAX])
{
    char why[CONFIG_ERROR_MAX / 2];
    struct tls *tls;

    if (!*config->tls_ca_file)
        return 0;
    tls = tls_new(config->tls_ca_file, false, why, sizeof(why));
    if (!tls)
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                         "tls_ca_file: \"%.200s\": %s", config->tls_ca_file,
                         why);
    tls_free(tls);
    return 0;
}

int engine_check(const struct engine_config *config, char err[CONFIG_ERROR_MAX])
{
    char line[ENGINE_AUTHORIZATION_BYTES];

    if (engine_read_key(config, line, err) || check_costs(config, err))
        return -EINVAL;
    return check_tls(config, err);
}

/* Returns an engine's role in the pool: a decode engine that can also compute
 * prompts has both roles. */
static unsigned role_of(const struct engine_config *config)
{
    const struct pair_protocol *pair = pair_protocol(config->kv_connector);

    if (config->role == ENGINE_ROLE_PREFILL)
        return ROLE_PREFILL;
    return pair && !pair->alone ? ROLE_DECODE : ROLE_BOTH;
}

static int join_pool(struct engine *e)
{
    struct service *s = e->service;
    struct pool_instance_config in = {
        .name = e->config->name,
        .role = role_of(e->config),
        .pair = e->config->kv_connector,
        /* The conductor delays no request for lack of KV: an engine has its
         * own queue, and knows its KV better. */
        .kv_capacity_tokens = POOL_KV_UNKNOWN,
        .block_tokens = (uint32_t)s->config.block_tokens,
        .order = queue_order_by_name("fifo"), /* vLLM's and SGLang's own */
    };

    int rc = pool_add(s->pool, &in, &e->id);

    if (rc == 0)
        cluster_joined(s->peers);
    return rc;
}

/* Gives an engine the cost model named in its configuration, if it differs from
 * the model's.
 *   was  the model's cost model until now; NULL = the engine is new.
 * Returns 0, or -EINVAL with a reason in err and nothing
 * changed. */
static int take_costs(struct engine *e, const struct cost_model *was,
                      char err[CONFIG_ERROR_MAX])
{
    struct service *s = e->service;
    const char *file = e->config->cost_model;
    const struct cost_model *before = e->own_cost, *next = NULL;

    if (*file && strcmp(file, s->config.cost_model) != 0) {
        next = costs_take(s, file, err);
        if (!next)
            return -EINVAL;
    }
    e->own_cost = next;
    alike_leave(&e->prefills, &s->engines.prefills);
    alike_leave(&e->steps, &s->engines.steps);
    learned_init_from(&e->learned, &s->engines.learned);
    pool_set_cost(s->pool, e->id, next);
    if (was)
        pool_predict_again(s->pool, e->id, before ? before : was,
                           next ? next : &s->costs.model);
    costs_drop(s, before);
    return 0;
}

/* Creates the parts of an engine. On an error engine_leave() frees them. */
static int engine_set_up(struct engine *e, char err[CONFIG_ERROR_MAX])
{
    struct service *s = e->service;
    const struct engine_config *config = e->config;
    const struct upstream_options options = {
        .max_idle = IDLE_CONNECTIONS,
        .max_head_bytes = ANSWER_HEAD_BYTES,
        .connect_us = s->config.engine_timeout_ms * 1000,
        .idle_us = IDLE_US,
    };
    struct engine_clash clash;

    if (engine_read_key(config, e->authorization, err))
        return -EINVAL;
    if (config->url.tls) {
        e->tls = fleet_tls(&s->models->fleet, config, err);
        if (!e->tls)
            return -EINVAL;
    }
    snprintf(err, CONFIG_ERROR_MAX,
             "out of memory, or more than max_instances engines");
    if (*config->url_text)
        e->upstream = upstream_new(s->loop, s->models->dns, &config->url,
                                   e->tls, &options);
    e->predicted = predicted_new(config->kv_blocks ? (uint32_t)config->kv_blocks
                                                   : KV_BLOCKS_UNTOLD,
                                 loop_random(s->loop));
    loop_timer_init(s->loop, &e->health.timer, engine_look, e);
    if ((*config->url_text && !e->upstream) || !e->predicted ||
        engine_bootstrap_new(e, &options) || join_pool(e))
        return -ENOMEM;
    s->engines.by_slot[pool_get(s->pool, e->id)->slot] = e;
    s->engines.n++;
    s->engines.n_asked += *config->tokenize_path != '\0';
    if (engine_misfits(s, config, &clash))
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL, "%s: %.400s",
                         clash.key, clash.why);
    if (take_costs(e, NULL, err))
        return -EINVAL;
    e->block_tokens = (uint32_t)s->config.block_tokens;
    engine_take_size(e);
    if (engine_listen(e, err))
        return -EINVAL;
    store_share(e);
    return 0;
}

static void engine_free(struct engine *e)
{
    expect_until(e, INT64_MAX);
    kv_feed_free(e->events.feed);
    upstream_free(e->upstream);
    upstream_free(e->bootstrap.server);
    tls_free(e->tls);
    predicted_free(e->predicted);
    text_buf_fini(&e->list.models);
    loop_timer_stop(&e->health.timer);
    free(e);
}

void engine_leave(struct engine *e)
{
    struct service *s = e->service;
    const struct pool_instance *in = pool_get(s->pool, e->id);

    pairs_cut_off(e);
    alike_leave(&e->prefills, &s->engines.prefills);
    alike_leave(&e->steps, &s->engines.steps);
    if (in) {
        uint32_t slot = in->slot;

        expect_until(e, INT64_MAX);
        pool_remove(s->pool, e->id, loop_now_us(s->loop));
        prefix_index_cleared(s->index, slot);
        name_sets_take(&s->names.sets, slot, NULL, NULL);
        costs_drop(s, e->own_cost);
        s->engines.by_slot[slot] = NULL;
        s->engines.n--;
        s->engines.n_heard -= e->events.heard;
        s->engines.n_asked -= *e->config->tokenize_path != '\0';
    }
    if (e->leaving)
        log_info("engine %s is gone", e->config->name);
    engine_free(e);
}

void engine_retire(struct engine *e)
{
    e->leaving = true;
    e->left_us = loop_now_us(e->service->loop);
    pool_set_health(e->service->pool, e->id, HEALTH_DRAINING);
    loop_timer_stop(&e->health.timer);
    upstream_cancel(e->health.probe);
    e->health.probe = NULL;
    kv_feed_free(e->events.feed);
    e->events.feed = NULL;
    log_info("engine %s is removed: it gets no more work, and still has %zu "
             "requests",
             e->config->name, upstream_busy(e->upstream) + e->n_tickets);
}

struct engine *engine_start(struct service *s,
                            const struct engine_config *config,
                            char err[CONFIG_ERROR_MAX])
{
    struct engine *e = calloc(1, sizeof(*e));

    snprintf(err, CONFIG_ERROR_MAX, "out of memory");
    if (!e)
        return NULL;
    e->service = s;
    e->own = *config;
    e->config = &e->own;
    TAILQ_INIT(&e->line);
    TAILQ_INIT(&e->expected);
    e->jitter = (unsigned)loop_now_us(s->loop);
    text_buf_init(&e->list.models, MODEL_LIST_BYTES_MAX);
    report_begin(&e->scan, e->config->dp_rank);
    e->report = e->scan.report;
    if (engine_set_up(e, err)) {
        engine_leave(e);
        return NULL;
    }
    loop_timer_start(&e->health.timer, 0);
    return e;
}

static int load_costs(struct service *s, char err[CONFIG_ERROR_MAX])
{
    s->costs.source = *s->config.cost_model ? "file" : "guess";
    s->costs.predicts = *s->config.cost_model;
    s->dispatch.unpredicted = !s->costs.predicts;
    learned_init(&s->engines.learned);
    learned_init_guess(&s->engines.pushes, LEARNED_PUSH_US,
                       LEARNED_PUSH_TOKEN_US);
    learned_terms(&s->engines.pushes, &s->engines.push[0], &s->engines.push[1]);
    if (*s->config.cost_model)
        return cost_model_load_file(s->config.cost_model, &s->costs.model, err,
                                    CONFIG_ERROR_MAX);
    learned_write(&s->engines.learned, &s->costs.model);
    return 0;
}

void engine_change_costs(struct service *s, const char *file)
{
    const struct cost_model was = s->costs.model;
    struct cost_model cost;
    char err[CONFIG_ERROR_MAX];

    /* Copied even on an error, so that the same file is not tried again. */
    memcpy(s->config.cost_model, file, ENGINE_PATH_MAX);
    if (*file && cost_model_load_file(file, &cost, err, sizeof(err))) {
        log_error("model %s: cost_model: %s; it keeps its present cost model",
                  s->config.model, err);
        return;
    }
    if (load_costs(s, err) || service_make_scheduler(s, 1, 0, true))
        log_error("model %s: out of memory", s->config.model);
    for (uint32_t i = 0; i < pool_slots(s->pool); i++)
        if (s->engines.by_slot[i] &&
            take_costs(s->engines.by_slot[i], &was, err))
            log_error("engine %s: %s; it keeps its present costs",
                      s->engines.by_slot[i]->config->name, err);
    log_info("model %s: its costs are %s from now on", s->config.model,
             *file ? file : "learned");
}

int engines_prepare(struct service *s, char err[CONFIG_ERROR_MAX])
{
    if (load_costs(s, err))
        return -EINVAL;
    snprintf(err, CONFIG_ERROR_MAX, "out of memory");
    s->engines.by_slot =
        calloc((size_t)s->config.max_instances, sizeof(*s->engines.by_slot));
    s->requests.tokens =
        token_cache_new((size_t)s->config.token_cache_mib << 20);
    if (!s->engines.by_slot || !s->requests.tokens ||
        name_sets_init(&s->names.sets, (uint32_t)s->config.max_instances) ||
        service_make_scheduler(s, 1, 0, true))
        return -ENOMEM;
    return store_listen(s, err);
}
