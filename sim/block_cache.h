/*
 * The cached blocks of one node, evicted tier by tier, least recently used
 * first. A block is in one tier at a time. When a tier is full, its oldest
 * block moves to the next tier; from the last tier it leaves the node. Every
 * move is reported to the prefix index. Internal to sim.
 */
#ifndef SIM_BLOCK_CACHE_H
#define SIM_BLOCK_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/core/index/prefix_index.h"

#define BLOCK_CACHE_NONE UINT32_MAX
#define BLOCK_CACHE_NO_TIER BLOCK_TIERS /* from: new; to: removed */

struct cached_block {
    uint64_t key;
    uint64_t parent; /* key of the preceding block; 0 = first block */
    uint64_t owner;  /* set by the caller: request that placed it */
    uint32_t newer;  /* neighbour in its tier's list, or next free slot */
    uint32_t older;
    uint32_t next; /* in the hash chain */
    uint8_t tier;
    bool ready; /* set by the caller: false until its KV is there */
};

/* Called for every move of a block; must not call the cache. */
typedef void block_cache_moved_fn(void *arg, const struct cached_block *block,
                                  unsigned from_tier, unsigned to_tier);

/* Internal to block_cache.c and the tests. */
struct block_cache {
    struct cached_block *slots; /* (n_slots) */
    uint32_t *heads; /* (n_slots), hash chains; n_slots is a power of two */
    uint32_t n_slots;
    uint32_t fresh;     /* slots from here on have never been used */
    uint32_t free_slot; /* first free slot, linked by `newer` */
    uint32_t newest[BLOCK_TIERS];
    uint32_t oldest[BLOCK_TIERS];
    uint64_t count[BLOCK_TIERS];
    uint64_t capacity[BLOCK_TIERS];
    block_cache_moved_fn *moved;
    void *arg;
};

/*
 * Creates an empty cache.
 *   capacity_blocks  (BLOCK_TIERS), 0 = the tier does not exist.
 *   moved, arg       borrowed.
 * Returns it, owned, or NULL when out of memory.
 */
[[nodiscard]] struct block_cache *
block_cache_new(const uint64_t *capacity_blocks, block_cache_moved_fn *moved,
                void *arg);

/* Frees a cache; NULL is a no-op. */
void block_cache_free(struct block_cache *cache);

/* Returns the slot of a block, or BLOCK_CACHE_NONE if it is not cached. */
uint32_t block_cache_find(const struct block_cache *cache, uint64_t key);

/* Prefetches the memory that block_cache_find() reads first. */
void block_cache_prefetch(const struct block_cache *cache, uint64_t key);

/* Returns the block in a slot, valid until the next block_cache_place(). */
struct cached_block *block_cache_at(struct block_cache *cache, uint32_t slot);

/* Makes a block the most recently used of the first tier. */
void block_cache_touch(struct block_cache *cache, uint32_t slot);

/* Makes a block the most recently used of the tier where it is. */
void block_cache_keep(struct block_cache *cache, uint32_t slot);

/* Removes a block from the node, whatever its tier. */
void block_cache_drop(struct block_cache *cache, uint32_t slot);

/*
 * Caches a new block in the first tier, as the most recently used; `ready` and
 * `owner` are its fields. A cache without any capacity stores nothing and
 * returns 0. Returns 0, or -ENOMEM with nothing changed.
 */
[[nodiscard]] int block_cache_place(struct block_cache *cache, uint64_t key,
                                    uint64_t parent, uint64_t owner,
                                    bool ready);

/* Changes the capacity of a tier; blocks that no longer fit move down. */
void block_cache_set_capacity(struct block_cache *cache, enum block_tier tier,
                              uint64_t capacity_blocks);

#endif
