/* Pairs whose requests have ended: makes a decode engine fetch and drop the KV
 * kept at the prefill engine. See pair.h. */
#include <stdlib.h>

#include "base/loop/loop.h"
#include "conductor/service/pair/state.h"

/* Frees a pair without a request, and adds 1 to *count; NULL = no KV to
 * count. */
static void let_go(struct pair *p, uint64_t *count)
{
    if (count)
        ++*count;
    TAILQ_REMOVE(&p->service->engines.pairs, p, entry);
    pair_free(p);
}

/* Whether a prefill engine may keep KV of the pair. */
static bool may_keep(const struct pair *p)
{
    return p->protocol->leased || !p->protocol->concurrent;
}

void pair_strand(struct pair *p)
{
    let_go(p, may_keep(p) ? &p->service->metrics.pairs_stranded : NULL);
}

/* Returns a ready decode engine of this protocol, preferably not `last`; NULL =
 * none. */
static struct engine *releaser(const struct service *s,
                               const struct pair_protocol *protocol,
                               uint32_t last)
{
    struct engine *found = NULL;

    for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
        struct engine *e = s->engines.by_slot[i];

        if (e && e->upstream &&
            pair_protocol(e->config->kv_connector) == protocol &&
            e->config->role == ENGINE_ROLE_DECODE &&
            pool_takes_work(pool_get(s->pool, e->id)) &&
            (!found || found->id == last))
            found = e;
    }
    return found;
}

/* Makes a decode engine fetch and drop the KV: sends it the prefill leg's body,
 * of one token, with the parameters of the reply. */
static void release(struct pair *p)
{
    struct pair_ask ask = pair_ask_of(p, p->body.data, p->body.len);

    p->releases = true;
    p->status = 0;
    p->at = releaser(p->service, p->protocol, p->decode);
    free(p->headers);
    p->headers = NULL;
    if (p->at && p->protocol->decode(&ask, &p->told, &p->empty) == 0)
        p->headers = forward_headers(
            p->at, "Content-Type: application/json\r\n", p->key, p->request_id);
    if (p->headers)
        p->leg = upstream_send(p->at->upstream,
                               &(struct upstream_request){
                                   .method = "POST",
                                   .path = p->path,
                                   .headers = p->headers,
                                   .body = p->empty.data,
                                   .n = p->empty.len,
                               },
                               p->ops, p);
    if (!p->leg)
        pair_strand(p);
}

void pair_outlive(struct pair *p)
{
    struct service *s = p->service;

    p->request = NULL;
    p->until_us = loop_now_us(s->loop) + s->config.request_timeout_ms * 1000;
    TAILQ_INSERT_TAIL(&s->engines.pairs, p, entry);
}

void pair_end(struct service_request *request)
{
    struct pair *p = request->forward->pair;

    if (p && p->held) {
        pair_outlive(p);
        release(p);
    } else if (p && p->leg && !p->releases) {
        pair_outlive(p);
    } else {
        pair_free(p);
    }
    forward_free(request);
}

void pair_outlived_ended(struct pair *p)
{
    struct metrics *m = &p->service->metrics;

    p->leg = NULL;
    if (!may_keep(p))
        let_go(p, NULL);
    else if (p->crowded && p->status < 300)
        let_go(p, &m->pairs_stranded);
    else if (p->releases)
        let_go(p, p->status < 300 ? &m->pairs_released : &m->pairs_stranded);
    else if (p->status >= 300 || pair_read_reply(p) || !p->held)
        let_go(p, NULL);
    else
        release(p);
}

/* Whether the decode engine has the request, or may have. */
static bool has_asked(const struct forward *f, const struct pair *p)
{
    bool decodes = p->sent_us > 0 || (p->protocol->concurrent && !p->answers);

    return f->exchange && decodes && !p->unused &&
           !upstream_unsent(f->exchange);
}

/* Whether a concurrent prefill leg must go on: the decode engine holds blocks
 * until the KV has come, or the prefill engine may keep KV after its reply. */
static bool goes_on(const struct pair *p)
{
    return p->leg && p->protocol->leased &&
           (p->asked || (p->status > 0 && p->status < 300));
}

/* Frees the pair, or lets it release the KV kept at the prefill engine. */
static void leave(struct forward *f, struct pair *p)
{
    f->pair = NULL;
    if (has_asked(f, p)) {
        p->asked = true;
        p->held = false;
    }
    if (goes_on(p)) {
        upstream_cancel(f->exchange);
        f->exchange = NULL;
        pair_outlive(p);
    } else if (p->held) {
        upstream_cancel(f->exchange);
        f->exchange = NULL;
        pair_outlive(p);
        release(p);
    } else if (f->exchange && p->sent_us == 0 && p->protocol->leased &&
               !p->protocol->concurrent && p->status > 0 && p->status < 300) {
        /* The reply has begun: keep the leg to learn the KV's parameters. */
        p->at = f->engine;
        p->leg = f->exchange;
        p->headers = f->headers;
        f->exchange = NULL;
        f->headers = NULL;
        pair_outlive(p);
    } else {
        upstream_cancel(f->exchange);
        f->exchange = NULL;
        pair_free(p);
    }
}

void pair_abort(struct service_request *request)
{
    if (request->forward->pair)
        leave(request->forward, request->forward->pair);
    forward_abort(request);
    request->by = &engine_ops;
}

void pairs_tick(struct service *s, int64_t now_us)
{
    struct pair *p, *next;

    for (p = TAILQ_FIRST(&s->engines.pairs); p; p = next) {
        next = TAILQ_NEXT(p, entry);
        if (p->until_us <= now_us)
            pair_strand(p);
    }
}

void pairs_cut_off(struct engine *e)
{
    struct pair *p, *next;

    for (p = TAILQ_FIRST(&e->service->engines.pairs); p; p = next) {
        next = TAILQ_NEXT(p, entry);
        if (p->at == e)
            pair_strand(p);
    }
}

void pairs_end(struct service *s)
{
    while (!TAILQ_EMPTY(&s->engines.pairs))
        pair_strand(TAILQ_FIRST(&s->engines.pairs));
}
