/* Requests: memory, blocks and the table. */
#include "workers/service/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bug.h"
#include "conductor/core/index/block_key.h"
#include "proto/wire.h"

static const char *const state_names[REQUEST_STATES] = {
    [REQUEST_WAITING] = "waiting", [REQUEST_PREFILL] = "prefill",
    [REQUEST_PUSHING] = "pushing", [REQUEST_ANNOUNCED] = "announced",
    [REQUEST_KV_WAIT] = "kv_wait", [REQUEST_RECEIVING] = "receiving",
    [REQUEST_READY] = "ready",     [REQUEST_DECODE] = "decode",
    [REQUEST_ENDED] = "ending",
};

#define TO(s) (1u << (s))
/* States that may follow a state; every state may end. */
static const unsigned transitions[REQUEST_STATES] = {
    [REQUEST_WAITING] = TO(REQUEST_PREFILL) | TO(REQUEST_ENDED),
    [REQUEST_PREFILL] =
        TO(REQUEST_PUSHING) | TO(REQUEST_READY) | TO(REQUEST_ENDED),
    [REQUEST_PUSHING] = TO(REQUEST_ENDED),
    [REQUEST_ANNOUNCED] = TO(REQUEST_KV_WAIT) | TO(REQUEST_ENDED),
    [REQUEST_KV_WAIT] = TO(REQUEST_RECEIVING) | TO(REQUEST_ENDED),
    [REQUEST_RECEIVING] = TO(REQUEST_READY) | TO(REQUEST_ENDED),
    [REQUEST_READY] = TO(REQUEST_DECODE) | TO(REQUEST_ENDED),
    [REQUEST_DECODE] = TO(REQUEST_ENDED),
    [REQUEST_ENDED] = 0,
};

const char *request_state_name(enum request_state state)
{
    return state_names[state];
}

bool request_may_go(enum request_state from, enum request_state to)
{
    return transitions[from] & TO(to);
}

void request_set_state(struct request *r, enum request_state to)
{
    if (!request_may_go(r->state, to)) {
        bug("request %llu: no transition from %s to %s",
            (unsigned long long)r->id, state_names[r->state], state_names[to]);
        r->broken = true; /* and keeps its state */
        return;
    }
    log_debug("request %llu: %s -> %s", (unsigned long long)r->id,
              state_names[r->state], state_names[to]);
    r->state = to;
}

uint32_t request_blocks(uint32_t n_tokens, uint32_t max_tokens,
                        uint32_t block_tokens)
{
    uint64_t tokens = (uint64_t)n_tokens + max_tokens - 1;

    return (uint32_t)((tokens + block_tokens - 1) / block_tokens);
}

static int copy_prompt(struct request *r, const struct request_spec *spec)
{
    r->prompt.tokens = calloc(r->prompt.n_tokens, sizeof(*r->prompt.tokens));
    r->prompt.keys = calloc(r->prompt.n_full + 1, sizeof(*r->prompt.keys));
    r->blocks.extra = calloc(r->prompt.n_full + 1, sizeof(*r->blocks.extra));
    r->load.origin = calloc(r->prompt.n_full + 1, sizeof(*r->load.origin));
    if (!r->prompt.tokens || !r->prompt.keys || !r->blocks.extra ||
        !r->load.origin)
        return -1;
    for (uint32_t i = 0; i < r->prompt.n_tokens; i++)
        r->prompt.tokens[i] = wire_u32_at(spec->tokens, i);
    block_keys_compute(r->prompt.tokens, r->prompt.n_tokens, spec->block_tokens,
                       spec->key_seed, r->prompt.keys);
    r->prompt.digest = block_key_prompt_digest(
        r->prompt.tokens, r->prompt.n_tokens, spec->key_seed);
    return 0;
}

struct request *request_new(const struct request_spec *spec)
{
    struct request *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->id = spec->id;
    r->conductor = spec->conductor;
    r->state = spec->tokens ? REQUEST_WAITING : REQUEST_ANNOUNCED;
    r->prompt.n_tokens = spec->n_tokens;
    r->max_tokens = spec->max_tokens;
    r->prompt.digest = spec->prompt_digest;
    r->decodes_here = spec->decodes_here;
    r->prompt.n_full = spec->n_tokens / spec->block_tokens;
    r->prompt.n_reusable = (spec->n_tokens - 1) / spec->block_tokens;
    r->blocks.n_needed = request_blocks(
        spec->n_tokens, spec->decodes_here ? spec->max_tokens : 1,
        spec->block_tokens);
    r->blocks.tip = KV_BLOCK_NONE;
    layer_gate_init(&r->step.gate);
    r->blocks.ids = calloc(r->blocks.n_needed, sizeof(*r->blocks.ids));
    r->blocks.data = calloc(r->blocks.n_needed, sizeof(*r->blocks.data));
    if (!r->blocks.ids || !r->blocks.data ||
        (spec->tokens && copy_prompt(r, spec))) {
        request_free(r);
        return NULL;
    }
    return r;
}

void request_free(struct request *r)
{
    if (!r)
        return;
    free(r->prompt.tokens);
    free(r->prompt.keys);
    free(r->blocks.extra);
    free(r->load.origin);
    free(r->blocks.ids);
    free(r->blocks.data);
    free(r->receive.next_token);
    layer_gate_fini(&r->step.gate);
    free(r);
}

int64_t request_queue_us(const struct request *r)
{
    int64_t us = r->turn.started_us - r->turn.arrival_us + r->turn.stood_us;

    if (r->turn.came_us > 0 && r->turn.freed_us > r->turn.came_us)
        us -= r->turn.freed_us - r->turn.came_us;
    return us > 0 ? us : 0;
}

void request_append(struct request *r, const struct kv_store *store,
                    uint32_t id)
{
    r->blocks.ids[r->blocks.n] = id;
    r->blocks.data[r->blocks.n] = kv_store_data(store, id);
    r->blocks.n++;
}

void request_replace(struct request *r, struct kv_store *store, uint32_t i,
                     uint32_t id)
{
    kv_store_release(store, r->blocks.ids[i]);
    r->blocks.ids[i] = id;
    r->blocks.data[i] = kv_store_data(store, id);
}

int request_take(struct request *r, struct kv_store *store,
                 uint32_t block_tokens)
{
    uint32_t *ids = calloc(r->blocks.n_needed, sizeof(*ids));

    if (!ids)
        return -ENOMEM;
    uint32_t n = kv_store_match(store, r->prompt.keys, r->prompt.tokens,
                                r->prompt.n_reusable, ids);
    int rc = kv_store_alloc(store, r->blocks.n_needed - n, ids + n);
    if (rc < 0) {
        while (n > 0)
            kv_store_release(store, ids[--n]);
        free(ids);
        return rc;
    }
    for (uint32_t i = 0; i < r->blocks.n_needed; i++)
        request_append(r, store, ids[i]);
    r->blocks.n_chained = n;
    r->blocks.tip = n > 0 ? ids[n - 1] : KV_BLOCK_NONE;
    r->blocks.chain_closed = false;
    r->load.n_local = n;
    r->position = r->cached_tokens = n * block_tokens;
    free(ids);
    return 0;
}

void request_touch(struct request *r, struct kv_store *store)
{
    /* ids holds nothing yet. */
    uint32_t n = kv_store_match(store, r->prompt.keys, r->prompt.tokens,
                                r->prompt.n_reusable, r->blocks.ids);

    while (n > 0)
        kv_store_release(store, r->blocks.ids[--n]);
}

uint32_t request_look(struct request *r, const struct kv_store *store,
                      uint32_t block_tokens)
{
    struct request_there *t = &r->there;
    uint32_t next;

    if (t->n > 0 && (!kv_store_is_held(store, t->tip) ||
                     kv_store_number(store, t->tip) != t->number))
        t->n = 0;
    for (; t->n < r->prompt.n_reusable; t->n++) {
        next = kv_store_find(store, r->prompt.keys[t->n],
                             t->n > 0 ? t->tip : KV_BLOCK_NONE,
                             r->prompt.tokens + (size_t)t->n * block_tokens);
        if (next == KV_BLOCK_NONE)
            break;
        t->tip = next;
        t->number = kv_store_number(store, next);
    }
    return t->n;
}

void request_adopt(struct request *r, struct kv_store *store,
                   uint32_t block_tokens)
{
    uint32_t *ids = calloc(r->prompt.n_reusable + 1, sizeof(*ids));

    if (!ids)
        return; /* computes instead */
    uint32_t n = kv_store_match(store, r->prompt.keys, r->prompt.tokens,
                                r->prompt.n_reusable, ids);
    uint32_t known = n < r->blocks.n_chained ? n : r->blocks.n_chained;
    for (uint32_t i = 0; i < known; i++)
        kv_store_release(store, ids[i]);
    for (uint32_t i = known; i < n; i++) {
        request_replace(r, store, i, ids[i]);
        r->load.origin[i] = BLOCK_COMPUTED;
    }
    if (n > r->blocks.n_chained) {
        r->blocks.n_chained = n;
        r->blocks.tip = ids[n - 1];
        r->load.n_local = n;
        r->position = r->cached_tokens = n * block_tokens;
    }
    free(ids);
}

/* Commits block blocks.n_chained, whose KV is complete, if the chain allows
 * it. Returns true if the store now holds its key. */
static bool commit_block(struct request *r, struct kv_store *store,
                         uint32_t block_tokens)
{
    uint32_t i = r->blocks.n_chained;
    uint32_t held = KV_BLOCK_NONE;

    if (r->blocks.chain_closed)
        return false;
    switch (kv_store_commit(
        store, r->blocks.ids[i], r->blocks.tip, r->prompt.keys[i],
        r->prompt.tokens + (size_t)i * block_tokens, &held)) {
    case KV_COMMITTED:
        r->blocks.tip = r->blocks.ids[i];
        break;
    case KV_DUPLICATE:
        /* Both copies are equal. The request keeps its own, which a push may
         * be sending; the chain continues from the store's copy. */
        r->blocks.tip = held;
        r->blocks.extra[r->blocks.n_extra++] = held;
        break;
    case KV_COLLISION:
    case KV_ORPHAN:
        r->blocks.chain_closed = true;
        return false;
    }
    r->blocks.n_chained++;
    return true;
}

void request_advance(struct request *r, struct kv_store *store,
                     uint32_t block_tokens)
{
    uint32_t i = r->position / block_tokens;

    if (r->position % block_tokens == 0 && i < r->prompt.n_reusable &&
        r->load.origin[i]) {
        for (; i < r->prompt.n_reusable && r->load.origin[i]; i++) {
            r->load.n_fetched += r->load.origin[i] == BLOCK_FETCHED;
            r->load.n_disk += r->load.origin[i] == BLOCK_FROM_DISK;
            r->load.n_shared += r->load.origin[i] == BLOCK_FROM_SHARED;
        }
        r->position = r->cached_tokens = i * block_tokens;
    }
    while (r->blocks.n_chained < r->prompt.n_full &&
           (uint64_t)(r->blocks.n_chained + 1) * block_tokens <= r->position &&
           commit_block(r, store, block_tokens))
        ;
}

uint32_t request_room(const struct request *r, uint32_t block_tokens)
{
    uint32_t i = (r->position + block_tokens - 1) / block_tokens;

    while (i < r->prompt.n_reusable && !r->load.origin[i])
        i++;
    return (i < r->prompt.n_reusable ? i * block_tokens : r->prompt.n_tokens) -
           r->position;
}

void request_release(struct request *r, struct kv_store *store)
{
    while (r->blocks.n > 0)
        kv_store_release(store, r->blocks.ids[--r->blocks.n]);
    while (r->blocks.n_extra > 0)
        kv_store_release(store, r->blocks.extra[--r->blocks.n_extra]);
    r->blocks.n_chained = 0;
    r->blocks.tip = KV_BLOCK_NONE;
    r->position = 0;
    r->cached_tokens = 0;
    r->load.n_local = r->load.n_fetched = 0;
    r->load.n_disk = r->load.n_shared = 0;
    if (r->load.origin)
        memset(r->load.origin, 0, r->prompt.n_full + 1);
}

/* Ids are usually consecutive, but need not be: hash them. */
static uint32_t bucket_of(uint64_t id)
{
    return (uint32_t)((id * 0x9e3779b97f4a7c15u) >> 54) % REQUEST_BUCKETS;
}

void request_table_init(struct request_table *t)
{
    for (uint32_t i = 0; i < REQUEST_BUCKETS; i++)
        LIST_INIT(&t->buckets[i]);
    t->n = 0;
}

struct request *request_find(const struct request_table *t, uint64_t id)
{
    struct request *r;

    LIST_FOREACH(r, &t->buckets[bucket_of(id)], by_id)
    {
        if (r->id == id)
            return r;
    }
    return NULL;
}

void request_insert(struct request_table *t, struct request *r)
{
    LIST_INSERT_HEAD(&t->buckets[bucket_of(r->id)], r, by_id);
    t->n++;
}

void request_remove(struct request_table *t, struct request *r)
{
    LIST_REMOVE(r, by_id);
    t->n--;
}
