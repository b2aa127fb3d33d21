/*
 * Engines whose entry names no model: each is asked for its models until it
 * reports one. Then it joins that model's engines.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/log.h"
#include "conductor/json/text_buf.h"
#include "conductor/service/models.h"

/* Sets the timer to `ms`, give or take a fifth. */
static void look_in(struct scout *s, int64_t ms)
{
    event_loop_wait(s->timer,
                    ms * 800 + (int64_t)(rand_r(&s->jitter) % 401) * ms);
}

static const char unknown[] = "gets no work, as its model is not known yet";

static void complain(struct scout *s, const char *what, const char *why)
{
    if (s->told)
        return;
    s->told = true;
    log_warn("engine %s %s: %s", s->wanted.name, what, why);
}

static void on_answer(void *arg, const struct http_head *head)
{
    struct scout *s = arg;

    s->status = head->status;
}

static void on_bytes(void *arg, const char *bytes, size_t n)
{
    struct scout *s = arg;

    text_buf_add(&s->answer, bytes, n);
}

static void on_ended(void *arg)
{
    struct scout *s = arg;
    char why[ENGINE_PATH_MAX + 64];

    s->exchange = NULL;
    if (s->status == 200 && !s->answer.error &&
        model_list_read(s->answer.data, s->answer.len, NULL, &s->found) == 0 &&
        *s->found.model) {
        s->has_found = true;
        look_in(s, 0);
        return;
    }
    snprintf(why, sizeof(why), "asked for %s it answers %d, and %s",
             s->wanted.models_path, s->status,
             model_list_fault(s->answer.error));
    complain(s, unknown, why);
    look_in(s, s->of->fleet->models->config.engine_health_ms);
}

static void on_failed(void *arg, enum upstream_fault, const char *why)
{
    struct scout *s = arg;

    s->exchange = NULL;
    complain(s, unknown, why);
    look_in(s, s->of->fleet->models->config.engine_health_ms);
}

static const struct upstream_ops ops = {on_answer, on_bytes, on_ended,
                                        on_failed};

static void ask(struct scout *s)
{
    const struct config *c = &s->of->fleet->models->config;

    text_buf_clear(&s->answer);
    s->exchange = upstream_send(s->upstream,
                                &(struct upstream_request){
                                    .method = "GET",
                                    .path = s->wanted.models_path,
                                    .headers = s->authorization,
                                },
                                &ops, s);
    look_in(s, s->exchange ? c->engine_timeout_ms : c->engine_health_ms);
}

/* Starts the engine as if its entry named the model that it reported. */
static bool join(struct scout *s)
{
    struct engine_config config = s->wanted;
    char err[CONFIG_ERROR_MAX];

    memcpy(config.model, s->found.model, sizeof(config.model));
    config.aliases = s->found.aliases;
    config.adapters = s->found.adapters;
    if (s->found_model(s->of, &config, &s->wanted, err) == 0)
        return true;
    complain(s, "gets no work", err);
    return false;
}

static void on_time(evutil_socket_t, short, void *arg)
{
    struct scout *s = arg;
    char why[96];

    if (s->has_found) {
        s->has_found = false;
        if (join(s))
            scout_free(s);
        else
            look_in(s, s->of->fleet->models->config.engine_health_ms);
        return;
    }
    if (s->exchange) {
        snprintf(why, sizeof(why), "%s when asked for its models",
                 upstream_late(s->exchange));
        upstream_cancel(s->exchange);
        s->exchange = NULL;
        complain(s, unknown, why);
    }
    ask(s);
}

int scout_new(struct fleet_entry *of, const struct engine_config *wanted,
              scout_found *found, char err[CONFIG_ERROR_MAX])
{
    const struct models *m = of->fleet->models;
    const struct upstream_options options = {
        .max_head_bytes = 65536,
        .connect_us = m->config.engine_timeout_ms * 1000,
    };
    struct scout *s = calloc(1, sizeof(*s));
    struct tls *tls = NULL;

    snprintf(err, CONFIG_ERROR_MAX, "out of memory");
    if (!s)
        return -ENOMEM;
    s->of = of;
    s->wanted = *wanted;
    s->found_model = found;
    s->jitter = (unsigned)clock_now_us();
    text_buf_init(&s->answer, MODEL_LIST_BYTES_MAX);
    TAILQ_INSERT_TAIL(&of->scouts, s, of_entry);
    if (wanted->url.tls)
        tls = fleet_tls(of->fleet, wanted, err);
    if (!wanted->url.tls || tls) {
        s->upstream =
            upstream_new(m->base, m->dns, &wanted->url, tls, &options);
        s->timer = event_new(m->base, -1, 0, on_time, s);
    }
    tls_free(tls);
    if (!s->upstream || !s->timer ||
        engine_read_key(wanted, s->authorization, err)) {
        scout_free(s);
        return -EINVAL;
    }
    look_in(s, 0);
    return 0;
}

void scout_free(struct scout *s)
{
    TAILQ_REMOVE(&s->of->scouts, s, of_entry);
    if (s->upstream)
        upstream_cancel(s->exchange);
    upstream_free(s->upstream);
    event_loop_drop(s->timer);
    text_buf_fini(&s->answer);
    free(s);
}
