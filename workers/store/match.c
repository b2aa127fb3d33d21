/* Finds blocks in the KV store by key, tokens and parent block. */
#include "workers/store/internal.h"

uint32_t kv_store_match(struct kv_store *store, const uint64_t *keys,
                        const uint32_t *tokens, uint32_t n_blocks,
                        uint32_t *ids)
{
    uint32_t parent = KV_BLOCK_NONE;
    uint32_t n = 0;

    for (; n < n_blocks; n++) {
        parent = kv_store_find(store, keys[n], parent, tokens);
        if (parent == KV_BLOCK_NONE)
            break;
        tokens = tokens ? tokens + store->config.block_tokens : NULL;
        if (!ids)
            continue;
        kv_store_pin(store, parent);
        ids[n] = parent;
    }
    return n;
}

uint32_t kv_store_find(const struct kv_store *store, uint64_t key,
                       uint32_t parent, const uint32_t *tokens)
{
    uint32_t id = kv_store_find_key(store, key);

    if (id == KV_BLOCK_NONE || !kv_block_equals(store, id, parent, tokens))
        return KV_BLOCK_NONE;
    return id;
}
