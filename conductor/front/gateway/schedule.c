/*
 * POST /v1/schedule: tells another gateway where to send a request. The request
 * is submitted as a forwarded one (passthrough/passthrough.c); in place of an
 * engine's answer the client gets the decision, as JSON and in headers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/openai/body/steer.h"
#include "conductor/front/passthrough/state.h"
#include "conductor/service/ticket/gateway.h"

#define ANSWER_BYTES 8192
#define PROMPT_TOKENS_MAX (1u << 24)

/* Finds a header that may come once; *value is NULL if it isn't there. Returns
 * 0, or -EINVAL with *error set. */
static int read_once(const struct http_head *head, const char *name,
                     const struct http_slice **value,
                     struct openai_error *error)
{
    *value = NULL;
    for (size_t i = 0; i < head->n_headers; i++) {
        const struct http_header *h = &head->headers[i];

        if (!http_is_fold(h->name, name))
            continue;
        if (*value) {
            openai_error_set(error, 400, "invalid_value", name,
                             "header %s: must come only once", name);
            return -EINVAL;
        }
        *value = &h->value;
    }
    return 0;
}

static int refuse_header(const char *name, const struct http_slice *value,
                         const char *must, struct openai_error *error)
{
    openai_error_set(error, 400, "invalid_value", name,
                     "header %s: \"%.*s\": must be %s", name,
                     value->n < 40 ? (int)value->n : 40, value->at, must);
    return -EINVAL;
}

/* Reads the location at which nginx goes on, with the request's method, path
 * and body. */
static int read_redirect(struct forward_call *c, const struct http_head *head,
                         struct openai_error *error)
{
    static const char name[] = "x-conductor-accel-redirect";
    const struct http_slice *value;

    if (read_once(head, name, &value, error))
        return -EINVAL;
    if (!value)
        return 0;
    if (value->n < 2 || value->n > 100 || *value->at != '@')
        return refuse_header(
            name, value, "the name of a location, which begins with @", error);
    c->redirect = strndup(value->at, value->n);
    return c->redirect ? 0 : -ENOMEM;
}

/* Refuses headers that only Conductor may set: the gateway would send them
 * on. */
static int refuse_steering(const struct http_head *head,
                           struct openai_error *error)
{
    for (size_t i = 0; i < head->n_headers; i++) {
        struct http_slice name = head->headers[i].name;

        if (!steer_header(name.at, name.n))
            continue;
        openai_error_set(
            error, 400, "invalid_value", "header",
            "header %.*s: must be left out: an engine would act on it",
            name.n < 60 ? (int)name.n : 60, name.at);
        return -EINVAL;
    }
    return 0;
}

int schedule_read_headers(struct forward_call *c, const struct front_call *call,
                          struct service_forward *f, struct openai_error *error)
{
    static const char name[] = "x-conductor-reports";
    const struct http_slice *value;

    f->ticket = c->ticket = true;
    f->stream = false;
    if (refuse_steering(call->head, error))
        return -EINVAL;
    if (read_once(call->head, name, &value, error))
        return -EINVAL;
    if (value && http_is(*value, "first-token"))
        f->stream = true;
    else if (value && !http_is(*value, "end"))
        return refuse_header(name, value, "first-token or end", error);
    return read_redirect(c, call->head, error);
}

/* Block hashes are not a tenant's own: cached_tokens would tell of other
 * tenants' prompts. */
static int refuse_hashes(struct openai_error *error)
{
    openai_error_set(
        error, 403, "not_permitted", "block_hashes",
        "block_hashes: not allowed while api_keys are required, as they name "
        "blocks of all tenants: send prompt or token_ids");
    return -EACCES;
}

int schedule_take_hashes(const struct front_call *call,
                         const struct service *service,
                         const struct forward_body *body,
                         struct service_request_params *params,
                         struct service_forward *f, struct openai_error *error)
{
    const struct service_model_info *info = service_model(service);
    uint64_t blocks = body->n_hashes * (uint64_t)info->block_tokens;
    uint64_t n = body->prompt_tokens ? body->prompt_tokens : blocks;

    if (call->terms.name)
        return refuse_hashes(error);
    if (body->block_tokens && body->block_tokens != info->block_tokens) {
        openai_error_set(
            error, 400, "invalid_value", "block_size",
            "block_size: %u: must be %u, the block size of model \"%s\"",
            body->block_tokens, info->block_tokens, info->name);
        return -EINVAL;
    }
    if (n < blocks || n > PROMPT_TOKENS_MAX) {
        openai_error_set(error, 400, "out_of_range", "prompt_tokens",
                         "prompt_tokens: %llu: must be from %llu, the tokens "
                         "of block_hashes, to %u",
                         (unsigned long long)n, (unsigned long long)blocks,
                         PROMPT_TOKENS_MAX);
        return -EINVAL;
    }
    params->tokens = NULL;
    params->n_tokens = n;
    params->salt = body->cache_salt;
    f->ids = true;
    f->tokenize = NULL;
    f->n_tokenize = 0;
    f->hashes = body->hashes;
    f->n_hashes = body->n_hashes;
    return 0;
}

static void put_place(struct text_buf *out, const char *key,
                      const struct service_place *place)
{
    text_buf_printf(out, ",\"%s\":", key);
    if (!place->name) {
        text_buf_puts(out, "null");
        return;
    }
    text_buf_puts(out, "{\"instance\":");
    text_buf_json_str(out, place->name);
    text_buf_puts(out, ",\"url\":");
    text_buf_json_str(out, place->url);
    text_buf_puts(out, ",\"address\":");
    text_buf_json_str(out, place->address);
    if (place->dp_rank >= 0)
        text_buf_printf(out, ",\"data_parallel_rank\":%d", place->dp_rank);
    text_buf_puts(out, "}");
}

static void put_body(struct text_buf *out, const char *key, const char *body)
{
    text_buf_printf(out, ",\"%s\":", key);
    text_buf_puts(out, *body ? body : "null");
}

/* Writes what the gateway sends to the engines of a pair. */
static void put_legs(struct text_buf *out, const struct service_legs *legs)
{
    text_buf_puts(out, ",\"pair\":");
    if (!legs->connector) {
        text_buf_puts(out, "null");
        return;
    }
    text_buf_printf(out, "{\"kv_connector\":\"%s\",\"at_once\":%s",
                    legs->connector, legs->at_once ? "true" : "false");
    put_body(out, "prefill_body", legs->prefill);
    put_body(out, "decode_body", legs->decode);
    text_buf_puts(out, ",\"decode_body_from_prefill\":[");
    if (legs->passes_on)
        text_buf_json_str(out, legs->passes_on);
    text_buf_puts(out, "]}");
}

static void put_ms(struct text_buf *out, const char *key, int64_t us,
                   bool known)
{
    if (known)
        text_buf_printf(out, ",\"%s\":%.3f", key, (double)us / 1e3);
    else
        text_buf_printf(out, ",\"%s\":null", key);
}

static void write_ticket(const struct service_ticket *t, const char *request_id,
                         const char *model, struct text_buf *out)
{
    text_buf_printf(out, "{\"ticket\":\"%s\",\"request_id\":\"%s\",\"model\":",
                    t->id, request_id);
    text_buf_json_str(out, model);
    put_place(out, "prefill", &t->prefill);
    put_place(out, "decode", &t->decode);
    put_legs(out, &t->legs);
    text_buf_printf(out,
                    ",\"prompt_tokens\":%u,\"prompt_known_by\":\"%s\","
                    "\"cached_tokens\":%u,\"plan\":{\"mode\":",
                    t->prompt_tokens, t->known_by, t->cached_tokens);
    text_buf_json_str(out, t->mode);
    text_buf_printf(out, ",\"local_tokens\":%u,\"fetched_tokens\":%u}",
                    t->local_tokens, t->fetched_tokens);
    text_buf_puts(out, ",\"estimates\":{\"from\":");
    text_buf_json_str(out, t->costs);
    put_ms(out, "ttft_ms", t->ttft_us, t->predicts);
    put_ms(out, "queue_ms", t->queue_us, t->predicts);
    put_ms(out, "prefill_ms", t->prefill_us, t->predicts);
    put_ms(out, "tbt_ms", t->tbt_us, t->predicts && t->tbt_us > 0);
    text_buf_printf(out, "},\"expires_ms\":%lld}\n",
                    (long long)(t->expires_us / 1000));
}

/* Adds headers by the names that gateways know. */
static void add_headers(struct forward_call *c, const struct service_ticket *t)
{
    const struct service_place *to = t->decode.name ? &t->decode : &t->prefill;
    char rank[16];

    http_add_header(c->conn, "x-conductor-ticket", t->id);
    http_add_header(c->conn, "x-gateway-destination-endpoint", to->address);
    if (to->dp_rank >= 0) {
        snprintf(rank, sizeof(rank), "%d", to->dp_rank);
        http_add_header(c->conn, "x-data-parallel-host-port", to->address);
        http_add_header(c->conn, "x-data-parallel-rank", rank);
    }
    if (t->prefill.name && strcmp(t->prefill.name, to->name) != 0)
        http_add_header(c->conn, "x-prefiller-host-port", t->prefill.address);
    if (c->redirect)
        http_add_header(c->conn, "X-Accel-Redirect", c->redirect);
}

static void on_scheduled(void *arg, const struct service_decision *d)
{
    struct forward_call *c = arg;
    struct service_ticket ticket;
    struct text_buf out;

    endpoint_note(&c->told, d);
    service_ticket_take(c->request, &ticket);
    c->request = NULL;
    text_buf_init(&out, ANSWER_BYTES);
    write_ticket(&ticket, c->told.request_id, d->model, &out);
    endpoint_tell(c->conn, &c->told, false);
    add_headers(c, &ticket);
    http_reply(c->conn, 200, "application/json", out.data, out.len);
    text_buf_fini(&out);
    forward_call_free(c);
}

static void on_failed(void *arg, const struct service_failure *failure)
{
    forward_refuse(arg, failure);
}

const struct service_reply_ops schedule_reply_ops = {
    .scheduled = on_scheduled,
    .failed = on_failed,
};
