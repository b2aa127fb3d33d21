/* Creates and frees the service of one model; its turns of the event loop. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/bug.h"
#include "base/error.h"
#include "base/listener.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "base/secret.h"
#include "conductor/service/engine/costs.h"
#include "conductor/service/models.h"
#include "conductor/service/pair/pair.h"
#include "conductor/service/setup.h"
#include "conductor/service/ticket/ticket.h"
#include "predictor/cost_model_json.h"

#define TICK_US 100000
/* A prefill instance computes one prompt at a time, but may have begun several.
 */
#define MAX_RUNNING 64
#define MAX_DECODES 1024

static void on_inbox(void *arg)
{
    struct service *s = arg;

    request_fail_broken(s);
    request_retry_waiting(s);
    request_take_inbox(s);
    request_warm_next(s);
}

static void on_tick(void *arg)
{
    struct service *s = arg;
    const char *pool = pool_broken(s->pool);
    const char *index = prefix_index_broken(s->index);

    if (pool)
        bug("model %s: %s", s->config.model, pool);
    if (index)
        bug("model %s: %s", s->config.model, index);

    instances_tick(s, loop_away_us(&s->tick.us, loop_now_us(s->loop), TICK_US));
    index_tick(s);
    peers_tick(s);
    forward_tick(s);
    tickets_tick(s);
    dispatch_freed(&s->dispatch); /* time alone may make room */
    request_retry_waiting(s);
    request_warm_tick(s);
    copies_tick(s);
    switch_tick(s);
}

/* Attempt ids are next_attempt * max_requests + slot. They begin at a random
 * place in the lower half of the numbers: a worker that still acts for an
 * earlier conductor must not meet its ids again. The slot survives, because
 * using up the other half takes longer than any machine lasts. */
static uint64_t first_attempt(struct loop *loop, uint64_t max_requests)
{
    return 1 + loop_random(loop) % (UINT64_MAX / 2 / max_requests);
}

static void service_lists_init(struct service *s)
{
    TAILQ_INIT(&s->requests.inbox);
    TAILQ_INIT(&s->engines.pairs);
    tickets_init(&s->tickets, loop_random(s->loop));
    dispatch_init(&s->dispatch);
    warm_init(&s->native.warm, &s->dispatch, 0);
    s->dispatch.max_retries = (uint32_t)s->config.max_retries;
    wire_buf_init(&s->native.out, FRAME_PAYLOAD_MAX_BYTES);
    metrics_init(&s->metrics);
    s->model.name = s->config.model;
    s->model.policy = s->config.policy;
    s->model.block_tokens = (uint32_t)s->config.block_tokens;
    s->model.created_s = loop_wall_us(s->loop) / 1000000;
    s->requests.first_attempt = s->requests.next_attempt =
        first_attempt(s->loop, (uint64_t)s->config.max_in_flight);
}

static int service_alloc(struct service *s)
{
    const struct config *c = &s->config;
    struct pool_config pool = pool_config_default;
    double options[POLICY_OPTIONS_MAX];
    const struct schedule_rules rules =
        policy_rules(config_policy(c, options), options);

    pool.max_instances = (uint32_t)c->max_instances;
    pool.max_waiting = (uint32_t)c->max_queue_per_instance;
    pool.max_running = MAX_RUNNING;
    pool.max_decodes = MAX_DECODES;
    pool.seed = loop_random(s->loop);
    pool.order = queue_order_by_name(policy_queue_order(
        &rules, c->queue_order,
        c->pool != CONFIG_POOL_AGGREGATED && c->step_tokens > 0));
    pool.uncorrected = rules.uncorrected;
    pool.shared_steps = c->pool == CONFIG_POOL_AGGREGATED;
    pool.step_tokens = (uint32_t)c->step_tokens;
    pool.correction_tau_us = c->correction_ms * 1000;
    struct prefix_index_config index = {
        .max_instances = (uint32_t)c->max_instances + 1, /* + 1 for the store */
        .max_bytes = (uint64_t)c->index_mib << 20,
        .evicts = true,
        .seed = loop_random(s->loop),
    };
    s->requests.size = (uint32_t)c->max_in_flight;
    s->pool = pool_new(&pool);
    s->index = prefix_index_new(&index);
    s->native.copies = s->pool ? copies_new(s) : NULL;
    s->native.roles = roles_new(&s->dispatch, (uint32_t)c->max_instances, 0);
    s->explain = explain_new((uint32_t)c->explain_requests);
    s->native.workers =
        calloc((size_t)c->max_instances, sizeof(*s->native.workers));
    s->requests.by_slot =
        calloc(s->requests.size, sizeof(struct service_request *));
    s->requests.free_slots =
        calloc(s->requests.size, sizeof(*s->requests.free_slots));
    loop_timer_init(s->loop, &s->requests.look, on_inbox, s);
    loop_timer_init(s->loop, &s->tick.timer, on_tick, s);
    loop_timer_init(s->loop, &s->native.sweep, index_on_sweep, s);
    if (!s->explain || !s->pool || !s->native.copies || !s->native.roles ||
        !s->index || !s->native.workers || !s->requests.by_slot ||
        !s->requests.free_slots)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->requests.size; i++)
        s->requests.free_slots[s->requests.n_free++] = s->requests.size - 1 - i;
    blocks_init(s);
    loop_defer(&s->native.sweep);
    s->tick.us = loop_now_us(s->loop);
    return loop_timer_repeat(&s->tick.timer, TICK_US);
}

/* Loads the workers' secret. None is needed if only this machine reaches the
 * port. */
static int secret_of_config(const struct config *c, struct secret **out,
                            char err[CONFIG_ERROR_MAX])
{
    char why[400];
    struct address listen;

    if (secret_load(c->secret_file, out, why, sizeof(why)))
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL, "secret_file: %s",
                         why);
    if (*out || address_parse(c->worker_listen, &listen) ||
        host_is_loopback(listen.host))
        return 0;
    return error_say(
        err, CONFIG_ERROR_MAX, -EINVAL,
        "worker_listen: \"%.200s\": other machines can reach it, so workers "
        "must prove a secret, or any machine that connects receives prompts: "
        "openssl rand -hex 32 > FILE, chmod 600 FILE, copy it to every worker "
        "(--secret-file) and set secret_file",
        c->worker_listen);
}

/* Without a cost model: counts instead of times, of tokens that a prefill
 * computes and tokens that a decode step holds. Good enough to order queues and
 * instances. */
static const struct cost_model cost_counts = {
    .prefill = {[1] = 100},
    .decode = {[1] = 1000, [2] = 0.01},
    .range = {0, COST_MODEL_MAX_US, COST_MODEL_MAX_US, COST_MODEL_MAX_US,
              COST_MODEL_MAX_US},
};

/* Checks that the policy works without a cost model. The error lists the
 * policies that do. */
static int check_no_cost_model(const struct config *config,
                               char err[CONFIG_ERROR_MAX])
{
    const struct schedule_policy *p = schedule_policy_by_name(config->policy);
    int n;

    if (p && p->without_cost_model)
        return 0;
    n = snprintf(
        err, CONFIG_ERROR_MAX,
        "cost_model: not set, but policy %.50s needs it to predict native "
        "workers: %s, or make one with conductor-worker --profile and "
        "conductor-fit, or set a policy that needs none:",
        config->policy,
        config->engines.given || *config->engines_file
            ? "leave worker_listen out to have engines only"
            : "name engines instead (--engine URL, or engines)");
    for (size_t i = 0; (p = schedule_policy_at(i)); i++)
        if (p->without_cost_model && n < CONFIG_ERROR_MAX)
            n +=
                snprintf(err + n, CONFIG_ERROR_MAX - (size_t)n, " %s", p->name);
    return -EINVAL;
}

static int load_cost_model(struct service *s, char err[CONFIG_ERROR_MAX])
{
    s->costs.predicts = *s->config.cost_model;
    s->costs.source = s->costs.predicts ? "file" : "counts";
    s->dispatch.unpredicted = !s->costs.predicts;
    if (s->costs.predicts)
        return cost_model_load_file(s->config.cost_model, &s->costs.model, err,
                                    CONFIG_ERROR_MAX);
    s->costs.model = cost_counts;
    log_warn(
        "no cost_model: times are not predicted, and queues are measured in "
        "tokens. Limits on the time to first token only end a wait for room in "
        "the KV cache; limits on the time between tokens have no effect");
    return 0;
}

/* Checks that a cost model was fitted for the native workers; `path` is put
 * before the field. */
static int check_costs(const struct config *config, const char *path,
                       const char *file, char err[CONFIG_ERROR_MAX])
{
    char why[CONFIG_ERROR_MAX - 60];
    struct cost_model cost;
    int rc = cost_model_load_file(file, &cost, why, sizeof(why));

    if (rc)
        return error_say(err, CONFIG_ERROR_MAX, rc, "%scost_model: %s", path,
                         why);
    if (strcmp(cost.model, config->model) != 0)
        return error_say(
            err, CONFIG_ERROR_MAX, -EINVAL,
            "%scost_model: \"%.200s\": was fitted for model \"%.60s\", but "
            "model is \"%.60s\"",
            path, file, cost.model, config->model);
    if (cost.block_tokens && cost.block_tokens != config->block_tokens)
        return error_say(
            err, CONFIG_ERROR_MAX, -EINVAL,
            "%scost_model: \"%.200s\": was fitted for blocks of %lld tokens, "
            "but block_tokens is %lld",
            path, file, (long long)cost.block_tokens,
            (long long)config->block_tokens);
    return 0;
}

/* Checks the options that native workers need. */
static int check_native(const struct config *config, char err[CONFIG_ERROR_MAX])
{
    const struct worker_cost_list *list = &config->worker_costs;
    struct secret *secret;
    char path[40];

    if (secret_of_config(config, &secret, err))
        return -EINVAL;
    secret_free(secret);
    if (!*config->cost_model && list->n > 0)
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                         "worker_costs: needs cost_model, for the workers that "
                         "it does not list");
    if (!*config->cost_model)
        return check_no_cost_model(config, err);
    if (check_costs(config, "", config->cost_model, err))
        return -EINVAL;
    for (size_t i = 0; i < list->n; i++) {
        snprintf(path, sizeof(path), "worker_costs[%zu].", i);
        if (check_costs(config, path, list->at[i].cost_model, err))
            return -EINVAL;
    }
    return 0;
}

int service_check_config(const struct config *config,
                         char err[CONFIG_ERROR_MAX])
{
    const struct engine_list *engines = &config->engines;

    if (*config->worker_listen && check_native(config, err))
        return -EINVAL;
    if (engines_check(engines->at, engines->n, err))
        return -EINVAL;
    if (*config->worker_listen || engines->given || *config->engines_file)
        return 0;
    return error_say(
        err, CONFIG_ERROR_MAX, -EINVAL,
        "worker_listen: empty, and there are no engines: nothing would be "
        "served");
}

static struct worker_links *service_listen(struct service *s,
                                           char err[CONFIG_ERROR_MAX])
{
    struct address listen;
    struct worker_links_config links = {
        .host = listen.host,
        .secret = s->native.secret,
        .heartbeat_ms = s->config.heartbeat_ms,
        .timeout_ms = s->config.worker_timeout_ms,
    };
    if (address_parse(s->config.worker_listen, &listen))
        return error_null(err, CONFIG_ERROR_MAX,
                          "worker_listen: not host:port");
    links.port = listen.port;
    return worker_links_new(s->loop, &links, &service_link_ops, s, err);
}

struct service *service_new_one(struct models *models,
                                const struct config *config, bool engines,
                                char err[CONFIG_ERROR_MAX])
{
    struct service *s = calloc(1, sizeof(*s));

    snprintf(err, CONFIG_ERROR_MAX, "out of memory");
    if (!s)
        return NULL;
    s->models = models;
    s->loop = models->loop;
    s->config = *config;
    if (engines)
        s->engines.store = store_of_model(&config->stores, config->model);
    service_lists_init(s);
    s->model.n_engines = engines ? 0 : -1;
    if (service_alloc(s) || peers_join(s))
        goto fail;
    if (engines) {
        if (engines_prepare(s, err))
            goto fail;
        return s;
    }
    if (load_cost_model(s, err) || costs_load_workers(s, err) ||
        secret_of_config(config, &s->native.secret, err))
        goto fail;
    s->native.links = service_listen(s, err);
    if (s->native.links)
        return s;
fail:
    service_free_one(s);
    return NULL;
}

void service_drop_requests(struct service *s)
{
    for (uint32_t i = 0; s->requests.by_slot && i < s->requests.size; i++)
        if (s->requests.by_slot[i])
            service_request_free(s->requests.by_slot[i]);
}

void service_free_one(struct service *s)
{
    if (!s)
        return;
    worker_links_free(s->native.links);
    secret_free(s->native.secret);
    service_drop_requests(s);
    request_warm_fini(s);
    copies_free(s->native.copies);
    roles_free(s->native.roles);
    pairs_end(s);
    token_cache_free(s->requests.tokens);
    free(s->requests.sessions);
    kept_fini(&s->requests.kept);
    free(s->engines.by_slot);
    name_sets_fini(&s->names.sets);
    kv_feed_free(s->engines.store_feed);
    kv_feeds_free(s->engines.feeds);
    loop_timer_stop(&s->requests.look);
    loop_timer_stop(&s->tick.timer);
    loop_timer_stop(&s->native.sweep);
    blocks_fini(s);
    explain_free(s->explain);
    scheduler_free(s->dispatch.scheduler);
    prefix_index_free(s->index);
    cluster_leave(s->peers);
    pool_free(s->pool);
    costs_fini(s);
    wire_buf_fini(&s->native.out);
    free(s->native.workers);
    free(s->requests.by_slot);
    free(s->requests.free_slots);
    prefix_match_fini(&s->tickets.held);
    free(s);
}
