/*
 * Maps an engine's own hashes of blocks to our block keys. Engines report
 * stored blocks with their tokens, but removed ones by their hashes only. So
 * the map keeps each hash's key in the prefix index, and the number of the
 * engine's copies.
 *
 * Engines store one block several times and remove it as often: vLLM computes a
 * prompt's last block again, and offloading keeps copies in other tiers. A
 * block leaves a tier with its last copy there: copies are counted for each
 * (hash, tier, cache group, rank).
 *
 * An engine's hash is opaque, never recomputed: any algorithm and seed will do.
 *
 * If the engine's block size is not the index's, keys and copies are of the
 * engine's blocks, and the sink gets the index's blocks made from them
 * (recut.h).
 *
 * Pure: batches in, calls of the sink out; memory grows up to a bound.
 */
#ifndef CONDUCTOR_LINK_EVENTS_MAP_BLOCK_MAP_H
#define CONDUCTOR_LINK_EVENTS_MAP_BLOCK_MAP_H

#include "conductor/link/events/batch.h"

/* Data-parallel ranks of an engine. */
#define KV_MAP_RANKS_MAX 256u

/* Receives changes to an engine's blocks, for the prefix index. */
struct kv_map_sink {
    /* keys[0] follows parent_key (0 = unknown, or none), keys[i] follows
     * keys[i-1]. */
    void (*stored)(void *arg, enum block_tier tier, uint64_t parent_key,
                   const uint64_t *keys, size_t n);
    void (*removed)(void *arg, enum block_tier tier, const uint64_t *keys,
                    size_t n);
    void (*cleared)(void *arg);
};

struct kv_map_config {
    const char *model;        /* of the keys' seed, borrowed */
    uint32_t block_tokens;    /* of the index */
    uint32_t engine_tokens;   /* tokens in a block of the engine, block_cuts()
                                 with block_tokens; 0 = take it from events. A
                                 store has the index's */
    uint64_t max_blocks;      /* limit on (hash, tier, group, rank) entries */
    size_t max_waiting_bytes; /* for events with an unknown parent */
    uint64_t seed;            /* of its hash table: random, as engines choose
                                 hashes */
    /* For a store that engines share: parts per block; a part stored twice
     * counts once. 0 = an engine. */
    uint32_t parts;
    /* For a store: returns the key of an engine's hash, and its seed; 0 =
     * unknown. */
    uint64_t (*key_of)(void *arg, uint64_t hash, uint64_t *seed);
    /* Total eviction work of the sink so far, in block equivalents; NULL = it
     * evicts nothing. */
    uint64_t (*room_cost)(void *arg);
};

/* Counts of blocks, unless stated otherwise, since the map was made. */
struct kv_map_stats {
    uint64_t stored, removed; /* copies added; copies removed */
    uint64_t cleared;         /* events that clear all blocks */
    uint64_t unknown_removed; /* removals of unknown blocks */
    uint64_t unknown_copied;  /* stored without tokens, and unknown */
    uint64_t waited;          /* events that came before their parent */
    uint64_t dropped;         /* waiting events dropped for lack of room */
    uint64_t wrong_size;      /* events with blocks of another size than the
                                 engine's, or that cannot be cut */
    uint64_t wrong_tokens;    /* events whose tokens do not fill the blocks, or
                                 are not numbers */
    uint64_t contradictions;  /* hashes with two contents, or with more parts
                                 than a block has in all tiers */
    uint64_t other_media;     /* events of a medium that is none of our tiers */
    uint64_t windowed;        /* events of groups that forget a prompt */
    uint64_t full;            /* not kept for lack of room */
    uint64_t unkept;          /* now, of `full`: the engine may have them */
    uint64_t pieces;          /* blocks cut for the index now */
    uint64_t entries;         /* (hash, tier, group, rank), now */
    uint64_t waiting_events, waiting_bytes; /* now */
};

struct kv_map;

/* Makes an empty map; arg is given to the sink. Returns owned, or NULL: out of
 * memory, a bound of 0 or blocks that cannot be cut. kv_map_free(NULL) is a
 * no-op and frees silently. */
[[nodiscard]] struct kv_map *kv_map_new(const struct kv_map_config *config,
                                        const struct kv_map_sink *sink,
                                        void *arg);
void kv_map_free(struct kv_map *map);

/* Begins to apply a decoded batch of one data-parallel rank, borrowed until
 * kv_map_work() has ended it or kv_map_abandon() was called. No batch may be
 * under way. rank < KV_MAP_RANKS_MAX. */
void kv_map_begin(struct kv_map *map, uint16_t rank,
                  const struct kv_batch *batch);

/*
 * Continues to forget, then to apply the batch under way, if any. Between two
 * calls the index has all changes from the part of the batch applied so far.
 *   max_blocks  ends after this many blocks or equal work, at most 64 blocks
 *               later. A block takes some 100 ns.
 * Returns whether there is more to do.
 */
bool kv_map_work(struct kv_map *map, uint32_t max_blocks);

/* Drops the rest of the batch; a no-op if none is under way. */
void kv_map_abandon(struct kv_map *map);

/* Forgets all blocks of a rank, and drops its batch if one is under way. If
 * other ranks have sent batches, kv_map_work() forgets, before all other work:
 * see kv_map_forgets(). */
void kv_map_clear_rank(struct kv_map *map, uint16_t rank);

/* Forgets all blocks, and drops the batch under way. */
void kv_map_clear(struct kv_map *map);

/* Returns whether kv_map_work() still has blocks to forget. */
bool kv_map_forgets(const struct kv_map *map);

/* Returns the tokens in a block of the engine; 0 = unknown so far. */
uint32_t kv_map_engine_tokens(const struct kv_map *map);

/* Returns whether blocks that had no room would fit now: then ask the engine
 * for all blocks again. */
bool kv_map_incomplete(const struct kv_map *map);

/* Returns a map's counts so far. */
struct kv_map_stats kv_map_stats(const struct kv_map *map);

/* Makes the engine's map tell the store's map the keys of hashes from now on.
 * The store's map must live as long; NULL = no store. */
void kv_map_follow(struct kv_map *engine, struct kv_map *store);

/* Returns the index's key of a hash, and its seed; 0 = unknown, or the block
 * sizes of engine and index differ. */
uint64_t kv_map_key(const struct kv_map *map, uint64_t hash, uint64_t *seed);

/* Checks the invariants at the top of copies.c. For tests. Cost: O(blocks). */
bool kv_map_check(const struct kv_map *map);

#endif
