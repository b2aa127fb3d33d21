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
#include "base/clock.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/gateway/ticket.h"
#include "conductor/service/pair/pair.h"

static void on_answer(void *arg, const struct http_head *head)
{
    struct service_request *request = arg;
    struct forward *f = request->forward;

    request->attempt.heard_us = clock_now_us();
    pair_answerer(request)->count.status[head->status / 100]++;
    pair_heard(request, head->status);
    if (forward_try_elsewhere(request, head->status))
        return;
    request->output.n_tokens = 1; /* no retry from now on */
    f->refused = head->status >= 300;
    if (f->refused) {
        forward_is_refused(request, head->status);
        forward_prefill_over(request, false, clock_now_us());
    } else {
        forward_answers_well(request);
    }
    if (pair_changes(f)) { /* the length is not known */
        struct http_head changed = *head;

        changed.chunked = true;
        changed.content_length = -1;
        request->ops->answer(request->arg, &changed);
        return;
    }
    request->ops->answer(request->arg, head);
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

/* Passes n bytes to the client. */
static void hand_on(struct service_request *request, const char *bytes,
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
        (void)pool_decode_progress(s->pool, request->attempt.decode,
                                   request->attempt.id,
                                   request->output.n_tokens);
    }
    forward_keep_tail(f, bytes, n);
    f->n_bytes += n;
    forward_note_kept(request, bytes, n);
    request->ops->bytes(request->arg, bytes, n);
}

/* Rewrites n bytes of an answer and passes them to the client. last: no more
 * come. Returns whether the request is alive. */
static bool hand_on_rewritten(struct service_request *request,
                              const char *bytes, size_t n, bool last)
{
    uint64_t number = request->attempt.id;
    struct service *s = request->service;
    struct text_buf out;

    text_buf_init(&out, SIZE_MAX);
    pair_rewrite(request, bytes, n, last, &out);
    if (out.error) {
        text_buf_fini(&out);
        upstream_cancel(request->forward->exchange);
        forward_failed(request, false, "out of memory");
        return false;
    }
    if (out.len)
        hand_on(request, out.data, out.len, clock_now_us());
    text_buf_fini(&out);
    return request_find(s, number) == request;
}

static void on_bytes(void *arg, const char *bytes, size_t n)
{
    struct service_request *request = arg;
    int64_t now_us = clock_now_us();

    request->attempt.heard_us = now_us;
    if (request->state != REQUEST_DECODING && !request->forward->refused) {
        pair_answered(request, now_us);
        forward_first_token(request, now_us);
    }
    if (pair_changes(request->forward))
        (void)hand_on_rewritten(request, bytes, n, false);
    else
        hand_on(request, bytes, n, now_us);
}

static void on_ended(void *arg)
{
    struct service_request *request = arg;
    struct forward *f = request->forward;
    const struct request_output *out = &request->output;

    f->exchange = NULL;
    if (pair_changes(f) && !hand_on_rewritten(request, "", 0, true))
        return;
    if (!f->refused && !f->what.looks)
        engine_answered(f->engine);
    expect_ended(request);
    forward_take_usage(request);
    forward_prefill_over(request, false, clock_now_us());
    if (f->refused) {
        request_end(request, METRICS_FAILED, "engine_status");
        return;
    }
    if (f->what.stream && out->n_tokens > 4)
        engine_learn_step(f->engine,
                          (out->last_token_us - out->first_token_us) /
                              (out->n_tokens - 3));
    request_end(request, METRICS_COMPLETED, NULL);
}

static void on_failed(void *arg, enum upstream_fault fault, const char *why)
{
    struct service_request *request = arg;

    pair_blames_decode(request);
    if (fault != UPSTREAM_UNREACHABLE && fault != UPSTREAM_TIMEOUT)
        pair_heard(request, 0);
    forward_failed(request, upstream_gone(fault), why);
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

static int forward_send(struct service_request *request)
{
    struct forward *f = request->forward;

    f->ops = &forward_ops;
    f->told.prompt = f->told.cached = -1;
    if (f->what.ticket) {
        ticket_sent(request);
        return 0;
    }
    f->engine = engine_of(request->service, request->attempt.prefill);
    if (is_shared(request) ? pair_send(request)
                           : forward_ask(request, f->what.body, f->what.n))
        return -ENOMEM;
    expect_sent(request);
    forward_join_line(request, clock_now_us());
    return 0;
}

static void forward_free(struct service_request *request)
{
    struct forward *f = request->forward;

    if (!f)
        return;
    if (f->what.ticket)
        tickets_leave(request->service, request);
    tokenize_abort(request);
    pair_end(f->pair);
    free(f->headers);
    free(f);
}

const struct instance_ops engine_ops = {
    .send = forward_send,
    .abort = forward_abort,
    .count = forward_count,
    .fail_silent = forward_fail_silent,
    .free = forward_free,
};

/* Ends the first prefill of the line after its predicted time, if its answer is
 * not streamed. */
static void end_unseen(struct engine *e, int64_t now_us)
{
    struct service_request *first = TAILQ_FIRST(&e->line);

    if (first && !first->forward->what.stream && !first->forward->pair &&
        first->forward->turn_us &&
        now_us - first->forward->turn_us > first->attempt.plan.prefill_us)
        forward_prefill_over(first, false, now_us);
}

void forward_tick(struct service *s)
{
    int64_t now_us = clock_now_us();
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
        bug("model %s: %u engines of %u publish, %u of %u tokenize",
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

        if (r && (r->forward->engine == e || r->forward->shares == e ||
                  pair_lost_with(r, e)))
            request_instance_lost(r, e->id, why);
    }
    pairs_cut_off(e);
}
