/* Shared by endpoints: SLOs, keys and names in headers, and error answers. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "conductor/front/internal.h"
#include "conductor/front/openai/form.h"

#define MAX_SLO_MS 86400000.0
#define DEFAULT_RETRY_US 1000000
#define RULE_BYTES 200

void endpoint_reply_error(struct http_conn *conn,
                          const struct openai_error *error, int64_t retry_us)
{
    char seconds[24];

    if (retry_us == 0 &&
        (error->http_status == 429 || error->http_status == 503))
        retry_us = DEFAULT_RETRY_US;
    if (retry_us > 0) {
        snprintf(seconds, sizeof(seconds), "%" PRId64,
                 (retry_us - 1) / 1000000 + 1);
        http_add_header(conn, "Retry-After", seconds);
        snprintf(seconds, sizeof(seconds), "%" PRId64,
                 (retry_us - 1) / 1000 + 1);
        http_add_header(conn, "retry-after-ms", seconds);
    }
    if (retry_us < 0)
        http_add_header(conn, "x-should-retry", "false");
    http_reply_error(conn, error);
}

static bool comes_again(const struct http_head *head, const char *name,
                        const struct http_slice *found)
{
    for (size_t k = 0; k < head->n_headers; k++)
        if (http_is_fold(head->headers[k].name, name) &&
            &head->headers[k].value != found)
            return true;
    return false;
}

/* Reads a header that may come once into `out`, which stays as it is without
 * it. take: writes its value; returns false if it is not what it `must` be.
 * Returns 0, or -EINVAL with *error set. */
static int read_once(const struct http_head *head, const char *name,
                     bool (*take)(struct http_slice value, void *out),
                     void *out, const char *must, struct openai_error *error)
{
    const struct http_slice *value = http_find(head, name);

    if (!value)
        return 0;
    if (comes_again(head, name, value))
        must = "come only once";
    else if (take(*value, out))
        return 0;
    return openai_error_set(
        error, 400, "invalid_value", name, "header %s: \"%.*s\": must %s", name,
        value->n < 40 ? (int)value->n : 40, value->at, must);
}

/* Takes an SLO, in us. */
static bool take_slo(struct http_slice v, void *us)
{
    char text[32], *end = text;
    double ms = 0;

    if (v.n >= sizeof(text))
        return false;
    memcpy(text, v.at, v.n);
    text[v.n] = '\0';
    if (strspn(text, "0123456789.") == v.n)
        ms = strtod(text, &end);
    if (end == text || *end || !(ms >= 0.001 && ms <= MAX_SLO_MS))
        return false;
    *(int64_t *)us = (int64_t)(ms * 1000.0 + 0.5);
    return true;
}

int endpoint_slos(const struct http_head *head,
                  struct service_request_params *params,
                  struct openai_error *error)
{
    static const char must[] =
        "be a number of milliseconds from 0.001 to 86400000";

    params->slo_ttft_us = params->slo_tbt_us = 0;
    if (read_once(head, "x-slo-ttft-ms", take_slo, &params->slo_ttft_us, must,
                  error))
        return -EINVAL;
    return read_once(head, "x-slo-tpot-ms", take_slo, &params->slo_tbt_us, must,
                     error);
}

void endpoint_note(struct told *told, const struct service_decision *d)
{
    text_copy(told->request_id, sizeof(told->request_id), d->request_id);
    text_copy(told->prefill, sizeof(told->prefill), d->prefill);
    text_copy(told->decode, sizeof(told->decode), d->decode ? d->decode : "");
    told->predicted_ttft_us = d->predicted_ttft_us;
}

void endpoint_tell(struct http_conn *conn, const struct told *told, bool name)
{
    char ms[32];

    http_add_header(conn, "x-conductor-request-id", told->request_id);
    if (name)
        http_add_header(conn, "x-request-id", told->request_id);
    if (!*told->prefill)
        return;
    if (told->predicted_ttft_us > 0) {
        snprintf(ms, sizeof(ms), "%.3f", (double)told->predicted_ttft_us / 1e3);
        http_add_header(conn, "x-conductor-predicted-ttft-ms", ms);
    }
    http_add_header(conn, "x-conductor-prefill", told->prefill);
    if (*told->decode)
        http_add_header(conn, "x-conductor-decode", told->decode);
}

static bool take_model(struct http_slice v, void *model)
{
    if (v.n == 0 || v.n >= FORWARD_MODEL_BYTES)
        return false;
    *(char *)mempcpy(model, v.at, v.n) = '\0';
    return true;
}

int endpoint_model(const struct http_head *head,
                   char model[FORWARD_MODEL_BYTES], struct openai_error *error)
{
    *model = '\0';
    return read_once(head, "x-conductor-model", take_model, model,
                     "be 1 to 255 bytes", error);
}

/* Writes a priority as JSON has it: without leading zeros. */
static bool take_priority(struct http_slice v, void *text)
{
    bool below = v.n > 1 && *v.at == '-';
    int64_t n =
        http_number((struct http_slice){v.at + below, v.n - below}, INT32_MAX);

    if (n >= 0)
        (void)snprintf(text, RULE_BYTES, "%" PRId64, below ? -n : n);
    return n >= 0;
}

static bool take_text(struct http_slice v, void *text)
{
    if (v.n == 0 || v.n >= RULE_BYTES)
        return false;
    for (size_t i = 0; i < v.n; i++)
        if (v.at[i] < ' ' || v.at[i] > '~')
            return false;
    *(char *)mempcpy(text, v.at, v.n) = '\0';
    return true;
}

/* Reads the salt of the tenant's blocks: its name, and what a header adds. The
 * salt in the client's body does not count then. */
static int read_salt(const struct front_call *call, const char *header,
                     char text[RULE_BYTES], struct openai_error *error)
{
    const char *name = call->terms.name ? call->terms.name : "";
    char added[RULE_BYTES] = "";

    if (header && read_once(call->head, header, take_text, added,
                            "be 1 to 199 printable characters of ASCII", error))
        return -EINVAL;
    if (snprintf(text, RULE_BYTES, "%s%s%s", name, *name && *added ? "/" : "",
                 added) < RULE_BYTES)
        return 0;
    return openai_error_set(error, 400, "invalid_value", header,
                            "header %s: must be at most %zu bytes", header,
                            RULE_BYTES - strlen(name) - 2);
}

int endpoint_rules(const struct front_call *call,
                   char text[ENDPOINT_RULES_BYTES], struct forward_rules *rules,
                   struct openai_error *error)
{
    const struct front_options *o = &call->front->options;
    bool salt = o->cache_salt_header && *o->cache_salt_header;
    bool priority = o->priority_header && *o->priority_header;
    char *number = text + RULE_BYTES;

    *rules = (struct forward_rules){.window_tokens =
                                        models_widest(call->front->models),
                                    .keyed = call->terms.name};
    if (salt || call->terms.name) {
        rules->cache_salt = text;
        if (read_salt(call, salt ? o->cache_salt_header : NULL, text, error))
            return -EINVAL;
    }
    if (!priority)
        return 0;
    rules->priority = number;
    *number = '\0';
    return read_once(call->head, o->priority_header, take_priority, number,
                     "be a whole number from -2147483647 to 2147483647", error);
}

int32_t endpoint_priority(const struct forward_rules *rules, int32_t of_body)
{
    return rules->priority ? (int32_t)strtol(rules->priority, NULL, 10)
                           : of_body;
}

struct http_slice endpoint_key_of(struct http_slice value)
{
    const size_t n = sizeof("Bearer ") - 1;

    if (value.n > n && http_begins_fold(value, "Bearer "))
        value = (struct http_slice){value.at + n, value.n - n};
    while (value.n && *value.at == ' ')
        value = (struct http_slice){value.at + 1, value.n - 1};
    return value;
}

int endpoint_key(const struct front_call *call, struct http_slice *key,
                 struct openai_error *error)
{
    const char *name = call->front->options.tenant_header;
    const struct http_slice *value =
        name && *name ? http_find(call->head, name) : NULL;

    *key = (struct http_slice){"", 0};
    if (!value)
        return 0;
    if (comes_again(call->head, name, value)) /* the value is not shown */
        return openai_error_set(error, 400, "invalid_value", name,
                                "header %s: must come only once", name);
    *key =
        strcmp(name, "authorization") == 0 ? endpoint_key_of(*value) : *value;
    return 0;
}

int endpoint_tenant(const struct front_call *call,
                    struct service_request_params *params,
                    struct openai_error *error)
{
    if (endpoint_key(call, &params->tenant, error))
        return -EINVAL;
    if (!params->slo_ttft_us)
        params->slo_ttft_us = call->terms.slo_ttft_us;
    if (!params->slo_tbt_us)
        params->slo_tbt_us = call->terms.slo_tbt_us;
    return 0;
}

/* A session's number is FNV-1a, and never 0. */
static void read_session(const struct http_head *head,
                         struct service_request_params *params)
{
    const struct http_slice *id = http_find(head, "x-session-id");
    uint64_t h = 0xcbf29ce484222325u;

    if (!id)
        id = http_find(head, "x-dynamo-session-id");
    if (!id || id->n == 0)
        return;
    for (size_t i = 0; i < id->n; i++)
        h = (h ^ (unsigned char)id->at[i]) * 0x100000001b3u;
    params->session = h ? h : 1;
    params->session_id = *id;
}

/* The operation's name in OpenTelemetry's conventions for generative AI. */
static const char *operation_of(struct http_slice path)
{
    static const char *const all[][2] = {
        {"/v1/chat/completions", "chat"},
        {"/v1/completions", "text_completion"},
        {"/v1/embeddings", "embeddings"},
        {"/v1/messages", "chat"},
        {"/v1/responses", "generate_content"},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (http_is(path, all[i][0]))
            return all[i][1];
    return NULL;
}

void endpoint_names(const struct http_head *head,
                    struct service_request_params *params)
{
    const struct http_slice *id = http_find(head, "x-request-id");
    const struct http_slice *trace = http_find(head, "traceparent");

    read_session(head, params);
    params->operation = operation_of(head->path);
    if (id)
        params->client_id = *id;
    if (trace)
        params->trace = *trace;
}

struct http_slice endpoint_type(const struct http_head *head)
{
    const struct http_slice *type = http_find(head, "content-type");

    return type ? *type : (struct http_slice){"", 0};
}

bool endpoint_is_json(const struct http_head *head)
{
    struct http_slice type = endpoint_type(head);

    return form_type_of(type.at, type.n) == FORM_JSON;
}

int endpoint_set_type(const struct http_head *head, const char *must,
                      struct openai_error *error)
{
    struct http_slice type = endpoint_type(head);

    return openai_error_set(error, 415, "unsupported_media_type", NULL,
                            "header content-type: \"%.*s\": must be %s",
                            type.n < 100 ? (int)type.n : 100, type.at, must);
}

void endpoint_set_failure(const struct service_failure *failure,
                          const char *param, struct openai_error *error)
{
    openai_error_set(error, failure->http_status, failure->code, param, "%s",
                     failure->message);
}

int endpoint_open(const struct front_call *call, struct openai_error *error)
{
    return call->front->draining
               ? openai_error_set(error, 503, "shutting_down", NULL,
                                  "the server is shutting down")
               : 0;
}

void endpoint_refuse(const struct front_call *call, int rc,
                     struct openai_error *error)
{
    if (rc == -ENOMEM)
        endpoint_set_no_memory(error);
    if (rc == -EAGAIN)
        openai_error_set(error, 429, "too_many_requests", NULL,
                         "too many requests are in flight");
    if (rc == -EDQUOT)
        openai_error_set(
            error, 429, "too_many_tickets", NULL,
            "too many tickets are open in all or for this key (max_tickets): "
            "report ended requests to /v1/schedule/done");
    if (rc)
        endpoint_reply_error(call->conn, error, 0);
}

void endpoint_set_no_memory(struct openai_error *error)
{
    openai_error_set(error, 500, "out_of_memory", NULL, "out of memory");
}

int endpoint_set_unready(const struct front *front, struct openai_error *error)
{
    char code[sizeof(error->code)], drained[SERVICE_DRAINED_BYTES];
    const char *lacks = service_lacks(front->native, drained);

    if (!lacks || !*lacks)
        return openai_error_set(error, 503, "no_ready_instance", NULL,
                                "no instance is ready to take the request%s",
                                drained);
    snprintf(code, sizeof(code), "no_%s_instance", lacks);
    return openai_error_set(error, 503, code, NULL, "no %s instance is ready%s",
                            lacks, drained);
}
