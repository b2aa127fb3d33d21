/* Carries out the orders of core/dispatch for requests that arrive or wait for
 * room. A callback to the front may cancel any request, so no list position is
 * kept across one. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/models.h"

/* 429 with prediction and limit; `also` ends the sentence. */
static void reject_slo(struct service_request *request, const char *code,
                       const char *what, int64_t predicted_us, int64_t limit_us,
                       const char *also, int64_t retry_us)
{
    char text[256];

    snprintf(text, sizeof(text),
             "predicted %s %.3f ms is over the limit of %.3f ms on every "
             "instance%s",
             what, (double)predicted_us / 1e3, (double)limit_us / 1e3, also);
    request_fail(request, 429, code, text, retry_us);
}

/* Rejects for a missed TTFT SLO. The tested TTFT assumes that all work which
 * may go first does. */
static void reject_late(struct service_request *request,
                        const struct dispatch_order *order)
{
    const struct dispatch_request *r = &request->dispatch;
    int64_t passed_us = r->slo_ttft_us - r->ask.slo_ttft_us;
    const char *why = "";
    char also[160] = "";

    if (order->decision.never)
        why = ", and would be on an idle instance, too";
    else if (order->retry_after_us < 0)
        why = ", and the load leaves no time when it would not";
    if (order->decision.tested_us > order->decision.chosen.ttft_us &&
        order->forecast.ttft_us > 0)
        snprintf(also, sizeof(also),
                 ", if all accepted work goes first; %.3f ms is expected%s",
                 (double)order->forecast.ttft_us / 1e3, why);
    else
        snprintf(also, sizeof(also), "%s", why);
    reject_slo(request, "slo_ttft_exceeded", "time to first token",
               passed_us + order->decision.tested_us, r->slo_ttft_us, also,
               order->retry_after_us);
}

/* Rejects for the price. At the limit itself a share of the requests is
 * admitted, so the price may equal it: compare the rounded numbers that the
 * text shows. */
static void reject_price(struct service_request *request,
                         const struct schedule_decision *d, int64_t retry_us)
{
    bool over = llround(d->price_us / 1e3) > llround(d->price_limit_us / 1e3);
    char text[256];

    snprintf(text, sizeof(text),
             "price of %.3f s of prefill is %s the limit of %.3f s that the "
             "load leaves%s: shorter prompts, and those of which others reuse "
             "more, come first",
             d->price_us / 1e6, over ? "over" : "at", d->price_limit_us / 1e6,
             over ? "" : ", where a share of the requests fits");
    request_fail(request, 429, "price", text, retry_us);
}

/* Rejects for the tenant's share; share_queue_us() has the rule. */
static void reject_share(struct service_request *request, int64_t retry_us)
{
    const struct dispatch_request *r = &request->dispatch;
    char text[256];

    if (r->standing >= SHARE_GREEDY)
        snprintf(text, sizeof(text),
                 "tenant '%.63s' had %.2f times its share of the last minute: "
                 "the rest of each queue is kept for others that asked in it",
                 tenants_name(request->service->models->tenants, r->tenant),
                 r->standing);
    else
        snprintf(text, sizeof(text),
                 "the rest of each queue is kept for earlier priorities of "
                 "tenant '%.63s', or for others that wait without a limit",
                 tenants_name(request->service->models->tenants, r->tenant));
    request_fail(request, 429, "share", text, retry_us);
}

/* 503: no instance is ready; after a retry, with the last failure. */
static void reject_none(struct service_request *request, const char *code,
                        const char *role)
{
    char text[MSG_TEXT_MAX + 2 * SERVICE_MODEL_BYTES];
    const struct service *s = request->service;
    const char *failed =
        request->dispatch.retries ? "; the last one failed: " : "";

    if (request->named && request->named->name.n_engines == 0)
        snprintf(text, sizeof(text), "no engine of model '%s' has '%s' now%s%s",
                 s->config.model, request->named->name.name, failed,
                 request->last_failure);
    else if (request->named)
        snprintf(text, sizeof(text),
                 "no engine of model '%s' that has '%s' is ready (%u have "
                 "it)%s%s",
                 s->config.model, request->named->name.name,
                 request->named->name.n_engines, failed, request->last_failure);
    else if (s->forwards)
        snprintf(text, sizeof(text), "no engine of model '%s' is ready%s%s",
                 s->config.model, failed, request->last_failure);
    else
        snprintf(text, sizeof(text), "no %s instance is ready%s%s", role,
                 failed, request->last_failure);
    request_fail(request, 503, code, text, 1000000);
}

static void reject(struct service_request *request,
                   const struct dispatch_order *order)
{
    struct metrics *m = &request->service->metrics;
    const struct dispatch_request *r = &request->dispatch;
    char text[256];

    switch (order->reason) {
    case DISPATCH_MISSES_TTFT:
        m->rejected_ttft++;
        reject_late(request, order);
        return;
    case DISPATCH_MISSES_TBT:
        m->rejected_tbt++;
        reject_slo(request, "slo_tbt_exceeded", "time between tokens",
                   order->decision.tbt_us, r->slo_tbt_us, "",
                   order->retry_after_us);
        return;
    case DISPATCH_PRICE:
        m->rejected_price++;
        reject_price(request, &order->decision, order->retry_after_us);
        return;
    case DISPATCH_SHARE:
        m->rejected_share++;
        reject_share(request, order->retry_after_us);
        return;
    case DISPATCH_NO_PREFILL:
        reject_none(request, "no_prefill_instance", "prefill");
        return;
    case DISPATCH_NO_DECODE:
        reject_none(request, "no_decode_instance", "decode");
        return;
    case DISPATCH_TOO_LONG:
        snprintf(text, sizeof(text),
                 "prompt of %u tokens and max_tokens %u are more than the KV "
                 "cache or the window of any ready instance holds",
                 request->prompt.n_tokens, request->prompt.max_tokens);
        request_fail(request, 400, "prompt_exceeds_kv_capacity", text, -1);
        return;
    case DISPATCH_NO_ROOM:
        m->rejected_no_room++;
        request_fail(request, 429, "no_capacity",
                     "no instance has room for this request within its time to "
                     "first token limit",
                     order->retry_after_us);
        return;
    case DISPATCH_WAITED_TOO_LONG:
        m->rejected_no_room++;
        snprintf(text, sizeof(text),
                 "waited for all of its time to first token limit of %.3f ms, "
                 "and no instance had room",
                 (double)r->slo_ttft_us / 1e3);
        request_fail(request, 429, "no_capacity", text, 0);
        return;
    case DISPATCH_LINK_BUSY:
        m->rejected_link++;
        snprintf(text, sizeof(text),
                 "the links to where it could decode have more KV to bring "
                 "than its time between tokens limit of %.3f ms bears, for "
                 "longer than its time to first token limit of %.3f ms allows",
                 (double)r->slo_tbt_us / 1e3, (double)r->slo_ttft_us / 1e3);
        request_fail(request, 429, "link_busy", text, order->retry_after_us);
        return;
    case DISPATCH_NO_REASON:
        break;
    }
    request_fail(request, 500, "internal_error", "no decision was reached", 0);
}

/* Logs the 1st, 2nd, 4th, 8th, ... extrapolation. */
static void note_extrapolation(struct service_request *request)
{
    struct service *s = request->service;
    uint64_t n = ++s->metrics.extrapolated_predictions;

    if ((n & (n - 1)) == 0)
        log_warn("%s: the cost model extrapolates for %u tokens, %lld of them "
                 "cached (%llu such predictions so far)",
                 request->request_id, request->prompt.n_tokens,
                 (long long)request->attempt.plan.cached_tokens,
                 (unsigned long long)n);
}

static void carry_out(struct service_request *request,
                      const struct dispatch_order *order, int64_t now_us)
{
    const struct schedule_decision *d = &order->decision;
    struct service *s = request->service;

    request->attempt.id = request->dispatch.ask.request_id;
    request->attempt.prefill = d->prefill;
    request->attempt.decode = d->decode;
    request->attempt.prefill_open = true;
    request->attempt.decode_open = d->decode != POOL_NO_INSTANCE;
    request->attempt.plan = d->chosen;
    request->attempt.lent = d->lent;
    request_plan_sources(request, d);
    request->attempt.planned_us = now_us;
    request->attempt.heard_us = now_us;
    request->attempt.orphaned_us = 0;
    request->attempt.forecast = order->forecast;
    request->attempt.holds_first = d->holds;
    request->attempt.predicted_tbt_us = s->predicts ? d->tbt_us : 0;
    cluster_decided(
        s->peers, &(struct cluster_request){request->attempt.id, d->prefill,
                                            d->decode, &request->attempt.lent});
    if (d->chosen.extrapolated)
        note_extrapolation(request);
    if (!request_set_state(request, REQUEST_SCHEDULED))
        return;
    observe_decided(request, d);
    observe_attempt(request);
    const struct pool_instance *p = pool_get(s->pool, request->attempt.prefill);
    const struct pool_instance *w = pool_get(s->pool, request->attempt.decode);
    struct service_decision told = {
        .request_id = request->request_id,
        .model = s->model.name,
        .prefill = p ? p->name : "?",
        .decode = w ? w->name : NULL,
        .predicted_ttft_us = request->attempt.forecast.ttft_us,
    };
    log_debug(
        "%s: %u tokens to %s, decode %s, %u local and %u fetched "
        "blocks, %s, predicted TTFT %lld us",
        request->request_id, request->prompt.n_tokens, told.prefill,
        told.decode ? told.decode : "-", request->attempt.plan.local_blocks,
        request->attempt.plan.used_blocks - request->attempt.plan.local_blocks,
        request->attempt.plan.planned
            ? load_mode_name(request->attempt.plan.load_mode)
            : "no plan",
        (long long)told.predicted_ttft_us);
    sessions_note(&s->sessions, request->session, d->prefill);
    uint64_t attempt_id = request->attempt.id;
    bool forwards = request->forward;
    if (!forwards)
        request_send(request);
    request->ops->scheduled(request->arg, &told);
    if (forwards && request_find(s, attempt_id) == request &&
        forward_send(request))
        request_instance_lost(request, POOL_NO_INSTANCE, "out of memory");
}

static void follow(struct service_request *request,
                   const struct dispatch_order *order, int64_t now_us)
{
    switch (order->action) {
    case DISPATCH_SEND:
        carry_out(request, order, now_us);
        break;
    case DISPATCH_WAIT:
        request_set_state(request, REQUEST_WAITING);
        break;
    case DISPATCH_REJECT:
        if (order->decided)
            observe_decided(request, &order->decision);
        request_warm(request, order);
        reject(request, order);
        break;
    }
}

static void count_decision(struct service *s, uint64_t n_before,
                           int64_t since_us)
{
    if (s->dispatch.n_decisions != n_before)
        histogram_observe(&s->metrics.decision_s,
                          (double)(clock_now_us() - since_us) / 1e6);
}

void request_retry_waiting(struct service *service)
{
    struct dispatch_request *next;
    struct dispatch_order order;

    for (;;) {
        uint64_t n_before = service->dispatch.n_decisions;
        int64_t now_us = clock_now_us();

        next = dispatch_next(&service->dispatch, now_us, &order);
        count_decision(service, n_before, now_us);
        if (!next)
            return;
        follow(next->owner, &order, now_us);
    }
}

/* Tells other conductors of this demand, or each would plan with all of the
 * instances' time. */
static void tell_asked(const struct service_request *request,
                       const struct dispatch_order *order)
{
    const struct service *s = request->service;
    struct schedule_asked asked;

    if (s->peers && request->dispatch.priced && !s->dispatch.unpredicted &&
        schedule_asked(s->dispatch.scheduler, &request->dispatch.ask,
                       &order->decision, &asked))
        cluster_asked(s->peers, &asked);
}

void request_take_inbox(struct service *service)
{
    struct service_request *request;
    struct dispatch_order order;

    while ((request = TAILQ_FIRST(&service->inbox))) {
        uint64_t n_before = service->dispatch.n_decisions;
        int64_t now_us = clock_now_us();

        TAILQ_REMOVE(&service->inbox, request, entry);
        request->dispatch.ask.request_id =
            service->table.next_attempt++ * service->table.size + request->slot;
        copies_asked(request, now_us);
        dispatch_place(&service->dispatch, &request->dispatch, now_us, &order);
        tell_asked(request, &order);
        roles_placed(service->roles, &request->dispatch, &order);
        count_decision(service, n_before, now_us);
        follow(request, &order, now_us);
    }
}
