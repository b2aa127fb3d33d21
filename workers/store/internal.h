/* Shared by the files of the KV store and tests/unit/kv_store_check.c.
 *
 * Invariants, which kv_store_check() asserts:
 *   free + private + held = capacity
 *   block is private            =>  pins >= 1, no key, no parent, no children
 *   block is held               <=> map[key] = block
 *   block is held with parent p =>  p is held and was committed before it
 *   children(p)                  =  number of held blocks whose parent is p
 *   block is stuck              <=> held, and it or a block behind it is pinned
 *   stuck_children(p)            =  number of stuck blocks whose parent is p
 *   evictable                    =  number of held blocks that are not stuck
 *   block is in the heap        <=> held, not stuck, children = 0
 *   the commit-order list has exactly the held blocks */
#ifndef WORKERS_STORE_INTERNAL_H
#define WORKERS_STORE_INTERNAL_H

#include <sys/queue.h>

#include "base/check.h"
#include "base/heap.h"
#include "workers/store/kv_store.h"

enum kv_state { KV_FREE, KV_PRIVATE, KV_HELD };

struct kv_block {
    uint64_t key;
    uint64_t last_used;      /* tick of the last release */
    uint64_t number;         /* unique for each allocation */
    uint32_t parent;         /* KV_BLOCK_NONE = first block of a prompt */
    uint32_t children;       /* held blocks whose parent is this one */
    uint32_t stuck_children; /* children that cannot be evicted now */
    uint32_t pins;
    enum kv_state state;
    TAILQ_ENTRY(kv_block) order; /* in kv_store.order, while held */
};

/* Open addressing, linear probing; id = KV_BLOCK_NONE marks an empty slot. */
struct kv_slot {
    uint64_t key;
    uint32_t id;
};

struct kv_store {
    struct kv_store_config config;
    size_t stride_bytes;
    unsigned char *slab;
    uint32_t *tokens; /* (capacity_blocks, block_tokens) */
    struct kv_block *blocks;
    uint32_t *free_ids; /* a stack */
    uint32_t n_free;
    uint32_t n_private;
    uint32_t n_held;
    uint32_t n_evictable;
    uint64_t n_evicted;
    uint64_t n_allocs;
    uint64_t tick;

    struct kv_slot *slots;
    uint32_t slot_mask;
    unsigned slot_shift;

    struct heap evictable; /* leaves, the least recently used one first */

    TAILQ_HEAD(kv_order, kv_block) order; /* held blocks, oldest commit first */
    uint32_t walked; /* last block of the walk; KV_BLOCK_NONE = not begun */

    struct kv_store_event *events; /* a ring */
    uint32_t event_head;
    uint32_t event_len;
    bool resync;
    const char *broken; /* CHECK() */
};

static inline uint32_t kv_id(const struct kv_store *store,
                             const struct kv_block *b)
{
    return (uint32_t)(b - store->blocks);
}

/* Maps `key` to block `id`; the key must not be in the map. */
void kv_map_insert(struct kv_store *store, uint64_t key, uint32_t id);

/* Removes `key`, which must be in the map. */
void kv_map_remove(struct kv_store *store, uint64_t key);

/* Returns whether held block `id` has this parent and these tokens
 * (block_tokens; NULL = any tokens). */
bool kv_block_equals(const struct kv_store *store, uint32_t id, uint32_t parent,
                     const uint32_t *tokens);

/* Takes the held block `id` out of the commit order. */
void kv_order_remove(struct kv_store *store, uint32_t id);

/* Returns whether held block `b`, or a block behind it, is pinned. */
bool kv_is_stuck(const struct kv_block *b);

/* Notes that block `id` lost a child, which was stuck if `stuck`. */
void kv_lose_child(struct kv_store *store, uint32_t id, bool stuck);

/* Puts block `id`, which has no pins and is not held, on the free stack. */
void kv_make_free(struct kv_store *store, uint32_t id);

/* Records an event. If the ring is full, drops all events and sets `resync`. */
void kv_store_event_push(struct kv_store *store,
                         const struct kv_store_event *event);

#endif
