/* A service whose requests a test moves by hand. */
#include "fake_service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "conductor/json/text_buf.h"
#include "conductor/service/ticket/gateway.h"

void fake_service_reset(struct service *service)
{
    for (size_t i = 0; i < service->n_requests; i++) {
        free((void *)(uintptr_t)service->requests[i]->params.tokens);
        free((void *)(uintptr_t)service->requests[i]->params.salt);
        free(service->requests[i]);
    }
    service->n_requests = 0;
    service->n_cancelled = 0;
}

struct service_request *
service_submit(struct service *service,
               const struct service_request_params *params,
               const struct service_reply_ops *ops, void *arg)
{
    struct service_request *request;
    uint32_t *tokens;

    if (service->n_requests == FAKE_CALLS ||
        (service->submit_errno && service->allowed-- == 0)) {
        errno = service->submit_errno ? service->submit_errno : EAGAIN;
        return NULL;
    }
    request = calloc(1, sizeof(*request));
    tokens = malloc(params->n_tokens * sizeof(*tokens));
    memcpy(tokens, params->tokens, params->n_tokens * sizeof(*tokens));
    request->service = service;
    request->ops = ops;
    request->arg = arg;
    request->params = *params;
    request->params.tokens = tokens;
    request->params.salt = params->salt ? strdup(params->salt) : NULL;
    return service->requests[service->n_requests++] = request;
}

void service_cancel(struct service_request *request, const char *)
{
    if (!request)
        return;
    if (request->dead)
        abort(); /* a dead handle was used */
    request->dead = request->cancelled = true;
    request->service->n_cancelled++;
}

const struct service_model_info *service_model(const struct service *service)
{
    return &service->model;
}

struct service *service_next(const struct service *service)
{
    (void)service;
    return NULL;
}

size_t models_untold(const struct models *)
{
    return 0;
}

struct service *models_first(const struct models *models)
{
    return models->service;
}

struct service *models_find(const struct models *models, const char *name,
                            size_t n)
{
    const char *only = models->service->model.name;

    return strlen(only) == n && memcmp(only, name, n) == 0 ? models->service
                                                           : NULL;
}

struct service *models_native(const struct models *models)
{
    return models->service;
}

const struct service_name *service_name_at(const struct service *, size_t)
{
    return NULL;
}

bool service_has_adapter(const struct service *, const char *)
{
    return false;
}

bool models_forward(const struct models *models)
{
    (void)models;
    return false;
}

uint32_t models_widest(const struct models *models)
{
    (void)models;
    return 0;
}

void service_pause(struct service_request *request, bool pause)
{
    (void)request;
    (void)pause;
}

bool service_tokenizes(const struct service *)
{
    return false;
}

bool service_ready(const struct service *service)
{
    return service->ready;
}

const char *service_lacks(const struct service *service,
                          char drained[SERVICE_DRAINED_BYTES])
{
    text_copy(drained, SERVICE_DRAINED_BYTES,
              service->drained ? service->drained : "");
    if (service->ready)
        return NULL;
    return service->lacks ? service->lacks : "";
}

struct models_report {
    int pieces;
};

struct models_report *models_report_new(const struct models *models)
{
    (void)models;
    return calloc(1, sizeof(struct models_report));
}

int models_report_next(struct models_report *report, struct text_buf *out)
{
    if (text_buf_printf(out, "fake_calls %d\n", ++report->pieces) < 0)
        return -ENOMEM;
    return report->pieces < 3;
}

void models_report_free(struct models_report *report)
{
    free(report);
}

int models_explain(const struct models *models, const char *id,
                   struct text_buf *out)
{
    (void)models;
    if (strcmp(id, "r-17") != 0)
        return -ENOENT;
    return text_buf_printf(out, "{\"why\":1}") < 0 ? -ENOMEM : 0;
}

int models_copies(const struct models *models, struct text_buf *out)
{
    (void)models;
    return text_buf_printf(out, "{\"copies\":[]}") < 0 ? -ENOMEM : 0;
}

int models_replicas(struct models *models, const uint32_t *tokens, size_t n,
                    uint32_t copies, struct text_buf *out)
{
    (void)models;
    if (copies == 404)
        return -ENOENT;
    return text_buf_printf(out, "{\"tokens\":%zu,\"last\":%u,\"copies\":%u}", n,
                           tokens[n - 1], copies) < 0
               ? -ENOMEM
               : 0;
}

int models_blocks(const struct models *models, uint64_t key,
                  const uint32_t *tokens, size_t n, struct text_buf *out)
{
    (void)models;
    if (key == 404)
        return -ENOENT;
    return text_buf_printf(out,
                           "{\"key\":%llu,\"tokens\":%zu,"
                           "\"last\":%u}",
                           (unsigned long long)key, tokens ? n : 0,
                           tokens && n > 0 ? tokens[n - 1] : 0) < 0
               ? -ENOMEM
               : 0;
}

int models_health(const struct models *models, struct text_buf *out)
{
    (void)models;
    return text_buf_printf(out, "{\"status\":\"ok\"}") < 0 ? -ENOMEM : 0;
}

int models_instances(const struct models *models, size_t most,
                     struct text_buf *out)
{
    (void)most;
    for (size_t i = 0; i < models->more_bytes; i++)
        if (text_buf_printf(out, " "))
            return -ENOMEM;
    return text_buf_printf(out, "{\"instances\":[]}\n") < 0 ? -ENOMEM : 0;
}

int models_overview(const struct models *models, struct text_buf *out)
{
    (void)models;
    return text_buf_printf(out, "{\"requests\":{}}\n") < 0 ? -ENOMEM : 0;
}

int models_bookings(const struct models *models, struct text_buf *out)
{
    (void)models;
    return text_buf_printf(out, "{\"bookings\":[]}\n") < 0 ? -ENOMEM : 0;
}

int models_history(const struct models *models, enum history_span span,
                   struct text_buf *out)
{
    static const int step_s[HISTORY_SPANS] = {5, 10, 240};

    (void)models;
    return text_buf_printf(out, "{\"step_s\":%d}\n", step_s[span]) < 0 ? -ENOMEM
                                                                       : 0;
}

uint64_t models_decided(const struct models *models)
{
    return models->decided;
}

int models_decisions(const struct models *models, unsigned n,
                     struct text_buf *out)
{
    return text_buf_printf(out, "{\"decisions\":[%u,%d]}\n", n,
                           (int)models->decided) < 0
               ? -ENOMEM
               : 0;
}

int models_add(struct models *models, const char *json, size_t n,
               bool may_name_files, char name[SERVICE_NAME_BYTES],
               char err[SERVICE_ERROR_BYTES])
{
    (void)models;
    (void)may_name_files;
    snprintf(name, SERVICE_NAME_BYTES, "e0");
    snprintf(err, SERVICE_ERROR_BYTES, "name: \"e0\" is there");
    return n && *json == '{' ? 0 : -EEXIST;
}

int models_remove(struct models *models, const char *name,
                  char err[SERVICE_ERROR_BYTES])
{
    (void)models;
    snprintf(err, SERVICE_ERROR_BYTES, "no '%s'", name);
    return strcmp(name, "a/b") == 0 ? 0 : -ENOENT;
}

int models_drain(struct models *models, const char *name, bool on,
                 int64_t limit_us, const char **state,
                 char err[SERVICE_ERROR_BYTES])
{
    (void)models;
    (void)limit_us;
    *state = on ? "draining" : "ready";
    snprintf(err, SERVICE_ERROR_BYTES, "no '%s'", name);
    return strcmp(name, "a/b") == 0 ? 0 : -ENOENT;
}

int models_switch(struct models *models, const char *name, const char *role,
                  const char **state, char err[SERVICE_ERROR_BYTES])
{
    (void)models;
    *state = "ready";
    snprintf(err, SERVICE_ERROR_BYTES, "no '%s' to %s", name, role);
    return strcmp(name, "a/b") == 0 ? 0 : -ENOENT;
}

void fake_schedule(struct service_request *request, const char *prefill,
                   const char *decode)
{
    const struct service_decision decision = {"r-17", "m", prefill, decode,
                                              1500};

    if (!request->dead)
        request->ops->scheduled(request->arg, &decision);
}

void fake_tokens(struct service_request *request, const char *text)
{
    for (const char *c = text; *c && !request->dead; c++)
        request->ops->token(request->arg, (uint32_t)(unsigned char)*c);
}

void fake_done(struct service_request *request)
{
    const struct service_result result = {.local_tokens = 2,
                                          .fetched_tokens = 1,
                                          .computed_tokens = 3,
                                          .queue_us = 250,
                                          .prefill_us = 4000,
                                          .retries = 1};

    if (request->dead)
        return;
    request->dead = true;
    request->ops->done(request->arg, &result);
}

void fake_fail(struct service_request *request, int http_status,
               const char *code, const char *message, int64_t retry_after_us)
{
    const struct service_failure failure = {
        .request_id = "r-17", http_status, code, message, retry_after_us};

    if (request->dead)
        return;
    request->dead = true;
    request->ops->failed(request->arg, &failure);
}

void fake_run(struct service_request *request)
{
    fake_schedule(request, "p0", "d0");
    for (uint32_t i = 0; i < request->params.max_tokens; i++)
        fake_tokens(request, (char[2]){(char)('a' + i % 26), '\0'});
    fake_done(request);
}

void service_ticket_take(struct service_request *request,
                         struct service_ticket *out)
{
    (void)request;
    *out = (struct service_ticket){0};
}

int models_report_ticket(const struct models *models, const char *id,
                         const struct service_ticket_report *report)
{
    (void)models;
    (void)id;
    (void)report;
    return -ENOENT;
}

int service_ask_index(struct service *s,
                      const struct service_question *question,
                      struct service_holdings *out)
{
    (void)s;
    (void)question;
    *out = (struct service_holdings){0};
    return 0;
}

void service_holdings_fini(struct service_holdings *holdings)
{
    (void)holdings;
}

void service_listeners(const struct service *s, service_listener_fn *each,
                       void *arg)
{
    (void)s;
    (void)each;
    (void)arg;
}

bool service_keeps(const struct service *service, uint64_t owner,
                   const char *id, size_t n)
{
    (void)service;
    (void)owner;
    (void)id;
    return n > 0;
}

bool models_need_keys(const struct models *models)
{
    (void)models;
    return false;
}

enum tenant_refusal models_enter(struct models *models, const char *key,
                                 size_t n, enum tenant_step step,
                                 struct tenant_terms *terms, int64_t *retry_us)
{
    (void)models, (void)key, (void)n, (void)step, (void)terms, (void)retry_us;
    return TENANT_ENTERS;
}

void models_refused(const struct models *models,
                    const struct service_refusal *refusal)
{
    (void)models, (void)refusal;
}
