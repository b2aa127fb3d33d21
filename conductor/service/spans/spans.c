/* See spans.h. Attributes are named as in OpenTelemetry's semantic conventions
 * for generative AI and HTTP where these exist. */
#include "conductor/service/spans/spans.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/loop/loop.h"
#include "conductor/json/text_buf.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/models.h"
#include "conductor/service/spans/exporter.h"

#define SPANS_BYTES 16384 /* of an attempt, or of a request's other spans */

enum kind { KIND_INTERNAL = 1, KIND_SERVER = 2, KIND_CLIENT = 3 };

struct writer {
    struct text_buf out;
    uint64_t n;
    const struct service_request *request;
};

/* Draws a random id, never 0. */
static void draw(struct loop *loop, char *hex, size_t digits)
{
    for (size_t i = 0; i < digits; i += 16)
        snprintf(hex + i, 17, "%016" PRIx64, loop_random(loop) | 1);
}

static bool is_on(const struct service_request *r)
{
    return *r->spans.at.trace;
}

/* Whether a trace that begins here is sampled: decided by its id, as in other
 * samplers. */
static bool is_chosen(const struct trace_context *c, double ratio)
{
    uint64_t low = 0;

    sscanf(c->trace + 16, "%16" SCNx64, &low);
    return (double)(low >> 8) < ratio * (double)(UINT64_C(1) << 56);
}

static int64_t read_epoch_us(struct loop *loop)
{
    return loop_wall_us(loop) - loop_now_us(loop);
}

void spans_begin(struct service_request *r,
                 const struct service_request_params *p)
{
    const struct models *models = r->service->models;
    struct trace_context c;

    if (!models->exporter || !exporter_is_open(models->exporter))
        return;
    if (p->trace.n && trace_context_parse(p->trace.at, p->trace.n, &c)) {
        if (!c.sampled)
            return;
        memcpy(r->spans.above, c.span, sizeof(c.span));
    } else {
        draw(models->loop, c.trace, TRACE_HEX);
        c.sampled = true;
        if (!is_chosen(&c, models->config.otlp_sample_ratio))
            return;
    }
    draw(models->loop, c.span, SPAN_HEX);
    r->spans.at = c;
    r->spans.epoch_us = read_epoch_us(models->loop);
    r->spans.operation = p->operation;
    r->spans.undecided_us = p->arrived_us;
    /* For the log and explain. */
    if (!*r->spans.above)
        trace_context_write(&c, r->trace);
}

bool spans_is_new(const struct service_request *r)
{
    return is_on(r) && !*r->spans.above;
}

void spans_traceparent(const struct service_request *r,
                       char out[TRACEPARENT_BYTES])
{
    struct trace_context c = r->spans.at;

    *out = '\0';
    if (!is_on(r) || !*r->spans.attempt)
        return;
    memcpy(c.span, r->spans.attempt, sizeof(c.span));
    trace_context_write(&c, out);
}

static void writer_init(struct writer *w, const struct service_request *r)
{
    *w = (struct writer){.request = r};
    text_buf_init(&w->out, SPANS_BYTES);
}

static void writer_send(struct writer *w)
{
    struct exporter *x = w->request->service->models->exporter;

    exporter_add(x, w->out.data, w->out.error ? SIZE_MAX : w->out.len, w->n);
    text_buf_fini(&w->out);
}

static void begin(struct writer *w, const char *name, enum kind kind,
                  const char *id, const char *above)
{
    const struct trace_context *c = &w->request->spans.at;
    char own[SPAN_HEX + 1];

    if (!id)
        draw(w->request->service->loop, own, SPAN_HEX);
    text_buf_puts(&w->out, w->n++ ? ",{" : "{");
    text_buf_printf(&w->out, "\"traceId\":\"%s\",\"spanId\":\"%s\"", c->trace,
                    id ? id : own);
    if (*above)
        text_buf_printf(&w->out, ",\"parentSpanId\":\"%s\"", above);
    text_buf_printf(&w->out, ",\"kind\":%d,\"name\":", (int)kind);
    text_buf_json_str(&w->out, name);
}

/* Raises an end that is before the begin: threads read their own clocks. */
static void times(struct writer *w, int64_t from_us, int64_t to_us)
{
    int64_t epoch_us = w->request->spans.epoch_us;

    to_us = to_us < from_us ? from_us : to_us;
    text_buf_printf(&w->out,
                    ",\"startTimeUnixNano\":\"%" PRId64
                    "000\",\"endTimeUnixNano\":\"%" PRId64
                    "000\",\"attributes\":[",
                    epoch_us + from_us, epoch_us + to_us);
}

static void put_key(struct writer *w, const char *key)
{
    bool first = w->out.len && w->out.data[w->out.len - 1] == '[';

    text_buf_printf(&w->out, "%s{\"key\":\"%s\",\"value\":", first ? "" : ",",
                    key);
}

static void put_text(struct writer *w, const char *key, const char *value)
{
    if (!value || !*value)
        return;
    put_key(w, key);
    text_buf_puts(&w->out, "{\"stringValue\":");
    text_buf_json_str(&w->out, value);
    text_buf_puts(&w->out, "}}");
}

static void put_int(struct writer *w, const char *key, int64_t value)
{
    put_key(w, key);
    text_buf_printf(&w->out, "{\"intValue\":\"%" PRId64 "\"}}", value);
}

/* Writes nothing for us <= 0, which means unknown. */
static void put_s(struct writer *w, const char *key, int64_t us)
{
    if (us <= 0)
        return;
    put_key(w, key);
    text_buf_printf(&w->out, "{\"doubleValue\":%.6f}}", (double)us / 1e6);
}

/* error: a message; NULL = no error. */
static void end(struct writer *w, const char *error)
{
    text_buf_puts(&w->out, "]");
    if (error) {
        text_buf_puts(&w->out, ",\"status\":{\"code\":2,\"message\":");
        text_buf_json_str(&w->out, error);
        text_buf_puts(&w->out, "}");
    }
    text_buf_puts(&w->out, "}");
}

/* Writes a child of the attempt with at most one attribute. */
static void put_part(struct writer *w, const char *name, int64_t from_us,
                     int64_t to_us, const char *key, const char *value)
{
    if (from_us <= 0 || to_us <= 0)
        return;
    begin(w, name, KIND_INTERNAL, NULL, w->request->spans.attempt);
    times(w, from_us, to_us);
    put_text(w, key, value);
    end(w, NULL);
}

static const char *name_of(const struct service *s, uint32_t id)
{
    const struct pool_instance *in =
        id == POOL_NO_INSTANCE ? NULL : pool_get(s->pool, id);

    return in ? in->name : NULL;
}

static void put_parts(struct writer *w, int64_t now_us)
{
    const struct service_request *r = w->request;
    const struct request_spans *x = &r->spans;
    const struct request_output *o = &r->output;
    int64_t planned_us = r->attempt.planned_us;
    int64_t began_us = x->prefill_us ? x->prefill_us : r->attempt.turn_us;
    bool first = o->first_token_us > planned_us;
    int64_t prefilled_us = x->prefilled_us ? x->prefilled_us
                           : first         ? o->first_token_us
                                           : 0;
    int64_t decodes_us = x->decode_us ? x->decode_us : prefilled_us;

    put_part(w, "queue", planned_us, began_us ? began_us : 0, "", NULL);
    if (x->load_us)
        put_part(w, "transfer", x->loaded_us - x->load_us, x->loaded_us,
                 "conductor.transfer.path", "load");
    put_part(w, "prefill", began_us, prefilled_us ? prefilled_us : now_us, "",
             NULL);
    if (x->held)
        put_part(w, "hold", prefilled_us, first ? o->first_token_us : now_us,
                 "", NULL);
    if (x->decode_us)
        put_part(w, "transfer", prefilled_us, x->decode_us,
                 "conductor.transfer.path", "push");
    if (first)
        put_part(w, "decode", decodes_us,
                 o->last_token_us > decodes_us ? o->last_token_us : now_us, "",
                 NULL);
}

/* error: why the attempt failed; NULL = it did not. */
static void put_attempt(struct writer *w, const char *error)
{
    const struct service_request *r = w->request;
    const struct service *s = r->service;
    int64_t now_us = loop_now_us(s->loop);

    begin(w, "attempt", r->by->tells_last ? KIND_CLIENT : KIND_INTERNAL,
          r->spans.attempt, r->spans.at.span);
    times(w, r->attempt.planned_us, now_us);
    put_text(w, "conductor.instance.prefill", name_of(s, r->attempt.prefill));
    put_text(w, "conductor.instance.decode", name_of(s, r->attempt.decode));
    put_int(w, "conductor.attempt", (int64_t)r->dispatch.retries + 1);
    put_s(w, "conductor.predicted.time_to_first_token",
          r->attempt.forecast.ttft_us);
    put_s(w, "conductor.predicted.queue", r->attempt.plan.queue_us);
    put_int(w, "conductor.predicted.cached_tokens",
            r->attempt.plan.cached_tokens);
    end(w, error);
    put_parts(w, now_us);
}

static void put_decision(struct writer *w, int64_t until_us)
{
    const struct service_request *r = w->request;

    begin(w, "decision", KIND_INTERNAL, NULL, r->spans.at.span);
    times(w, r->spans.undecided_us, until_us);
    put_text(w, "conductor.policy", r->service->model.policy);
    end(w, NULL);
}

void spans_decided(struct service_request *r)
{
    struct writer w;

    if (!is_on(r))
        return;
    draw(r->service->loop, r->spans.attempt, SPAN_HEX);
    r->spans.prefill_us = r->spans.prefilled_us = r->spans.decode_us = 0;
    r->spans.load_us = r->spans.loaded_us = 0;
    r->spans.held = false;
    writer_init(&w, r);
    put_decision(&w, r->attempt.planned_us);
    writer_send(&w);
    r->spans.undecided_us = 0;
}

void spans_failed(struct service_request *r, const char *why)
{
    struct writer w;

    if (!is_on(r) || !*r->spans.attempt)
        return;
    writer_init(&w, r);
    put_attempt(&w, why);
    writer_send(&w);
    *r->spans.attempt = '\0';
}

void spans_again(struct service_request *r)
{
    spans_failed(r, "its instance is drained: the request is scheduled again");
    r->spans.undecided_us = loop_now_us(r->service->loop);
}

static void put_usage(struct writer *w)
{
    const struct service_request *r = w->request;
    const struct service_result *u = &r->result;

    put_int(w, "gen_ai.request.max_tokens", r->prompt.max_tokens);
    put_int(w, "gen_ai.usage.input_tokens", request_prompt_tokens(r));
    put_text(w, "conductor.tokens.prompt_known_by",
             service_known_name(request_known_by(r)));
    put_int(w, "gen_ai.usage.output_tokens", r->output.n_tokens);
    if (!u->prompt_tokens)
        return;
    put_text(w, "conductor.tokens.cached_known_by",
             service_known_name(u->cached_by));
    put_int(w, "gen_ai.usage.cache_read.input_tokens",
            (int64_t)u->local_tokens + u->fetched_tokens + u->disk_tokens +
                u->shared_tokens);
    put_int(w, "conductor.tokens.local", u->local_tokens);
    put_int(w, "conductor.tokens.fetched", u->fetched_tokens);
    put_int(w, "conductor.tokens.disk", u->disk_tokens);
    put_int(w, "conductor.tokens.shared", u->shared_tokens);
    put_int(w, "conductor.tokens.computed", u->computed_tokens);
}

static void put_request(struct writer *w, const struct request_outcome *ended)
{
    const struct service_request *r = w->request;
    const struct service *s = r->service;
    const char *operation = r->spans.operation;
    char name[SERVICE_MODEL_BYTES + 32];
    bool failed = ended->outcome == METRICS_FAILED;

    snprintf(name, sizeof(name), "%s %s", operation ? operation : "request",
             s->model.name);
    begin(w, name, KIND_SERVER, r->spans.at.span, r->spans.above);
    times(w, r->dispatch.arrived_us, loop_now_us(s->loop));
    put_text(w, "gen_ai.operation.name", operation);
    put_text(w, "gen_ai.provider.name", "conductor");
    put_text(w, "gen_ai.request.model", s->model.name);
    put_usage(w);
    put_text(w, "http.request.method", r->method);
    if (ended->status)
        put_int(w, "http.response.status_code", ended->status);
    if (failed || ended->status >= 400)
        put_text(w, "error.type", ended->reason);
    put_text(w, "conductor.request.id", r->request_id);
    put_text(w, "conductor.request.client_id", r->client_id);
    put_text(w, "conductor.tenant",
             tenants_name(s->models->tenants, r->dispatch.tenant));
    put_text(w, "conductor.outcome", outcome_name(ended->outcome));
    put_int(w, "conductor.retries", r->dispatch.retries);
    if (r->output.first_token_us && r->output.timed)
        put_s(w, "conductor.time_to_first_token",
              r->output.first_token_us - r->dispatch.arrived_us);
    end(w, failed ? ended->reason : NULL);
}

void spans_ended(struct service_request *r, const struct request_outcome *ended)
{
    struct writer w;

    if (!is_on(r))
        return;
    writer_init(&w, r);
    if (*r->spans.attempt)
        put_attempt(&w,
                    ended->outcome == METRICS_FAILED ? ended->reason : NULL);
    else if (r->spans.undecided_us)
        put_decision(&w, loop_now_us(r->service->loop));
    put_request(&w, ended);
    writer_send(&w);
}
