/*
 * The blocks that an engine will hold because of the requests sent to it.
 *
 * At an engine without KV events a prompt's blocks are predicted from the
 * moment when it is sent, as long as they fit (core/index/predicted). If the
 * engine refuses the prompt, or fails before the answer, the new blocks are
 * dropped again; the answer to another request that shares them predicts them
 * anew. The same holds at any engine for a prompt known only by its bytes.
 *
 * An engine with events reports them a while after they are computed. Until
 * then the pool expects them (pool_expect()): otherwise requests with a common
 * prefix that arrive together would scatter over the engines. An expectation
 * ends when the prompt's last whole block is reported, when the request fails,
 * or TOLD_US after its answer's end: a running request keeps its blocks in the
 * cache, even if events are lost.
 *
 * Bound: the pool's max_pending_blocks; blocks beyond it are not expected.
 */
#include <stdlib.h>
#include <string.h>

#include "base/loop/loop.h"
#include "conductor/service/engine/engine.h"

/* Events come after the answer, on a connection of their own. */
#define TOLD_US 2000000
/* Most expectations checked when events come. */
#define LOOK_MAX 32

struct expectation {
    TAILQ_ENTRY(expectation) entry;  /* engine->expected, in the order sent */
    struct service_request *request; /* NULL = the request has ended */
    int64_t until_us;                /* end, once the request has ended */
    size_t n;
    uint64_t keys[]; /* (n), n above 0 */
};

static uint32_t slot_of(const struct engine *e)
{
    return pool_get(e->service->pool, e->id)->slot;
}

void engine_evicted(void *arg, uint64_t key)
{
    struct engine *e = arg;

    prefix_index_removed(e->service->index, slot_of(e), TIER_DEVICE, &key, 1);
}

/* Returns how many blocks of the index make one of the engine's, at least 1. */
static size_t step_of(const struct engine *e)
{
    size_t step = e->block_tokens / (size_t)e->service->config.block_tokens;

    return step > 1 ? step : 1;
}

/* Returns the leading keys that fill whole blocks of the engine, which caches
 * no partial block. */
static size_t whole_keys(const struct engine *e, const struct request_prompt *p)
{
    return p->n_keys - p->n_keys % step_of(e);
}

bool expect_stores(const struct service_request *request, uint64_t had)
{
    size_t n = request->prompt.n_keys;

    return had < n && (n - had) / step_of(request->forward->engine) > 1;
}

/* Predicts the prompt's blocks from now on: a later request with the same
 * prefix waits behind this one on the engine, and finds them. Raises *had to
 * the number of leading blocks predicted before. */
static void predict(struct engine *e, const struct request_prompt *p,
                    size_t *had)
{
    size_t held, n = predicted_use(e->predicted, p->keys, whole_keys(e, p),
                                   &held, engine_evicted, e);

    if (held > *had)
        *had = held;
    /* Also the blocks held before: the index may have evicted them. */
    prefix_index_stored(e->service->index, slot_of(e), TIER_DEVICE, 0, p->keys,
                        n);
}

bool engine_predicts(const struct engine *e, bool ids)
{
    return !e->events.feed || !ids ||
           (!e->events.heard && e->config->index != ENGINE_INDEX_EVENTS);
}

static bool is_told(const struct engine *e, const uint64_t *keys, size_t n)
{
    return prefix_index_tiers(e->service->index, slot_of(e), keys[n - 1]) &
           BLOCK_TIER_BIT(TIER_DEVICE);
}

static void drop(struct engine *e, struct expectation *x)
{
    pool_unexpect(e->service->pool, e->id, x->keys, x->n);
    if (x->request)
        x->request->forward->expectation = NULL;
    TAILQ_REMOVE(&e->expected, x, entry);
    free(x);
}

static void expect(struct engine *e, struct service_request *request)
{
    const struct request_prompt *p = &request->prompt;
    size_t n = whole_keys(e, p);
    struct expectation *x;

    if (n == 0 || is_told(e, p->keys, n))
        return;
    x = malloc(sizeof(*x) + n * sizeof(x->keys[0]));
    if (!x || pool_expect(e->service->pool, e->id, p->keys, n)) {
        free(x);
        return;
    }
    x->request = request;
    x->n = n;
    memcpy(x->keys, p->keys, n * sizeof(x->keys[0]));
    request->forward->expectation = x;
    TAILQ_INSERT_TAIL(&e->expected, x, entry);
}

void expect_sent(struct service_request *request)
{
    struct engine *e = request->forward->engine;
    bool ids = request->forward->what.ids;

    if (engine_predicts(e, ids))
        predict(e, &request->prompt, &request->forward->n_had);
    request->forward->drops_seen = e->n_drops;
    if (e->events.feed && ids)
        expect(e, request);
}

void expect_refused(struct service_request *request)
{
    struct forward *f = request->forward;
    const struct request_prompt *p = &request->prompt;

    expect_failed(request);
    if (!engine_predicts(f->engine, f->what.ids) || f->n_had >= p->n_keys)
        return;
    f->engine->n_drops++;
    predicted_drop(f->engine->predicted, p->keys + f->n_had,
                   p->n_keys - f->n_had, engine_evicted, f->engine);
}

void expect_answered(struct service_request *request)
{
    struct forward *f = request->forward;

    if (f->drops_seen != f->engine->n_drops &&
        engine_predicts(f->engine, f->what.ids))
        predict(f->engine, &request->prompt, &f->n_had);
}

void expect_ended(struct service_request *request)
{
    struct expectation *x = request->forward->expectation;

    if (!x)
        return;
    request->forward->expectation = NULL;
    x->request = NULL;
    x->until_us = loop_now_us(request->service->loop) + TOLD_US;
}

void expect_failed(struct service_request *request)
{
    if (request->forward->expectation)
        drop(request->forward->engine, request->forward->expectation);
}

void expect_told(struct engine *e)
{
    struct expectation *x = TAILQ_FIRST(&e->expected), *next;

    for (int i = 0; x && i < LOOK_MAX; i++, x = next) {
        next = TAILQ_NEXT(x, entry);
        if (is_told(e, x->keys, x->n))
            drop(e, x);
    }
}

void expect_until(struct engine *e, int64_t now_us)
{
    struct expectation *x, *next;

    for (x = TAILQ_FIRST(&e->expected); x; x = next) {
        next = TAILQ_NEXT(x, entry);
        if (!x->request && x->until_us <= now_us)
            drop(e, x);
    }
}

void engine_clear(struct engine *e)
{
    predicted_clear(e->predicted);
    /* Other options may hold there. */
    e->tells_cached[0] = e->tells_cached[1] = false;
    token_cache_clear(
        e->service->requests.tokens); /* another tokenizer may run there */
    expect_until(e, INT64_MAX);
    if (e->events.feed)
        kv_feed_forget(e->events.feed);
    prefix_index_cleared(e->service->index,
                         pool_get(e->service->pool, e->id)->slot);
}
