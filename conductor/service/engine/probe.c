/* Asks engines for their health, models, bootstrap id and /metrics, one at a
 * time; takes requests back from an engine that no longer answers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/service/engine/engine.h"

/* Most bytes read of an engine's /metrics. */
#define REPORT_BYTES_MAX (4u << 20)
/* No engine runs more requests than this; a larger number is ignored. */
#define OTHERS_MAX 1e6

static void probe_later(struct engine *e)
{
    int64_t ms = e->service->config.engine_health_ms;

    /* 80 to 120 %, so that many engines are not asked at once. */
    loop_timer_start(&e->health.timer,
                     ms * 800 + (int64_t)(rand_r(&e->jitter) % 401) * ms);
}

static void probe_good(struct engine *e)
{
    struct service *s = e->service;
    enum pool_health health = pool_get(s->pool, e->id)->health;

    e->health.well_us = loop_now_us(s->loop);
    if (health == HEALTH_READY) {
        /* A trial goes on until a request ends well. */
        if (e->health.failures_in_row < ENGINE_FAILURES_MAX - 1)
            e->health.failures_in_row = e->health.refused_in_row;
        return;
    }
    if (e->health.good_to_go > 0) {
        e->health.good_to_go--;
        return;
    }
    if (e->health.unreachable && health != HEALTH_STARTING)
        engine_clear(e);
    e->health.unreachable = false;
    e->health.on_trial = health != HEALTH_STARTING;
    e->health.failures_in_row =
        e->health.on_trial ? ENGINE_FAILURES_MAX - 1 : 0;
    pool_set_health(s->pool, e->id, HEALTH_READY);
    if (e->events.feed)
        kv_feed_ask_again(e->events.feed);
    log_info("engine %s is ready at %s, model %s", e->config->name,
             e->config->url_text, e->config->model);
    service_freed(s);
}

/* The engine is well, unless its bootstrap server must still answer. */
static void looks_good(struct engine *e)
{
    if (e->bootstrap.server)
        e->bootstrap.due = true;
    else
        probe_good(e);
}

static void ask(struct engine *e, const char *path);

/* Waits for the next probe. */
static void rest(struct engine *e)
{
    engine_check_events(e);
    probe_later(e);
}

static void ask_next(struct engine *e, enum engine_question question,
                     const char *path)
{
    e->health.question = question;
    text_buf_clear(&e->list.models);
    report_begin(&e->scan, e->config->dp_rank);
    e->report_bytes = 0;
    ask(e, path);
}

/* Asks the next question after an answer, or waits for the next round. */
static void ask_more(struct engine *e)
{
    if (e->health.question == ASKS_HEALTH && engine_models_due(e)) {
        ask_next(e, ASKS_MODELS, e->config->models_path);
        return;
    }
    if (e->health.question == ASKS_HEALTH)
        looks_good(e);
    if (e->bootstrap.due) {
        e->bootstrap.due = false;
        ask_next(e, ASKS_BOOTSTRAP, "/query");
        return;
    }
    if (e->health.question != ASKS_REPORT && *e->config->metrics_path) {
        ask_next(e, ASKS_REPORT, e->config->metrics_path);
        return;
    }
    rest(e);
}

/* Adds requests that bypassed this conductor, since they slow its own. Each is
 * assumed to use as much KV as any running request. */
static void take_others(struct engine *e)
{
    const struct engine_report *r = &e->report;
    const struct pool_instance *in = pool_get(e->service->pool, e->id);
    size_t prefills = in->n_waiting + in->n_running;
    double own = (double)(in->n_decodes > prefills ? in->n_decodes : prefills);
    double others = r->running - own;
    double kv_tokens = 0;

    if (!(others > 0 && others < OTHERS_MAX))
        others = 0;
    if (others > 0 && r->kv_usage_ratio > 0 && r->kv_usage_ratio <= 1 &&
        r->kv_blocks > 0 && r->kv_blocks < PREDICTED_BLOCKS_MAX)
        kv_tokens =
            others / r->running * r->kv_usage_ratio * (double)r->kv_blocks *
            (double)(r->block_tokens > 0 ? r->block_tokens : e->block_tokens);
    pool_set_others(e->service->pool, e->id, (int64_t)others,
                    (int64_t)kv_tokens);
}

/* Forgets the load from the last report, since no new report came. */
static void forget_load(struct engine *e)
{
    e->report.running = e->report.waiting = e->report.kv_usage_ratio = -1;
    take_others(e);
}

static void take_report(struct engine *e)
{
    double before_s = e->report.start_s;

    report_end(&e->scan);
    e->report = e->scan.report;
    /* An older one is another server behind the same address: servers that
     * take turns do not restart. */
    if (e->report.start_s > 0 && e->report.start_s < before_s)
        e->report.start_s = before_s;
    if (before_s > 0 && e->report.start_s > before_s) {
        log_info("engine %s was restarted: its cache is empty",
                 e->config->name);
        engine_clear(e);
        e->list.restarted = true;
    }
    engine_take_size(e);
    engine_doubt_size(e);
    take_others(e);
}

/* Whether the engine refuses its configured key. Without one, clients may have
 * their own. */
static bool refuses_key(const struct engine *e)
{
    return e->health.question < ASKS_BOOTSTRAP && *e->authorization &&
           (e->health.probe_status == 401 || e->health.probe_status == 403);
}

static void refuse_work(struct engine *e)
{
    struct service *s = e->service;

    e->count.failures++;
    if (!e->health.key_refused)
        log_warn("engine %s gets no work: it refuses the API key of its entry "
                 "(status %d)",
                 e->config->name, e->health.probe_status);
    e->health.key_refused = true;
    if (pool_get(s->pool, e->id)->health == HEALTH_READY)
        service_lost(s, e->config->name);
    pool_set_health(s->pool, e->id, HEALTH_SUSPECT);
}

static void probe_answer(void *arg, const struct http_head *head)
{
    struct engine *e = arg;

    e->health.probe_status = head->status;
}

static void probe_bytes(void *arg, const char *bytes, size_t n)
{
    struct engine *e = arg;

    if (e->health.probe_status >= 300 || e->health.question == ASKS_HEALTH)
        return;
    if (e->health.question != ASKS_REPORT) {
        text_buf_add(&e->list.models, bytes, n);
        return;
    }
    e->report_bytes += n;
    if (e->report_bytes <= REPORT_BYTES_MAX)
        report_feed(&e->scan, bytes, n);
}

/* Returns a hint for the log: why a server may not answer like an engine. */
static const char *hint(const struct engine *e)
{
    return e->tls ? "" : "; does it need https://?";
}

/* Whether the probe shows a fault. 400: the server did not understand the
 * request, like a TLS port. */
static bool is_ill(struct engine *e)
{
    char why[96];

    if (e->health.question != ASKS_HEALTH ||
        (e->health.probe_status < 500 && e->health.probe_status != 400))
        return false;
    snprintf(why, sizeof(why), "it answers its health check with %d%s",
             e->health.probe_status,
             e->health.probe_status == 400 ? hint(e) : "");
    engine_probe_failed(e, false, why);
    return true;
}

static void take_bootstrap(struct engine *e)
{
    char why[BOOTSTRAP_WHY_MAX];

    if (engine_take_bootstrap(e, why))
        engine_probe_failed(e, false, why);
    else
        probe_good(e);
}

static void probe_ended(void *arg)
{
    struct engine *e = arg;

    e->health.probe = NULL;
    if (is_ill(e)) {
        rest(e);
        return;
    }
    if (refuses_key(e)) {
        refuse_work(e);
        rest(e);
        return;
    }
    if (e->health.question == ASKS_HEALTH)
        e->health.no_health = e->health.probe_status == 404;
    if (e->health.question == ASKS_MODELS)
        e->health.key_refused = false;
    if (e->health.question == ASKS_MODELS &&
        engine_take_models(e, e->list.models.data,
                           e->list.models.error ? 0 : e->list.models.len))
        looks_good(e);
    if (e->health.question == ASKS_BOOTSTRAP)
        take_bootstrap(e);
    if (e->health.question == ASKS_REPORT && e->health.probe_status < 300)
        take_report(e);
    else if (e->health.question == ASKS_REPORT)
        forget_load(e);
    ask_more(e);
}

/* Takes unanswered requests from an engine that hangs, and requests that need
 * KV from it. */
static void take_back(struct engine *e)
{
    struct service *s = e->service;
    char why[128];

    if (pool_get(s->pool, e->id)->health != HEALTH_SUSPECT)
        return;
    snprintf(why, sizeof(why), "engine %s does not answer its health check",
             e->config->name);
    for (uint32_t i = 0; i < s->requests.size; i++) {
        struct service_request *r = s->requests.by_slot[i];

        if (!r || r->output.n_tokens > 0 || !r->by->leaves(r, e))
            continue;
        expect_refused(r);
        request_instance_lost(r, e->id, why);
    }
}

/* Handles a probe without an answer. */
static void probe_bad(struct engine *e, bool unreachable, const char *why)
{
    e->health.probe = NULL;
    if (e->health.question == ASKS_REPORT) {
        forget_load(e);
    } else {
        engine_probe_failed(e, unreachable, why);
        take_back(e);
    }
    rest(e);
}

static void probe_failed(void *arg, enum upstream_fault fault, const char *why)
{
    struct engine *e = arg;
    bool starting =
        pool_get(e->service->pool, e->id)->health == HEALTH_STARTING;
    /* A connection reset may come from a server that expects TLS. */
    bool listens = fault != UPSTREAM_UNREACHABLE;
    char text[192];

    snprintf(text, sizeof(text), "%s%s", why,
             starting && listens ? hint(e) : "");
    probe_bad(e, upstream_gone(fault), text);
}

static const struct upstream_ops probe_ops = {
    .answer = probe_answer,
    .bytes = probe_bytes,
    .ended = probe_ended,
    .failed = probe_failed,
};

static void ask(struct engine *e, const char *path)
{
    int64_t us = e->service->config.engine_timeout_ms * 1000;
    bool bootstrap = e->health.question == ASKS_BOOTSTRAP;

    e->health.probe =
        upstream_send(bootstrap ? e->bootstrap.server : e->upstream,
                      &(struct upstream_request){
                          .method = "GET",
                          .path = path,
                          .headers = bootstrap ? "" : e->authorization,
                      },
                      &probe_ops, e);
    if (e->health.probe)
        loop_timer_start(&e->health.timer, us);
    else
        probe_later(e);
}

/* Asks the first question of a round, or gives up a late one. */
void engine_look(void *arg)
{
    static const char *const asked[] = {"health", "models", "bootstrap server",
                                        "metrics"};
    struct engine *e = arg;
    char why[96];

    if (!e->upstream) {
        rest(e);
        return;
    }
    if (!e->health.probe) {
        ask_next(e, ASKS_HEALTH, e->config->health_path);
        return;
    }
    snprintf(why, sizeof(why), "%s when asked for its %s",
             upstream_late(e->health.probe), asked[e->health.question]);
    upstream_cancel(e->health.probe);
    probe_bad(e, false, why);
}
