/*
 * The health of engines: what probes (probe.c) and requests make of it.
 *
 *   starting --a good probe--> ready
 *   ready    --3 failures in a row--> suspect: no work, only probes
 *   suspect  --a good probe--> ready, on trial: one failure is enough until a
 *                              request has ended well. After each trial that
 *                              requests have failed, the next one takes twice
 *                              as many good probes, up to 32
 *
 * One without a URL is only listened to, and stays where it starts.
 *
 * Failures are of probes and of requests alike; those of requests that it
 * refused (forward/status.c) are not made up for by a good probe. An engine
 * that refuses the key that it is given is suspect, too, until a probe is
 * answered. An engine that could not be reached has lost its cache when it
 * comes back: it may be another process.
 */
#include "base/log.h"
#include "conductor/service/engine/engine.h"

/* After t trials that failed in a row there are 2^t good answers for its health
 * before the next one; t is this at most. */
#define TRIALS_MAX 5u

/* A probe or a request has failed. A trial is of requests: an engine that has
 * gone again before one came has failed none. */
static void failed(struct engine *e, bool probe, bool unreachable,
                   const char *why)
{
    struct service *s = e->service;
    enum pool_health health = pool_get(s->pool, e->id)->health;
    bool lost; /* its id */

    e->health.unreachable = e->health.unreachable || unreachable;
    if (e->health.unreachable)
        *e->bootstrap.id = '\0';
    lost = e->bootstrap.server && !*e->bootstrap.id;
    e->count.failures++;
    if (++e->health.failures_in_row == ENGINE_FAILURES_MAX &&
        health == HEALTH_STARTING)
        log_warn("engine %s was never ready at %s and gets no work yet: %s",
                 e->config->name, e->config->url_text, why);
    if ((e->health.failures_in_row < ENGINE_FAILURES_MAX && !lost) ||
        health != HEALTH_READY)
        return;
    (void)!pool_set_health(s->pool, e->id, HEALTH_SUSPECT);
    s->metrics.workers_lost++;
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
