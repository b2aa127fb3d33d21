/* Calls of the front: submitting requests, the model, readiness. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "conductor/connector/pair.h"
#include "conductor/core/index/block_key.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/gateway/ticket.h"
#include "conductor/service/models.h"

/* Guesses a prompt's tokens: one for four bytes of the body, as in English. In
 * a larger body most bytes are no prompt text: sounds, pictures, or further
 * prompts. */
static uint32_t guess_tokens(const struct service_forward *f)
{
    size_t n = f->n / 4;

    if (f->looks || n == 0)
        return 1;
    return n < SCHEDULE_PIECE_TOKENS ? (uint32_t)n : SCHEDULE_PIECE_TOKENS;
}

static int request_copy_prompt(struct service_request *request,
                               const struct service_request_params *p)
{
    const struct config *c = &request->service->config;
    uint32_t block_tokens = (uint32_t)c->block_tokens;
    bool hashed = p->forward && p->forward->hashes;
    size_t n_keys = hashed ? p->forward->n_hashes : p->n_tokens / block_tokens;

    request->prompt.keys = malloc((n_keys + 1) * sizeof(*request->prompt.keys));
    if (!request->prompt.keys)
        return -ENOMEM;
    if (!p->forward) {
        request->prompt.tokens =
            malloc(p->n_tokens * sizeof(*request->prompt.tokens));
        if (!request->prompt.tokens)
            return -ENOMEM;
        memcpy(request->prompt.tokens, p->tokens,
               p->n_tokens * sizeof(*request->prompt.tokens));
    }
    request->prompt.n_tokens = (uint32_t)p->n_tokens;
    request->prompt.max_tokens = p->max_tokens;
    request->prompt.key_seed = block_key_seed(
        c->model, p->adapter ? p->adapter : "", p->salt ? p->salt : "");
    request->prompt.n_keys = n_keys;
    if (hashed)
        hashes_keys(request->service, p->forward->hashes, n_keys,
                    request->prompt.key_seed, request->prompt.keys);
    else
        (void)block_keys_compute(p->tokens, p->n_tokens, block_tokens,
                                 request->prompt.key_seed,
                                 request->prompt.keys);
    if (!p->forward)
        return 0;
    if (p->n_tokens == 0)
        request->prompt.n_tokens = guess_tokens(p->forward);
    request->forward = calloc(1, sizeof(*request->forward));
    if (!request->forward)
        return -ENOMEM;
    request->forward->what = *p->forward;
    request->forward->what.hashes = NULL;
    text_copy(request->forward->cache_salt,
              sizeof(request->forward->cache_salt), p->forward->cache_salt);
    text_copy(request->forward->adapter, sizeof(request->forward->adapter),
              p->adapter ? p->adapter : "");
    return 0;
}

/* Returns the pool id of the engine that keeps the answer which the request
 * names. */
static uint32_t keeper(const struct service *s, const struct service_forward *f)
{
    return f ? kept_find(&s->requests.kept, f->owner, f->kept, f->n_kept)
             : POOL_NO_INSTANCE;
}

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

bool service_keeps(const struct service *service, uint64_t owner,
                   const char *id, size_t n)
{
    return kept_find(&service->requests.kept, owner, id, n) != POOL_NO_INSTANCE;
}

/* Copies a client's id: 63 bytes at most, others than printable ASCII as '?'.
 */
static void copy_name(char out[64], const char *at, size_t n)
{
    for (size_t i = 0; i < n && i < 63; i++)
        out[i] = at[i] >= ' ' && at[i] <= '~' ? at[i] : '?';
}

/* Returns a bit for each group of engines whose pairs cannot share the request.
 */
static uint32_t apart(const struct service_forward *f)
{
    return f->prompt ? pair_apart(f->pairs) : UINT32_MAX;
}

/* Returns the most tokens to decode. One token needs no decode leg, unless a
 * prefill engine cannot answer alone. */
static int64_t decoded_tokens(const struct service *s,
                              const struct service_request_params *p)
{
    for (uint32_t i = 0;
         p->forward && p->max_tokens == 1 && i < pool_slots(s->pool); i++) {
        const struct pair_protocol *pair =
            s->engines.by_slot[i]
                ? pair_protocol(s->engines.by_slot[i]->config->kv_connector)
                : NULL;

        if (pair && !pair->alone)
            return 2;
    }
    return p->max_tokens;
}

/* Returns the SLO in us: the request's own, or the default. */
static int64_t limit_us(const struct service_request_params *p, int64_t own_us,
                        int64_t usual_ms)
{
    if (p->forward && p->forward->looks)
        return 0;
    return own_us ? own_us : usual_ms * 1000;
}

/* Ids are random, so that no client can guess another's. */
static void set_id(struct service_request *r)
{
    char id[16 + 1 + 16 + 1];
    char *at = text_hex(id, entropy_next(&r->service->models->ids), 16);

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
    if (request_copy_prompt(request, p))
        goto fail;
    request->ops = ops;
    request->arg = arg;
    request->slot = s->requests.free_slots[--s->requests.n_free];
    s->requests.by_slot[request->slot] = request;
    request->dispatch = (struct dispatch_request){
        .owner = request,
        .ask = {.keys = request->prompt.keys,
                .n_keys = request->prompt.n_keys,
                .n_tokens = request->prompt.n_tokens,
                .only = keeper(s, p->forward),
                .session = sessions_find(s->requests.sessions, p->session),
                .max_output_tokens = decoded_tokens(s, p),
                .whole = p->forward ? apart(p->forward) : 0},
        .arrived_us = p->arrived_us,
        .slo_ttft_us = limit_us(p, p->slo_ttft_us, s->config.slo_ttft_ms),
        .slo_tbt_us = limit_us(p, p->slo_tbt_us, s->config.slo_tbt_ms),
        .may_hold = !p->forward,
    };
    request->named = named(s, p);
    if (request->named) {
        request->named->n_requests++;
        request->dispatch.ask.eligible = request->named->engines;
    }
    tenants_find(s->models->tenants, p->tenant, p->n_tenant, p->priority,
                 &request->dispatch);
    request->dispatch.length_key =
        block_key_seed(s->config.model, p->adapter, "") ^
        request->dispatch.tenant;
    if (request->by == &ticket_ops &&
        !tickets_enter(s, request->dispatch.tenant)) {
        request->by = &engine_ops; /* it counts as no ticket */
        s->metrics.rejected_tickets++;
        s->metrics.requests[METRICS_REJECTED]++;
        request_free(request);
        errno = EDQUOT;
        return NULL;
    }
    request->number = s->requests.next_request++;
    request->session = p->session;
    copy_name(request->session_id, p->session_id, p->n_session_id);
    copy_name(request->client_id, p->client_id, p->n_client_id);
    copy_name(request->trace, p->trace, p->n_trace);
    set_id(request);
    observe_began(request, p);
    if (request->client_id[0] || request->trace[0])
        log_debug("%s: x-request-id '%s', traceparent '%s'",
                  request->request_id, request->client_id, request->trace);
    if (request->forward && tokenize_begin(request))
        return request;
    TAILQ_INSERT_TAIL(&s->requests.inbox, request, entry);
    event_active(s->requests.inbox_event, EV_TIMEOUT, 0);
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
    return !service_lacks(service);
}

const char *service_lacks(const struct service *service)
{
    bool prefill = instances_count(service, ROLE_PREFILL, NULL) > 0;
    bool decode = instances_count(service, ROLE_DECODE, NULL) > 0;

    if (prefill)
        return decode ? NULL : "decode";
    return decode ? "prefill" : "";
}
