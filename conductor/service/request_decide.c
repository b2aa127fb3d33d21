/* Deciding on a query through the core, and carrying the decision out. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "conductor/service/state.h"

static void fill_request(const struct service_request *request, int64_t now_us,
                         struct schedule_request *r)
{
    /* The hand-over is part of the TTFT that is promised. */
    int64_t elapsed_us =
        now_us - request->arrived_us + request->service->overhead_us;

    memset(r, 0, sizeof(*r));
    r->request_id = request->attempt_id;
    r->keys = request->keys;
    r->n_keys = request->n_keys;
    r->n_tokens = request->n_tokens;
    r->max_output_tokens = request->max_tokens;
    r->now_us = now_us;
    if (!request->accepted) {
        r->slo_tbt_us = request->slo_tbt_us;
        if (request->slo_ttft_us)
            r->slo_ttft_us = request->slo_ttft_us > elapsed_us
                                 ? request->slo_ttft_us - elapsed_us
                                 : 1;
    }
    memcpy(r->exclude, request->excluded, sizeof(request->excluded));
    r->n_exclude = request->n_excluded < SCHEDULE_EXCLUDE_MAX
                       ? request->n_excluded
                       : SCHEDULE_EXCLUDE_MAX;
}

/* 429: what was predicted, the limit, and whether it can ever be met. */
static void reject_slo(struct service_request *request,
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
    request_fail(request, 429, code, text, retry_us);
}

/* 503: nobody is there; after a retry, with what had failed. */
static void reject_none(struct service_request *request, const char *code,
                        const char *role)
{
    char text[MSG_TEXT_MAX];

    snprintf(text, sizeof(text), "no %s instance is ready%s%s", role,
             request->retries ? "; the last one failed: " : "",
             request->last_failure);
    request_fail(request, 503, code, text, 1000000);
}

static void request_reject(struct service_request *request,
                           const struct schedule_decision *d, int64_t now_us)
{
    char text[256];

    switch (d->verdict) {
    case SCHEDULE_REJECT_TTFT:
        request->service->metrics.rejected_ttft++;
        reject_slo(request, d, "slo_ttft_exceeded", "time to first token",
                   d->chosen.ttft_us + request->service->overhead_us + now_us -
                       request->arrived_us,
                   request->slo_ttft_us);
        return;
    case SCHEDULE_REJECT_TBT:
        request->service->metrics.rejected_tbt++;
        reject_slo(request, d, "slo_tbt_exceeded", "time between tokens",
                   d->tbt_us, request->slo_tbt_us);
        return;
    case SCHEDULE_NO_PREFILL_INSTANCE:
        reject_none(request, "no_prefill_instance", "prefill");
        return;
    case SCHEDULE_NO_DECODE_INSTANCE:
        reject_none(request, "no_decode_instance", "decode");
        return;
    case SCHEDULE_TOO_LONG:
        snprintf(text, sizeof(text),
                 "prompt of %u tokens and max_tokens %u are more than the KV "
                 "cache of any ready instance holds",
                 request->n_tokens, request->max_tokens);
        request_fail(request, 400, "prompt_exceeds_kv_capacity", text, -1);
        return;
    case SCHEDULE_ACCEPT:
    case SCHEDULE_DECODE_FULL:
    case SCHEDULE_QUEUE_FULL:
        break;
    }
    request_fail(request, 500, "internal_error", "no decision was reached", 0);
}

/* Logs the 1st, 2nd, 4th, 8th, ... of them: enough to be seen, and no flood. */
static void note_extrapolation(struct service_request *request)
{
    struct service *s = request->service;
    uint64_t n = ++s->metrics.extrapolated_predictions;

    if ((n & (n - 1)) == 0)
        log_warn("%s: the cost model extrapolates for %u tokens, %lld of them "
                 "cached (%llu such predictions so far)",
                 request->request_id, request->n_tokens,
                 (long long)request->plan.cached_tokens, (unsigned long long)n);
}

static void request_carry_out(struct service_request *request,
                              const struct schedule_decision *d, int64_t now_us)
{
    struct service *s = request->service;

    request->accepted = true;
    request->prefill = d->prefill;
    request->decode = d->decode;
    request->prefill_open = true;
    request->decode_open = d->decode != POOL_NO_INSTANCE;
    request->plan = d->chosen;
    request_plan_sources(request, d);
    request->planned_us = now_us;
    request->predicted_ttft_us =
        d->chosen.ttft_us + s->overhead_us + (now_us - request->arrived_us);
    request->predicted_tbt_us = d->tbt_us;
    if (d->chosen.extrapolated)
        note_extrapolation(request);
    if (!request_set_state(request, REQUEST_SCHEDULED))
        return;
    const struct worker *p = worker_of(s, request->prefill);
    const struct worker *w = worker_of(s, request->decode);
    struct service_decision told = {
        .request_id = request->request_id,
        .prefill = p ? p->hello.name : "?",
        .decode = w ? w->hello.name : NULL,
        .predicted_ttft_us = request->predicted_ttft_us,
    };
    log_debug("%s: %u tokens to %s, decode %s, %u local and %u fetched "
              "blocks, %s, predicted TTFT %lld us",
              request->request_id, request->n_tokens, told.prefill,
              told.decode ? told.decode : "-", request->plan.local_blocks,
              request->plan.used_blocks - request->plan.local_blocks,
              request->plan.planned ? load_mode_name(request->plan.load_mode)
                                    : "no plan",
              (long long)told.predicted_ttft_us);
    explain_decided(s->explain, request, d);
    request_send(request);
    request->ops->scheduled(request->arg, &told);
}

/* Asks the core; a query that was failed by all there is may go to one of
 * them again rather than to nobody. */
static void request_ask(struct service_request *request, int64_t now_us,
                        struct schedule_request *query,
                        struct schedule_decision *decision)
{
    struct service *s = request->service;

    fill_request(request, now_us, query);
    schedule_decide(s->scheduler, query, decision);
    if (request->n_excluded &&
        (decision->verdict == SCHEDULE_NO_PREFILL_INSTANCE ||
         decision->verdict == SCHEDULE_NO_DECODE_INSTANCE)) {
        request->n_excluded = 0;
        fill_request(request, now_us, query);
        schedule_decide(s->scheduler, query, decision);
    }
    histogram_observe(&s->metrics.decision_s,
                      (double)(clock_now_us() - now_us) / 1e6);
}

/* Nothing has room now. Without a TTFT SLO the request may wait; with one only
 * if the room is expected in time. */
static bool may_wait(const struct service_request *request,
                     int64_t retry_after_us, int64_t now_us)
{
    int64_t left_us = request->arrived_us + request->slo_ttft_us - now_us;

    return !request->slo_ttft_us || request->accepted ||
           (retry_after_us >= 0 && retry_after_us <= left_us);
}

bool request_place(struct service_request *request, bool behind_others)
{
    struct service *s = request->service;
    struct schedule_request query;
    struct schedule_decision decision;
    int64_t now_us = clock_now_us();

    if (!s->scheduler) {
        reject_none(request, "no_prefill_instance", "prefill");
        return true;
    }
    request->attempt_id = s->next_attempt++ * s->max_requests + request->slot;
    request_ask(request, now_us, &query, &decision);
    bool accept = decision.verdict == SCHEDULE_ACCEPT;
    if (accept && !behind_others &&
        schedule_commit(s->scheduler, &query, &decision) == 0) {
        request_carry_out(request, &decision, now_us);
        return true;
    }
    request->attempt_id = 0;
    if (!accept && decision.verdict != SCHEDULE_DECODE_FULL &&
        decision.verdict != SCHEDULE_QUEUE_FULL) {
        explain_decided(s->explain, request, &decision);
        request_reject(request, &decision, now_us);
        return true;
    }
    if (!accept && !may_wait(request, decision.retry_after_us, now_us)) {
        s->metrics.rejected_no_room++;
        explain_decided(s->explain, request, &decision);
        request_fail(request, 429, "no_capacity",
                     "no instance has room for this request within its time to "
                     "first token limit",
                     decision.retry_after_us);
        return true;
    }
    return false;
}
