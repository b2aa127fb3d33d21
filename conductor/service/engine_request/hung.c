/*
 * Takes requests back from engines that do not answer.
 *
 * A request is late when no head, or no further byte of the body, has come for
 * request_timeout_ms. While a slow client pauses the answer, it is not late.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "conductor/service/engine/engine.h"

bool forward_is_silent(const struct service_request *request, int64_t now_us)
{
    const struct forward *f = request->forward;

    return f->exchange && !f->paused &&
           now_us - request->attempt.heard_us >=
               request->service->config.request_timeout_ms * 1000;
}

void forward_fail_silent(struct service_request *request, int64_t now_us)
{
    struct forward *f = request->forward;
    char why[96];

    if (!forward_is_silent(request, now_us))
        return;
    snprintf(why, sizeof(why),
             "its answer made no progress for %lld ms (request_timeout_ms)",
             (long long)request->service->config.request_timeout_ms);
    log_warn("%s: engine %s: %s; %s", request->request_id,
             f->engine->config->name, why,
             request->output.n_tokens ? "the answer is broken off"
                                      : "the request is taken from it");
    upstream_cancel(f->exchange);
    forward_failed(request, false, why);
}

bool forward_leaves(const struct service_request *request,
                    const struct engine *e)
{
    const struct service *s = request->service;

    return request->forward->engine == e &&
           request->dispatch.retries < s->dispatch.max_retries &&
           instances_count(s, ROLE_PREFILL, NULL) > 0;
}

void service_pause(struct service_request *request, bool pause)
{
    struct forward *f = request->forward;

    if (!f->exchange)
        return;
    f->paused = pause;
    request->attempt.heard_us = clock_now_us();
    upstream_pause(f->exchange, pause);
}
