/* A request's life: from the inbox to its last callback. */
#include "conductor/service_state.h"

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

static void call_fail(struct service_call *call, int http_status,
                      const char *code, const char *message,
                      int64_t retry_after_us)
{
    struct service *s = call->service;
    struct service_failure failure = {
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
    log_debug("%s: failed, %s: %s", call->request_id, code, message);
    call->ops->failed(call->arg, &failure);
    call_free(call);
}

static void fill_request(const struct service_call *call, int64_t now_us,
                         struct schedule_request *r)
{
    int64_t elapsed_us = now_us - call->arrived_us;
    memset(r, 0, sizeof(*r));
    r->request_id = call->wire_id;
    r->keys = call->keys;
    r->n_keys = call->n_keys;
    r->n_tokens = call->n_tokens;
    r->max_output_tokens = call->max_tokens;
    r->now_us = now_us;
    if (!call->accepted) {
        r->slo_tbt_us = call->slo_tbt_us;
        if (call->slo_ttft_us)
            r->slo_ttft_us = call->slo_ttft_us > elapsed_us
                                 ? call->slo_ttft_us - elapsed_us
                                 : 1;
    }
    memcpy(r->exclude, call->excluded, sizeof(call->excluded));
    r->n_exclude = call->n_excluded;
}

static void call_reject(struct service_call *call,
                        const struct schedule_decision *d)
{
    char text[256];
    int64_t retry_us = d->retry_after_us > 0 ? d->retry_after_us : 0;
    int64_t waited_us = clock_now_us() - call->arrived_us;
    switch (d->verdict) {
    case SCHEDULE_REJECT_TTFT:
        snprintf(text, sizeof(text),
                 "predicted time to first token %.0f ms is over the limit of "
                 "%.0f ms on every instance",
                 (double)(d->chosen.ttft_us + waited_us) / 1e3,
                 (double)call->slo_ttft_us / 1e3);
        call_fail(call, 429, "slo_ttft_exceeded", text, retry_us);
        return;
    case SCHEDULE_REJECT_TBT:
        snprintf(text, sizeof(text),
                 "predicted time between tokens %.1f ms is over the limit of "
                 "%.1f ms on every instance",
                 (double)d->tbt_us / 1e3, (double)call->slo_tbt_us / 1e3);
        call_fail(call, 429, "slo_tbt_exceeded", text, retry_us);
        return;
    case SCHEDULE_NO_PREFILL_INSTANCE:
        call_fail(call, 503, "no_prefill_instance",
                  "no prefill instance is ready", 1000000);
        return;
    case SCHEDULE_NO_DECODE_INSTANCE:
        call_fail(call, 503, "no_decode_instance",
                  "no decode instance is ready", 1000000);
        return;
    case SCHEDULE_TOO_LONG:
        snprintf(text, sizeof(text),
                 "prompt of %u tokens and max_tokens %u are more than the KV "
                 "cache of any ready instance holds",
                 call->n_tokens, call->max_tokens);
        call_fail(call, 400, "prompt_exceeds_kv_capacity", text, 0);
        return;
    case SCHEDULE_ACCEPT:
    case SCHEDULE_DECODE_FULL:
    case SCHEDULE_QUEUE_FULL:
        break;
    }
    call_fail(call, 500, "internal_error", "no decision was reached", 0);
}

/* Logs the 1st, 2nd, 4th, 8th, ... of them: enough to be seen, and no flood. */
static void note_extrapolation(struct service_call *call)
{
    struct service *s = call->service;
    uint64_t n = ++s->metrics.extrapolated_predictions;
    if ((n & (n - 1)) == 0)
        log_warn("%s: the cost model extrapolates for %u tokens, %lld of them "
                 "cached (%llu such predictions so far)",
                 call->request_id, call->n_tokens,
                 (long long)call->plan.cached_tokens, (unsigned long long)n);
}

static void call_carry_out(struct service_call *call,
                           const struct schedule_decision *d, int64_t now_us)
{
    struct service *s = call->service;
    call->accepted = true;
    call->prefill = d->prefill;
    call->decode = d->decode;
    call->fetch_from = d->chosen.fetch_from;
    call->prefill_open = true;
    call->decode_open = d->decode != POOL_NO_INSTANCE;
    call->plan = d->chosen;
    call->planned_us = now_us;
    call->predicted_ttft_us =
        d->chosen.ttft_us + s->overhead_us + (now_us - call->arrived_us);
    call->predicted_tbt_us = d->tbt_us;
    if (d->chosen.extrapolated)
        note_extrapolation(call);
    if (!call_set_state(call, CALL_SCHEDULED))
        return;
    const struct worker *p = worker_of(s, call->prefill);
    const struct worker *w = worker_of(s, call->decode);
    struct service_decision told = {
        .request_id = call->request_id,
        .prefill = p ? p->hello.name : "?",
        .decode = w ? w->hello.name : NULL,
        .predicted_ttft_us = call->predicted_ttft_us,
    };
    log_debug("%s: %u tokens to %s, decode %s, %u local and %u fetched "
              "blocks, predicted TTFT %lld us",
              call->request_id, call->n_tokens, told.prefill,
              told.decode ? told.decode : "-", call->plan.local_blocks,
              call->plan.used_blocks - call->plan.local_blocks,
              (long long)told.predicted_ttft_us);
    call_send(call);
    call->ops->scheduled(call->arg, &told);
}

/* Nothing has room now. Without a TTFT SLO the call waits; with one it waits
 * only if the room is expected in time. */
static void call_wait(struct service_call *call, int64_t retry_after_us,
                      int64_t now_us)
{
    int64_t left_us = call->arrived_us + call->slo_ttft_us - now_us;
    if (call->slo_ttft_us && !call->accepted &&
        (retry_after_us < 0 || retry_after_us > left_us)) {
        call_fail(call, 429, "no_capacity",
                  "no instance has room for this request within its time to "
                  "first token limit",
                  retry_after_us > 0 ? retry_after_us : 0);
        return;
    }
    if (call_set_state(call, CALL_WAITING))
        TAILQ_INSERT_TAIL(&call->service->waiting, call, entry);
}

void call_schedule(struct service_call *call)
{
    struct service *s = call->service;
    struct schedule_request request;
    struct schedule_decision decision;
    int64_t now_us = clock_now_us();
    if (!s->scheduler) {
        call_fail(call, 503, "no_prefill_instance",
                  "no worker has registered yet", 1000000);
        return;
    }
    call->wire_id = s->next_attempt++ * s->max_calls + call->slot;
    fill_request(call, now_us, &request);
    schedule_decide(s->scheduler, &request, &decision);
    histogram_observe(&s->metrics.decision_s,
                      (double)(clock_now_us() - now_us) / 1e6);
    int rc = decision.verdict == SCHEDULE_ACCEPT
                 ? schedule_commit(s->scheduler, &request, &decision)
                 : -EAGAIN;
    if (rc == 0) {
        call_carry_out(call, &decision, now_us);
        return;
    }
    call->wire_id = 0;
    if (decision.verdict == SCHEDULE_ACCEPT ||
        decision.verdict == SCHEDULE_DECODE_FULL ||
        decision.verdict == SCHEDULE_QUEUE_FULL)
        call_wait(call, decision.retry_after_us, now_us);
    else
        call_reject(call, &decision);
}

void call_retry_waiting(struct service *service)
{
    struct call_list rest = TAILQ_HEAD_INITIALIZER(rest);
    TAILQ_CONCAT(&rest, &service->waiting, entry);
    while (!TAILQ_EMPTY(&rest)) {
        struct service_call *call = TAILQ_FIRST(&rest);
        TAILQ_REMOVE(&rest, call, entry);
        if (!call_set_state(call, CALL_RECEIVED))
            continue;
        call_schedule(call);
        if (!TAILQ_EMPTY(&service->waiting))
            break; /* it still finds no room: neither will the younger ones */
    }
    TAILQ_CONCAT(&service->waiting, &rest, entry);
}

void call_expire_waiting(struct service *service, int64_t now_us)
{
    struct service_call *call, *next;
    for (call = TAILQ_FIRST(&service->waiting); call; call = next) {
        next = TAILQ_NEXT(call, entry);
        if (!call->slo_ttft_us || call->accepted ||
            now_us - call->arrived_us < call->slo_ttft_us)
            continue;
        TAILQ_REMOVE(&service->waiting, call, entry);
        call_fail(call, 429, "slo_ttft_exceeded",
                  "no instance had room within the time to first token limit",
                  0);
    }
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
    if (id != POOL_NO_INSTANCE && call->n_excluded < SCHEDULE_EXCLUDE_MAX)
        call->excluded[call->n_excluded++] = id;
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
    call_free(call);
    event_active(s->inbox_event, EV_TIMEOUT, 0); /* room for a waiting one */
}
