/*
 * A request that an engine gets as it came, and its answer, which the client
 * gets as it comes.
 *
 *   waiting --answer--> answering --done--> freed
 *           --failed--> freed       --failed--> broken off, freed
 *   the client goes: the request is cancelled, freed
 *
 * What the client does not take is bounded: above PAUSE_BYTES the engine is
 * held back, until the client has taken all of it.
 */
#include "conductor/front/openai/forward.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "conductor/front/internal.h"

#define PAUSE_BYTES 262144
#define NAME_BYTES 64
/* Where no limit is said, an answer is taken to be as long as this. */
#define USUAL_MAX_TOKENS 256

struct forward_call {
    struct front *front;
    struct http_conn *conn;
    struct service_request *request;
    bool answering;
    bool paused;
    int64_t left;               /* of a body of known length; -1: not known */
    char client_id[NAME_BYTES]; /* x-request-id, cut; "": none */
    char request_id[NAME_BYTES], prefill[NAME_BYTES], decode[NAME_BYTES];
    int64_t predicted_ttft_us;
    char *tokenize; /* owned: the question for tokens; NULL: none */
    char *head;     /* owned: path, headers, authorization, each with its NUL */
};

static void call_free(struct forward_call *c)
{
    service_cancel(c->request);
    c->front->in_flight--;
    free(c->tokenize);
    free(c->head);
    free(c);
}

static void on_gone(void *arg)
{
    call_free(arg);
}

static void on_taken(void *arg)
{
    struct forward_call *c = arg;

    if (c->paused)
        service_pause(c->request, false);
    c->paused = false;
}

static void on_scheduled(void *arg, const struct service_decision *d)
{
    struct forward_call *c = arg;

    snprintf(c->request_id, sizeof(c->request_id), "%s", d->request_id);
    snprintf(c->prefill, sizeof(c->prefill), "%s", d->prefill);
    snprintf(c->decode, sizeof(c->decode), "%s", d->decode ? d->decode : "");
    c->predicted_ttft_us = d->predicted_ttft_us;
}

static void add_slice(struct http_conn *conn, struct http_slice name,
                      struct http_slice value)
{
    char n[128], v[4096];

    if (name.n >= sizeof(n) || value.n >= sizeof(v))
        return;
    snprintf(n, sizeof(n), "%.*s", (int)name.n, name.at);
    snprintf(v, sizeof(v), "%.*s", (int)value.n, value.at);
    http_add_header(conn, n, v);
}

/* Who answered, and what was promised. */
static void add_own_headers(struct forward_call *c)
{
    char ms[32];

    http_add_header(c->conn, "x-conductor-request-id", c->request_id);
    if (!*c->prefill)
        return;
    if (c->predicted_ttft_us > 0) {
        snprintf(ms, sizeof(ms), "%.3f", (double)c->predicted_ttft_us / 1e3);
        http_add_header(c->conn, "x-conductor-predicted-ttft-ms", ms);
    }
    http_add_header(c->conn, "x-conductor-prefill", c->prefill);
    if (*c->decode)
        http_add_header(c->conn, "x-conductor-decode", c->decode);
}

/* What only this conductor says, also when the engine is another one. */
static bool is_own(struct http_slice name)
{
    static const char prefix[] = "x-conductor-";
    size_t n = sizeof(prefix) - 1;

    return name.n >= n && strncasecmp(name.at, prefix, n) == 0;
}

static void on_answer(void *arg, const struct http_head *head)
{
    const struct http_slice *type;
    struct forward_call *c = arg;

    c->answering = true;
    c->left = head->chunked ? -1 : head->content_length;
    if (head->status == 204 || head->status == 304)
        c->left = 0;
    for (size_t i = 0; i < head->n_headers; i++)
        if (forward_passes(head, head->headers[i].name) &&
            !is_own(head->headers[i].name))
            add_slice(c->conn, head->headers[i].name, head->headers[i].value);
    add_own_headers(c);
    if (!http_find(head, "x-request-id"))
        http_add_header(c->conn, "x-request-id",
                        *c->client_id ? c->client_id : c->request_id);
    /* A proxy in front of the conductor must not hold events back. */
    type = http_find(head, "content-type");
    if (type && type->n >= 17 &&
        strncasecmp(type->at, "text/event-stream", 17) == 0)
        http_add_header(c->conn, "X-Accel-Buffering", "no");
    http_on_taken(c->conn, on_taken, c);
    http_begin(c->conn, head->status, c->left);
}

static void on_bytes(void *arg, const char *bytes, size_t n)
{
    struct forward_call *c = arg;

    if (http_write(c->conn, bytes, n)) {
        http_abort(c->conn);
        call_free(c);
        return;
    }
    if (!c->paused && http_unsent(c->conn) > PAUSE_BYTES) {
        c->paused = true;
        service_pause(c->request, true);
    }
}

static void on_done(void *arg, const struct service_result *result)
{
    struct forward_call *c = arg;

    (void)result;
    c->request = NULL;
    http_end(c->conn);
    call_free(c);
}

static void on_failed(void *arg, const struct service_failure *failure)
{
    struct forward_call *c = arg;
    struct openai_error error;

    c->request = NULL;
    if (c->answering) {
        http_break(c->conn);
    } else {
        openai_error_set(&error, failure->http_status, failure->code, NULL,
                         "%s", failure->message);
        http_add_header(c->conn, "x-conductor-request-id", failure->request_id);
        endpoint_reply_error(c->conn, &error, failure->retry_after_us);
    }
    call_free(c);
}

static const struct service_reply_ops reply_ops = {
    .scheduled = on_scheduled,
    .answer = on_answer,
    .bytes = on_bytes,
    .done = on_done,
    .failed = on_failed,
};

/* A request whose body was read. */
struct reading {
    struct forward_body body;
    struct forward_rules rules;
    char text[ENDPOINT_RULES_BYTES]; /* of the rules */
};

/* What the engine gets: the client's bytes, which are kept until the answer is
 * whole, or others in their place. Returns 0 or -ENOMEM. */
static int keep_body(const struct front_call *call, const struct reading *r,
                     struct service_forward *f)
{
    struct text_buf bytes;

    f->body = call->body;
    f->n = call->n;
    if (!forward_body_changes(&r->body, &r->rules)) {
        http_keep_body(call->conn);
        return 0;
    }
    text_buf_init(&bytes, SIZE_MAX);
    forward_body_write(&r->body, call->body, call->n, &r->rules, &bytes);
    if (bytes.error) {
        text_buf_fini(&bytes);
        return -ENOMEM;
    }
    f->body = bytes.data;
    f->n = bytes.len;
    http_replace_body(call->conn, &bytes);
    return 0;
}

/* The LoRA adapter that the body asks for; NULL: none. */
static const char *adapter_of(const struct service *service,
                              const struct forward_body *body)
{
    const struct service_model_info *info = service_model(service);

    if (*body->adapter)
        return body->adapter;
    for (size_t i = 0; i < info->n_names; i++)
        if (info->names[i].adapter &&
            strcmp(info->names[i].name, body->model) == 0)
            return info->names[i].name;
    return NULL;
}

/* Hands the request over. Returns 0, or -EAGAIN or -ENOMEM. The body that came
 * may be gone then. */
static int submit(struct forward_call *c, const struct front_call *call,
                  struct service *service, const struct reading *r,
                  struct service_request_params *params)
{
    const struct forward_body *body = &r->body;
    const struct http_slice *id;
    struct service_forward f = {
        .method = "POST",
        .stream = body->stream,
        .ids = body->ids,
    };

    c->head = forward_copy_head(call->head, &f);
    if (!c->head)
        return -ENOMEM;
    f.chat = body->kind && body->kind->chat;
    f.tokenize = c->tokenize = forward_tokenize_body(body, &f.n_tokenize);
    f.cache_salt = body->cache_salt;
    id = http_find(call->head, "x-request-id");
    if (id)
        snprintf(c->client_id, sizeof(c->client_id), "%.*s", (int)id->n,
                 id->at);
    f.client_id = c->client_id;
    params->tokens = body->words;
    params->n_tokens = body->n_words;
    params->max_tokens = body->max_tokens ? body->max_tokens : USUAL_MAX_TOKENS;
    params->salt = body->salt;
    params->adapter = adapter_of(service, body);
    params->forward = &f;
    if (keep_body(call, r, &f))
        return -ENOMEM;
    c->request = service_submit(service, params, &reply_ops, c);
    if (!c->request)
        return errno == EAGAIN ? -EAGAIN : -ENOMEM;
    return 0;
}

/* Takes the request on, or says why not. */
static int take_on(const struct front_call *call, struct service *service,
                   const struct reading *r, struct openai_error *error)
{
    struct service_request_params params = {0};
    struct forward_call *c;
    int rc = endpoint_slo_header(call->head, "x-slo-ttft-ms",
                                 &params.slo_ttft_us, error);

    if (rc == 0)
        rc = endpoint_slo_header(call->head, "x-slo-tpot-ms",
                                 &params.slo_tbt_us, error);
    if (rc)
        return rc;
    c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->front = call->front;
    c->conn = call->conn;
    c->front->in_flight++;
    rc = submit(c, call, service, r, &params);
    if (rc) {
        call_free(c);
        if (rc == -EAGAIN)
            openai_error_set(error, 429, "too_many_requests", NULL,
                             "too many requests are in flight");
        return rc;
    }
    http_on_gone(call->conn, on_gone, c);
    return 0;
}

/* 400 or 404: no such model, and there are none but engines'. */
static void set_no_model(const struct front *front,
                         const struct forward_body *body,
                         struct openai_error *error)
{
    char models[300];

    front_models(front->models, models, sizeof(models));
    if (*body->model)
        openai_error_set(error, 404, "model_not_found", "model",
                         "model '%.100s' does not exist; this server has %s",
                         body->model, models);
    else
        openai_error_set(error, 400, "missing_parameter", "model",
                         "'model' is required: this server has %s", models);
}

/* The model's service; without a name that of the only model. */
static struct service *find(const struct front *front,
                            const struct forward_body *body)
{
    struct service *only = models_first(front->models);

    if (*body->model)
        return models_find(front->models, body->model, strlen(body->model));
    return only && service_next(only) ? NULL : only;
}

bool forward_serve(const struct front_call *call)
{
    struct reading r = {0};
    struct forward_body *body = &r.body;
    struct openai_error error;
    struct http_slice path = call->head->path;
    int rc = endpoint_rules(call, r.text, &r.rules, &error);

    if (rc == 0)
        rc = forward_body_read(forward_kind_of(path.at, path.n), call->body,
                               call->n, &r.rules, body, &error);
    struct service *service = rc ? NULL : find(call->front, body);

    if ((rc == -EINVAL && call->front->native) ||
        (rc == 0 && call->front->native &&
         (!service || !service_forwards(service)))) {
        forward_body_fini(body);
        return false;
    }
    if (rc == 0 && !service) {
        set_no_model(call->front, body, &error);
        rc = -ENOENT;
    }
    if (rc == 0 && call->front->draining) {
        openai_error_set(&error, 503, "shutting_down", NULL,
                         "the server is shutting down");
        rc = -EAGAIN;
    }
    if (rc == 0)
        rc = take_on(call, service, &r, &error);
    forward_body_fini(body);
    if (rc == -ENOMEM)
        endpoint_set_no_memory(&error);
    if (rc)
        endpoint_reply_error(call->conn, &error, 0);
    return true;
}
