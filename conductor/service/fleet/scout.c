/*
 * Engines whose entry names no model, or has the kind "auto": each is asked for
 * its models until it reports one, and with the kind "auto" then for what else
 * it tells of itself. Then it joins the model's engines.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "base/text.h"
#include "conductor/json/text_buf.h"
#include "conductor/service/models.h"

/* Sets the timer to `ms`, give or take a fifth. */
static void look_in(struct scout *s, int64_t ms)
{
    loop_timer_start(&s->timer,
                     ms * 800 + (int64_t)(rand_r(&s->jitter) % 401) * ms);
}

/* Smaller blocks, as SGLang's pages of one token, say nothing of a good size
 * for the model's index. */
#define BLOCK_TOKENS_MIN 16
/* vLLM looks at its whole system before it answers /server_info, which takes
 * longer on a busy machine; it keeps what it found, and answers at once when it
 * is asked again. */
#define FACT_LIMIT_MS 15000
#define LATE_MAX 2 /* questions that are asked again, of one engine */
/* Bytes of an answer that are read, as of an engine's /metrics. */
#define ANSWER_BYTES_MAX (4u << 20)

/* Until an engine without requests has gone. */
#define MAKE_WAY_MS 300

static const char unknown[] =
    "gets no work, because its model is not known yet";

static void complain(struct scout *s, const char *what, const char *why)
{
    char text[sizeof(s->told)];

    text_copy(s->last_error, sizeof(s->last_error), why);
    snprintf(text, sizeof(text), "%s: %s", what, why);
    if (strcmp(text, s->told) == 0)
        return;
    memcpy(s->told, text, sizeof(text));
    log_warn("engine %s at %s %s: %s", s->wanted.name, s->wanted.url_text, what,
             why);
}

static void on_answer(void *arg, const struct http_head *head)
{
    struct scout *s = arg;

    s->status = head->status;
}

static void take_models(struct scout *s)
{
    const struct model_wanted wanted = {.name = s->wanted.model};
    bool no_list = s->status == 404 && *s->wanted.model;
    char why[ENGINE_PATH_MAX + 64];

    if (s->status == 200 && !s->answer.error &&
        model_list_read(s->answer.data, s->answer.len, &wanted, &s->found) ==
            0 &&
        *s->found.model) {
        facts_take_models(&s->facts, s->answer.data, s->answer.len);
        s->has_found = true;
        return;
    }
    s->has_found = no_list; /* its entry names the model */
    if (no_list)
        return;
    snprintf(why, sizeof(why), "GET %s answers %d: %s", s->wanted.models_path,
             s->status, model_list_fault(s->answer.error));
    complain(s, unknown, why);
}

static void take_version(struct scout *s)
{
    facts_take_version(&s->facts, s->answer.data, s->answer.len);
}

static void take_server(struct scout *s)
{
    facts_take_server(&s->facts, s->wanted.url.at.host, s->answer.data,
                      s->answer.len);
}

static void take_metrics(struct scout *s)
{
    report_end(&s->scan);
}

/* Asked in this order; the first one's path is the entry's models_path, and
 * only it must be answered. */
static const struct {
    const char *path;
    void (*take)(struct scout *s);
} questions[] = {
    {NULL, take_models},
    {"/version", take_version},
    {"/server_info?config_format=json", take_server},
    {"/metrics", take_metrics},
};

#define QUESTIONS (sizeof(questions) / sizeof(questions[0]))

/* Goes on after the answer, or its failure: with the next question, with the
 * models again later, or to join. */
static void go_on(struct scout *s)
{
    bool more = s->wanted.kind == ENGINE_AUTO && s->facts.kind != ENGINE_OPENAI;

    if (!s->has_found) {
        look_in(s, s->of->fleet->models->config.engine_health_ms);
        return;
    }
    s->question = more ? s->question + 1 : QUESTIONS;
    look_in(s, 0);
}

static void take(struct scout *s)
{
    s->exchange = NULL;
    if (s->question == 0 || (s->status == 200 && !s->answer.error))
        questions[s->question].take(s);
    go_on(s);
}

static void on_bytes(void *arg, const char *bytes, size_t n)
{
    struct scout *s = arg;

    s->n_bytes += n;
    if (s->n_bytes > ANSWER_BYTES_MAX) {
        upstream_cancel(s->exchange);
        s->answer.error = -ENOBUFS;
        take(s);
        return;
    }
    if (questions[s->question].take == take_metrics)
        report_feed(&s->scan, bytes, n);
    else
        text_buf_add(&s->answer, bytes, n);
}

static void on_ended(void *arg)
{
    take(arg);
}

static void on_failed(void *arg, enum upstream_fault, const char *why)
{
    struct scout *s = arg;

    s->exchange = NULL;
    if (s->question == 0)
        complain(s, unknown, why);
    go_on(s);
}

static const struct upstream_ops ops = {on_answer, on_bytes, on_ended,
                                        on_failed};

static void ask(struct scout *s)
{
    const struct config *c = &s->of->fleet->models->config;

    if (s->question == 0) {
        facts_begin(&s->facts);
        s->n_late = 0;
    }
    report_begin(&s->scan, s->wanted.dp_rank);
    s->n_bytes = 0;
    text_buf_clear(&s->answer);
    s->exchange =
        upstream_send(s->upstream,
                      &(struct upstream_request){
                          .method = "GET",
                          .path = s->question > 0 ? questions[s->question].path
                                                  : s->wanted.models_path,
                          .headers = s->authorization,
                      },
                      &ops, s);
    look_in(s, !s->exchange       ? c->engine_health_ms
               : s->question == 0 ? c->engine_timeout_ms
                                  : FACT_LIMIT_MS);
}

/* Returns why the engine's cache is predicted. `late`: a question had no
 * answer in time. */
static const char *why_predicted(const struct engine_config *c,
                                 const struct engine_facts *facts, bool late)
{
    if (c->index == ENGINE_INDEX_PREDICTED)
        return "as its entry says";
    if (facts->events_reach)
        return "as it connects to an address to publish KV events, which only "
               "a configuration can name (kv_events_bind)";
    if (*facts->kv_events)
        return "as the KV events that it tells cannot be read";
    if (facts->events_off || c->kind == ENGINE_OPENAI)
        return "as it publishes no KV events";
    if (late)
        return "as it did not tell in time where it publishes KV events: name "
               "kv_events in a configuration if it does";
    return "as it does not tell where it publishes KV events: name kv_events "
           "in a configuration if it does";
}

/* Logs what an entry of the kind "auto" became. */
static void tell(const struct engine_config *c,
                 const struct engine_facts *facts, bool late)
{
    bool events = *c->kv_events != '\0';
    char blocks[64] = "";

    if (c->block_tokens > 0)
        snprintf(blocks, sizeof(blocks), ", blocks of %lld tokens",
                 (long long)c->block_tokens);
    log_info("engine %s at %s: %s%s%s, model %s%s; its %s %s", c->name,
             c->url_text, engine_kind_name(c->kind), *facts->version ? " " : "",
             facts->version, c->model, blocks,
             events ? "KV events at" : "cache is predicted,",
             events ? c->kv_events : why_predicted(c, facts, late));
}

/* Drops the told KV events, which cannot be read because of `why`. */
static bool forget_events(struct scout *s, struct engine_config *config,
                          const char *why)
{
    log_warn("engine %s tells KV events at %s that cannot be read: %s",
             config->name, config->kv_events, why);
    *config->kv_events = *config->kv_replay = *config->kv_topic = '\0';
    config->dp_ranks = s->wanted.dp_ranks;
    return true;
}

/* Starts the engine as if its entry named what it reported. */
static bool join(struct scout *s)
{
    struct engine_config config = s->wanted;
    int64_t block_tokens = s->scan.report.block_tokens;
    char err[CONFIG_ERROR_MAX];

    if (!*s->wanted.model) {
        memcpy(config.model, s->found.model, sizeof(config.model));
        config.aliases = s->found.aliases;
        config.adapters = s->found.adapters;
    }
    if (config.kind == ENGINE_AUTO) {
        facts_apply(&s->facts, &config);
        if (!config.block_tokens && block_tokens >= BLOCK_TOKENS_MIN &&
            block_tokens <= ENGINE_BLOCK_TOKENS_MAX)
            config.block_tokens = block_tokens;
    }
    if (s->found_model(s->of, &config, &s->wanted, err) == 0 ||
        (config.kind != s->wanted.kind && !*s->wanted.kv_events &&
         *config.kv_events && forget_events(s, &config, err) &&
         s->found_model(s->of, &config, &s->wanted, err) == 0)) {
        if (s->wanted.kind == ENGINE_AUTO)
            tell(&config, &s->facts, s->n_late > LATE_MAX);
        return true;
    }
    complain(s, "gets no work", err);
    return false;
}

static void on_time(void *arg)
{
    struct scout *s = arg;
    char why[96];

    /* Its model may end with the engine that goes, and begin anew. */
    if (s->question == QUESTIONS && fleet_make_way(s->of, &s->wanted)) {
        look_in(s, MAKE_WAY_MS);
        return;
    }
    if (s->question == QUESTIONS) {
        s->question = 0;
        s->has_found = false;
        if (join(s))
            scout_free(s);
        else
            look_in(s, s->of->fleet->models->config.engine_health_ms);
        return;
    }
    if (s->exchange && s->question > 0) {
        upstream_cancel(s->exchange);
        s->exchange = NULL;
        if (++s->n_late > LATE_MAX)
            go_on(s);
        else
            look_in(s, 0); /* asks again */
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
    s->jitter = (unsigned)loop_now_us(m->loop);
    text_buf_init(&s->answer, MODEL_LIST_BYTES_MAX);
    TAILQ_INSERT_TAIL(&of->scouts, s, of_entry);
    if (wanted->url.tls)
        tls = fleet_tls(of->fleet, wanted, err);
    if (!wanted->url.tls || tls)
        s->upstream =
            upstream_new(m->loop, m->dns, &wanted->url, tls, &options);
    loop_timer_init(m->loop, &s->timer, on_time, s);
    tls_free(tls);
    if (!s->upstream || engine_read_key(wanted, s->authorization, err)) {
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
    loop_timer_stop(&s->timer);
    text_buf_fini(&s->answer);
    free(s);
}
