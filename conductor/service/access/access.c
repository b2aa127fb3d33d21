/*
 * A line of the access log: a JSON object that is also a line of a trace
 * (traces/trace.h): timestamp, input_length, output_length, and, with
 * access_log_blocks, hash_ids of blocks of 512 tokens. A last block that is not
 * full gets an id that no other request has.
 */
#include "conductor/service/access/access.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/loop/loop.h"
#include "conductor/json/text_buf.h"
#include "conductor/service/access/log.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/models.h"

#define TRACE_BLOCK 512u
#define SPREAD UINT64_C(0x9e3779b97f4a7c15)
#define SPREAD_PLACES UINT64_C(0xff51afd7ed558ccd)
#define ID_MASK ((uint64_t)INT64_MAX)
#define LINE_BYTES ((size_t)1 << 20)

static void put_text(struct text_buf *out, const char *key, const char *text)
{
    text_buf_puts(out, ",\"");
    text_buf_puts(out, key);
    text_buf_puts(out, "\":");
    if (text && *text)
        text_buf_json(out, text, strlen(text));
    else
        text_buf_puts(out, "null");
}

static void put_count(struct text_buf *out, const char *key, int64_t n)
{
    char text[64];

    snprintf(text, sizeof(text), ",\"%s\":%" PRId64, key, n);
    text_buf_puts(out, text);
}

/* us <= 0 = unknown: null. */
static void put_ms(struct text_buf *out, const char *key, int64_t us)
{
    char text[64];

    if (us > 0)
        snprintf(text, sizeof(text), ",\"%s\":%.3f", key, (double)us / 1e3);
    else
        snprintf(text, sizeof(text), ",\"%s\":null", key);
    text_buf_puts(out, text);
}

static void put_begin(struct text_buf *out, const struct models *models,
                      int64_t arrived_us)
{
    char text[96], day[32];
    struct tm tm;

    int64_t ms = loop_wall_us(models->loop) / 1000 -
                 (loop_now_us(models->loop) - arrived_us) / 1000;
    time_t s = ms / 1000;
    gmtime_r(&s, &tm);
    strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, sizeof(text),
             "{\"time\":\"%s.%03dZ\",\"timestamp\":%" PRId64, day,
             (int)(ms % 1000), ms);
    text_buf_puts(out, text);
}

static const char *name_of(const struct service *s, uint32_t id)
{
    const struct pool_instance *in =
        id == POOL_NO_INSTANCE ? NULL : pool_get(s->pool, id);

    return in ? in->name : NULL;
}

/* log2 of told over guessed tokens, rounded: exact ratios would give equal
 * prefixes different ids. 0 if the tokens were not guessed. */
static int doublings(const struct service_request *r)
{
    return r->prompt.known_by == SERVICE_BY_BYTES
               ? (int)lround(log2((double)request_prompt_tokens(r) /
                                  (double)r->prompt.n_tokens))
               : 0;
}

/* Returns the id of the i-th block: the key of the index's first block that
 * ends with it or later, and so stands for all its tokens. */
static uint64_t block_id(const struct service_request *r, uint32_t i)
{
    double each = (double)r->service->config.block_tokens;
    double tokens = ((double)i + 1.0) * TRACE_BLOCK;
    uint64_t blocks = (uint64_t)ceil(ldexp(tokens, -doublings(r)) / each);
    uint64_t name = blocks <= r->prompt.n_keys ? r->prompt.keys[blocks - 1]
                                               : (r->number + 1) * SPREAD;

    return (name + i * SPREAD_PLACES) & ID_MASK;
}

static void put_blocks(struct text_buf *out, const struct service_request *r)
{
    uint32_t n = (request_prompt_tokens(r) + TRACE_BLOCK - 1) / TRACE_BLOCK;
    char text[32];

    text_buf_puts(out, ",\"hash_ids\":[");
    for (uint32_t i = 0; i < n; i++) {
        snprintf(text, sizeof(text), "%s%" PRIu64, i ? "," : "",
                 block_id(r, i));
        text_buf_puts(out, text);
    }
    text_buf_puts(out, "]");
}

static void put_times(struct text_buf *out, const struct service_request *r)
{
    const struct request_output *o = &r->output;

    put_ms(out, "predicted_ttft_ms", r->attempt.forecast.ttft_us);
    put_ms(out, "ttft_ms",
           o->n_tokens ? o->first_token_us - r->dispatch.arrived_us : 0);
    put_ms(out, "predicted_tbt_ms", r->attempt.predicted_tbt_us);
    put_ms(out, "tbt_ms",
           o->n_tokens > 1
               ? (o->last_token_us - o->first_token_us) / (o->n_tokens - 1)
               : 0);
}

static void put_tokens(struct text_buf *out, const struct service_request *r,
                       bool whole)
{
    int64_t expected = r->dispatch.ask.expected_tokens;

    put_count(out, "input_length", request_prompt_tokens(r));
    put_text(out, "prompt_known_by", service_known_name(request_known_by(r)));
    put_text(out, "cached_known_by", service_known_name(r->result.cached_by));
    /* The length for a replay: of the whole answer, even if it broke off. */
    put_count(out, "output_length",
              whole          ? r->output.n_tokens
              : expected > 0 ? expected
                             : r->prompt.max_tokens);
    put_count(out, "max_tokens", r->prompt.max_tokens);
    put_count(out, "output_tokens", r->output.n_tokens);
    put_count(out, "local_tokens", r->result.local_tokens);
    put_count(out, "fetched_tokens", r->result.fetched_tokens);
    put_count(out, "disk_tokens", r->result.disk_tokens);
    put_count(out, "shared_tokens", r->result.shared_tokens);
    put_count(out, "computed_tokens", r->result.computed_tokens);
}

static void put_slice(struct text_buf *out, const char *key,
                      struct http_slice s)
{
    char text[256];

    snprintf(text, sizeof(text), "%.*s", s.n < 200 ? (int)s.n : 200,
             s.n ? s.at : "");
    put_text(out, key, text);
}

void models_refused(const struct models *models,
                    const struct service_refusal *refusal)
{
    struct dispatch_request who = {0};
    struct text_buf out;

    if (!models->access || !access_log_is_open(models->access))
        return;
    tenants_find(models->tenants, refusal->key.at, refusal->key.n, 0, &who);
    text_buf_init(&out, LINE_BYTES);
    put_begin(&out, models, refusal->arrived_us);
    put_text(&out, "id", NULL);
    put_slice(&out, "client_id", refusal->client_id);
    put_slice(&out, "traceparent", refusal->trace);
    put_text(&out, "tenant_name", tenants_name(models->tenants, who.tenant));
    put_text(&out, "client", refusal->client);
    put_slice(&out, "method", refusal->method);
    put_slice(&out, "path", refusal->path);
    put_count(&out, "input_length", 0);
    put_count(&out, "output_length", 0);
    put_text(&out, "outcome", "refused");
    put_count(&out, "status", refusal->status);
    put_text(&out, "reason", refusal->code);
    /* A trace reader takes such a request for one without a prompt. */
    text_buf_puts(&out, models->config.access_log_blocks ? ",\"hash_ids\":[]}\n"
                                                         : "}\n");
    access_log_add(models->access, out.data, out.error ? SIZE_MAX : out.len);
    text_buf_fini(&out);
}

void access_ended(struct service_request *r, const struct request_outcome *end)
{
    const struct models *models = r->service->models;
    struct text_buf out;

    if (!models->access || !access_log_is_open(models->access))
        return;
    text_buf_init(&out, LINE_BYTES);
    put_begin(&out, models, r->dispatch.arrived_us);
    put_text(&out, "id", r->request_id);
    put_text(&out, "client_id", r->client_id);
    put_text(&out, "traceparent", r->trace);
    put_text(&out, "tenant_name",
             tenants_name(models->tenants, r->dispatch.tenant));
    put_text(&out, "model", r->service->model.name);
    put_tokens(&out, r, end->outcome == METRICS_COMPLETED);
    put_times(&out, r);
    put_text(&out, "prefill", name_of(r->service, r->attempt.prefill));
    put_text(&out, "decode", name_of(r->service, r->attempt.decode));
    put_count(&out, "retries", r->dispatch.retries);
    put_text(&out, "outcome", outcome_name(end->outcome));
    if (end->status)
        put_count(&out, "status", end->status);
    else
        put_text(&out, "status", NULL);
    put_text(&out, "reason", end->reason);
    if (models->config.access_log_blocks)
        put_blocks(&out, r);
    text_buf_puts(&out, "}\n");
    /* A line that is too long counts as lost. */
    access_log_add(models->access, out.data, out.error ? SIZE_MAX : out.len);
    text_buf_fini(&out);
}
