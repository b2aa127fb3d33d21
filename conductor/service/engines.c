/*
 * The engines of a service: their places in the pool, their health, and what is
 * predicted to be in their caches.
 *
 *   starting --a good probe--> ready
 *   ready    --3 failures in a row--> suspect: no work, only probes
 *   suspect  --a good probe--> ready, on trial: one failure is enough until a
 *                              request has ended well
 *
 * Failures are of probes and of requests alike. An engine that could not be
 * reached has lost its cache when it comes back: it may be another process.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/file.h"
#include "base/log.h"
#include "conductor/service/engine.h"
#include "predictor/cost_model_json.h"

#define FAILURES_MAX 3u
#define IDLE_CONNECTIONS 128
#define IDLE_US 20000000
#define ANSWER_HEAD_BYTES 65536
#define KEY_BYTES 4096
#define KV_BLOCKS_UNTOLD 8192
/* The conductor keeps nothing back for lack of KV: an engine queues by itself,
 * and knows better. */
#define KV_TOKENS_UNBOUNDED (INT64_MAX / 4096)

static void probe_later(struct engine *e)
{
    int64_t ms = e->service->config.engine_health_ms;
    /* 80 to 120 %, so that many engines are not asked at once. */
    int64_t us = ms * 800 + (int64_t)(rand_r(&e->jitter) % 401) * ms;
    struct timeval in = {us / 1000000, us % 1000000};

    event_add(e->timer, &in);
}

void engine_clear(struct engine *e)
{
    predicted_clear(e->predicted);
    prefix_index_cleared(e->service->index,
                         pool_get(e->service->pool, e->id)->slot);
}

void engine_failed(struct engine *e, bool unreachable, const char *why)
{
    struct service *s = e->service;

    e->unreachable = e->unreachable || unreachable;
    e->n_failures++;
    if (++e->failures_in_row < FAILURES_MAX ||
        pool_get(s->pool, e->id)->health != HEALTH_READY)
        return;
    (void)!pool_set_health(s->pool, e->id, HEALTH_SUSPECT);
    s->metrics.workers_lost++;
    log_warn("engine %s gets no work: %s", e->config->name, why);
}

void engine_answered(struct engine *e)
{
    e->failures_in_row = 0;
}

static void probe_good(struct engine *e)
{
    struct service *s = e->service;
    enum pool_health health = pool_get(s->pool, e->id)->health;

    if (health == HEALTH_READY) {
        /* A trial goes on until a request has ended well. */
        if (e->failures_in_row < FAILURES_MAX - 1)
            e->failures_in_row = 0;
        return;
    }
    if (e->unreachable && health != HEALTH_STARTING)
        engine_clear(e);
    e->unreachable = false;
    e->failures_in_row = health == HEALTH_STARTING ? 0 : FAILURES_MAX - 1;
    (void)!pool_set_health(s->pool, e->id, HEALTH_READY);
    log_info("engine %s is ready at %s, model %s", e->config->name,
             e->config->url_text, e->config->model);
    service_freed(s);
}

static void probe_over(struct engine *e)
{
    e->probe = NULL;
    probe_later(e);
}

static void probe_answer(void *arg, const struct http_head *head)
{
    struct engine *e = arg;
    char why[64];

    e->probe_status = head->status;
    if (head->status < 500) {
        probe_good(e);
        return;
    }
    snprintf(why, sizeof(why), "it answers %d when asked for its health",
             head->status);
    engine_failed(e, false, why);
}

static void probe_bytes(void *arg, const char *bytes, size_t n)
{
    (void)arg;
    (void)bytes;
    (void)n;
}

static void probe_ended(void *arg)
{
    probe_over(arg);
}

static void probe_failed(void *arg, enum upstream_fault fault, const char *why)
{
    struct engine *e = arg;

    engine_failed(e, fault == UPSTREAM_UNREACHABLE, why);
    probe_over(e);
}

static const struct upstream_ops probe_ops = {
    .answer = probe_answer,
    .bytes = probe_bytes,
    .ended = probe_ended,
    .failed = probe_failed,
};

/* It is time for a probe, or the one under way has taken too long. */
static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct engine *e = arg;
    int64_t us = e->service->config.engine_timeout_ms * 1000;
    struct timeval limit = {us / 1000000, us % 1000000};

    (void)fd;
    (void)what;
    if (e->probe) {
        upstream_cancel(e->probe);
        engine_failed(e, false, "it does not answer when asked for its health");
        probe_over(e);
        return;
    }
    e->probe = upstream_send(e->upstream,
                             &(struct upstream_request){
                                 .method = "GET",
                                 .path = e->config->health_path,
                                 .headers = e->authorization,
                             },
                             &probe_ops, e);
    if (e->probe)
        event_add(e->timer, &limit);
    else
        probe_later(e);
}

static int read_key(struct engine *e, char err[CONFIG_ERROR_MAX])
{
    char key[KEY_BYTES];
    size_t n = 0;

    if (!*e->config->api_key_file)
        return 0;
    FILE *f = fopen(e->config->api_key_file, "re");
    if (f) {
        n = fread(key, 1, sizeof(key) - 1, f);
        fclose(f);
    }
    while (n > 0 && key[n - 1] <= ' ')
        n--;
    key[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (key[i] <= ' ' || key[i] > '~')
            n = 0;
    if (n == 0 || n + 32 > sizeof(e->authorization)) {
        snprintf(err, CONFIG_ERROR_MAX, "engines: %s: api_key_file %.200s: %s",
                 e->config->name, e->config->api_key_file,
                 f ? "must hold one key of printable characters"
                   : strerror(errno));
        return -EINVAL;
    }
    snprintf(e->authorization, sizeof(e->authorization),
             "Authorization: Bearer %s\r\n", key);
    return 0;
}

static int join_pool(struct engine *e)
{
    struct service *s = e->service;
    struct pool_instance_config in = {
        .name = e->config->name,
        .role = ROLE_BOTH,
        .kv_capacity_tokens = KV_TOKENS_UNBOUNDED,
        .block_tokens = (uint32_t)s->config.block_tokens,
    };

    return pool_add(s->pool, &in, &e->id);
}

static int engine_start(struct engine *e, struct service *s,
                        const struct engine_config *config,
                        char err[CONFIG_ERROR_MAX])
{
    const struct upstream_options options = {
        .max_idle = IDLE_CONNECTIONS,
        .max_head_bytes = ANSWER_HEAD_BYTES,
        .connect_us = s->config.engine_timeout_ms * 1000,
        .idle_us = IDLE_US,
    };
    struct timeval now = {0};

    e->service = s;
    e->config = config;
    TAILQ_INIT(&e->line);
    e->jitter = (unsigned)clock_now_us();
    if (read_key(e, err))
        return -EINVAL;
    snprintf(err, CONFIG_ERROR_MAX,
             "engines: %s: out of memory, or more than "
             "max_instances engines",
             config->name);
    e->upstream = upstream_new(s->base, s->dns, &config->url, &options);
    e->predicted = predicted_new(config->kv_blocks ? (uint32_t)config->kv_blocks
                                                   : KV_BLOCKS_UNTOLD,
                                 (uint64_t)clock_now_us());
    e->timer = event_new(s->base, -1, 0, on_timer, e);
    if (!e->upstream || !e->predicted || !e->timer || join_pool(e))
        return -ENOMEM;
    event_add(e->timer, &now);
    return 0;
}

static int load_costs(struct service *s, char err[CONFIG_ERROR_MAX])
{
    s->cost_source = *s->config.cost_model ? "file" : "guess";
    s->predicts = *s->config.cost_model;
    s->dispatch.unpredicted = !s->predicts;
    learned_init(&s->learned);
    if (*s->config.cost_model)
        return cost_model_load_file(s->config.cost_model, &s->cost, err,
                                    CONFIG_ERROR_MAX);
    learned_write(&s->learned, &s->cost);
    return 0;
}

int engines_start(struct service *s, char err[CONFIG_ERROR_MAX])
{
    const struct engine_list *all = &s->config.engines;

    for (size_t i = 0; i < all->n; i++)
        s->n_engines += strcmp(all->at[i].model, s->config.model) == 0;
    if (load_costs(s, err))
        return -EINVAL;
    snprintf(err, CONFIG_ERROR_MAX, "out of memory");
    s->engines = calloc(s->n_engines, sizeof(*s->engines));
    s->dns = event_loop_dns(s->base);
    if (!s->engines || !s->dns || service_make_scheduler(s, 1, 0, true))
        return -ENOMEM;
    for (size_t i = 0, n = 0; i < all->n; i++)
        if (strcmp(all->at[i].model, s->config.model) == 0 &&
            engine_start(&s->engines[n++], s, &all->at[i], err))
            return -EINVAL;
    return 0;
}

void engines_stop(struct service *s)
{
    for (uint32_t i = 0; s->engines && i < s->n_engines; i++) {
        struct engine *e = &s->engines[i];

        upstream_free(e->upstream);
        predicted_free(e->predicted);
        if (e->timer)
            event_free(e->timer);
    }
    free(s->engines);
    if (s->dns)
        evdns_base_free(s->dns, 0);
}

struct engine *engine_of(const struct service *s, uint32_t id)
{
    for (uint32_t i = 0; i < s->n_engines; i++)
        if (s->engines[i].id == id)
            return &s->engines[i];
    return NULL;
}

void engine_learn(struct service *s)
{
    if (*s->config.cost_model)
        return;
    learned_write(&s->learned, &s->cost);
    if (s->predicts || !learned_enough(&s->learned))
        return;
    s->predicts = true;
    s->cost_source = "learned";
    s->dispatch.unpredicted = false;
    if (service_make_scheduler(s, 1, 0, true))
        log_warn("model %s: out of memory; no limit rejects", s->config.model);
    log_info("model %s: its costs are learned: %.3f ms and %.1f us a token",
             s->config.model, s->cost.prefill[0] / 1e3, s->cost.prefill[1]);
}
