/* Answers refused requests, by the rows of refusals.h; writes the messages that
 * hold numbers. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "conductor/service/engine/costs.h"
#include "conductor/service/models.h"

#define REFUSAL_MAX (MSG_TEXT_MAX + 2 * SERVICE_MODEL_BYTES)

/* Prediction and limit; `also` ends the sentence. */
static void say_limit(char text[REFUSAL_MAX], const char *what,
                      int64_t predicted_us, int64_t limit_us, const char *also)
{
    snprintf(text, REFUSAL_MAX,
             "predicted %s of %.3f ms is over the limit of %.3f ms on every "
             "instance%s",
             what, (double)predicted_us / 1e3, (double)limit_us / 1e3, also);
}

/* The tested TTFT assumes that all work which may go first does. */
static void say_ttft(const struct service_request *request,
                     const struct dispatch_order *order, char text[REFUSAL_MAX])
{
    const struct dispatch_request *r = &request->dispatch;
    int64_t passed_us = r->slo_ttft_us - r->ask.slo_ttft_us;
    const char *why = "";
    char also[160] = "";

    if (order->decision.never)
        why = "; an idle instance would miss the limit, too";
    else if (order->retry_after_us < 0)
        why = "; at this load no time can be predicted when an instance would "
              "meet it";
    if (order->decision.tested_us > order->decision.chosen.ttft_us &&
        order->forecast.ttft_us > 0)
        snprintf(also, sizeof(also),
                 " if all accepted requests go first (%.3f ms is expected)%s",
                 (double)order->forecast.ttft_us / 1e3, why);
    else
        snprintf(also, sizeof(also), "%s", why);
    say_limit(text, "time to first token",
              passed_us + order->decision.tested_us, r->slo_ttft_us, also);
}

/* Returns whether an instance that decodes nothing else would keep a limit on
 * the time between tokens. */
static bool idle_keeps(const struct service_request *request, int64_t limit_us)
{
    const struct service *s = request->service;

    for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
        const struct pool_instance *in = pool_at(s->pool, i);

        if (in && in->role & ROLE_DECODE &&
            cost_model_decode_step_us(costs_of(s, in->id), 1,
                                      request->prompt.n_tokens,
                                      NULL) <= limit_us)
            return true;
    }
    return false;
}

static void say_tbt(const struct service_request *request,
                    const struct dispatch_order *order, char text[REFUSAL_MAX])
{
    int64_t limit_us = request->dispatch.slo_tbt_us;
    const char *also = "; allow more time between tokens, or send fewer "
                       "requests at once";

    if (!idle_keeps(request, limit_us))
        also = "; an idle instance would miss the limit, too: allow more time "
               "between tokens";
    else if (order->retry_after_us >= 0)
        also = "; it is met once decodes that run now have ended: send the "
               "request again after Retry-After";
    say_limit(text, "time between tokens", order->decision.tbt_us, limit_us,
              also);
}

/* At the limit itself a share of the requests is admitted, so the price may
 * equal it: compare the rounded numbers that the text shows. */
static void say_price(const struct service_request *,
                      const struct dispatch_order *order,
                      char text[REFUSAL_MAX])
{
    const struct schedule_decision *d = &order->decision;
    bool over = llround(d->price_us / 1e3) > llround(d->price_limit_us / 1e3);

    snprintf(text, REFUSAL_MAX,
             "overloaded: this prompt costs %.3f s of prefill that others "
             "cannot reuse, %s the current limit of %.3f s%s; shorter and more "
             "reusable prompts are admitted first",
             d->price_us / 1e6, over ? "over" : "at", d->price_limit_us / 1e6,
             over ? "" : ", at which only some requests are admitted");
}

/* The tenant's share; share_queue_us() has the rule. */
static void say_share(const struct service_request *request,
                      const struct dispatch_order *, char text[REFUSAL_MAX])
{
    const struct dispatch_request *r = &request->dispatch;
    const char *name =
        tenants_name(request->service->models->tenants, r->tenant);

    if (r->standing >= SHARE_GREEDY)
        snprintf(text, REFUSAL_MAX,
                 "tenant '%.63s' used %.2f times its fair share in the last "
                 "minute: remaining queue space is kept for other tenants that "
                 "sent requests in that minute",
                 name, r->standing);
    else
        snprintf(text, REFUSAL_MAX,
                 "remaining queue space is kept for requests of tenant '%.63s' "
                 "with a more urgent priority, or for other tenants' waiting "
                 "requests without a limit",
                 name);
}

void request_say_drained(const struct service *s, unsigned role,
                         char text[SERVICE_DRAINED_BYTES])
{
    unsigned all = 0, drained = 0;

    for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
        const struct pool_instance *in = pool_at(s->pool, i);

        if (!in || !(in->role & role))
            continue;
        const struct worker *w = worker_of(s, in->id);
        all++;
        drained += in->held && !(w && w->leaves);
    }
    *text = '\0';
    if (all == 1 && drained == 1)
        snprintf(text, SERVICE_DRAINED_BYTES, ": the only one is drained");
    else if (all > 0 && drained == all)
        snprintf(text, SERVICE_DRAINED_BYTES, ": all %u are drained", all);
}

/* No instance is ready; after a retry, with the last failure. */
static void say_none(const struct service_request *request,
                     const struct dispatch_order *order, char text[REFUSAL_MAX])
{
    const struct service *s = request->service;
    const char *role =
        order->reason == DISPATCH_NO_PREFILL ? "prefill" : "decode";
    const char *failed =
        request->dispatch.retries ? "; the last one failed: " : "";
    char drained[SERVICE_DRAINED_BYTES];

    request_say_drained(
        s, order->reason == DISPATCH_NO_PREFILL ? ROLE_PREFILL : ROLE_DECODE,
        drained);

    if (request->named && request->named->name.n_engines == 0)
        snprintf(text, REFUSAL_MAX, "no engine of model '%s' has '%s' now%s%s",
                 s->config.model, request->named->name.name, failed,
                 request->last_failure);
    else if (request->named)
        snprintf(text, REFUSAL_MAX,
                 "no engine of model '%s' that has '%s' is ready (%u have "
                 "it)%s%s",
                 s->config.model, request->named->name.name,
                 request->named->name.n_engines, failed, request->last_failure);
    else if (s->model.n_engines >= 0)
        snprintf(text, REFUSAL_MAX, "no engine of model '%s' is ready%s%s%s",
                 s->config.model, drained, failed, request->last_failure);
    else
        snprintf(text, REFUSAL_MAX, "no %s instance is ready%s%s%s", role,
                 drained, failed, request->last_failure);
}

static void say_too_long(const struct service_request *request,
                         const struct dispatch_order *, char text[REFUSAL_MAX])
{
    snprintf(text, REFUSAL_MAX,
             "a prompt of %u tokens and max_tokens of %u do not fit into the "
             "KV cache or the context window of any ready instance",
             request->prompt.n_tokens, request->prompt.max_tokens);
}

static void say_waited(const struct service_request *request,
                       const struct dispatch_order *, char text[REFUSAL_MAX])
{
    snprintf(text, REFUSAL_MAX,
             "no instance had room in its KV cache within the time to first "
             "token limit of %.3f ms",
             (double)request->dispatch.slo_ttft_us / 1e3);
}

static void say_link(const struct service_request *request,
                     const struct dispatch_order *, char text[REFUSAL_MAX])
{
    const struct dispatch_request *r = &request->dispatch;

    snprintf(
        text, REFUSAL_MAX,
        "the links to the decode instances are busy: queued KV would delay "
        "this request past its time between tokens limit of %.3f ms, and "
        "waiting longer past its time to first token limit of %.3f ms",
        (double)r->slo_tbt_us / 1e3, (double)r->slo_ttft_us / 1e3);
}

#define NO_COUNTER SIZE_MAX
#define REFUSED(reason, metric, code, say, text) \
    [DISPATCH_##reason] = {                      \
        429, code, offsetof(struct metrics, rejected_##metric), say, text},
#define FAILED(reason, status, code, say, text) \
    [DISPATCH_##reason] = {status, code, NO_COUNTER, say, text},

/* By reason of core/dispatch. */
static const struct refusal {
    int status;
    const char *code;
    size_t counter; /* a uint64_t of struct metrics */
    void (*say)(const struct service_request *, const struct dispatch_order *,
                char text[REFUSAL_MAX]); /* NULL = `text` */
    const char *text;
} refusals[] = {REFUSALS(REFUSED, REFUSED, FAILED, REFUSALS_NONE)};

#define ONE(...) +1
_Static_assert(0 REFUSALS(ONE, ONE, ONE, REFUSALS_NONE) == DISPATCH_REASONS,
               "each reason has a row");

static int64_t retry_after_us(const struct refusal *refusal,
                              const struct dispatch_order *order)
{
    switch (refusal->status) {
    case 429:
        return order->retry_after_us;
    case 503:
        return 1000000;
    default:
        return refusal->status == 400 ? -1 : 0;
    }
}

void request_refuse(struct service_request *request,
                    const struct dispatch_order *order)
{
    const struct refusal *refusal = &refusals[order->reason];
    char *metrics = (char *)&request->service->metrics;
    char text[REFUSAL_MAX];

    if (refusal->counter != NO_COUNTER)
        ++*(uint64_t *)(metrics + refusal->counter);
    if (refusal->say)
        refusal->say(request, order, text);
    request_fail(request, refusal->status, refusal->code,
                 refusal->say ? text : refusal->text,
                 retry_after_us(refusal, order));
}
