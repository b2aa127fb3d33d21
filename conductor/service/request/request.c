/* A request's life: its failures and its end. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/log.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/models.h"
#include "conductor/service/pair/pair.h"
#include "conductor/service/ticket/ticket.h"

struct service_request *request_find(struct service *service,
                                     uint64_t attempt_id)
{
    uint32_t slot = (uint32_t)(attempt_id % service->requests.size);
    struct service_request *request = service->requests.by_slot[slot];

    return request && request->attempt.id == attempt_id ? request : NULL;
}

void request_drop_first(struct service_request *request)
{
    event_loop_drop(request->output.held);
    request->output.held = NULL;
}

void request_free(struct service_request *request)
{
    struct service *s = request->service;

    s->requests.by_slot[request->slot] = NULL;
    s->requests.free_slots[s->requests.n_free++] = request->slot;
    if (request->named)
        request->named->n_requests--;
    free(request->prompt.tokens);
    free(request->prompt.keys);
    free(request->output.early);
    request_drop_first(request);
    request->by->free(request);
    free(request);
}

void request_close_pool(struct service_request *request)
{
    struct service *s = request->service;

    if (request->attempt.prefill_open)
        pool_prefill_cancel(s->pool, request->attempt.prefill,
                            request->attempt.id, clock_now_us());
    schedule_give_back(s->pool, &request->attempt.lent, request->attempt.id,
                       clock_now_us());
    if (request->attempt.decode_open)
        pool_decode_done(s->pool, request->attempt.decode, request->attempt.id);
    if (request->attempt.prefill_open || request->attempt.decode_open)
        service_freed(s);
    if (request->attempt.id)
        cluster_ended(s->peers, request->attempt.id);
    request->attempt.prefill_open = request->attempt.decode_open = false;
}

/* Ends an attempt: its instances forget it, and the pool. */
static void request_abort(struct service_request *request)
{
    if (!request->attempt.id)
        return;
    request->by->abort(request);
    request_close_pool(request);
    request->attempt.id = 0;
    request->output.n_early = 0;
    request->output.early_done = false;
    request_drop_first(request);
}

static void ended(struct service_request *request, enum metrics_outcome outcome,
                  const char *reason, int status)
{
    request->by->count(request);
    observe_ended(request, &(struct request_outcome){outcome, reason, status});
}

void request_fail(struct service_request *request, int http_status,
                  const char *code, const char *message, int64_t retry_after_us)
{
    struct service_failure failure = {
        .request_id = request->request_id,
        .http_status = http_status,
        .code = code,
        .message = message,
        .retry_after_us = retry_after_us,
    };
    request_abort(request);
    if (!request_set_state(request, REQUEST_ENDED))
        return;
    ended(request, http_status == 429 ? METRICS_REJECTED : METRICS_FAILED, code,
          http_status);
    log_debug("%s: failed, %s: %s", request->request_id, code, message);
    request->ops->failed(request->arg, &failure);
    request_free(request);
}

void request_unlist(struct service_request *request)
{
    struct service *s = request->service;

    if (request->state == REQUEST_RECEIVED)
        TAILQ_REMOVE(&s->requests.inbox, request, entry);
    dispatch_forget(&s->dispatch, &request->dispatch);
}

/* A callback may end other requests: look each one up by its slot. */
void request_fail_broken(struct service *s)
{
    bool any = s->requests.has_broken;

    s->requests.has_broken = false;
    for (uint32_t i = 0; any && i < s->requests.size; i++) {
        struct service_request *request = s->requests.by_slot[i];

        if (!request || !request->broken)
            continue;
        request_unlist(request);
        request_fail(request, 500, "internal_error",
                     "a bug in Conductor; its log has the details", 0);
    }
}

void request_end(struct service_request *request, enum metrics_outcome outcome,
                 const char *reason)
{
    struct service *s = request->service;

    if (s->costs.predicts && request->output.n_tokens > 1)
        metrics_predicted(
            &s->metrics.tbt_error_ratio, &s->metrics.tbt_ratio,
            request->attempt.predicted_tbt_us,
            (request->output.last_token_us - request->output.first_token_us) /
                (request->output.n_tokens - 1));
    request_close_pool(request);
    request->attempt.id = 0;
    if (!request_set_state(request, REQUEST_ENDED))
        return;
    ended(request, outcome, reason, outcome == METRICS_COMPLETED ? 200 : 0);
    request->result.output_tokens = request->output.n_tokens;
    request->result.retries = request->dispatch.retries;
    request->ops->done(request->arg, &request->result);
    request_free(request);
}

void request_answered(struct service_request *request, int64_t tokens)
{
    struct service *s = request->service;

    dispatch_answered(&s->dispatch, &request->dispatch, tokens);
    dispatch_decoded(&s->dispatch, &request->dispatch, tokens, clock_now_us());
    cluster_learnt(s->peers, request->dispatch.length_key, tokens,
                   request->dispatch.ask.max_output_tokens);
}

void request_place_again(struct service_request *request)
{
    struct service *s = request->service;

    observe_again(request);
    request_abort(request);
    if (!request_set_state(request, REQUEST_RECEIVED))
        return;
    TAILQ_INSERT_TAIL(&s->requests.inbox, request, entry);
    event_active(s->requests.inbox_event, EV_TIMEOUT, 0);
}

/* Whether the client has no token, or the front took all of them back. */
static bool take_back(struct service_request *request)
{
    return request->output.n_tokens == 0 ||
           (request->ops->take_back && request->ops->take_back(request->arg));
}

void request_instance_lost(struct service_request *request, uint32_t id,
                           const char *why)
{
    struct service *s = request->service;
    char text[MSG_TEXT_MAX + 64];

    observe_failed(request, why);
    request_abort(request);
    if (!dispatch_failed(&s->dispatch, &request->dispatch, id,
                         !take_back(request))) {
        if (request->output.n_tokens)
            snprintf(text, sizeof(text), "%s after %u of %u tokens", why,
                     request->output.n_tokens, request->prompt.max_tokens);
        else
            snprintf(text, sizeof(text),
                     "%s; failed attempts: %u. /admin/instances shows which "
                     "instances are ready, and the conductor's log why others "
                     "are not",
                     why, request->dispatch.retries + 1);
        request_fail(request, 502, "worker_failed", text, 0);
        return;
    }
    snprintf(request->last_failure, sizeof(request->last_failure), "%s", why);
    request->output.n_tokens = 0;
    request->output.first_token_us = request->output.last_token_us = 0;
    s->metrics.retries++;
    log_info("%s: %s; the request is scheduled again", request->request_id,
             why);
    request_place_again(request);
}

void service_cancel(struct service_request *request)
{
    if (!request)
        return;
    struct service *s = request->service;
    request_unlist(request);
    request_abort(request);
    if (request_set_state(request, REQUEST_ENDED))
        ended(request, METRICS_CANCELLED, NULL, 0);
    request_free(request);
    event_active(s->requests.inbox_event, EV_TIMEOUT,
                 0); /* waiting ones may go */
}
