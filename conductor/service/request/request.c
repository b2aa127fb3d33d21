/* A request's life: its states and which may follow which, its failures, its
 * end, and its way off a drained instance. */
#include <stdio.h>
#include <stdlib.h>

#include "base/bug.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/models.h"
#include "conductor/service/pair/pair.h"
#include "conductor/service/ticket/ticket.h"

static const char *const state_names[REQUEST_STATES] = {
    "received",     "waiting",  "scheduled", "prefilling",
    "transferring", "decoding", "ended",     "tokenizing",
};

#define CUT_LINES_PER_S 10

#define TO(s) (1u << (s))
/* A retry goes back to RECEIVED. */
static const unsigned transitions[REQUEST_STATES] = {
    [REQUEST_RECEIVED] =
        TO(REQUEST_WAITING) | TO(REQUEST_SCHEDULED) | TO(REQUEST_ENDED),
    [REQUEST_WAITING] = TO(REQUEST_SCHEDULED) | TO(REQUEST_ENDED),
    [REQUEST_SCHEDULED] =
        TO(REQUEST_PREFILLING) | TO(REQUEST_RECEIVED) | TO(REQUEST_ENDED),
    [REQUEST_PREFILLING] =
        TO(REQUEST_TRANSFERRING) | TO(REQUEST_RECEIVED) | TO(REQUEST_ENDED),
    [REQUEST_TRANSFERRING] =
        TO(REQUEST_DECODING) | TO(REQUEST_RECEIVED) | TO(REQUEST_ENDED),
    [REQUEST_DECODING] = TO(REQUEST_RECEIVED) | TO(REQUEST_ENDED),
    [REQUEST_ENDED] = 0,
    [REQUEST_TOKENIZING] = TO(REQUEST_RECEIVED) | TO(REQUEST_ENDED),
};

/* After a bug: the request fails with 500 "internal_error" in the next turn of
 * the loop, whatever its state. */
static void request_break(struct service_request *request)
{
    struct service *s = request->service;

    request->broken = s->requests.has_broken = true;
    loop_defer(&s->requests.look);
}

bool service_request_set_state(struct service_request *request,
                               enum request_state next)
{
    if (!(transitions[request->state] & TO(next))) {
        bug("%s: no transition from %s to %s", request->request_id,
            state_names[request->state], state_names[next]);
        if (request->state != REQUEST_ENDED)
            request_break(request);
        return false;
    }
    log_debug("%s: %s -> %s", request->request_id, state_names[request->state],
              state_names[next]);
    request->state = next;
    return true;
}

struct service_request *service_request_find(struct service *service,
                                             uint64_t attempt_id)
{
    uint32_t slot = (uint32_t)(attempt_id % service->requests.size);
    struct service_request *request = service->requests.by_slot[slot];

    return request && request->attempt.id == attempt_id ? request : NULL;
}

void request_drop_first(struct service_request *request)
{
    loop_timer_stop(&request->output.held);
    request->output.holds = false;
}

void service_request_free(struct service_request *request)
{
    struct service *s = request->service;

    s->requests.by_slot[request->slot] = NULL;
    s->requests.free_slots[s->requests.n_free++] = request->slot;
    if (request->named)
        request->named->n_requests--;
    free(request->prompt.tokens);
    free(request->prompt.keys);
    free(request->output.early);
    request_drop_first(request);
    request->by->free(request);
    free(request);
}

/* Removes the attempt's prefill, decode and lent workers from the pool, as far
 * as they are still there. */
static void request_close_pool(struct service_request *request)
{
    struct service *s = request->service;

    if (request->attempt.prefill_open)
        pool_prefill_cancel(s->pool, request->attempt.prefill,
                            request->attempt.id, loop_now_us(s->loop));
    schedule_give_back(s->pool, &request->attempt.lent, request->attempt.id,
                       loop_now_us(s->loop));
    if (request->attempt.decode_open)
        pool_decode_done(s->pool, request->attempt.decode, request->attempt.id);
    if (request->attempt.prefill_open || request->attempt.decode_open)
        service_freed(s);
    if (request->attempt.id)
        cluster_ended(s->peers, request->attempt.id);
    request->attempt.prefill_open = request->attempt.decode_open = false;
}

/* Ends an attempt: its instances forget it, and the pool. */
static void request_abort(struct service_request *request)
{
    if (!request->attempt.id)
        return;
    request->by->abort(request);
    request_close_pool(request);
    request->attempt.id = 0;
    request->output.n_early = 0;
    request->output.early_done = false;
    request_drop_first(request);
}

static void ended(struct service_request *request, enum metrics_outcome outcome,
                  const char *reason, int status)
{
    request->by->count(request);
    observe_ended(request, &(struct request_outcome){outcome, reason, status});
}

bool request_may_log(const struct service_request *request)
{
    return log_rate_takes(&request->service->requests.cut_log, CUT_LINES_PER_S);
}

/* Logs that the client does not get the whole answer. A stream of an engine has
 * an event for each token; of its other answers only the bytes are known. */
static void log_cut(const struct service_request *request, const char *why)
{
    const struct request_attempt *a = &request->attempt;
    const struct service *s = request->service;
    const struct forward *f = request->forward;
    bool passes = f && !f->what.ticket; /* the answer, behind its head */
    uint32_t n = request->output.n_tokens;
    const struct pool_instance *in = NULL;
    char bytes[48] = "";

    if (!request_may_log(request))
        return;
    if (a->id || n)
        in = pool_get(s->pool,
                      a->decode != POOL_NO_INSTANCE ? a->decode : a->prefill);
    if (passes && n)
        snprintf(bytes, sizeof(bytes), " (%llu bytes)",
                 (unsigned long long)f->n_bytes);
    log_info("%s: its answer was cut after %u tokens%s, instance %s: %s",
             request->request_id, passes && n ? n - 1 : n, bytes,
             in ? in->name : "none", why);
}

void request_fail(struct service_request *request, int http_status,
                  const char *code, const char *message, int64_t retry_after_us)
{
    struct service_failure failure = {
        .request_id = request->request_id,
        .http_status = http_status,
        .code = code,
        .message = message,
        .retry_after_us = retry_after_us,
    };
    if (request->output.n_tokens && request->attempt.id)
        log_cut(request, message);
    request_abort(request);
    if (!service_request_set_state(request, REQUEST_ENDED))
        return;
    ended(request, http_status == 429 ? METRICS_REJECTED : METRICS_FAILED, code,
          http_status);
    log_debug("%s: failed, %s: %s", request->request_id, code, message);
    request->ops->failed(request->arg, &failure);
    service_request_free(request);
}

void request_unlist(struct service_request *request)
{
    struct service *s = request->service;

    if (request->state == REQUEST_RECEIVED)
        TAILQ_REMOVE(&s->requests.inbox, request, entry);
    dispatch_forget(&s->dispatch, &request->dispatch);
}

/* A callback may end other requests: look each one up by its slot. */
void request_fail_broken(struct service *s)
{
    bool any = s->requests.has_broken;

    s->requests.has_broken = false;
    for (uint32_t i = 0; any && i < s->requests.size; i++) {
        struct service_request *request = s->requests.by_slot[i];

        if (!request || !request->broken)
            continue;
        request_unlist(request);
        request_fail(request, 500, "internal_error",
                     "a bug in Conductor; its log has the details", 0);
    }
}

void request_end(struct service_request *request, enum metrics_outcome outcome,
                 const char *reason)
{
    struct service *s = request->service;

    if (s->costs.predicts && request->output.n_tokens > 1)
        metrics_predicted(
            &s->metrics.tbt_error_ratio, &s->metrics.tbt_ratio,
            request->attempt.predicted_tbt_us,
            (request->output.last_token_us - request->output.first_token_us) /
                (request->output.n_tokens - 1));
    request_close_pool(request);
    request->attempt.id = 0;
    if (!service_request_set_state(request, REQUEST_ENDED))
        return;
    ended(request, outcome, reason, outcome == METRICS_COMPLETED ? 200 : 0);
    request->result.output_tokens = request->output.n_tokens;
    request->result.retries = request->dispatch.retries;
    request->ops->done(request->arg, &request->result);
    service_request_free(request);
}

void request_answered(struct service_request *request, int64_t tokens)
{
    struct service *s = request->service;

    dispatch_answered(&s->dispatch, &request->dispatch, tokens);
    dispatch_decoded(&s->dispatch, &request->dispatch, tokens,
                     loop_now_us(s->loop));
    cluster_learnt(s->peers, request->dispatch.length_key, tokens,
                   request->dispatch.ask.max_output_tokens);
}

void request_receive(struct service_request *request)
{
    struct requests *all = &request->service->requests;

    TAILQ_INSERT_TAIL(&all->inbox, request, entry);
    loop_defer(&all->look);
}

/* Ends an attempt without output, and puts the request back into the inbox. */
static void request_place_again(struct service_request *request)
{
    observe_again(request);
    request_abort(request);
    if (service_request_set_state(request, REQUEST_RECEIVED))
        request_receive(request);
}

/* Whether the client has no token, or the front took all of them back. */
static bool take_back(struct service_request *request)
{
    return request->output.n_tokens == 0 ||
           (request->ops->take_back && request->ops->take_back(request->arg));
}

void request_instance_lost(struct service_request *request, uint32_t id,
                           const char *why)
{
    struct service *s = request->service;
    bool kept = !take_back(request);
    char text[MSG_TEXT_MAX + 64];

    observe_failed(request, why);
    if (kept)
        log_cut(request, why);
    request_abort(request);
    if (!dispatch_failed(&s->dispatch, &request->dispatch, id, kept)) {
        if (request->output.n_tokens)
            snprintf(text, sizeof(text), "%s after %u of %u tokens", why,
                     request->output.n_tokens, request->prompt.max_tokens);
        else
            snprintf(text, sizeof(text),
                     "%s; failed attempts: %u. /admin/instances shows which "
                     "instances are ready, and the conductor's log why others "
                     "are not",
                     why, request->dispatch.retries + 1);
        request_fail(request, 502, "worker_failed", text, 0);
        return;
    }
    snprintf(request->last_failure, sizeof(request->last_failure), "%s", why);
    request->output.n_tokens = 0;
    request->output.first_token_us = request->output.last_token_us = 0;
    s->metrics.retries++;
    log_info("%s: %s; the request is scheduled again", request->request_id,
             why);
    request_place_again(request);
}

static bool is_at(const struct service_request *request, uint32_t id)
{
    return request && request->attempt.id &&
           (request->attempt.prefill == id || request->attempt.decode == id);
}

/* Whether other instances can take over the instance's part of the request. */
static bool has_others(const struct service *s,
                       const struct service_request *request, uint32_t id)
{
    return (request->attempt.prefill != id ||
            instances_count(s, ROLE_PREFILL, NULL) > 0) &&
           (request->attempt.decode != id ||
            instances_count(s, ROLE_DECODE, NULL) > 0);
}

void request_move_waiting(struct service *s, uint32_t id)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->requests.size; i++) {
        struct service_request *request = s->requests.by_slot[i];

        if (!is_at(request, id) || !request->by->tells_begin ||
            request->state != REQUEST_SCHEDULED || !has_others(s, request, id))
            continue;
        request_place_again(request);
        n++;
    }
    if (n > 0)
        log_info("instance %s is drained: %u requests that had not begun there "
                 "are scheduled again",
                 pool_get(s->pool, id)->name, n);
}

void request_end_work(struct service *s, uint32_t id)
{
    char why[MSG_TEXT_MAX];
    uint32_t n = 0;

    snprintf(
        why, sizeof(why),
        "instance %s is drained, and the time limit of its requests is over",
        pool_get(s->pool, id)->name);
    for (uint32_t i = 0; i < s->requests.size; i++) {
        struct service_request *request = s->requests.by_slot[i];

        if (!is_at(request, id) ||
            (request->attempt.decode != id && request->by->hands_over &&
             request->state == REQUEST_DECODING))
            continue;
        request_instance_lost(request, id, why);
        n++;
    }
    if (n > 0)
        log_warn("%s: %u requests", why, n);
}

void service_cancel(struct service_request *request, const char *why)
{
    if (!request)
        return;
    struct service *s = request->service;
    log_cut(request, why);
    request_unlist(request);
    request_abort(request);
    if (service_request_set_state(request, REQUEST_ENDED))
        ended(request, METRICS_CANCELLED, NULL, 0);
    service_request_free(request);
    loop_defer(&s->requests.look); /* waiting ones may go */
}

const char *service_known_name(enum service_known_by by)
{
    static const char *const names[] = {
        [SERVICE_BY_NOTHING] = "",      [SERVICE_BY_TOLD] = "told",
        [SERVICE_BY_TOKENS] = "tokens", [SERVICE_BY_HASHES] = "hashes",
        [SERVICE_BY_BYTES] = "bytes",   [SERVICE_BY_INDEX] = "index"};

    return names[by];
}

enum service_known_by request_known_by(const struct service_request *request)
{
    return request->result.prompt_tokens ? request->result.prompt_by
                                         : request->prompt.known_by;
}

uint32_t request_prompt_tokens(const struct service_request *request)
{
    const struct service_result *r = &request->result;

    return r->prompt_tokens ? r->prompt_tokens : request->prompt.n_tokens;
}
