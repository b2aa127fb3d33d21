/* A request's life: its states, its failures, its end. */
#include "conductor/service/state.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[CALL_STATES] = {
    "received",     "waiting",  "scheduled", "prefilling",
    "transferring", "decoding", "ended",
};

#define TO(s) (1u << (s))
/* Which state may follow which. A retry goes back to RECEIVED. */
static const unsigned transitions[CALL_STATES] = {
    [CALL_RECEIVED] = TO(CALL_WAITING) | TO(CALL_SCHEDULED) | TO(CALL_ENDED),
    [CALL_WAITING] = TO(CALL_RECEIVED) | TO(CALL_ENDED),
    [CALL_SCHEDULED] = TO(CALL_PREFILLING) | TO(CALL_RECEIVED) | TO(CALL_ENDED),
    [CALL_PREFILLING] =
        TO(CALL_TRANSFERRING) | TO(CALL_RECEIVED) | TO(CALL_ENDED),
    [CALL_TRANSFERRING] = TO(CALL_DECODING) | TO(CALL_ENDED),
    [CALL_DECODING] = TO(CALL_ENDED),
    [CALL_ENDED] = 0,
};

/* Returns false for a change that the table does not know. */
bool call_set_state(struct service_call *call, enum call_state next)
{
    if (!(transitions[call->state] & TO(next))) {
        log_warn("%s: no way from %s to %s", call->request_id,
                 state_names[call->state], state_names[next]);
        return false;
    }
    log_debug("%s: %s -> %s", call->request_id, state_names[call->state],
              state_names[next]);
    call->state = next;
    return true;
}

struct service_call *call_find(struct service *service, uint64_t wire_id)
{
    uint32_t slot = (uint32_t)(wire_id % service->max_calls);
    struct service_call *call = service->calls[slot];
    return call && call->wire_id == wire_id ? call : NULL;
}

void call_free(struct service_call *call)
{
    struct service *s = call->service;
    s->calls[call->slot] = NULL;
    s->free_slots[s->n_free++] = call->slot;
    free(call->tokens);
    free(call->keys);
    free(call->early);
    free(call);
}

/* Takes the attempt's work out of the pool. */
void call_close_pool(struct service_call *call)
{
    struct service *s = call->service;
    if (call->prefill_open)
        (void)pool_prefill_cancel(s->pool, call->prefill, call->wire_id);
    if (call->decode_open)
        (void)pool_decode_done(s->pool, call->decode, call->wire_id);
    call->prefill_open = call->decode_open = false;
}

static void send_cancel(struct service *s, uint32_t id, uint64_t wire_id)
{
    struct worker *w = worker_of(s, id);
    if (!w)
        return;
    wire_buf_reset(&s->out);
    msg_empty_encode(&s->out, FRAME_CANCEL, wire_id);
    worker_link_send(w->link, &s->out);
}

/* Ends an attempt: the workers forget it, the pool too. */
static void call_withdraw(struct service_call *call)
{
    struct service *s = call->service;
    if (!call->wire_id)
        return;
    struct worker *p = worker_of(s, call->prefill);
    call_unsend(call);
    if (p)
        call_flush_unsent(p); /* those behind it wait no longer */
    send_cancel(s, call->prefill, call->wire_id);
    if (call->decode != call->prefill)
        send_cancel(s, call->decode, call->wire_id);
    call_close_pool(call);
    call->wire_id = 0;
    call->n_early = 0;
    call->early_done = false;
}

void call_fail(struct service_call *call, int http_status, const char *code,
               const char *message, int64_t retry_after_us)
{
    struct service *s = call->service;
    struct service_failure failure = {
        .request_id = call->request_id,
        .http_status = http_status,
        .code = code,
        .message = message,
        .retry_after_us = retry_after_us,
        .after_first_token = call->n_output > 0,
    };
    call_withdraw(call);
    if (!call_set_state(call, CALL_ENDED))
        return;
    s->metrics
        .requests[http_status == 429 ? METRICS_REJECTED : METRICS_FAILED]++;
    explain_ended(s->explain, call, http_status == 429 ? "rejected" : "failed",
                  code);
    log_debug("%s: failed, %s: %s", call->request_id, code, message);
    call->ops->failed(call->arg, &failure);
    call_free(call);
}

void call_instance_lost(struct service_call *call, uint32_t id, const char *why)
{
    struct service *s = call->service;
    char text[MSG_TEXT_MAX + 64];
    call_withdraw(call);
    if (call->n_output || call->retries >= (uint32_t)s->config.max_retries) {
        snprintf(text, sizeof(text), "%s after %u of %u tokens, %u retries",
                 why, call->n_output, call->max_tokens, call->retries);
        call_fail(call, 502, "worker_failed", text, 0);
        return;
    }
    if (id != POOL_NO_INSTANCE) /* the oldest makes room */
        call->excluded[call->n_excluded++ % SCHEDULE_EXCLUDE_MAX] = id;
    snprintf(call->last_failure, sizeof(call->last_failure), "%s", why);
    call->retries++;
    s->metrics.retries++;
    log_info("%s: %s; another choice is made", call->request_id, why);
    if (call_set_state(call, CALL_RECEIVED)) {
        TAILQ_INSERT_TAIL(&s->inbox, call, entry);
        event_active(s->inbox_event, EV_TIMEOUT, 0);
    }
}

void service_cancel(struct service_call *call)
{
    if (!call)
        return;
    struct service *s = call->service;
    if (call->state == CALL_RECEIVED)
        TAILQ_REMOVE(&s->inbox, call, entry);
    else if (call->state == CALL_WAITING)
        TAILQ_REMOVE(&s->waiting, call, entry);
    call_withdraw(call);
    if (call_set_state(call, CALL_ENDED))
        s->metrics.requests[METRICS_CANCELLED]++;
    explain_ended(s->explain, call, "cancelled", NULL);
    call_free(call);
    event_active(s->inbox_event, EV_TIMEOUT, 0); /* room for a waiting one */
}
