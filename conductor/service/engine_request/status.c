/*
 * Decides by the status of an engine's answer whether another engine is tried,
 * and whether this engine is at fault.
 *
 *   429, 503        any request: no room here, perhaps at another engine
 *   404             a request for a kept answer: another engine may have it
 *   502, 504        a prompt: the engine's own backend does not answer
 *   404, other 5xx, a prompt: one other engine is asked; if it agrees, the
 *   401, 403        answer stands
 *
 * A prompt that no engine answers well must not take all of them out. So an
 * engine is at fault only if it refused, by 5xx, 401 or 403, a request that
 * another engine then answers well. 401 and 403 for a client's own key are the
 * client's fault. An engine of a pair that refuses before its partner has
 * answered may only not reach that partner: it is at fault if another engine
 * answers with the same partner. After two such refusals, or if there is no
 * other engine, the next try is without that partner.
 *
 * A request is late when no head, or no further byte of the body, has come for
 * request_timeout_ms, and is taken back then. While a slow client pauses the
 * answer, it is not late.
 */
#include <stdio.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/sessions.h"

static bool is_key(int status)
{
    return status == 401 || status == 403;
}

/* Whether the request was sent with the client's own key. */
static bool has_own_key(const struct forward *f)
{
    return !f->engine->authorization[0] && f->what.authorization[0];
}

/* Whether another engine may answer better. If the prompt itself may be the
 * cause, one other engine is asked, and no third. */
static bool may_differ(struct forward *f, int status)
{
    if (status == 429 || status == 503)
        return true;
    if (f->what.looks && status == 404)
        return true;
    if (status == 404 || is_key(status))
        f->engine->health.n_good = 0; /* the next probe asks for its models */
    if (!f->what.prompt || status < 401 || (is_key(status) && has_own_key(f)))
        return false;
    if (status == 502 || status == 504)
        return true;
    if (f->second || (status < 500 && status != 404 && !is_key(status)))
        return false;
    f->second = true;
    return true;
}

/* Returns the engine of a pair that had not answered when the other one
 * refused; NULL = none. */
static const struct engine *silent(const struct service_request *request)
{
    return engine_of(request->service, request->forward->silent);
}

/* Notes the engine: it is at fault if another one answers this request well. */
static void doubt(struct service_request *request, int status)
{
    struct forward *f = request->forward;
    const struct engine *partner = silent(request);

    if (f->n_doubts < FORWARD_DOUBTS_MAX && f->what.prompt &&
        (status >= 500 || is_key(status)))
        f->doubts[f->n_doubts++] = (struct forward_doubt){
            f->engine->id, status, partner ? partner->id : POOL_NO_INSTANCE};
}

void forward_is_refused(struct service_request *request, int status)
{
    struct forward *f = request->forward;

    f->invalid = status >= 400 && status < 500 && status != 408 &&
                 status != 429 && (!is_key(status) || has_own_key(f));
    expect_refused(request);
    /* An engine that fails may have computed the prompt. */
    if (status < 500 || status == 503)
        forward_refused_in_line(request, loop_now_us(request->service->loop));
    sessions_note(&request->service->requests.sessions, request->session,
                  request->dispatch.ask.session);
}

/* Whether other engines of its role may take the request, beyond the `failed`
 * ones that have failed it. */
static bool has_other(const struct service_request *request,
                      const struct engine *e, uint32_t failed)
{
    const struct service *s = request->service;
    const struct pool_instance *i = pool_get(s->pool, e->id);
    unsigned role = i->role & ROLE_PREFILL ? ROLE_PREFILL : i->role;
    bool counts = pool_takes_work(i) && !e->leaving &&
                  (!request->named || name_set_has(request->named, i->slot));

    return instances_count(s, role, request->named) >= failed + 1u + counts;
}

bool forward_try_elsewhere(struct service_request *request, int status)
{
    struct service *s = request->service;
    struct forward *f = request->forward;
    uint32_t tries = request->dispatch.retries;
    const struct engine *partner = silent(request);
    bool other = has_other(request, f->engine, tries);
    bool other_partner =
        partner && (tries > 0 || !other) && has_other(request, partner, 0);
    char why[128];

    if (!may_differ(f, status) || !(other || other_partner) ||
        tries >= s->dispatch.max_retries)
        return false;
    doubt(request, status);
    if (other_partner)
        dispatch_exclude(&request->dispatch, partner->id);
    forward_is_refused(request, status);
    snprintf(why, sizeof(why), "engine %s answers %d", f->engine->config->name,
             status);
    request_instance_lost(request, other ? f->engine->id : POOL_NO_INSTANCE,
                          why);
    return true;
}

void forward_answers_well(struct service_request *request)
{
    struct service *s = request->service;
    struct forward *f = request->forward;

    for (uint32_t i = 0; i < f->n_doubts; i++) {
        struct engine *e = engine_of(s, f->doubts[i].instance);
        char why[128];

        if (!e || e == f->engine ||
            (f->doubts[i].partner != POOL_NO_INSTANCE &&
             f->doubts[i].partner != request->attempt.prefill &&
             f->doubts[i].partner != request->attempt.decode))
            continue;
        snprintf(why, sizeof(why), "it answers %d, and engine %s does not",
                 f->doubts[i].status, f->engine->config->name);
        engine_refused(e, why);
    }
    f->n_doubts = 0;
    expect_answered(request);
}

void forward_failed(struct service_request *request, bool unreachable,
                    const char *why)
{
    struct engine *e = request->forward->engine;
    char text[192];

    request->forward->exchange = NULL;
    snprintf(text, sizeof(text), "engine %s failed: %s", e->config->name, why);
    e->health.unreachable = e->health.unreachable || unreachable;
    /* A request that no engine survives must not end all of them. */
    if (e->health.blamed_by != request->number + 1)
        engine_failed(e, false, why);
    e->health.blamed_by = request->number + 1;
    if (request->output.n_tokens == 0)
        expect_refused(request);
    request_instance_lost(request, e->id, text);
}

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
    request->attempt.heard_us = loop_now_us(request->service->loop);
    upstream_pause(f->exchange, pause);
}
