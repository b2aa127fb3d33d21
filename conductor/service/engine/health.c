/*
 * The health of engines, by probes (probe.c) and requests.
 *
 *   starting --a good probe--> ready
 *   ready    --3 failures in a row--> suspect: no work, only probes
 *   suspect  --a good probe--> ready, on trial: one failure is enough until a
 *                              request has ended well. After each trial that
 *                              requests have failed, the next one takes twice
 *                              as many good probes, up to 32
 *
 * An engine without a URL only publishes events, and stays "starting".
 *
 * Failed probes and failed requests both count; a good probe does not reset
 * refused requests (engine_request/status.c). An engine that refuses its key is
 * suspect until it answers a probe. The cache of an unreachable engine counts
 * as lost: the engine may be a new process.
 */
#include "base/log.h"
#include "base/text.h"
#include "conductor/service/engine/engine.h"

/* After t failed trials in a row the next one takes 2^t good probes; this is
 * the largest t. */
#define TRIALS_MAX 5u

/* Counts a failed probe or request. Only a failed request fails a trial. */
static void failed(struct engine *e, bool probe, bool unreachable,
                   const char *why)
{
    struct service *s = e->service;
    enum pool_health health = pool_get(s->pool, e->id)->health;
    bool lost; /* its bootstrap id */

    e->health.unreachable = e->health.unreachable || unreachable;
    if (e->health.unreachable)
        *e->bootstrap.id = '\0';
    lost = e->bootstrap.server && !*e->bootstrap.id;
    e->count.failures++;
    text_copy(e->health.last_error, sizeof(e->health.last_error), why);
    if (++e->health.failures_in_row == ENGINE_FAILURES_MAX &&
        health == HEALTH_STARTING)
        log_warn("engine %s was never ready at %s and gets no work yet: %s",
                 e->config->name, e->config->url_text, why);
    if ((e->health.failures_in_row < ENGINE_FAILURES_MAX && !lost) ||
        health != HEALTH_READY)
        return;
    pool_set_health(s->pool, e->id, HEALTH_SUSPECT);
    service_lost(s, e->config->name);
    if (!e->health.on_trial)
        e->health.trials = 0;
    else if (!probe && e->health.trials < TRIALS_MAX)
        e->health.trials++;
    e->health.good_to_go = (1u << e->health.trials) - 1;
    log_warn("engine %s gets no work: %s", e->config->name, why);
}

void engine_probe_failed(struct engine *e, bool unreachable, const char *why)
{
    failed(e, true, unreachable, why);
}

void engine_failed(struct engine *e, bool unreachable, const char *why)
{
    failed(e, false, unreachable, why);
}

void engine_refused(struct engine *e, const char *why)
{
    e->health.refused_in_row++;
    engine_failed(e, false, why);
}

void engine_answered(struct engine *e)
{
    e->health.refused_in_row = 0;
    e->health.failures_in_row = 0;
    e->health.on_trial = false;
}
