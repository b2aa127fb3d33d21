/* The invariants of the KV store as assertions; see
 * workers/store/internal.h. */
#include "tests/unit/kv_store_check.h"

#undef NDEBUG
#include <assert.h>
#include <stdlib.h>

#include "workers/store/internal.h"

static void check_heap(const struct kv_store *store)
{
    const struct heap *heap = &store->evictable;
    const struct heap_entry *first = heap_first(heap);

    for (uint32_t i = 0; i < heap->n; i++) {
        const struct heap_entry *e = &heap->entries[i];

        assert(heap->places[e->id] == i);
        assert(store->blocks[e->id].last_used == (uint64_t)e->at);
        assert(i == 0 || first->at < e->at);
    }
}

static void check_order(const struct kv_store *store)
{
    const struct kv_block *b;
    uint32_t n = 0;

    TAILQ_FOREACH(b, &store->order, order)
    {
        assert(b->state == KV_HELD && *b->order.tqe_prev == b);
        n++;
        assert(n <= store->n_held);
    }
    assert(n == store->n_held && !*store->order.tqh_last);
}

static void check_map(const struct kv_store *store)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i <= store->slot_mask; i++) {
        const struct kv_slot *slot = &store->slots[i];

        if (slot->id == KV_BLOCK_NONE)
            continue;
        n++;
        assert(store->blocks[slot->id].key == slot->key);
        assert(kv_store_find_key(store, slot->key) == slot->id);
    }
    assert(n == store->n_held);
}

/* O(capacity): children are counted down through their parents. */
static void check_blocks(const struct kv_store *store)
{
    uint32_t n[3] = {0, 0, 0};
    uint32_t in_heap = 0;
    uint64_t children = 0;
    uint64_t with_parent = 0;

    for (uint32_t id = 0; id < store->config.capacity_blocks; id++) {
        const struct kv_block *b = &store->blocks[id];

        n[b->state]++;
        bool leaf = b->state == KV_HELD && b->pins == 0 && b->children == 0;
        assert((store->evictable.places[id] != UINT32_MAX) == leaf);
        in_heap += leaf;
        if (b->state == KV_HELD) {
            assert(kv_store_find_key(store, b->key) == id);
            children += b->children;
            with_parent += b->parent != KV_BLOCK_NONE;
            if (b->parent != KV_BLOCK_NONE) {
                assert(store->blocks[b->parent].state == KV_HELD);
                assert(store->blocks[b->parent].children > 0);
            }
            continue;
        }
        assert(b->parent == KV_BLOCK_NONE && b->children == 0 &&
               b->stuck_children == 0);
        assert((b->pins > 0) == (b->state == KV_PRIVATE));
    }
    assert(n[KV_FREE] == store->n_free);
    assert(n[KV_PRIVATE] == store->n_private);
    assert(n[KV_HELD] == store->n_held);
    assert(in_heap == store->evictable.n);
    assert(children == with_parent);
}

/* Children come behind their parents: from the back, all behind a block are
 * known when it is looked at. */
static void check_stuck(const struct kv_store *store)
{
    uint32_t *stuck = calloc(store->config.capacity_blocks, sizeof(*stuck));
    uint32_t evictable = 0;

    assert(stuck);
    const struct kv_block *b;
    TAILQ_FOREACH_REVERSE(b, &store->order, kv_order, order)
    {
        uint32_t id = kv_id(store, b);
        bool is_stuck = b->pins > 0 || stuck[id] > 0;

        assert(b->stuck_children == stuck[id]);
        assert(b->stuck_children <= b->children);
        evictable += !is_stuck;
        if (b->parent != KV_BLOCK_NONE)
            stuck[b->parent] += is_stuck;
    }
    assert(evictable == store->n_evictable);
    free(stuck);
}

void kv_store_check(const struct kv_store *store)
{
    check_blocks(store);
    check_map(store);
    check_heap(store);
    check_order(store);
    check_stuck(store);
    for (uint32_t i = 0; i < store->n_free; i++)
        assert(store->blocks[store->free_ids[i]].state == KV_FREE);
}
