/* Deciding on a request through the core, and carrying the decision out. */
#include "conductor/service/state.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void fill_request(const struct service_call *call, int64_t now_us,
                         struct schedule_request *r)
{
    /* The hand-over is part of the TTFT that is promised. */
    int64_t elapsed_us = now_us - call->arrived_us + call->service->overhead_us;
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
    r->n_exclude = call->n_excluded < SCHEDULE_EXCLUDE_MAX
                       ? call->n_excluded
                       : SCHEDULE_EXCLUDE_MAX;
}

/* 429: what was predicted, the limit, and whether it can ever be met. */
static void reject_slo(struct service_call *call,
                       const struct schedule_decision *d, const char *code,
                       const char *what, int64_t predicted_us, int64_t limit_us)
{
    char text[256];
    int64_t retry_us = d->retry_after_us < 0 ? -1 : d->retry_after_us;
    snprintf(text, sizeof(text),
             "predicted %s %.3f ms is over the limit of %.3f ms on every "
             "instance%s",
             what, (double)predicted_us / 1e3, (double)limit_us / 1e3,
             retry_us < 0 ? ", and would be on an idle one" : "");
    call_fail(call, 429, code, text, retry_us);
}

/* 503: nobody is there; after a retry, with what had failed. */
static void reject_none(struct service_call *call, const char *code,
                        const char *role)
{
    char text[MSG_TEXT_MAX];
    snprintf(text, sizeof(text), "no %s instance is ready%s%s", role,
             call->retries ? "; the last one failed: " : "",
             call->last_failure);
    call_fail(call, 503, code, text, 1000000);
}

static void call_reject(struct service_call *call,
                        const struct schedule_decision *d, int64_t now_us)
{
    char text[256];
    switch (d->verdict) {
    case SCHEDULE_REJECT_TTFT:
        call->service->metrics.rejected_ttft++;
        reject_slo(call, d, "slo_ttft_exceeded", "time to first token",
                   d->chosen.ttft_us + call->service->overhead_us + now_us -
                       call->arrived_us,
                   call->slo_ttft_us);
        return;
    case SCHEDULE_REJECT_TBT:
        call->service->metrics.rejected_tbt++;
        reject_slo(call, d, "slo_tbt_exceeded", "time between tokens",
                   d->tbt_us, call->slo_tbt_us);
        return;
    case SCHEDULE_NO_PREFILL_INSTANCE:
        reject_none(call, "no_prefill_instance", "prefill");
        return;
    case SCHEDULE_NO_DECODE_INSTANCE:
        reject_none(call, "no_decode_instance", "decode");
        return;
    case SCHEDULE_TOO_LONG:
        snprintf(text, sizeof(text),
                 "prompt of %u tokens and max_tokens %u are more than the KV "
                 "cache of any ready instance holds",
                 call->n_tokens, call->max_tokens);
        call_fail(call, 400, "prompt_exceeds_kv_capacity", text, -1);
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
    call->prefill_open = true;
    call->decode_open = d->decode != POOL_NO_INSTANCE;
    call->plan = d->chosen;
    call_plan_sources(call, d);
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
              "blocks, %s, predicted TTFT %lld us",
              call->request_id, call->n_tokens, told.prefill,
              told.decode ? told.decode : "-", call->plan.local_blocks,
              call->plan.used_blocks - call->plan.local_blocks,
              call->plan.planned ? load_mode_name(call->plan.load_mode)
                                 : "no plan",
              (long long)told.predicted_ttft_us);
    explain_decided(s->explain, call, d);
    call_send(call);
    call->ops->scheduled(call->arg, &told);
}

/* Asks the core; a request that was failed by all there is may go to one of
 * them again rather than to nobody. */
static void call_ask(struct service_call *call, int64_t now_us,
                     struct schedule_request *request,
                     struct schedule_decision *decision)
{
    struct service *s = call->service;
    fill_request(call, now_us, request);
    schedule_decide(s->scheduler, request, decision);
    if (call->n_excluded &&
        (decision->verdict == SCHEDULE_NO_PREFILL_INSTANCE ||
         decision->verdict == SCHEDULE_NO_DECODE_INSTANCE)) {
        call->n_excluded = 0;
        fill_request(call, now_us, request);
        schedule_decide(s->scheduler, request, decision);
    }
    histogram_observe(&s->metrics.decision_s,
                      (double)(clock_now_us() - now_us) / 1e6);
}

/* Nothing has room now. Without a TTFT SLO the call may wait; with one only if
 * the room is expected in time. */
static bool may_wait(const struct service_call *call, int64_t retry_after_us,
                     int64_t now_us)
{
    int64_t left_us = call->arrived_us + call->slo_ttft_us - now_us;
    return !call->slo_ttft_us || call->accepted ||
           (retry_after_us >= 0 && retry_after_us <= left_us);
}

bool call_place(struct service_call *call, bool behind_others)
{
    struct service *s = call->service;
    struct schedule_request request;
    struct schedule_decision decision;
    int64_t now_us = clock_now_us();
    if (!s->scheduler) {
        reject_none(call, "no_prefill_instance", "prefill");
        return true;
    }
    call->wire_id = s->next_attempt++ * s->max_calls + call->slot;
    call_ask(call, now_us, &request, &decision);
    bool accept = decision.verdict == SCHEDULE_ACCEPT;
    if (accept && !behind_others &&
        schedule_commit(s->scheduler, &request, &decision) == 0) {
        call_carry_out(call, &decision, now_us);
        return true;
    }
    call->wire_id = 0;
    if (!accept && decision.verdict != SCHEDULE_DECODE_FULL &&
        decision.verdict != SCHEDULE_QUEUE_FULL) {
        explain_decided(s->explain, call, &decision);
        call_reject(call, &decision, now_us);
        return true;
    }
    if (!accept && !may_wait(call, decision.retry_after_us, now_us)) {
        s->metrics.rejected_no_room++;
        explain_decided(s->explain, call, &decision);
        call_fail(call, 429, "no_capacity",
                  "no instance has room for this request within its time to "
                  "first token limit",
                  decision.retry_after_us);
        return true;
    }
    return false;
}
