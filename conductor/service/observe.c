/* The table of observers. See observe.h. */
#include "conductor/service/observe.h"

#include "base/loop/loop.h"
#include "conductor/service/access/access.h"
#include "conductor/service/explain/explain.h"
#include "conductor/service/history/history.h"
#include "conductor/service/models.h"

struct observer {
    void (*began)(struct service_request *,
                  const struct service_request_params *);
    void (*decided)(struct service_request *, const struct schedule_decision *);
    void (*attempt)(struct service_request *);
    void (*warmed)(struct service_request *);
    void (*prefilled)(struct service_request *,
                      const struct msg_prefill_done *);
    void (*prompt)(struct service_request *);
    void (*first_token)(struct service_request *, int64_t ttft_us,
                        int64_t now_us);
    void (*failed)(struct service_request *, const char *why);
    void (*again)(struct service_request *);
    void (*ended)(struct service_request *, const struct request_outcome *);
};

const char *outcome_name(enum metrics_outcome outcome)
{
    static const char *const names[] = {
        [METRICS_COMPLETED] = "completed", [METRICS_REJECTED] = "rejected",
        [METRICS_FAILED] = "failed",       [METRICS_CANCELLED] = "cancelled",
        [METRICS_INVALID] = "invalid",
    };

    return names[outcome];
}

/* --- metrics ------------------------------------------------------------ */

/* Tokens of prompts whose length was guessed from their bytes. */
static uint64_t guessed_length(const struct service_result *r)
{
    return r->prompt_by == SERVICE_BY_BYTES ? r->prompt_tokens : 0;
}

/* Tokens of prompts whose cached part was guessed from the index. */
static uint64_t guessed_cached(const struct service_result *r)
{
    return r->cached_by == SERVICE_BY_INDEX ? r->prompt_tokens : 0;
}

static void metrics_prompt(struct service_request *request)
{
    const struct service_result *r = &request->result;
    struct metrics *m = &request->service->metrics;

    m->prompt_tokens += r->prompt_tokens;
    m->local_tokens += r->local_tokens;
    m->fetched_tokens += r->fetched_tokens;
    m->disk_tokens += r->disk_tokens;
    m->shared_tokens += r->shared_tokens;
    m->computed_tokens += r->computed_tokens;
    m->guessed_length_tokens += guessed_length(r);
    m->guessed_cached_tokens += guessed_cached(r);
}

static void metrics_token(struct service_request *request, int64_t ttft_us,
                          int64_t)
{
    struct service *s = request->service;

    if (!request->output.timed)
        metrics_first_token(&s->metrics, ttft_us, request->dispatch.slo_ttft_us,
                            request->dispatch.retries > 0);
    request->output.timed = true;
    if (s->costs.predicts && !request->dispatch.retries)
        metrics_ttft_predicted(&s->metrics, &request->attempt.forecast,
                               ttft_us);
}

/* Whether all of the answer so far came within the request's SLOs. */
static bool in_time(const struct service_request *request)
{
    const struct request_output *o = &request->output;
    const struct dispatch_request *d = &request->dispatch;

    if (d->slo_ttft_us && o->first_token_us - d->arrived_us > d->slo_ttft_us)
        return false;
    return !d->slo_tbt_us || o->n_tokens < 2 ||
           (o->last_token_us - o->first_token_us) / (o->n_tokens - 1) <=
               d->slo_tbt_us;
}

static void metrics_ended(struct service_request *request,
                          const struct request_outcome *end)
{
    struct metrics *m = &request->service->metrics;

    m->requests[end->outcome]++;
    if (end->outcome != METRICS_CANCELLED && end->outcome != METRICS_INVALID)
        m->offered_tokens += request->prompt.n_tokens;
    if (end->outcome == METRICS_COMPLETED && in_time(request)) {
        m->effective++;
        m->effective_tokens += request->prompt.n_tokens;
    }
    if (end->outcome == METRICS_FAILED)
        metrics_count_failure(m, end->reason);
}

/* --- forecasts ---------------------------------------------------------- */

static void forecast_token(struct service_request *request, int64_t ttft_us,
                           int64_t)
{
    dispatch_first_token(&request->service->dispatch,
                         &request->attempt.forecast, ttft_us);
}

/* --- history ------------------------------------------------------------ */

static struct history *history_of(const struct service_request *request)
{
    return request->service->models->history;
}

static void history_counted(struct service_request *request)
{
    const struct service_result *r = &request->result;
    uint64_t length = guessed_length(r), cached = guessed_cached(r);

    history_prompt(history_of(request), r->prompt_tokens,
                   r->prompt_tokens - r->computed_tokens,
                   length > cached ? length : cached,
                   loop_now_us(request->service->loop));
}

/* Runs before metrics_token(), which marks the request as timed: a request
 * that is tried again after its first token made no second promise. */
static void history_token(struct service_request *request, int64_t ttft_us,
                          int64_t now_us)
{
    int64_t slo_us = request->dispatch.slo_ttft_us;

    if (request->output.timed)
        return;
    if (slo_us)
        history_promise(history_of(request), ttft_us <= slo_us, now_us);
    history_first_token(history_of(request), request->attempt.forecast.ttft_us,
                        ttft_us, now_us);
}

static void history_end(struct service_request *request,
                        const struct request_outcome *end)
{
    if (end->outcome == METRICS_CANCELLED || end->outcome == METRICS_INVALID)
        return;
    history_ended(history_of(request),
                  end->outcome == METRICS_REJECTED ? HISTORY_REJECTED
                  : end->outcome == METRICS_FAILED ? HISTORY_FAILED
                  : in_time(request)               ? HISTORY_IN_TIME
                                                   : HISTORY_LATE,
                  loop_now_us(request->service->loop));
}

/* --- tenants and their limits ------------------------------------------- */

static void tenant_began(struct service_request *request,
                         const struct service_request_params *)
{
    struct models *models = request->service->models;

    tenants_began(models->tenants, request->dispatch.tenant);
    cluster_limits_due(models->cluster);
}

/* forward_count() charges a forwarded request once its tokens are known. */
static void tenant_attempt(struct service_request *request)
{
    if (!request->by->tells_last)
        tenants_sent(request->service->models->tenants,
                     request->dispatch.tenant,
                     request->prompt.n_tokens -
                         (uint64_t)request->attempt.plan.cached_tokens);
}

static void tenant_ended(struct service_request *request,
                         const struct request_outcome *end)
{
    struct models *models = request->service->models;
    uint64_t tenant = request->dispatch.tenant;

    tenants_count(models->tenants, tenant, end->outcome);
    if (end->outcome != METRICS_REJECTED)
        tenants_spent(models->tenants, tenant,
                      request_prompt_tokens(request) +
                          (uint64_t)request->output.n_tokens,
                      loop_now_us(models->loop));
    cluster_limits_due(models->cluster);
}

/* ------------------------------------------------------------------------ */

static const struct observer observers[] = {
    {.prompt = history_counted,
     .first_token = history_token,
     .ended = history_end},
    {.prompt = metrics_prompt,
     .first_token = metrics_token,
     .ended = metrics_ended},
    {.first_token = forecast_token},
    {.began = tenant_began, .attempt = tenant_attempt, .ended = tenant_ended},
    {.decided = explain_decided,
     .warmed = explain_warmed,
     .prefilled = explain_prefilled,
     .first_token = explain_first_token,
     .ended = explain_ended},
    {.began = spans_begin,
     .attempt = spans_decided,
     .failed = spans_failed,
     .again = spans_again,
     .ended = spans_ended},
    {.ended = access_ended},
};

/* Calls a function of each observer that has it. */
#define TELL(event, ...)                                                \
    for (size_t i = 0; i < sizeof(observers) / sizeof(*observers); i++) \
        if (observers[i].event)                                         \
    observers[i].event(__VA_ARGS__)

void observe_began(struct service_request *request,
                   const struct service_request_params *params)
{
    TELL(began, request, params);
}

void observe_decided(struct service_request *request,
                     const struct schedule_decision *decision)
{
    TELL(decided, request, decision);
}

void observe_attempt(struct service_request *request)
{
    TELL(attempt, request);
}

void observe_warmed(struct service_request *request)
{
    TELL(warmed, request);
}

void observe_prefilled(struct service_request *request,
                       const struct msg_prefill_done *done)
{
    TELL(prefilled, request, done);
}

void observe_prompt(struct service_request *request)
{
    TELL(prompt, request);
}

void observe_first_token(struct service_request *request, int64_t ttft_us,
                         int64_t now_us)
{
    TELL(first_token, request, ttft_us, now_us);
}

void observe_failed(struct service_request *request, const char *why)
{
    TELL(failed, request, why);
}

void observe_again(struct service_request *request)
{
    TELL(again, request);
}

void observe_ended(struct service_request *request,
                   const struct request_outcome *end)
{
    TELL(ended, request, end);
}
