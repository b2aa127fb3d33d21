/* Sends both legs at once. The client gets the decode leg's answer, not the
 * prefill leg's reply. See pair.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/loop/loop.h"
#include "conductor/service/pair/state.h"

static struct engine *pair_decoder(const struct service_request *request)
{
    return engine_of(request->service, request->attempt.decode);
}

void pair_pass_on(struct service_request *request, bool seen, int64_t now_us)
{
    struct forward *f = request->forward;

    if (!f->pair->beside)
        return;
    f->pair->beside = false;
    expect_ended(request);
    forward_prefill_over(request, seen, now_us);
    f->engine = pair_decoder(request);
    f->n_had = 0;
    expect_sent(request);
}

struct engine *pair_answerer(const struct service_request *request)
{
    const struct pair *p = request->forward->pair;

    return p->beside && !p->answers ? pair_decoder(request)
                                    : request->forward->engine;
}

void pair_blames_decode(struct service_request *request)
{
    struct pair *p = request->forward->pair;

    if (!p->beside || p->answers)
        return;
    request->forward->silent = p->status == 0 ? p->at->id : POOL_NO_INSTANCE;
    /* The prefill engine may keep KV once its reply has begun. */
    if (!p->protocol->leased || p->status == 0) {
        upstream_cancel(p->leg);
        p->leg = NULL;
    }
    expect_failed(request);
    pair_pass_on(request, false, loop_now_us(request->service->loop));
}

/* Cancels the decode leg. A leased decode engine may have reserved blocks for
 * the prompt: counts them as stranded. */
static void cancel_decode(struct pair *p)
{
    struct forward *f = p->request->forward;

    if (p->protocol->leased && f->exchange && !upstream_unsent(f->exchange))
        p->service->metrics.pairs_stranded++;
    upstream_cancel(f->exchange);
    f->exchange = NULL;
    free(f->headers);
    f->headers = NULL;
}

/* Handles a prefill engine's refusal: tries another engine, or passes it to the
 * client. */
static void refused(struct pair *p, const struct http_head *head)
{
    struct service_request *request = p->request;
    struct forward *f = request->forward;

    cancel_decode(p);
    f->exchange = p->leg;
    p->leg = NULL;
    p->answers = true;
    f->silent = request->attempt.decode;
    f->ops->answer(request, head);
}

/* Handles a redirect of the prefill leg by trying another engine: the decode
 * engine would not find the KV at this one. */
static void redirected(struct pair *p)
{
    struct service_request *request = p->request;
    struct engine *e = p->at;
    char why[128];

    e->count.status[p->status / 100]++;
    snprintf(why, sizeof(why), "engine %s answers %d", e->config->name,
             p->status);
    cancel_decode(p);
    upstream_cancel(p->leg);
    p->leg = NULL;
    expect_refused(request);
    request_instance_lost(request, e->id, why);
}

static void on_answer(void *arg, const struct http_head *head)
{
    struct pair *p = arg;

    p->status = head->status;
    if (p->request && p->beside && head->status >= 300 && head->status < 400) {
        redirected(p);
        return;
    }
    if (p->request && p->beside && head->status >= 300) {
        refused(p, head);
        return;
    }
    p->at->count.status[head->status / 100]++;
    if (p->request)
        p->request->attempt.heard_us = loop_now_us(p->service->loop);
}

static void on_bytes(void *arg, const char *bytes, size_t n)
{
    struct pair *p = arg;

    if (p->answers) {
        p->request->forward->ops->bytes(p->request, bytes, n);
        return;
    }
    if (p->protocol->leased)
        pair_keep_reply(p, bytes, n);
    if (p->request && p->beside)
        p->request->attempt.heard_us = loop_now_us(p->service->loop);
}

static void on_ended(void *arg)
{
    struct pair *p = arg;
    struct service_request *request = p->request;
    int64_t now_us = loop_now_us(p->service->loop);

    if (p->answers) {
        request->forward->ops->ended(request);
        return;
    }
    p->leg = NULL;
    if (!request) {
        pair_outlived_ended(p);
        return;
    }
    if (p->protocol->leased && pair_read_reply(p) == 0)
        forward_told(request, p->told.prompt_tokens, p->told.cached_tokens);
    if (!p->beside)
        return;
    engine_answered(p->at);
    p->sent_us = now_us;
    pair_pass_on(request, true, now_us);
}

static void on_failed(void *arg, enum upstream_fault fault, const char *why)
{
    struct pair *p = arg;

    if (p->answers) {
        p->request->forward->ops->failed(p->request, fault, why);
        return;
    }
    p->leg = NULL;
    if (!p->request) {
        pair_strand(p);
    } else if (p->beside) {
        cancel_decode(p);
        forward_failed(p->request, upstream_gone(fault), why);
    }
}

static const struct upstream_ops beside_ops = {
    .answer = on_answer,
    .bytes = on_bytes,
    .ended = on_ended,
    .failed = on_failed,
};

/* Sends the decode leg. f->engine stays the prefill engine. */
static int send_decode(struct service_request *request)
{
    struct forward *f = request->forward;
    struct pair *p = f->pair;
    struct pair_ask ask = pair_ask_of(p, f->what.body, f->what.n);
    const struct text_buf *body = &p->body;
    struct engine *e = f->engine;
    int rc = 0;

    if (p->protocol->decode) {
        body = &p->answering;
        rc = p->protocol->decode(&ask, &p->told, &p->answering);
    }
    f->engine = pair_decoder(request);
    if (rc || !f->engine)
        rc = -ENOMEM;
    else
        rc = forward_ask(request, body->data, body->len);
    f->engine = e;
    return rc;
}

int pair_send_both(struct service_request *request)
{
    struct forward *f = request->forward;
    struct pair *p = f->pair;

    p->at = f->engine;
    p->headers = forward_compose(request);
    if (p->headers)
        p->leg = upstream_send(p->at->upstream,
                               &(struct upstream_request){
                                   .method = p->method,
                                   .path = p->path,
                                   .headers = p->headers,
                                   .body = p->body.data,
                                   .n = p->body.len,
                               },
                               &beside_ops, p);
    if (!p->leg)
        return -ENOMEM;
    p->at->count.sent++;
    request->service->metrics.pairs++;
    p->beside = true;
    return send_decode(request);
}

bool pair_lost_with(struct service_request *request, const struct engine *e)
{
    struct pair *p = request->forward->pair;

    if (request->forward->engine == e)
        return true;
    if (p->beside)
        return pair_decoder(request) == e;
    if (p->leg && p->at == e) {
        upstream_cancel(p->leg);
        p->leg = NULL;
    }
    return false;
}
