/* The KV store's map from key to block, and its ring of events. */
#include "workers/store/internal.h"

static uint32_t slot_home(const struct kv_store *store, uint64_t key)
{
    return (uint32_t)((key * 0x9e3779b97f4a7c15u) >> store->slot_shift);
}

static uint32_t slot_find(const struct kv_store *store, uint64_t key)
{
    uint32_t i = slot_home(store, key);

    while (store->slots[i].id != KV_BLOCK_NONE && store->slots[i].key != key)
        i = (i + 1) & store->slot_mask;
    return i;
}

uint32_t kv_store_find_key(const struct kv_store *store, uint64_t key)
{
    return store->slots[slot_find(store, key)].id;
}

void kv_map_insert(struct kv_store *store, uint64_t key, uint32_t id)
{
    uint32_t i = slot_find(store, key);

    store->slots[i] = (struct kv_slot){.key = key, .id = id};
}

void kv_map_remove(struct kv_store *store, uint64_t key)
{
    uint32_t mask = store->slot_mask;
    uint32_t hole = slot_find(store, key);
    uint32_t i = hole;

    /* Closes the gap: an entry may move back to the hole unless its home slot
     * comes after the hole, counted around the ring. */
    for (;;) {
        i = (i + 1) & mask;
        if (store->slots[i].id == KV_BLOCK_NONE)
            break;
        uint32_t home = slot_home(store, store->slots[i].key);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            store->slots[hole] = store->slots[i];
            hole = i;
        }
    }
    store->slots[hole].id = KV_BLOCK_NONE;
}

void kv_store_event_push(struct kv_store *store,
                         const struct kv_store_event *event)
{
    uint32_t capacity = store->config.event_capacity;

    if (store->resync)
        return; /* the reader will take the whole inventory */
    if (store->event_len == capacity) {
        kv_store_forget_events(store);
        return;
    }
    store->events[(store->event_head + store->event_len) % capacity] = *event;
    store->event_len++;
}

bool kv_store_next_event(struct kv_store *store, struct kv_store_event *event)
{
    if (store->event_len == 0)
        return false;
    *event = store->events[store->event_head];
    store->event_head = (store->event_head + 1) % store->config.event_capacity;
    store->event_len--;
    return true;
}

bool kv_store_take_resync(struct kv_store *store)
{
    bool resync = store->resync;

    store->resync = false;
    return resync;
}

void kv_store_forget_events(struct kv_store *store)
{
    store->event_head = 0;
    store->event_len = 0;
    store->resync = true;
}
