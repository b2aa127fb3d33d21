/* The answer of a pair's decode engine, and pair_ops: see struct
 * instance_ops. */
#include <errno.h>
#include <stdlib.h>

#include "base/loop/loop.h"
#include "conductor/service/pair/state.h"

/* Whether the prefill leg's reply, not the answer, tells the cached tokens. */
static bool replies_cached(const struct pair *p)
{
    return !p->answers && (p->protocol->leased || !p->protocol->concurrent);
}

/* Whether the decode engine's answer is rewritten for the client. */
static bool changes(const struct pair *p)
{
    return p->usage.cached_tokens >= 0 ||
           (replies_cached(p) && p->protocol->concurrent);
}

/* Whether the decode leg reads KV that the prefill engine keeps only until a
 * lease ends. */
static bool is_leased(const struct pair *p)
{
    return p->protocol->leased && p->answering.len && p->sent_us > 0;
}

/* Whether a request's decode leg may still fetch KV from prefill engine e. Of
 * an answer not streamed, this ends once e was well for ENGINE_FAILURES_MAX
 * times engine_timeout_ms after the leg was sent. */
static bool fetches_from(const struct service_request *request,
                         const struct engine *e)
{
    const struct forward *f = request->forward;
    int64_t us =
        1000 * ENGINE_FAILURES_MAX * request->service->config.engine_timeout_ms;

    return request->attempt.prefill == e->id &&
           (f->what.stream || f->pair->sent_us + us > e->health.well_us);
}

/* Handles the decode engine's status, or its having seen the request (0): it
 * releases the KV itself, unless it had no room. */
static void heard(struct service_request *request, int status)
{
    struct pair *p = request->forward->pair;

    if (p->answers)
        return;
    p->unused = status == 429 || status == 503;
    p->asked = !p->unused;
    p->held = p->held && p->unused;
    if (status >= 300)
        pair_blames_decode(request);
}

static void on_answer(void *arg, const struct http_head *head)
{
    struct service_request *request = arg;
    struct http_head changed = *head;

    pair_answerer(request)->count.status[head->status / 100]++;
    heard(request, head->status);
    if (changes(request->forward->pair)) { /* the length is not known */
        changed.chunked = true;
        changed.content_length = -1;
    }
    forward_answered(request, &changed);
}

/* Rewrites n bytes of an answer and passes them to the client. last: no more
 * follow, and all held-back bytes are passed on. Returns whether the request is
 * alive. */
static bool hand_on_rewritten(struct service_request *request,
                              const char *bytes, size_t n, bool last)
{
    uint64_t number = request->attempt.id;
    struct service *s = request->service;
    struct text_buf out;

    text_buf_init(&out, SIZE_MAX);
    pair_usage_write(&request->forward->pair->usage, bytes, n, last, &out);
    if (out.error) {
        text_buf_fini(&out);
        upstream_cancel(request->forward->exchange);
        forward_failed(request, false, "out of memory");
        return false;
    }
    if (out.len)
        forward_hand_on(request, out.data, out.len, loop_now_us(s->loop));
    text_buf_fini(&out);
    return service_request_find(s, number) == request;
}

/* Handles the first byte of the decode engine's answer. */
static void begin(struct service_request *request, int64_t now_us)
{
    struct service *s = request->service;
    const struct pair *p = request->forward->pair;
    const struct forward *f = request->forward;

    pair_pass_on(request, f->what.stream, now_us);
    if (!f->what.stream || p->sent_us == 0 ||
        (p->protocol->decode && !p->answering.len))
        return;
    learned_prefill(&s->engines.pushes, request->attempt.plan.push_tokens,
                    now_us - p->sent_us);
    learned_terms(&s->engines.pushes, &s->engines.push[0], &s->engines.push[1]);
}

static void on_bytes(void *arg, const char *bytes, size_t n)
{
    struct service_request *request = arg;
    int64_t now_us = loop_now_us(request->service->loop);

    if (forward_begins(request))
        begin(request, now_us);
    forward_heard(request, now_us);
    if (changes(request->forward->pair))
        hand_on_rewritten(request, bytes, n, false);
    else
        forward_hand_on(request, bytes, n, now_us);
}

static void on_ended(void *arg)
{
    struct service_request *request = arg;
    const struct pair *p = request->forward->pair;

    request->forward->exchange = NULL;
    if (!changes(p) || hand_on_rewritten(request, "", 0, true))
        forward_ended(request, !replies_cached(p));
}

static void on_failed(void *arg, enum upstream_fault fault, const char *why)
{
    struct service_request *request = arg;

    pair_blames_decode(request);
    if (fault != UPSTREAM_UNREACHABLE && fault != UPSTREAM_TIMEOUT)
        heard(request, 0);
    forward_failed(request, upstream_gone(fault), why);
}

static const struct upstream_ops answer_ops = {
    .answer = on_answer,
    .bytes = on_bytes,
    .ended = on_ended,
    .failed = on_failed,
};

static int pair_send(struct service_request *request)
{
    forward_begin(request, &answer_ops);
    if (pair_ask_prefill(request))
        return -ENOMEM;
    forward_sent(request);
    return 0;
}

static void pair_fail_silent(struct service_request *request, int64_t now_us)
{
    if (forward_is_silent(request, now_us) &&
        !upstream_unsent(request->forward->exchange))
        heard(request, 0);
    forward_fail_silent(request, now_us);
}

/* A later fetch may get another prompt's KV: the request must leave both
 * engines. */
static bool pair_leaves(const struct service_request *request,
                        const struct engine *e)
{
    return forward_leaves(request, e) ||
           (is_leased(request->forward->pair) &&
            (request->forward->engine == e || fetches_from(request, e)));
}

const struct instance_ops pair_ops = {
    .send = pair_send,
    .abort = pair_abort,
    .count = forward_count,
    .fail_silent = pair_fail_silent,
    .free = pair_end,
    .lost_with = pair_lost_with,
    .leaves = pair_leaves,
    .tells_last = true,
    .two_legs = true,
};
