/* Requests: memory, blocks and the table. */
#include "workers/service/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/block_key.h"
#include "proto/wire.h"

uint32_t request_blocks(uint32_t n_tokens, uint32_t max_tokens,
                        uint32_t block_tokens)
{
    uint64_t tokens = (uint64_t)n_tokens + max_tokens - 1;

    return (uint32_t)((tokens + block_tokens - 1) / block_tokens);
}

static int copy_prompt(struct request *r, const struct request_spec *spec)
{
    r->tokens = calloc(r->n_tokens, sizeof(*r->tokens));
    r->keys = calloc(r->n_full + 1, sizeof(*r->keys));
    r->extra = calloc(r->n_full + 1, sizeof(*r->extra));
    r->origin = calloc(r->n_full + 1, sizeof(*r->origin));
    if (!r->tokens || !r->keys || !r->extra || !r->origin)
        return -1;
    for (uint32_t i = 0; i < r->n_tokens; i++)
        r->tokens[i] = wire_u32_at(spec->tokens, i);
    block_keys_compute(r->tokens, r->n_tokens, spec->block_tokens,
                       spec->key_seed, r->keys);
    r->prompt_digest =
        block_key_prompt_digest(r->tokens, r->n_tokens, spec->key_seed);
    return 0;
}

struct request *request_new(const struct request_spec *spec)
{
    struct request *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->id = spec->id;
    r->state = spec->tokens ? REQUEST_WAITING : REQUEST_ANNOUNCED;
    r->n_tokens = spec->n_tokens;
    r->max_tokens = spec->max_tokens;
    r->prompt_digest = spec->prompt_digest;
    r->decodes_here = spec->decodes_here;
    r->n_full = spec->n_tokens / spec->block_tokens;
    r->n_reusable = (spec->n_tokens - 1) / spec->block_tokens;
    r->n_blocks = request_blocks(spec->n_tokens,
                                 spec->decodes_here ? spec->max_tokens : 1,
                                 spec->block_tokens);
    r->tip = KV_BLOCK_NONE;
    layer_gate_init(&r->gate);
    r->ids = calloc(r->n_blocks, sizeof(*r->ids));
    r->data = calloc(r->n_blocks, sizeof(*r->data));
    if (!r->ids || !r->data || (spec->tokens && copy_prompt(r, spec))) {
        request_free(r);
        return NULL;
    }
    return r;
}

void request_free(struct request *r)
{
    if (!r)
        return;
    free(r->tokens);
    free(r->keys);
    free(r->extra);
    free(r->origin);
    free(r->ids);
    free(r->data);
    free(r->receive.next_token);
    layer_gate_fini(&r->gate);
    free(r);
}

int64_t request_queue_us(const struct request *r)
{
    int64_t us = r->started_us - r->arrival_us;

    if (r->turn_us > 0 && r->freed_us > r->turn_us)
        us -= r->freed_us - r->turn_us;
    return us > 0 ? us : 0;
}

void request_append(struct request *r, const struct kv_store *store,
                    uint32_t id)
{
    r->ids[r->n_ids] = id;
    r->data[r->n_ids] = kv_store_data(store, id);
    r->n_ids++;
}

void request_replace(struct request *r, struct kv_store *store, uint32_t i,
                     uint32_t id)
{
    kv_store_release(store, r->ids[i]);
    r->ids[i] = id;
    r->data[i] = kv_store_data(store, id);
}

int request_take(struct request *r, struct kv_store *store,
                 uint32_t block_tokens)
{
    uint32_t *ids = calloc(r->n_blocks, sizeof(*ids));

    if (!ids)
        return -ENOMEM;
    uint32_t n = kv_store_match(store, r->keys, r->tokens, r->n_reusable, ids);
    int rc = kv_store_alloc(store, r->n_blocks - n, ids + n);
    if (rc < 0) {
        while (n > 0)
            kv_store_release(store, ids[--n]);
        free(ids);
        return rc;
    }
    for (uint32_t i = 0; i < r->n_blocks; i++)
        request_append(r, store, ids[i]);
    r->n_chained = n;
    r->tip = n > 0 ? ids[n - 1] : KV_BLOCK_NONE;
    r->chain_closed = false;
    r->n_local = n;
    r->position = r->cached_tokens = n * block_tokens;
    free(ids);
    return 0;
}

void request_touch(struct request *r, struct kv_store *store)
{
    /* ids holds nothing yet. */
    uint32_t n =
        kv_store_match(store, r->keys, r->tokens, r->n_reusable, r->ids);

    while (n > 0)
        kv_store_release(store, r->ids[--n]);
}

void request_adopt(struct request *r, struct kv_store *store,
                   uint32_t block_tokens)
{
    uint32_t *ids = calloc(r->n_reusable + 1, sizeof(*ids));

    if (!ids)
        return; /* it does without */
    uint32_t n = kv_store_match(store, r->keys, r->tokens, r->n_reusable, ids);
    uint32_t known = n < r->n_chained ? n : r->n_chained;
    for (uint32_t i = 0; i < known; i++)
        kv_store_release(store, ids[i]);
    for (uint32_t i = known; i < n; i++) {
        request_replace(r, store, i, ids[i]);
        r->origin[i] = BLOCK_COMPUTED;
    }
    if (n > r->n_chained) {
        r->n_chained = n;
        r->tip = ids[n - 1];
        r->n_local = n;
        r->position = r->cached_tokens = n * block_tokens;
    }
    free(ids);
}

bool request_commit(struct request *r, struct kv_store *store,
                    uint32_t block_tokens)
{
    uint32_t i = r->n_chained;
    uint32_t held = KV_BLOCK_NONE;

    if (r->chain_closed)
        return false;
    switch (kv_store_commit(store, r->ids[i], r->tip, r->keys[i],
                            r->tokens + (size_t)i * block_tokens, &held)) {
    case KV_COMMITTED:
        r->tip = r->ids[i];
        break;
    case KV_DUPLICATE:
        /* Both copies are equal. This request keeps its own, which may be on
         * its way to a peer; the chain goes on from the held one. */
        r->tip = held;
        r->extra[r->n_extra++] = held;
        break;
    case KV_COLLISION:
    case KV_ORPHAN:
        r->chain_closed = true;
        return false;
    }
    r->n_chained++;
    return true;
}

void request_advance(struct request *r, struct kv_store *store,
                     uint32_t block_tokens)
{
    uint32_t i = r->position / block_tokens;

    if (r->position % block_tokens == 0 && i < r->n_reusable && r->origin[i]) {
        for (; i < r->n_reusable && r->origin[i]; i++) {
            r->n_fetched += r->origin[i] == BLOCK_FETCHED;
            r->n_disk += r->origin[i] == BLOCK_FROM_DISK;
        }
        r->position = r->cached_tokens = i * block_tokens;
    }
    while (r->n_chained < r->n_full &&
           (uint64_t)(r->n_chained + 1) * block_tokens <= r->position &&
           request_commit(r, store, block_tokens))
        ;
}

uint32_t request_room(const struct request *r, uint32_t block_tokens)
{
    uint32_t i = (r->position + block_tokens - 1) / block_tokens;

    while (i < r->n_reusable && !r->origin[i])
        i++;
    return (i < r->n_reusable ? i * block_tokens : r->n_tokens) - r->position;
}

void request_release(struct request *r, struct kv_store *store)
{
    while (r->n_ids > 0)
        kv_store_release(store, r->ids[--r->n_ids]);
    while (r->n_extra > 0)
        kv_store_release(store, r->extra[--r->n_extra]);
    r->n_chained = 0;
    r->tip = KV_BLOCK_NONE;
    r->position = 0;
    r->cached_tokens = 0;
    r->n_local = r->n_fetched = r->n_disk = 0;
    if (r->origin)
        memset(r->origin, 0, r->n_full + 1);
}

/* Ids come from a conductor that counts, but need not. */
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

const char *request_state_name(enum request_state state)
{
    static const char *const names[] = {
        [REQUEST_WAITING] = "waiting", [REQUEST_PREFILL] = "prefill",
        [REQUEST_PUSHING] = "pushing", [REQUEST_ANNOUNCED] = "ticket",
        [REQUEST_KV_WAIT] = "kv_wait", [REQUEST_RECEIVING] = "receiving",
        [REQUEST_READY] = "ready",     [REQUEST_DECODE] = "decode",
        [REQUEST_ENDED] = "ending",
    };
    return names[state];
}
