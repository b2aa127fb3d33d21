/*
 * One HTTP request of the completion endpoints: a request per prompt, joined
 * into one answer.
 *
 *   waiting --first token, stream--> streaming --last part--> freed
 *           --last part-------------------------------------> freed
 *   if a request fails, or the client goes or reads too slowly, the other
 *   requests are cancelled, and the completion is freed
 *
 *   left == number of requests that neither ended nor were cancelled
 *   nothing is sent before the first token, so that until then an error can
 *   still be a status
 */
#include <errno.h>
#include <stdlib.h>

#include "base/loop/loop.h"
#include "base/text.h"
#include "conductor/front/keepalive.h"
#include "conductor/front/openai/reply.h"
#include "conductor/front/routes.h"

struct slot {
    struct completion *completion;
    struct service_request *request; /* NULL = ended, or not yet submitted */
    bool begun;                      /* its first token came */
    struct told told;
    struct text_buf text;
    struct openai_outcome *outcome; /* in completion.outcomes */
};

struct completion {
    struct front *front;
    struct http_conn *conn;
    struct openai_reply_head head;
    bool stream;
    bool named; /* the answer has its x-request-id already */
    bool include_usage;
    bool streaming;
    struct keepalive keepalive;
    struct text_buf out; /* being written */
    size_t n;
    size_t left;
    struct openai_outcome *outcomes; /* (n), behind the slots */
    struct slot slots[];             /* (n) */
};

/* Cancels requests that have not ended, for this reason, and frees the
 * completion. */
static void completion_end(struct completion *c, const char *why)
{
    for (size_t i = 0; i < c->n; i++) {
        service_cancel(c->slots[i].request, why);
        text_buf_fini(&c->slots[i].text);
    }
    keepalive_stop(&c->keepalive);
    text_buf_fini(&c->out);
    c->front->in_flight--;
    free(c);
}

static void completion_free(void *arg)
{
    completion_end(arg, "another prompt of the same request failed");
}

static void completion_gone(void *arg)
{
    completion_end(arg, SERVICE_CLIENT_LEFT);
}

/* Sends what was written. False: the completion was freed. */
static bool send_out(struct completion *c)
{
    if (c->out.error || http_write(c->conn, c->out.data, c->out.len)) {
        http_abort(c->conn);
        completion_free(c);
        return false;
    }
    text_buf_clear(&c->out);
    return true;
}

/* Sends the last of a stream, and frees the completion. */
static void end_stream(struct completion *c)
{
    openai_chunk_done(&c->out);
    if (!send_out(c))
        return;
    http_end(c->conn);
    completion_free(c);
}

/* Answers with an error, or ends the stream with one; frees the completion,
 * which cancels the other requests. retry_us as in endpoint_reply_error(). */
static void fail(struct completion *c, const struct openai_error *error,
                 int64_t retry_us)
{
    if (!c->streaming) {
        endpoint_reply_error(c->conn, error, retry_us);
        completion_free(c);
        return;
    }
    text_buf_clear(&c->out);
    openai_chunk_error(error, &c->out);
    end_stream(c);
}

static void fail_memory(struct completion *c)
{
    struct openai_error error;

    endpoint_set_no_memory(&error);
    fail(c, &error, 0);
}

/* Returns the slot whose request names the answer: the first scheduled one. */
static const struct slot *name_slot(const struct completion *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (*c->slots[i].told.request_id)
            return &c->slots[i];
    return &c->slots[0];
}

/* Adds the answer's headers, and sets its id. */
static void add_headers(struct completion *c)
{
    const struct told *told = &name_slot(c)->told;

    c->head.id = told->request_id;
    if (*told->request_id)
        endpoint_tell(c->conn, told, !c->named);
}

/* Sends the head of a stream; arg is the completion. */
static void begin_stream(void *arg)
{
    struct completion *c = arg;

    c->streaming = true;
    http_add_header(c->conn, "X-Accel-Buffering", "no");
    http_add_header(c->conn, "Cache-Control", "no-cache");
    add_headers(c);
    http_stream(c->conn, 200, "text/event-stream; charset=utf-8");
}

static void on_scheduled(void *arg, const struct service_decision *decision)
{
    struct slot *slot = arg;

    endpoint_note(&slot->told, decision);
    slot->outcome->decode = *slot->told.decode ? slot->told.decode : NULL;
    slot->outcome->predicted_ttft_us = decision->predicted_ttft_us;
}

static void on_token(void *arg, uint32_t token)
{
    struct slot *slot = arg;
    struct completion *c = slot->completion;
    size_t index = (size_t)(slot - c->slots), n;
    char text[4];

    n = openai_token_text(token, text);
    slot->outcome->output_tokens++;
    if (!c->stream) {
        text_buf_add(&slot->text, text, n);
        return;
    }
    keepalive_stop(&c->keepalive);
    if (!c->streaming)
        begin_stream(c);
    if (!slot->begun)
        openai_chunk_start(&c->head, index, slot->outcome, &c->out);
    slot->begun = true;
    openai_chunk_text(&c->head, index, slot->outcome, text, n, &c->out);
    (void)send_out(c);
}

static bool on_take_back(void *arg)
{
    struct slot *slot = arg;

    if (slot->begun)
        return false;
    text_buf_clear(&slot->text);
    slot->outcome->output_tokens = 0;
    return true;
}

/* Answers when all requests are done; frees the completion. */
static void complete(struct completion *c)
{
    if (c->stream) {
        if (c->include_usage)
            openai_chunk_usage(&c->head, c->outcomes, c->n, &c->out);
        end_stream(c);
        return;
    }
    for (size_t i = 0; i < c->n; i++) {
        const struct text_buf *text = &c->slots[i].text;

        c->outcomes[i].text = text->data ? text->data : "";
        c->outcomes[i].text_bytes = text->len;
    }
    add_headers(c);
    openai_reply_write(&c->head, c->outcomes, c->n, &c->out);
    if (c->out.error) {
        fail_memory(c);
        return;
    }
    http_reply(c->conn, 200, "application/json", c->out.data, c->out.len);
    completion_free(c);
}

static void on_done(void *arg, const struct service_result *result)
{
    struct slot *slot = arg;
    struct completion *c = slot->completion;

    slot->request = NULL;
    slot->outcome->result = *result;
    if (slot->text.error) {
        fail_memory(c);
        return;
    }
    if (c->stream) {
        keepalive_stop(&c->keepalive);
        if (!c->streaming)
            begin_stream(c);
        openai_chunk_finish(&c->head, (size_t)(slot - c->slots), slot->outcome,
                            &c->out);
        if (!send_out(c))
            return;
    }
    if (--c->left == 0)
        complete(c);
}

static void on_failed(void *arg, const struct service_failure *failure)
{
    struct slot *slot = arg;
    struct openai_error error;

    slot->request = NULL;
    endpoint_set_failure(failure,
                         failure->http_status == 400
                             ? openai_prompt_param(slot->completion->head.kind)
                             : NULL,
                         &error);
    if (!slot->completion->streaming && failure->request_id) {
        struct told told = {0};

        text_copy(told.request_id, sizeof(told.request_id),
                  failure->request_id);
        endpoint_tell(slot->completion->conn, &told, !slot->completion->named);
    }
    fail(slot->completion, &error, failure->retry_after_us);
}

static const struct service_reply_ops completion_ops = {
    .scheduled = on_scheduled,
    .token = on_token,
    .take_back = on_take_back,
    .done = on_done,
    .failed = on_failed,
};

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
        .created_s = loop_wall_us(front->loop) / 1000000,
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

/* Submits a checked request. Returns as endpoint_refuse() takes it. */
static int take_on(const struct front_call *call,
                   const struct openai_request *request,
                   struct service_request_params *params,
                   struct openai_error *error)
{
    struct completion *c;
    int rc;

    if (!service_ready(call->front->native))
        return endpoint_set_unready(call->front, error);
    if (call->terms.name && request->n_prompts > call->terms.room)
        return openai_error_set(
            error, 429, "rate_limit_in_flight", "prompt",
            "prompt: %zu prompts: the tenant may have %u more requests in "
            "flight (max_in_flight), and each prompt is one",
            request->n_prompts, call->terms.room);
    c = completion_new(call->front, call->conn, request);
    if (!c)
        return -ENOMEM;
    c->named = http_find(call->head, "x-request-id");
    rc = submit_all(c, request, params);
    if (rc) {
        completion_free(c);
        return rc;
    }
    if (c->stream)
        keepalive_start(&c->keepalive, c->front, c->conn, begin_stream, c);
    http_recorded(call->conn);
    http_on_gone(call->conn, completion_gone, c);
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

    rc = endpoint_open(call, &error) ||
                 endpoint_slos(call->head, &params, &error) ||
                 endpoint_rules(call, text, &rules, &error) ||
                 endpoint_tenant(call, &params, &error)
             ? -EINVAL
             : 0;
    if (rc == 0 && model.vocab == 0) /* no worker has described it yet */
        rc = endpoint_set_unready(front, &error);
    if (rc == 0)
        rc = openai_request_parse(request.kind, call->body, call->n, &model,
                                  &front->options.limits, &request, &error);
    if (rc == 0) {
        params.max_tokens = request.max_tokens;
        endpoint_names(call->head, &params);
        params.priority = endpoint_priority(&rules, request.priority);
        params.salt = rules.cache_salt ? rules.cache_salt : request.salt;
        rc = take_on(call, &request, &params, &error);
    }
    openai_request_fini(&request);
    endpoint_refuse(call, rc, &error);
}
