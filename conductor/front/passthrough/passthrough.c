/* Forwarded requests: reading them, and submitting them to the service. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/openai/body/path.h"
#include "conductor/front/openai/form.h"
#include "conductor/front/passthrough/state.h"

/* Assumed output tokens of a request without a limit. */
#define USUAL_MAX_TOKENS 256

/* A request whose body was read. */
struct reading {
    struct forward_body body;
    struct forward_rules rules;
    char text[ENDPOINT_RULES_BYTES]; /* bytes of the rules */
    bool looks;                      /* no model computes anything for it */
    bool of_header;                  /* a header names the model */
    bool ticket;                     /* another gateway sends it */
};

/* Sets f->body and f->n to the bytes for the engine: the client's own, or, if
 * members are changed, those written to `bytes`, which the caller initialised
 * and frees. Returns 0 or -ENOMEM. */
static int make_body(const struct front_call *call, const struct reading *r,
                     struct text_buf *bytes, struct service_forward *f)
{
    f->body = call->body;
    f->n = call->n;
    if (!forward_body_changes(&r->body, &r->rules))
        return 0;
    forward_body_write(&r->body, call->body, call->n, &r->rules, bytes);
    if (bytes->error)
        return -ENOMEM;
    f->body = bytes->data;
    f->n = bytes->len;
    return 0;
}

/* Has the connection keep the body until the answer is whole. Written bytes
 * replace the client's only now: slices read from the client's body were in use
 * until the request was submitted. */
static void keep_body(struct http_conn *conn, struct text_buf *bytes)
{
    if (bytes->data)
        http_replace_body(conn, bytes);
    else
        http_keep_body(conn);
}

/* Returns the body's LoRA adapter; NULL = none. */
static const char *adapter_of(const struct service *service,
                              const struct forward_body *body)
{
    if (*body->adapter)
        return body->adapter;
    return service_has_adapter(service, body->model) ? body->model : NULL;
}

/* Sets whether an engine keeps the answer, and which kept one the request is
 * about. */
static void set_kept(const struct front_call *call,
                     const struct forward_body *body, struct service_forward *f)
{
    struct http_slice id = body->previous;

    f->keeps = body->kind && strstr(body->kind->path, "/responses");
    f->owner = call->terms.name ? call->terms.number : 0;
    id = id.n > 2 && *id.at == '"' ? (struct http_slice){id.at + 1, id.n - 2}
                                   : forward_path_kept(call->head->path);
    f->kept = id.at;
    f->n_kept = id.n;
}

/* Submits the request. Returns 0, and the client's body may be freed then; or
 * -EAGAIN or -ENOMEM. */
static int submit(struct forward_call *c, const struct front_call *call,
                  struct service *service, const struct reading *r,
                  struct service_request_params *params,
                  struct openai_error *error)
{
    const struct forward_body *body = &r->body;
    struct service_forward f = {
        .stream = body->stream,
        .looks = r->looks,
        .ids = body->ids,
        .several = body->several,
        .prompt = body->kind,
        .apart = body->kind && body->kind->sglang,
        .pairs = body->kind && body->kind->pairs && !body->whole,
    };
    struct text_buf bytes;
    int rc;

    text_buf_init(&bytes, SIZE_MAX);
    set_kept(call, body, &f);
    c->head = forward_copy_head(call, &f);
    if (!c->head)
        return -ENOMEM;
    if (service_tokenizes(service))
        f.tokenize = c->tokenize = forward_tokenize_body(body, &f.n_tokenize);
    f.cache_salt = body->cache_salt;
    c->named = http_find(call->head, "x-request-id");
    c->traced = http_find(call->head, "traceparent");
    params->tokens = body->words;
    params->n_tokens = body->n_words;
    params->max_tokens = body->max_tokens ? body->max_tokens
                         : r->looks       ? 1
                                          : USUAL_MAX_TOKENS;
    params->salt = body->salt;
    params->adapter = adapter_of(service, body);
    params->model = *body->model ? body->model : NULL;
    endpoint_names(call->head, params);
    params->forward = &f;
    rc = r->ticket ? schedule_read_headers(c, call, &f, error)
                   : make_body(call, r, &bytes, &f);
    if (rc == 0 && body->hashes && !body->ids)
        rc = schedule_take_hashes(call, service, body, params, &f, error);
    if (rc == 0) {
        c->request = service_submit(
            service, params,
            r->ticket ? &schedule_reply_ops : &forward_reply_ops, c);
        rc = c->request ? 0 : -errno;
    }
    if (rc == 0 && !r->ticket)
        keep_body(call->conn, &bytes);
    text_buf_fini(&bytes);
    return rc;
}

/* Submits the request. Returns as endpoint_refuse() takes it. */
static int take_on(const struct front_call *call, struct service *service,
                   const struct reading *r, struct openai_error *error)
{
    struct service_request_params params = {.arrived_us =
                                                http_arrived_us(call->conn)};
    struct forward_call *c;
    int rc = endpoint_slos(call->head, &params, error);

    if (rc == 0)
        rc = endpoint_tenant(call, &params, error);
    if (rc)
        return rc;
    params.priority = endpoint_priority(&r->rules, r->body.priority);
    c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->front = call->front;
    c->conn = call->conn;
    c->front->in_flight++;
    rc = submit(c, call, service, r, &params, error);
    if (rc) {
        forward_call_free(c);
        return rc;
    }
    if (r->body.stream && r->body.kind && !r->ticket)
        keepalive_start(&c->keepalive, c->front, c->conn, forward_begin_stream,
                        c);
    http_recorded(call->conn);
    http_on_gone(call->conn, forward_call_free, c);
    return 0;
}

/* Returns the model's service; without a name, the only model's. */
static struct service *find(const struct front *front,
                            const struct forward_body *body)
{
    struct service *only = models_first(front->models);

    if (*body->model)
        return models_find(front->models, body->model, strlen(body->model));
    return only && service_next(only) ? NULL : only;
}

/* Without a model in the request: returns the service for requests that all
 * engines answer alike, which are a browser's OPTIONS. NULL: another
 * request. */
static struct service *find_any(const struct front_call *call)
{
    struct service *s = models_first(call->front->models), *found = NULL;

    if (!http_is(call->head->method, "OPTIONS"))
        return NULL;
    for (; s; s = service_next(s))
        if (s != call->front->native && (!found || !service_ready(found)))
            found = s;
    return found;
}

/* Whether the native model answers: the request is for it, or has a fault that
 * it explains better, as all of its paths have prompts. Invalid JSON is refused
 * here, with or without workers. `service`: the model's, as far as the body was
 * read. */
static bool is_native(const struct front *front, const struct service *service,
                      bool has_prompt, int rc, const struct openai_error *error)
{
    if (!front->native)
        return false;
    if (rc != -EINVAL)
        return service == front->native;
    return has_prompt && strcmp(error->code, "invalid_json") != 0 &&
           strcmp(error->param, "model") != 0 &&
           (!service || service == front->native);
}

/* Reads the body by its type; types other than JSON and forms are not read.
 * Prompts must be JSON, and a JSON object must be declared as JSON: else
 * members that are to be set or taken out would pass. */
static int read_body(const struct front_call *call,
                     const struct forward_kind *kind, struct reading *r,
                     struct openai_error *error)
{
    struct http_slice type = endpoint_type(call->head);
    enum form_type form = form_type_of(type.at, type.n);
    int rc;

    if (call->n == 0 && !kind)
        return 0;
    if (form != FORM_JSON && (kind || form_hides_object(call->body, call->n)))
        return endpoint_set_type(call->head, "application/json, or left out",
                                 error);
    if (form == FORM_OTHER)
        return 0;
    if (form == FORM_MULTIPART)
        return form_read(type.at, type.n, call->body, call->n, &r->body, error);
    rc = endpoint_rules(call, r->text, &r->rules, error);
    return rc ? rc
              : forward_body_read(kind, call->body, call->n, &r->rules,
                                  &r->body, error);
}

/* Reads the body, and the model in the body or a header. */
static int read_all(const struct front_call *call,
                    const struct forward_kind *kind, struct reading *r,
                    struct openai_error *error)
{
    int rc = read_body(call, kind, r, error);

    r->looks = !kind && forward_path_looks(call->head->method, call->n);
    if (rc == 0 && !*r->body.model) {
        rc = endpoint_model(call->head, r->body.model, error);
        r->of_header = *r->body.model;
    }
    return rc;
}

/* Submits the request that was read, or refuses it; rc is what reading
 * returned. */
static void serve(const struct front_call *call, struct service *service,
                  struct reading *r, int rc, struct openai_error *error)
{
    if (rc == 0 && !service)
        rc = forward_set_no_model(call, r->body.model, r->of_header, error);
    if (rc == 0 && !r->ticket)
        rc = forward_check_path(call, error);
    if (rc == 0)
        rc = forward_check_own(call, service, &r->body, error);
    if (rc == 0)
        rc = endpoint_open(call, error);
    if (rc == 0)
        rc = take_on(call, service, r, error);
    forward_body_fini(&r->body);
    endpoint_refuse(call, rc, error);
}

bool forward_serve(const struct front_call *call)
{
    char read[FORWARD_PATH_BYTES];
    /* Only POST has a prompt. */
    const struct forward_kind *kind =
        http_is(call->head->method, "POST")
            ? forward_kind_of(forward_path_read(call->head->path, read))
            : NULL;
    struct reading r = {0};
    struct openai_error error;

    int rc = read_all(call, kind, &r, &error);
    struct service *service = find(call->front, &r.body);

    if (!service && !*r.body.model)
        service = find_any(call);
    if (is_native(call->front, service, kind, rc, &error)) {
        forward_body_fini(&r.body);
        return false;
    }
    serve(call, service, &r, rc, &error);
    return true;
}

/* Reads the body of a /v1/schedule request: a chat, or one with a prompt. */
static int read_question(const struct front_call *call, struct reading *r,
                         struct openai_error *error)
{
    int rc = read_all(call, forward_kind_of(http_text(FORWARD_SCHEDULE_PATH)),
                      r, error);

    if (rc || r->body.words || r->body.hashes)
        return rc;
    forward_body_fini(&r->body);
    rc = read_all(call, forward_kind_of(http_text("/v1/chat/completions")), r,
                  error);
    if (rc || r->body.words)
        return rc;
    return openai_error_set(error, 400, "missing_parameter", "prompt",
                            "prompt: missing: there must be prompt, messages, "
                            "token_ids, input_ids or block_hashes");
}

void schedule_serve(const struct front_call *call)
{
    struct reading r = {.ticket = true};
    struct openai_error error;
    int rc = read_question(call, &r, &error);
    struct service *service = rc ? NULL : find(call->front, &r.body);

    if (service && service == call->front->native)
        rc = openai_error_set(
            &error, 400, "not_schedulable", "model",
            "model: \"%s\": is served by native workers, which take requests "
            "from this conductor only: send it to /v1/completions",
            service_model(service)->name);
    serve(call, service, &r, rc, &error);
}
