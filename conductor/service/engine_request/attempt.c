/*
 * Forwards a request to an engine, and the answer to the client.
 *
 * An answer that is not streamed shows no first token: its prefill counts as
 * over after the predicted time, or when a later request of the engine's line
 * has its first token. Its costs are learned from its end, if the engine had no
 * other request (forward_learn_whole()).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bug.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/pair/pair.h"

void forward_answered(struct service_request *request,
                      const struct http_head *head)
{
    struct forward *f = request->forward;

    request->attempt.heard_us = loop_now_us(request->service->loop);
    if (forward_try_elsewhere(request, head->status))
        return;
    request->output.n_tokens = 1; /* no retry from now on */
    f->refused = head->status >= 300;
    if (f->refused) {
        forward_is_refused(request, head->status);
        forward_prefill_over(request, false,
                             loop_now_us(request->service->loop));
        if (!f->invalid && request_may_log(request))
            log_info("%s: failed: engine %s answers %d", request->request_id,
                     f->engine->config->name, head->status);
    } else {
        forward_answers_well(request);
    }
    request->ops->answer(request->arg, head);
}

static void on_answer(void *arg, const struct http_head *head)
{
    struct service_request *request = arg;

    request->forward->engine->count.status[head->status / 100]++;
    forward_answered(request, head);
}

/* Returns the k-th byte before bytes[i] of an answer that goes on with
 * `bytes`, or ' '. */
static char before(const struct forward *f, const char *bytes, size_t i,
                   size_t k)
{
    return k <= i               ? bytes[i - k]
           : k - i <= f->n_tail ? f->tail[f->n_tail - (k - i)]
                                : ' ';
}

/* Counts events of a stream: each ends with an empty line. Lines end with LF or
 * CR LF. */
static uint32_t count_events(const struct forward *f, const char *bytes,
                             size_t n)
{
    uint32_t events = 0;

    for (const char *at = bytes, *end = bytes + n; at < end; at++) {
        at = memchr(at, '\n', (size_t)(end - at));
        if (!at)
            break;
        size_t i = (size_t)(at - bytes);
        bool cr = before(f, bytes, i, 1) == '\r';
        events += before(f, bytes, i, cr ? 2 : 1) == '\n';
    }
    return events;
}

/* Notes which engine keeps an answer of /v1/responses: requests that name its
 * id must go there. */
static void note_kept(struct service_request *request, const char *bytes,
                      size_t n)
{
    struct forward *f = request->forward;

    if (!f->what.keeps || f->refused)
        return;
    if (answer_id_read(&f->read.id, bytes, n))
        kept_note(&request->service->requests.kept, f->what.owner,
                  f->read.id.json.value, f->read.id.json.n,
                  request->attempt.prefill);
}

void forward_hand_on(struct service_request *request, const char *bytes,
                     size_t n, int64_t now_us)
{
    struct forward *f = request->forward;
    struct service *s = request->service;

    if (f->what.stream && !f->refused) {
        uint32_t events = count_events(f, bytes, n);

        request->output.n_tokens += events;
        s->metrics.output_tokens += events;
        if (events)
            request->output.last_token_us = now_us;
        pool_decode_progress(s->pool, request->attempt.decode,
                             request->attempt.id, request->output.n_tokens);
    }
    forward_keep_tail(f, bytes, n);
    f->n_bytes += n;
    note_kept(request, bytes, n);
    request->ops->bytes(request->arg, bytes, n);
}

bool forward_begins(const struct service_request *request)
{
    return request->state != REQUEST_DECODING && !request->forward->refused;
}

void forward_heard(struct service_request *request, int64_t now_us)
{
    request->attempt.heard_us = now_us;
    if (forward_begins(request))
        forward_first_token(request, now_us);
}

static void on_bytes(void *arg, const char *bytes, size_t n)
{
    struct service_request *request = arg;
    int64_t now_us = loop_now_us(request->service->loop);

    forward_heard(request, now_us);
    forward_hand_on(request, bytes, n, now_us);
}

void forward_ended(struct service_request *request, bool tells_cached)
{
    struct forward *f = request->forward;
    const struct request_output *out = &request->output;

    f->exchange = NULL;
    if (!f->refused && !f->what.looks)
        engine_answered(f->engine);
    expect_ended(request);
    forward_take_usage(request, tells_cached);
    forward_prefill_over(request, false, loop_now_us(request->service->loop));
    if (f->refused) {
        request_end(request, f->invalid ? METRICS_INVALID : METRICS_FAILED,
                    "engine_status");
        return;
    }
    if (f->what.stream && out->n_tokens > 4)
        engine_learn_step(f->engine,
                          (out->last_token_us - out->first_token_us) /
                              (out->n_tokens - 3));
    request_end(request, METRICS_COMPLETED, NULL);
}

static void on_ended(void *arg)
{
    forward_ended(arg, true);
}

static void on_failed(void *arg, enum upstream_fault fault, const char *why)
{
    forward_failed(arg, upstream_gone(fault), why);
}

static const struct upstream_ops forward_ops = {
    .answer = on_answer,
    .bytes = on_bytes,
    .ended = on_ended,
    .failed = on_failed,
};

/* Whether another engine decodes what this one prefills. */
static bool is_shared(const struct service_request *request)
{
    const struct request_attempt *a = &request->attempt;

    return a->decode != POOL_NO_INSTANCE && a->decode != a->prefill;
}

void forward_begin(struct service_request *request,
                   const struct upstream_ops *ops)
{
    struct forward *f = request->forward;

    f->ops = ops;
    f->told.prompt = f->told.cached = -1;
    f->engine = engine_of(request->service, request->attempt.prefill);
}

void forward_sent(struct service_request *request)
{
    expect_sent(request);
    forward_join_line(request, loop_now_us(request->service->loop));
}

static int forward_send(struct service_request *request)
{
    const struct service_forward *what = &request->forward->what;

    if (is_shared(request)) {
        request->by = &pair_ops;
        return pair_ops.send(request);
    }
    forward_begin(request, &forward_ops);
    if (forward_ask(request, what->body, what->n))
        return -ENOMEM;
    forward_sent(request);
    return 0;
}

void forward_free(struct service_request *request)
{
    tokenize_abort(request);
    free(request->forward->headers);
    free(request->forward);
}

static bool forward_lost_with(struct service_request *request,
                              const struct engine *e)
{
    return request->forward->engine == e;
}

const struct instance_ops engine_ops = {
    .take = forward_take,
    .tokenize = tokenize_begin,
    .send = forward_send,
    .abort = forward_abort,
    .count = forward_count,
    .fail_silent = forward_fail_silent,
    .free = forward_free,
    .lost_with = forward_lost_with,
    .leaves = forward_leaves,
    .tells_last = true,
};

/* Ends the first prefill of the line after its predicted time, if its answer is
 * not streamed. */
static void end_unseen(struct engine *e, int64_t now_us)
{
    struct service_request *first = TAILQ_FIRST(&e->line);

    if (first && !first->forward->what.stream && !first->by->two_legs &&
        first->attempt.turn_us &&
        now_us - first->attempt.turn_us > first->attempt.plan.prefill_us)
        forward_prefill_over(first, false, now_us);
}

void forward_tick(struct service *s)
{
    int64_t now_us = loop_now_us(s->loop);
    uint32_t n_heard = 0, n_asked = 0;

    for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
        struct engine *e = engine_at(s, i);

        if (!e)
            continue;
        n_heard += e->events.heard;
        n_asked += *e->config->tokenize_path != '\0';
        end_unseen(e, now_us);
        engine_forget_costs(e);
        expect_until(e, now_us);
    }
    if (n_heard != s->engines.n_heard || n_asked != s->engines.n_asked) {
        bug("model %s: %u of %u engines publish KV events, %u of %u tokenize "
            "prompts",
            s->config.model, s->engines.n_heard, n_heard, s->engines.n_asked,
            n_asked);
        s->engines.n_heard = n_heard;
        s->engines.n_asked = n_asked;
    }
    pairs_tick(s, now_us);
}

void engine_cut_off(struct engine *e, const char *why)
{
    struct requests *t = &e->service->requests;

    /* A callback may end other requests: look each one up by its slot. */
    for (uint32_t i = 0; i < t->size; i++) {
        struct service_request *r = t->by_slot[i];

        if (r && r->by->lost_with(r, e))
            request_instance_lost(r, e->id, why);
    }
    pairs_cut_off(e);
}
