/* One LRU cache of block ids: an upper bound of what a cluster's nodes cache
 * together. */
#ifndef TOOLS_REPLAY_STUDY_SWEEP_LRU_H
#define TOOLS_REPLAY_STUDY_SWEEP_LRU_H

#include <stddef.h>
#include <stdint.h>

struct sweep_lru;

/* Creates an empty cache of `capacity` blocks, at least 1. It remembers up to
 * `ids` distinct ids, evicted or not; further ids never hit. Returns it, owned,
 * or NULL when out of memory. */
[[nodiscard]] struct sweep_lru *sweep_lru_new(uint64_t capacity, size_t ids);

/* Frees a cache; NULL is a no-op. */
void sweep_lru_free(struct sweep_lru *lru);

/* Sets *leading to the number of leading blocks of ids[0 .. n) in the cache,
 * then caches all of them; the last ones are evicted first. Adds the number of
 * new ids to *new_blocks. Returns 0 or -ENOMEM. O(n). */
[[nodiscard]] int sweep_lru_use(struct sweep_lru *lru, const uint64_t *ids,
                                size_t n, size_t *leading,
                                uint64_t *new_blocks);

#endif
