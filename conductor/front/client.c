/*
 * Who may ask, where keys are required: one of tenants_file, within the limits
 * of its tenant. Without that requirement everybody may.
 */
#include <string.h>

#include "conductor/front/internal.h"

static const struct {
    int status;
    const char *code, *message;
} refusals[] = {
    [TENANT_UNKNOWN] = {401, "invalid_api_key", "there is no such key"},
    [TENANT_ASKS] = {429, "rate_limit_requests",
                     "its tenant has had its requests_per_minute"},
    [TENANT_TOKENS] = {429, "rate_limit_tokens",
                       "its tenant has had its tokens_per_minute"},
    [TENANT_IN_FLIGHT] = {429, "rate_limit_in_flight",
                          "its tenant has max_in_flight requests in work"},
};

static void refuse(const struct front_call *call, enum tenant_refusal why,
                   int64_t retry_us)
{
    const char *name = call->front->options.tenant_header;
    struct openai_error error;

    openai_error_set(&error, refusals[why].status, refusals[why].code, NULL,
                     "header %s: %s", name, refusals[why].message);
    if (why == TENANT_UNKNOWN && strcmp(name, "authorization") == 0)
        http_add_header(call->conn, "WWW-Authenticate", "Bearer");
    endpoint_reply_error(call->conn, &error, retry_us);
}

bool client_may_ask(struct front_call *call, bool counts)
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
    why = models_enter(models, key.at, key.n,
                       counts && http_is(call->head->method, "POST"),
                       &call->terms, &retry_us);
    if (why != TENANT_ENTERS)
        refuse(call, why, retry_us);
    return why == TENANT_ENTERS;
}
