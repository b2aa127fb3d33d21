/* Calls of the front: submitting requests, the model, readiness. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop/loop.h"
#include "base/text.h"
#include "conductor/core/index/block_key.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/models.h"
#include "conductor/service/ticket/ticket.h"

/* Returns the engines that the request's adapter, else its model name,
 * restricts it to. NULL = all. */
static struct name_set *named(const struct service *s,
                              const struct service_request_params *p)
{
    struct name_set *set =
        p->adapter
            ? name_sets_find(&s->names.sets, p->adapter, strlen(p->adapter))
            : NULL;

    if (set || !p->model)
        return set;
    return name_sets_find(&s->names.sets, p->model, strlen(p->model));
}

int request_compute_keys(struct service_request *request,
                         const uint32_t *tokens, size_t n)
{
    struct request_prompt *p = &request->prompt;
    uint32_t block_tokens = (uint32_t)request->service->config.block_tokens;
    uint64_t *keys = malloc((n / block_tokens + 1) * sizeof(*keys));

    if (!keys)
        return -ENOMEM;
    free(p->keys);
    p->keys = keys;
    p->n_tokens = (uint32_t)n;
    p->n_keys = block_keys_compute(tokens, n, block_tokens, p->key_seed, keys);
    return 0;
}

bool service_keeps(const struct service *service, uint64_t owner,
                   const char *id, size_t n)
{
    return kept_find(&service->requests.kept, owner, id, n) != POOL_NO_INSTANCE;
}

/* Copies a client's id: 63 bytes at most, others than printable ASCII as '?'.
 */
static void copy_name(char out[64], struct http_slice id)
{
    for (size_t i = 0; i < id.n && i < 63; i++)
        out[i] = id.at[i] >= ' ' && id.at[i] <= '~' ? id.at[i] : '?';
}

/* Returns the SLO in us: the request's own, or the default. */
static int64_t limit_us(int64_t own_us, int64_t usual_ms)
{
    return own_us ? own_us : usual_ms * 1000;
}

/* Ids are random, so that no client can guess another's. */
static void set_id(struct service_request *r)
{
    char id[16 + 1 + 16 + 1];
    char *at = text_hex(id, loop_random(r->service->loop), 16);

    *at++ = '-';
    *text_hex(at, r->number, 1) = '\0';
    text_copy(r->request_id, sizeof(r->request_id), id);
}

struct service_request *service_submit(struct service *service,
                                       const struct service_request_params *p,
                                       const struct service_reply_ops *ops,
                                       void *arg)
{
    struct service *s = service;

    if (s->requests.n_free == 0) {
        s->metrics.rejected_no_room++;
        s->metrics.requests[METRICS_REJECTED]++;
        errno = EAGAIN;
        return NULL;
    }
    struct service_request *request = calloc(1, sizeof(*request));
    if (!request)
        return NULL;
    request->service = s;
    request->by = !p->forward          ? &native_ops
                  : p->forward->ticket ? &ticket_ops
                                       : &engine_ops;
    request->prompt.n_tokens = (uint32_t)p->n_tokens;
    request->prompt.max_tokens = p->max_tokens;
    request->prompt.key_seed = block_key_seed(
        s->config.model, p->adapter ? p->adapter : "", p->salt ? p->salt : "");
    request->method = "POST";
    request->dispatch = (struct dispatch_request){
        .owner = request,
        .ask = {.only = POOL_NO_INSTANCE,
                .session = sessions_find(s->requests.sessions, p->session),
                .max_output_tokens = p->max_tokens},
        .arrived_us = p->arrived_us,
        .slo_ttft_us = limit_us(p->slo_ttft_us, s->config.slo_ttft_ms),
        .slo_tbt_us = limit_us(p->slo_tbt_us, s->config.slo_tbt_ms),
    };
    if (request->by->take(request, p))
        goto fail;
    request->dispatch.ask.keys = request->prompt.keys;
    request->dispatch.ask.n_keys = request->prompt.n_keys;
    request->dispatch.ask.n_tokens = request->prompt.n_tokens;
    request->ops = ops;
    request->arg = arg;
    request->slot = s->requests.free_slots[--s->requests.n_free];
    s->requests.by_slot[request->slot] = request;
    request->named = named(s, p);
    if (request->named) {
        request->named->n_requests++;
        request->dispatch.ask.eligible = request->named->engines;
    }
    tenants_find(s->models->tenants, p->tenant.at, p->tenant.n, p->priority,
                 &request->dispatch);
    request->dispatch.length_key =
        block_key_seed(s->config.model, p->adapter, "") ^
        request->dispatch.tenant;
    if (request->by == &ticket_ops &&
        !tickets_enter(s, request->dispatch.tenant)) {
        request->by = &engine_ops; /* no ticket was counted */
        s->metrics.rejected_tickets++;
        s->metrics.requests[METRICS_REJECTED]++;
        service_request_free(request);
        errno = EDQUOT;
        return NULL;
    }
    request->number = s->requests.next_request++;
    request->session = p->session;
    copy_name(request->session_id, p->session_id);
    copy_name(request->client_id, p->client_id);
    copy_name(request->trace, p->trace);
    set_id(request);
    observe_began(request, p);
    if (request->client_id[0] || request->trace[0])
        log_debug("%s: x-request-id '%s', traceparent '%s'",
                  request->request_id, request->client_id, request->trace);
    if (request->by->tokenize && request->by->tokenize(request))
        return request;
    request_receive(request);
    return request;
fail:
    free(request->prompt.tokens);
    free(request->prompt.keys);
    free(request->forward);
    free(request);
    errno = ENOMEM;
    return NULL;
}

const struct service_model_info *service_model(const struct service *service)
{
    return &service->model;
}

bool service_ready(const struct service *service)
{
    return instances_count(service, ROLE_PREFILL, NULL) > 0 &&
           instances_count(service, ROLE_DECODE, NULL) > 0;
}

const char *service_lacks(const struct service *service,
                          char drained[SERVICE_DRAINED_BYTES])
{
    bool prefill = instances_count(service, ROLE_PREFILL, NULL) > 0;
    bool decode = instances_count(service, ROLE_DECODE, NULL) > 0;

    request_say_drained(
        service, (prefill ? 0 : ROLE_PREFILL) | (decode ? 0 : ROLE_DECODE),
        drained);
    if (prefill)
        return decode ? NULL : "decode";
    return decode ? "prefill" : "";
}
