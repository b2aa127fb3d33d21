/*
 * The cached blocks of one node: least recently used first out, tier by tier.
 * A block is in one tier at a time. A block for which a tier has no room moves
 * down to the next tier, and leaves the node from the last one. Every move is
 * reported, so that the prefix index follows. Internal to sim.
 */
#ifndef SIM_BLOCK_CACHE_H
#define SIM_BLOCK_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/core/index/prefix_index.h"

#define BLOCK_CACHE_NONE UINT32_MAX
#define BLOCK_CACHE_NO_TIER BLOCK_TIERS /* from: it is new; to: it is gone */

struct cached_block {
    uint64_t key;
    uint64_t parent; /* key of the block before it, 0 for a first one */
    uint64_t owner;  /* for the caller: who placed it */
    uint32_t newer;  /* in its tier's list, or the next free slot */
    uint32_t older;
    uint32_t next; /* in the hash chain */
    uint8_t tier;
    bool ready; /* for the caller: false until its KV is there */
};

/* Called for every move of a block; it must not call the cache. */
typedef void block_cache_moved_fn(void *arg, const struct cached_block *block,
                                  unsigned from_tier, unsigned to_tier);

/* Only block_cache.c and the tests look inside. */
struct block_cache {
    struct cached_block *slots; /* (n_slots) */
    uint32_t *heads;            /* (n_slots), a power of two: hash chains */
    uint32_t n_slots;
    uint32_t fresh;     /* slots from here on have never been used */
    uint32_t free_slot; /* first of the free ones, by `newer` */
    uint32_t newest[BLOCK_TIERS];
    uint32_t oldest[BLOCK_TIERS];
    uint64_t count[BLOCK_TIERS];
    uint64_t capacity[BLOCK_TIERS];
    block_cache_moved_fn *moved;
    void *arg;
};

/*
 * Makes an empty cache.
 *   capacity_blocks  (BLOCK_TIERS), 0: there is no such tier.
 *   moved, arg       borrowed.
 * Returns it, owned, or NULL without memory.
 */
[[nodiscard]] struct block_cache *
block_cache_new(const uint64_t *capacity_blocks, block_cache_moved_fn *moved,
                void *arg);

/* Frees it; NULL is a no-op. */
void block_cache_free(struct block_cache *cache);

/* The slot of a block, BLOCK_CACHE_NONE if it is not cached. */
uint32_t block_cache_find(const struct block_cache *cache, uint64_t key);

/* Brings nearer what block_cache_find() looks at first. */
void block_cache_prefetch(const struct block_cache *cache, uint64_t key);

/* The block in a slot, valid until the next block_cache_place(). */
struct cached_block *block_cache_at(struct block_cache *cache, uint32_t slot);

/* Makes a block the most recently used of the first tier. */
void block_cache_touch(struct block_cache *cache, uint32_t slot);

/* Makes a block the most recently used of the tier where it is. */
void block_cache_keep(struct block_cache *cache, uint32_t slot);

/* A block leaves the node, from whatever tier. */
void block_cache_drop(struct block_cache *cache, uint32_t slot);

/*
 * Caches a block that is not cached yet, in the first tier, as the most
 * recently used. `ready` and `owner` are the block's fields.
 * Returns 0, or -ENOMEM with nothing changed. A cache without room for a single
 * block stores nothing, which is not an error.
 */
[[nodiscard]] int block_cache_place(struct block_cache *cache, uint64_t key,
                                    uint64_t parent, uint64_t owner,
                                    bool ready);

/* Changes the room of a tier; blocks that no longer fit move down. */
void block_cache_set_capacity(struct block_cache *cache, enum block_tier tier,
                              uint64_t capacity_blocks);

#endif
