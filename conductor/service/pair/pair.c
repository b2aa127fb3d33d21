/* Sends the prefill leg, and after its reply the decode leg. See pair.h. */
#include "conductor/connector/pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/service/pair/state.h"

/* A prompt of a million tokens has about 100 KB of parameters. */
#define REPLY_BYTES_MAX (16u << 20)

static void on_leg_answer(void *arg, const struct http_head *head)
{
    struct pair *p = arg;

    p->status = head->status;
    if (!p->request)
        return;
    p->request->attempt.heard_us = loop_now_us(p->service->loop);
    p->request->forward->engine->count.status[head->status / 100]++;
}

static void on_leg_bytes(void *arg, const char *bytes, size_t n)
{
    struct pair *p = arg;

    if (!p->releases)
        pair_keep_reply(p, bytes, n);
    if (p->request)
        p->request->attempt.heard_us = loop_now_us(p->service->loop);
}

/* Sends the decode leg; from now on the decode engine has the request. */
static int ask_decode(struct service_request *request)
{
    struct forward *f = request->forward;
    struct pair *p = f->pair;
    struct pair_ask ask = pair_ask_of(p, f->what.body, f->what.n);
    int rc = 0;

    f->engine = engine_of(request->service, request->attempt.decode);
    f->n_had = 0;
    if (p->held)
        rc = p->protocol->decode(&ask, &p->told, &p->answering);
    else if (p->protocol->leased)
        request->service->metrics.pairs_alone++;
    if (rc)
        return -ENOMEM;
    p->sent_us = request->attempt.heard_us =
        loop_now_us(request->service->loop);
    if (p->answering.len)
        rc = forward_ask(request, p->answering.data, p->answering.len);
    else
        rc = forward_ask(request, f->what.body, f->what.n);
    if (rc == 0)
        expect_sent(request);
    return rc;
}

/* Ends the prefill, learns from it, and sends the decode leg. */
static void go_on(struct service_request *request)
{
    struct forward *f = request->forward;
    int64_t now_us = loop_now_us(request->service->loop),
            told = f->pair->told.cached_tokens;

    engine_answered(f->engine);
    expect_ended(request);
    forward_told(request, f->pair->told.prompt_tokens, told);
    forward_count_unheard(request, told);
    forward_prefill_over(request, true, now_us);
    if (!engine_of(request->service, request->attempt.decode))
        request_instance_lost(request, request->attempt.decode,
                              "the decode engine of the pair is gone");
    else if (ask_decode(request))
        request_instance_lost(request, POOL_NO_INSTANCE, "out of memory");
}

static void forget(struct forward *f)
{
    free(f->headers);
    f->headers = NULL;
    f->exchange = NULL;
}

/* Handles a refusal of the prefill leg. If the client may have caused it, the
 * decode engine gets the whole request and answers the client. */
static void refused(struct service_request *request)
{
    struct forward *f = request->forward;
    int status = f->pair->status;
    char why[128];

    if (forward_try_elsewhere(request, status))
        return;
    if (status < 400 || status >= 500) {
        snprintf(why, sizeof(why), "engine %s answers %d",
                 f->engine->config->name, status);
        expect_refused(request);
        request_instance_lost(request, f->engine->id, why);
        return;
    }
    expect_refused(request);
    forward_refused_in_line(request, loop_now_us(request->service->loop));
    forward_prefill_over(request, false, loop_now_us(request->service->loop));
    if (!engine_of(request->service, request->attempt.decode))
        request_instance_lost(request, request->attempt.decode,
                              "the decode engine of the pair is gone");
    else if (ask_decode(request))
        request_instance_lost(request, POOL_NO_INSTANCE, "out of memory");
}

/* Fails an attempt whose prefill reply had no room: its KV cannot be fetched.
 */
static void crowded(struct service_request *request)
{
    struct service *s = request->service;

    if (request->forward->pair->protocol->leased)
        s->metrics.pairs_stranded++;
    engine_answered(request->forward->engine);
    expect_ended(request);
    request_instance_lost(
        request, POOL_NO_INSTANCE,
        "the replies of all prefill legs together exceed max_body_total_bytes");
}

static void on_leg_ended(void *arg)
{
    struct pair *p = arg;
    struct service_request *request = p->request;

    if (!request) {
        pair_outlived_ended(p);
        return;
    }
    forget(request->forward);
    if (p->status >= 300)
        refused(request);
    else if (p->crowded)
        crowded(request);
    else if (pair_read_reply(p))
        forward_failed(request, false,
                       "its reply to a prefill leg is no JSON object, or its "
                       "KV parameters are malformed");
    else
        go_on(request);
}

static void on_leg_failed(void *arg, enum upstream_fault fault, const char *why)
{
    struct pair *p = arg;

    p->leg = NULL;
    if (p->request)
        forward_failed(p->request, upstream_gone(fault), why);
    else
        pair_strand(p);
}

static const struct upstream_ops leg_ops = {
    .answer = on_leg_answer,
    .bytes = on_leg_bytes,
    .ended = on_leg_ended,
    .failed = on_leg_failed,
};

static struct pair *pair_new(struct service_request *request)
{
    const struct service_forward *what = &request->forward->what;
    const struct engine_config *at = request->forward->engine->config;
    struct pair *p = calloc(1, sizeof(*p));
    struct pair_ask ask;

    if (!p)
        return NULL;
    p->service = request->service;
    p->request = request;
    p->ops = &leg_ops;
    p->protocol = pair_protocol(at->kv_connector);
    p->usage.cached_tokens = -1;
    p->decode = request->attempt.decode;
    memcpy(p->request_id, request->request_id, sizeof(p->request_id));
    text_buf_init(&p->body, SIZE_MAX);
    text_buf_init(&p->answering, SIZE_MAX);
    text_buf_init(&p->empty, SIZE_MAX);
    text_buf_init(&p->reply, REPLY_BYTES_MAX);
    p->method = strdup(what->method);
    p->path = strdup(what->path);
    p->key = strdup(what->authorization);
    p->host = strdup(at->url.name);
    p->id = strdup(request->forward->engine->bootstrap.id);
    p->meeting = (struct pair_ask){
        .host = p->host,
        .port = at->bootstrap_port ? at->bootstrap_port : p->protocol->port,
        .rank = at->dp_rank > 0 ? at->dp_rank : 0,
        .room = loop_random(request->service->loop),
        .id = p->id};
    ask = pair_ask_of(p, what->body, what->n);
    if (!p->method || !p->path || !p->key || !p->host || !p->id ||
        p->protocol->prefill(&ask, &p->body)) {
        pair_free(p);
        return NULL;
    }
    return p;
}

int pair_ask_prefill(struct service_request *request)
{
    struct forward *f = request->forward;

    f->pair = pair_new(request);
    if (f->pair && f->pair->protocol->concurrent)
        return pair_send_both(request);
    f->headers = forward_compose(request);
    if (f->pair && f->headers)
        f->exchange = upstream_send(f->engine->upstream,
                                    &(struct upstream_request){
                                        .method = f->pair->method,
                                        .path = f->pair->path,
                                        .headers = f->headers,
                                        .body = f->pair->body.data,
                                        .n = f->pair->body.len,
                                    },
                                    f->pair->ops, f->pair);
    if (!f->exchange)
        return -ENOMEM;
    f->engine->count.sent++;
    request->service->metrics.pairs++;
    return 0;
}
