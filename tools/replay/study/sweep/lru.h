/* One LRU cache of block ids: what all nodes of a cluster could cache if they
 * were one. */
#ifndef TOOLS_REPLAY_STUDY_SWEEP_LRU_H
#define TOOLS_REPLAY_STUDY_SWEEP_LRU_H

#include <stddef.h>
#include <stdint.h>

struct sweep_lru;

/* An empty one for `capacity` blocks, at least 1. It remembers up to `ids`
 * different ones, evicted or not; others are never hits. Owned by the caller,
 * or NULL without memory. */
[[nodiscard]] struct sweep_lru *sweep_lru_new(uint64_t capacity, size_t ids);

/* Frees it; NULL is a no-op. */
void sweep_lru_free(struct sweep_lru *lru);

/* Counts the leading blocks of ids[0 .. n) that it has, and then has all of
 * them, the first ones longest. Adds to *new_blocks those never seen before.
 * Returns 0 or -ENOMEM. O(n). */
[[nodiscard]] int sweep_lru_use(struct sweep_lru *lru, const uint64_t *ids,
                                size_t n, size_t *leading,
                                uint64_t *new_blocks);

#endif
