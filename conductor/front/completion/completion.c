/* Requests of the completion endpoints: checking them, and submitting one for
 * each prompt. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "conductor/front/completion/state.h"
#include "conductor/front/routes.h"

static struct completion *completion_new(struct front *front,
                                         struct http_conn *conn,
                                         const struct openai_request *request)
{
    struct completion *c =
        calloc(1, sizeof(*c) + request->n_prompts * (sizeof(c->slots[0]) +
                                                     sizeof(*c->outcomes)));

    if (!c)
        return NULL;
    c->front = front;
    c->conn = conn;
    c->stream = request->stream;
    c->include_usage = request->include_usage;
    c->n = c->left = request->n_prompts;
    c->head = (struct openai_reply_head){
        .kind = request->kind,
        .id = "",
        .model = service_model(front->native)->name,
        .created_s = time(NULL),
        .usage_follows = request->include_usage,
        .usage_each = request->usage_each,
    };
    c->outcomes = (struct openai_outcome *)(void *)&c->slots[c->n];
    text_buf_init(&c->out, SIZE_MAX);
    for (size_t i = 0; i < c->n; i++) {
        struct slot *slot = &c->slots[i];

        slot->completion = c;
        /* A token's text has at most three bytes. */
        text_buf_init(&slot->text, 3 * (size_t)request->max_tokens);
        slot->outcome = &c->outcomes[i];
        *slot->outcome = (struct openai_outcome){
            .prompt_tokens = request->offsets[i + 1] - request->offsets[i],
            .request_id = slot->told.request_id,
            .prefill = slot->told.prefill};
    }
    front->in_flight++;
    return c;
}

/* Submits one request per prompt. Returns 0, -EAGAIN or -ENOMEM; on an error
 * some may have been submitted. */
static int submit_all(struct completion *c,
                      const struct openai_request *request,
                      struct service_request_params *params)
{
    for (size_t i = 0; i < c->n; i++) {
        params->tokens = request->tokens + request->offsets[i];
        params->n_tokens = request->offsets[i + 1] - request->offsets[i];
        c->slots[i].request = service_submit(c->front->native, params,
                                             &completion_ops, &c->slots[i]);
        if (!c->slots[i].request)
            return errno == EAGAIN ? -EAGAIN : -ENOMEM;
    }
    return 0;
}

/* Submits a checked request. Returns 0, or a negative errno with *error set. */
static int take_on(const struct front_call *call,
                   const struct openai_request *request,
                   struct service_request_params *params,
                   struct openai_error *error)
{
    struct completion *c;
    int rc;

    if (!service_ready(call->front->native)) {
        endpoint_set_unready(call->front, error);
        return -EAGAIN;
    }
    if (call->terms.name && request->n_prompts > call->terms.room) {
        openai_error_set(
            error, 429, "rate_limit_in_flight", "prompt",
            "prompt: %zu prompts: the tenant may have %u more requests in "
            "flight (max_in_flight), and each prompt is one",
            request->n_prompts, call->terms.room);
        return -EAGAIN;
    }
    c = completion_new(call->front, call->conn, request);
    if (!c)
        return -ENOMEM;
    c->named = http_find(call->head, "x-request-id");
    rc = submit_all(c, request, params);
    if (rc) {
        completion_free(c);
        if (rc == -EAGAIN)
            openai_error_set(error, 429, "too_many_requests", NULL,
                             "too many requests are in flight");
        return rc;
    }
    if (c->stream)
        keepalive_start(&c->keepalive, c->front, c->conn,
                        completion_begin_stream, c);
    http_recorded(call->conn);
    http_on_gone(call->conn, completion_free, c);
    return 0;
}

void completion_serve(const struct front_call *call)
{
    struct front *front = call->front;
    const struct service_model_info *info = service_model(front->native);
    const struct openai_model model = {info->name, info->vocab,
                                       info->window_tokens};
    struct service_request_params params = {.arrived_us =
                                                http_arrived_us(call->conn)};
    struct openai_request request = {.kind = call->route->kind};
    struct openai_error error;
    struct forward_rules rules;
    char text[ENDPOINT_RULES_BYTES];
    int rc;

    if (front->draining) {
        openai_error_set(&error, 503, "shutting_down", NULL,
                         "the server is shutting down");
        endpoint_reply_error(call->conn, &error, 0);
        return;
    }
    rc = endpoint_slos(call->head, &params, &error);
    if (rc == 0)
        rc = endpoint_rules(call, text, &rules, &error);
    if (rc == 0)
        rc = endpoint_tenant(call, &params, &error);
    if (rc == 0 && model.vocab == 0) {
        /* No worker has described the model yet. */
        endpoint_set_unready(front, &error);
        rc = -EAGAIN;
    }
    if (rc == 0)
        rc =
            openai_request_parse(call->route->kind, call->body, call->n, &model,
                                 &front->options.limits, &request, &error);
    if (rc == 0) {
        params.max_tokens = request.max_tokens;
        endpoint_names(call->head, &params);
        params.priority = endpoint_priority(&rules, request.priority);
        params.salt = rules.cache_salt ? rules.cache_salt : request.salt;
        rc = take_on(call, &request, &params, &error);
    }
    openai_request_fini(&request);
    if (rc == -ENOMEM)
        endpoint_set_no_memory(&error);
    if (rc)
        endpoint_reply_error(call->conn, &error, 0);
}
