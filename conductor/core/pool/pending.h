/*
 * Pending blocks: those that unfinished prefills will leave on their instances.
 * Each prefill adds a chain from the prompt's first block on. Blocks are
 * counted, since chains share them. Internal to the pool.
 *
 * Invariant: count(i, k) = added chains of instance i that contain key k and
 * are not dropped; the index holds (i, k) exactly where the count is above 0.
 */
#ifndef CONDUCTOR_CORE_POOL_PENDING_H
#define CONDUCTOR_CORE_POOL_PENDING_H

#include <stddef.h>
#include <stdint.h>

#include "conductor/core/index/key_hash.h"
#include "conductor/core/index/prefix_index.h"

/* Linear probing; count 0 = empty, deletion shifts back. */
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
    uint32_t *n_of; /* (max_instances): pending blocks by instance */
    uint32_t max_blocks;
    struct key_secret secret;
};

/* Makes an empty table with room for max_blocks (instance, block) pairs, all
 * memory reserved.
 *   grows, seed  as in struct pool_config.
 * Returns it, owned by the caller, or NULL: out of memory or a bound out of
 * range. */
[[nodiscard]] struct pending *pending_new(uint32_t max_instances,
                                          uint32_t max_blocks, bool grows,
                                          uint64_t seed);

/* Frees the table. NULL is a no-op. */
void pending_free(struct pending *pending);

/*
 * Counts the chain keys[0 .. n-1], from a prompt's first block on.
 * Returns 0, or with nothing changed: -ENOSPC: no room; -EINVAL: a key of 0.
 */
[[nodiscard]] int pending_add(struct pending *pending, uint32_t instance,
                              const uint64_t *keys, size_t n);

/* Removes a chain that was added before. */
void pending_drop(struct pending *pending, uint32_t instance,
                  const uint64_t *keys, size_t n);

/* As pool_pending_match(). */
void pending_match(struct pending *pending, const uint64_t *keys, size_t n,
                   struct prefix_match *match);

/* Returns an instance's pending blocks, each counted once. O(1). */
static inline uint32_t pending_blocks(const struct pending *pending,
                                      uint32_t instance)
{
    return pending->n_of[instance];
}

/* Returns the slot of a pair, or the empty one where it belongs. */
uint32_t pending_find(const struct pending *pending, uint32_t instance,
                      uint64_t key);

#endif
