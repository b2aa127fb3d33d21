/*
 * The blocks that unfinished prefills will leave on their instances: chains
 * from the first block on, counted, since several requests share blocks.
 * Internal to the pool.
 *
 * Invariant: count(i, k) = added chains of i that contain k and are not
 * dropped; the index holds (i, k) exactly where that is above 0.
 */
#ifndef CONDUCTOR_CORE_POOL_PENDING_H
#define CONDUCTOR_CORE_POOL_PENDING_H

#include <stddef.h>
#include <stdint.h>

#include "conductor/core/index/key_hash.h"
#include "conductor/core/index/prefix_index.h"

/* Linear probing; count 0 is an empty slot, deletion shifts back. */
struct pending_slot {
    uint64_t key;
    uint32_t instance;
    uint32_t count;
};

/* Private; open for the check in tests. */
struct pending {
    struct prefix_index *index;
    struct pending_slot *slots;
    uint32_t mask; /* slots - 1, a power of two less one */
    uint32_t n_used;
    uint32_t *n_of; /* (max_instances) of each instance */
    uint32_t max_blocks;
    struct key_secret secret;
};

/* Makes an empty one with room for max_blocks (instance, block) pairs, all
 * memory reserved.
 *   grows, seed  as in struct pool_config.
 * Returns it, owned, or NULL. */
[[nodiscard]] struct pending *pending_new(uint32_t max_instances,
                                          uint32_t max_blocks, bool grows,
                                          uint64_t seed);

/* Frees it. NULL is a no-op. */
void pending_free(struct pending *pending);

/*
 * Counts the chain keys[0 .. n-1], from a prompt's first block on.
 * Returns 0, or with nothing changed: -ENOSPC: no room; -EEXIST, -EINVAL:
 * keys that no prompt has.
 */
[[nodiscard]] int pending_add(struct pending *pending, uint32_t instance,
                              const uint64_t *keys, size_t n);

/* Takes a chain back that was added before. */
void pending_drop(struct pending *pending, uint32_t instance,
                  const uint64_t *keys, size_t n);

/* See pool_pending_match(). */
void pending_match(struct pending *pending, const uint64_t *keys, size_t n,
                   struct prefix_match *match);

/* How many blocks are counted for an instance, each once. O(1). */
static inline uint32_t pending_blocks(const struct pending *pending,
                                      uint32_t instance)
{
    return pending->n_of[instance];
}

/* The slot of a pair, or the empty one where it belongs. */
uint32_t pending_find(const struct pending *pending, uint32_t instance,
                      uint64_t key);

#endif
