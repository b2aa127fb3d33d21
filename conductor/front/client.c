/*
 * Decides which clients may ask: where keys are required, clients with a key of
 * tenants_file, within the limits of its tenant; else all. Refused requests
 * have a line in the access log.
 */
#include <string.h>

#include "conductor/front/internal.h"

/* Texts for each limit. */
static const struct {
    const char *code, *name, *over;
} limits[] = {
    [TENANT_ASKS] = {"rate_limit_requests", "requests_per_minute",
                     "the tenant has sent that many requests"},
    [TENANT_TOKENS] = {"rate_limit_tokens", "tokens_per_minute",
                       "the tenant has used that many tokens"},
    [TENANT_IN_FLIGHT] = {"rate_limit_in_flight", "max_in_flight",
                          "that many of the tenant's requests are in flight"},
};

static void refuse(const struct front_call *call, enum tenant_refusal why,
                   bool no_key, int64_t retry_us)
{
    const char *name = call->front->options.tenant_header;
    struct openai_error error;

    if (why == TENANT_UNKNOWN)
        openai_error_set(&error, 401, "invalid_api_key", NULL, "header %s: %s",
                         name,
                         no_key ? "missing: it must hold a key of tenants_file"
                                : "the key is unknown");
    else
        openai_error_set(&error, 429, limits[why].code, NULL,
                         "header %s: tenant %s: %s is %.0f, and %s: try again "
                         "after the time in Retry-After",
                         name, call->terms.name, limits[why].name,
                         call->terms.limit, limits[why].over);
    if (why == TENANT_UNKNOWN && strcmp(name, "authorization") == 0)
        http_add_header(call->conn, "WWW-Authenticate", "Bearer");
    endpoint_reply_error(call->conn, &error, retry_us);
}

static void refuse_crowded(const struct front_call *call)
{
    struct openai_error error;

    openai_error_set(&error, 503, "too_many_connections", NULL,
                     "the tenant has too many connections in use");
    endpoint_reply_error(call->conn, &error, 0);
}

bool client_may_ask(struct front_call *call, enum tenant_step step)
{
    struct models *models = call->front->models;
    enum tenant_refusal why;
    struct openai_error error;
    struct http_slice key;
    int64_t retry_us = -1;

    if (!models_need_keys(models))
        return true;
    if (endpoint_key(call, &key, &error)) {
        http_reply_error(call->conn, &error);
        return false;
    }
    why = models_enter(models, key.at, key.n, step, &call->terms, &retry_us);
    if (why != TENANT_ENTERS)
        refuse(call, why, key.n == 0, retry_us);
    else if (!http_set_client(call->conn, call->terms.number))
        refuse_crowded(call);
    else
        return true;
    return false;
}

void client_refused(const struct front *front, struct http_conn *conn,
                    const struct http_head *head,
                    const struct openai_error *error)
{
    static const struct http_head unread;
    struct service_request_params names = {0};
    struct front_call call = {.front = (struct front *)front,
                              .conn = conn,
                              .head = head ? head : &unread};
    struct openai_error twice;
    struct http_slice key;
    char peer[HTTP_PEER_BYTES];

    http_peer(conn, peer);
    endpoint_names(call.head, &names);
    if (endpoint_key(&call, &key, &twice))
        key.n = 0;
    models_refused(front->models, &(struct service_refusal){
                                      .arrived_us = http_arrived_us(conn),
                                      .status = error->http_status,
                                      .code = error->code,
                                      .client = peer,
                                      .method = call.head->method,
                                      .path = call.head->path,
                                      .key = key,
                                      .client_id = names.client_id,
                                      .trace = names.trace,
                                  });
}
