/* The KV store: life of a block. The invariants are in internal.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workers/store/internal.h"

static uint32_t map_slots(uint32_t capacity_blocks)
{
    uint32_t n = 16;

    while (n < 2 * (uint64_t)capacity_blocks)
        n *= 2;
    return n;
}

static bool config_ok(const struct kv_store_config *c)
{
    return c->capacity_blocks >= 1 && c->capacity_blocks <= 1u << 30 &&
           c->block_tokens >= 1 && c->block_tokens <= 1u << 20 &&
           c->block_bytes >= 1 && c->event_capacity >= 1 &&
           c->block_bytes <=
               (SIZE_MAX - 4096) / c->capacity_blocks - KV_BLOCK_ALIGN;
}

static void *own_alloc(void *, size_t bytes)
{
    return aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
}

static void own_free(void *, void *memory)
{
    free(memory);
}

static int alloc_arrays(struct kv_store *s)
{
    size_t n = s->config.capacity_blocks;
    uint32_t n_slots = map_slots(s->config.capacity_blocks);
    size_t slab_bytes = n * s->stride_bytes;

    s->slot_mask = n_slots - 1;
    s->slot_shift = 64 - (unsigned)__builtin_ctz(n_slots);
    s->slab = s->config.memory.alloc(s->config.memory.arg, slab_bytes);
    s->tokens = calloc(n, s->config.block_tokens * sizeof(*s->tokens));
    s->blocks = calloc(n, sizeof(*s->blocks));
    s->free_ids = calloc(n, sizeof(*s->free_ids));
    s->slots = calloc(n_slots, sizeof(*s->slots));
    s->events = calloc(s->config.event_capacity, sizeof(*s->events));
    if (!s->slab || !s->tokens || !s->blocks || !s->free_ids || !s->slots ||
        !s->events)
        return -ENOMEM;
    return heap_reserve(&s->evictable, s->config.capacity_blocks);
}

int kv_store_new(const struct kv_store_config *config, struct kv_store **out)
{
    if (!config_ok(config))
        return -EINVAL;
    struct kv_store *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->config = *config;
    if (!config->memory.alloc) {
        s->config.memory.alloc = own_alloc;
        s->config.memory.free = own_free;
    }
    s->stride_bytes = (config->block_bytes + KV_BLOCK_ALIGN - 1) /
                      KV_BLOCK_ALIGN * KV_BLOCK_ALIGN;
    int rc = alloc_arrays(s);
    if (rc < 0) {
        kv_store_free(s);
        return rc;
    }
    for (uint32_t i = 0; i <= s->slot_mask; i++)
        s->slots[i].id = KV_BLOCK_NONE;
    for (uint32_t id = 0; id < config->capacity_blocks; id++) {
        s->blocks[id].parent = KV_BLOCK_NONE;
        /* The lowest id is on top of the stack. */
        s->free_ids[config->capacity_blocks - 1 - id] = id;
    }
    s->n_free = config->capacity_blocks;
    TAILQ_INIT(&s->order);
    s->walked = KV_BLOCK_NONE;
    *out = s;
    return 0;
}

void kv_store_free(struct kv_store *store)
{
    if (!store)
        return;
    if (store->slab)
        store->config.memory.free(store->config.memory.arg, store->slab);
    free(store->tokens);
    free(store->blocks);
    free(store->free_ids);
    heap_fini(&store->evictable);
    free(store->slots);
    free(store->events);
    free(store);
}

static uint32_t *tokens_of(const struct kv_store *store, uint32_t id)
{
    return store->tokens + (size_t)id * store->config.block_tokens;
}

bool kv_block_equals(const struct kv_store *store, uint32_t id, uint32_t parent,
                     const uint32_t *tokens)
{
    size_t bytes = store->config.block_tokens * sizeof(*tokens);

    return store->blocks[id].parent == parent &&
           (!tokens || memcmp(tokens_of(store, id), tokens, bytes) == 0);
}

void kv_order_remove(struct kv_store *store, uint32_t id)
{
    struct kv_block *b = &store->blocks[id];
    const struct kv_block *before = TAILQ_PREV(b, kv_order, order);

    if (store->walked == id)
        store->walked = before ? kv_id(store, before) : KV_BLOCK_NONE;
    TAILQ_REMOVE(&store->order, b, order);
}

bool kv_is_stuck(const struct kv_block *b)
{
    return b->pins > 0 || b->stuck_children > 0;
}

/* Keeps the block in the heap only while it can be evicted. */
static void settle(struct kv_store *store, uint32_t id)
{
    const struct kv_block *b = &store->blocks[id];
    bool leaf = b->state == KV_HELD && !kv_is_stuck(b) && b->children == 0;

    if (leaf)
        heap_set(&store->evictable, id, 0, (int64_t)b->last_used);
    else
        heap_remove(&store->evictable, id);
}

/* Notes that held block `id`, and so each of its ancestors, is stuck now.
 * O(depth), O(1) if the parent was stuck already. */
static void stuck_begins(struct kv_store *store, uint32_t id)
{
    bool was_stuck = false;

    while (!was_stuck) {
        store->n_evictable--;
        settle(store, id);
        id = store->blocks[id].parent;
        if (id == KV_BLOCK_NONE)
            return;
        was_stuck = kv_is_stuck(&store->blocks[id]);
        store->blocks[id].stuck_children++;
    }
}

/* Notes that block `id` is no longer stuck; its ancestors may no longer be,
 * either. O(depth), O(1) if the parent stays stuck. */
static void stuck_ends(struct kv_store *store, uint32_t id)
{
    do {
        store->n_evictable++;
        settle(store, id);
        id = store->blocks[id].parent;
        if (id == KV_BLOCK_NONE)
            return;
        store->blocks[id].stuck_children--;
    } while (!kv_is_stuck(&store->blocks[id]));
}

void kv_lose_child(struct kv_store *store, uint32_t id, bool stuck)
{
    struct kv_block *b = &store->blocks[id];

    CHECK(&store->broken, b->children > 0);
    CHECK(&store->broken, !stuck || b->stuck_children > 0);
    b->children--;
    if (stuck && --b->stuck_children == 0 && b->pins == 0)
        stuck_ends(store, id);
    else
        settle(store, id);
}

void kv_make_free(struct kv_store *store, uint32_t id)
{
    store->blocks[id].state = KV_FREE;
    store->free_ids[store->n_free++] = id;
}

/* Evicts block `id`, a held leaf that is not stuck. */
static void evict(struct kv_store *store, uint32_t id)
{
    struct kv_block *b = &store->blocks[id];
    uint32_t parent = b->parent;
    struct kv_store_event event = {.kind = KV_EVENT_REMOVED, .key = b->key};

    heap_remove(&store->evictable, id);
    kv_map_remove(store, b->key);
    kv_order_remove(store, id);
    b->parent = KV_BLOCK_NONE;
    b->key = 0;
    CHECK(&store->broken, store->n_held > 0 && store->n_evictable > 0);
    store->n_held--;
    store->n_evictable--;
    store->n_evicted++;
    kv_make_free(store, id);
    if (parent != KV_BLOCK_NONE)
        kv_lose_child(store, parent, false);
    kv_store_event_push(store, &event);
}

void kv_store_pin(struct kv_store *store, uint32_t id)
{
    struct kv_block *b = &store->blocks[id];
    bool was_stuck = kv_is_stuck(b);

    b->pins++;
    if (!was_stuck)
        stuck_begins(store, id);
}

static uint32_t alloc_one(struct kv_store *store)
{
    if (store->n_free == 0)
        evict(store, heap_first(&store->evictable)->id);
    uint32_t id = store->free_ids[--store->n_free];
    store->blocks[id].state = KV_PRIVATE;
    store->blocks[id].pins = 1;
    store->blocks[id].number = ++store->n_allocs;
    store->n_private++;
    if (store->config.memory.taken)
        store->config.memory.taken(store->config.memory.arg,
                                   kv_store_data(store, id));
    return id;
}

int kv_store_alloc(struct kv_store *store, uint32_t n, uint32_t *ids)
{
    /* Does not empty the cache for a request that cannot be served yet. */
    if ((uint64_t)store->n_free + store->n_evictable < n)
        return -ENOSPC;
    for (uint32_t i = 0; i < n; i++)
        ids[i] = alloc_one(store);
    return 0;
}

static void stored_event(const struct kv_store *store, const struct kv_block *b,
                         struct kv_store_event *event)
{
    *event = (struct kv_store_event){.kind = KV_EVENT_STORED, .key = b->key};
    if (b->parent != KV_BLOCK_NONE) {
        event->has_parent = true;
        event->parent_key = store->blocks[b->parent].key;
    }
}

static void hold(struct kv_store *store, uint32_t id, uint32_t parent,
                 uint64_t key)
{
    struct kv_block *b = &store->blocks[id];
    struct kv_store_event event;

    b->state = KV_HELD;
    b->key = key;
    b->parent = parent;
    kv_map_insert(store, key, id);
    TAILQ_INSERT_TAIL(&store->order, b, order);
    store->n_private--;
    store->n_held++;
    if (parent != KV_BLOCK_NONE) {
        struct kv_block *p = &store->blocks[parent];
        bool was_stuck = kv_is_stuck(p);

        p->children++;
        p->stuck_children++;
        if (!was_stuck)
            stuck_begins(store, parent);
    }
    stored_event(store, b, &event);
    kv_store_event_push(store, &event);
}

enum kv_commit kv_store_commit(struct kv_store *store, uint32_t id,
                               uint32_t parent, uint64_t key,
                               const uint32_t *tokens, uint32_t *held)
{
    if (parent != KV_BLOCK_NONE && store->blocks[parent].state != KV_HELD)
        return KV_ORPHAN;
    uint32_t other = kv_store_find_key(store, key);
    if (other != KV_BLOCK_NONE) {
        if (!kv_block_equals(store, other, parent, tokens))
            return KV_COLLISION;
        kv_store_pin(store, other);
        *held = other;
        return KV_DUPLICATE;
    }
    memcpy(tokens_of(store, id), tokens,
           store->config.block_tokens * sizeof(*tokens));
    hold(store, id, parent, key);
    return KV_COMMITTED;
}

void kv_store_put_back(struct kv_store *store, uint32_t id)
{
    struct kv_block *b = &store->blocks[id];

    if (!CHECK(&store->broken, b->pins > 0) || --b->pins > 0)
        return;
    if (b->state == KV_PRIVATE) {
        store->n_private--;
        kv_make_free(store, id);
    } else if (!kv_is_stuck(b)) {
        stuck_ends(store, id);
    }
}

void kv_store_release(struct kv_store *store, uint32_t id)
{
    if (store->blocks[id].state == KV_HELD)
        store->blocks[id].last_used = ++store->tick;
    kv_store_put_back(store, id);
}

void kv_store_touch(struct kv_store *store, uint32_t id)
{
    store->blocks[id].last_used = ++store->tick;
    settle(store, id);
}

void *kv_store_data(const struct kv_store *store, uint32_t id)
{
    return store->slab + (size_t)id * store->stride_bytes;
}

uint64_t kv_store_key(const struct kv_store *store, uint32_t id)
{
    return store->blocks[id].key;
}

const uint32_t *kv_store_tokens(const struct kv_store *store, uint32_t id)
{
    return tokens_of(store, id);
}

uint32_t kv_store_parent(const struct kv_store *store, uint32_t id)
{
    return store->blocks[id].parent;
}

uint64_t kv_store_number(const struct kv_store *store, uint32_t id)
{
    return store->blocks[id].number;
}

bool kv_store_is_held(const struct kv_store *store, uint32_t id)
{
    return store->blocks[id].state == KV_HELD;
}

bool kv_store_inventory(const struct kv_store *store, uint32_t *cursor,
                        struct kv_store_event *event)
{
    const struct kv_block *b = *cursor == KV_BLOCK_NONE
                                   ? TAILQ_FIRST(&store->order)
                                   : TAILQ_NEXT(&store->blocks[*cursor], order);

    if (!b)
        return false;
    stored_event(store, b, event);
    *cursor = kv_id(store, b);
    return true;
}

void kv_store_walk(struct kv_store *store)
{
    store->walked = KV_BLOCK_NONE;
}

bool kv_store_walk_next(struct kv_store *store, struct kv_store_event *event)
{
    return kv_store_inventory(store, &store->walked, event);
}

const char *kv_store_broken(struct kv_store *store)
{
    return check_take(&store->broken);
}

void kv_store_stats(const struct kv_store *store, struct kv_store_stats *stats)
{
    *stats = (struct kv_store_stats){
        .capacity_blocks = store->config.capacity_blocks,
        .free_blocks = store->n_free,
        .private_blocks = store->n_private,
        .held_blocks = store->n_held,
        .evictable_blocks = store->n_evictable,
        .evicted_blocks = store->n_evicted,
    };
}
