/* Carries out the orders of core/dispatch for requests that arrive or wait for
 * room. A callback to the front may cancel any request, so no list position is
 * kept across one. */
#include <stdio.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/models.h"

/* Logs the 1st, 2nd, 4th, 8th, ... of them: enough to be seen, and no flood. */
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
    request->attempt.predicted_tbt_us = s->costs.predicts ? d->tbt_us : 0;
    cluster_decided(
        s->peers, &(struct cluster_request){request->attempt.id, d->prefill,
                                            d->decode, &request->attempt.lent});
    if (d->chosen.extrapolated)
        note_extrapolation(request);
    if (!service_request_set_state(request, REQUEST_SCHEDULED))
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
    sessions_note(&s->requests.sessions, request->session, d->prefill);
    uint64_t attempt_id = request->attempt.id;
    request->ops->scheduled(request->arg, &told);
    if (service_request_find(s, attempt_id) == request &&
        request->by->send(request))
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
        service_request_set_state(request, REQUEST_WAITING);
        break;
    case DISPATCH_REJECT:
        if (order->decided)
            observe_decided(request, &order->decision);
        request_warm(request, order);
        request_refuse(request, order);
        break;
    }
}

static void count_decision(struct service *s, uint64_t n_before,
                           int64_t since_us)
{
    if (s->dispatch.n_decisions != n_before)
        histogram_observe(&s->metrics.decision_s,
                          (double)(loop_now_us(s->loop) - since_us) / 1e6);
}

void request_retry_waiting(struct service *service)
{
    struct dispatch_request *next;
    struct dispatch_order order;

    for (;;) {
        uint64_t n_before = service->dispatch.n_decisions;
        int64_t now_us = loop_now_us(service->loop);

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

    while ((request = TAILQ_FIRST(&service->requests.inbox))) {
        uint64_t n_before = service->dispatch.n_decisions;
        int64_t now_us = loop_now_us(service->loop);

        TAILQ_REMOVE(&service->requests.inbox, request, entry);
        request->dispatch.ask.request_id =
            service->requests.next_attempt++ * service->requests.size +
            request->slot;
        copies_asked(request, now_us);
        dispatch_place(&service->dispatch, &request->dispatch, now_us, &order);
        tell_asked(request, &order);
        roles_placed(service->native.roles, &request->dispatch, &order);
        count_decision(service, n_before, now_us);
        follow(request, &order, now_us);
    }
}
