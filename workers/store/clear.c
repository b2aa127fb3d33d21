/* Removes blocks from the KV store without eviction: a damaged block with all
 * blocks behind it, or blocks no longer wanted. */
#include "workers/store/internal.h"

/* Stops holding block `id`: it becomes private to the owners of its pins, or
 * free. The caller updates the parent's count of children. */
static void let_go(struct kv_store *store, uint32_t id)
{
    struct kv_block *b = &store->blocks[id];

    heap_remove(&store->evictable, id);
    kv_map_remove(store, b->key);
    kv_order_remove(store, id);
    b->key = 0;
    b->parent = KV_BLOCK_NONE;
    store->n_evictable -= !kv_is_stuck(b);
    b->children = 0;
    b->stuck_children = 0;
    store->n_held--;
    if (b->pins > 0) {
        b->state = KV_PRIVATE;
        store->n_private++;
    } else {
        kv_make_free(store, id);
    }
}

static void drop_one(struct kv_store *store, uint32_t id)
{
    struct kv_store_event event = {.kind = KV_EVENT_REMOVED,
                                   .key = store->blocks[id].key};

    let_go(store, id);
    kv_store_event_push(store, &event);
}

void kv_store_drop(struct kv_store *store, uint32_t id)
{
    struct kv_block *b = &store->blocks[id];
    struct kv_block *next = TAILQ_NEXT(b, order);
    uint32_t parent = b->parent;
    bool stuck = kv_is_stuck(b);

    drop_one(store, id);
    if (parent != KV_BLOCK_NONE)
        kv_lose_child(store, parent, stuck);
    /* Parents precede their children, so one walk finds all of them. */
    while ((b = next)) {
        next = TAILQ_NEXT(b, order);
        if (b->parent != KV_BLOCK_NONE &&
            store->blocks[b->parent].state != KV_HELD)
            drop_one(store, kv_id(store, b));
    }
}

uint32_t kv_store_let_go(struct kv_store *store, uint64_t key, uint32_t n)
{
    uint32_t id = kv_store_find_key(store, key), gone = 0;

    while (gone < n && id != KV_BLOCK_NONE) {
        const struct kv_block *b = &store->blocks[id];
        uint32_t parent = b->parent;

        if (kv_is_stuck(b) || b->children > 0)
            break;
        drop_one(store, id);
        if (parent != KV_BLOCK_NONE)
            kv_lose_child(store, parent, false);
        gone++;
        id = parent;
    }
    return gone;
}
