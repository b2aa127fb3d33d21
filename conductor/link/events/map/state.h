/* The inside of a kv_map, for the files that change it. */
#ifndef CONDUCTOR_LINK_EVENTS_MAP_STATE_H
#define CONDUCTOR_LINK_EVENTS_MAP_STATE_H

#include "conductor/link/events/copies.h"
#include "conductor/link/events/map/block_map.h"
#include "conductor/link/events/recut/recut.h"
#include "conductor/link/events/waiting.h"

/* Most blocks whose keys are computed, and told to the index, in one piece. */
#define MAP_PIECE_BLOCKS 64u

/* A batch that is applied in pieces. Events that waited for blocks of a piece
 * are applied before the next piece. */
struct map_work {
    const struct kv_batch *batch; /* NULL = none is under way */
    uint16_t rank;
    uint32_t event, block; /* the next event, and its next block */
    uint64_t slot;         /* of a clear: the next slot to look at */
    /* Blocks that may have got keys: events that wait for one go to `ready`. */
    uint64_t parents[MAP_PIECE_BLOCKS];
    uint32_t n_parents, parent;
    struct waiting_list ready; /* events whose parents' keys are known */
    uint64_t cost;             /* of this kv_map_work(), in block equivalents */
};

/* Ranks whose blocks are to be forgotten before any other work. */
struct map_clears {
    bool of[KV_MAP_RANKS_MAX];
    uint32_t n;
    uint64_t at; /* slot where the search for its entries continues */
};

struct kv_map {
    struct kv_map_config config;
    struct kv_map_sink sink;
    void *arg;
    uint32_t block_tokens; /* of the engine */
    struct recut *recut;   /* NULL = the index's blocks have the same size */
    struct copies_table copies;
    /* Entries by rank and tier; a store's are not counted. */
    uint64_t n_of[KV_MAP_RANKS_MAX][BLOCK_TIERS];
    struct waiting waiting;
    struct map_work work;
    struct map_clears clears;
    struct kv_map *store;     /* gets the keys of this map; NULL = none */
    uint64_t windowed_groups; /* bit g: group g keeps only a window */
    struct kv_map_stats stats;
    bool heard;         /* a batch has come */
    uint16_t rank;      /* rank of the first batch */
    bool several_ranks; /* batches of other ranks have come, too */
    /* Keys gone from a tier, to be reported to the index next. */
    uint64_t gone[MAP_PIECE_BLOCKS];
    uint32_t n_gone;
    enum block_tier gone_tier;
};

/* say.c */

/* Gives recut, if there is one, the tokens of blocks whose keys were computed;
 * call it before map_say_stored(). */
void map_name(struct kv_map *map, uint64_t parent_key, uint64_t seed,
              const uint32_t *tokens, const uint64_t *extras,
              const uint64_t *keys, uint32_t n);

/* Reports the keys in `gone` to the index. */
void map_say_gone(struct kv_map *map);

/* Reports stored blocks to the index, after those in `gone`. */
void map_say_stored(struct kv_map *map, enum block_tier tier,
                    uint64_t parent_key, const uint64_t *keys, size_t n);

/* Returns whether a tier has all parts of a block, so that the index knows
 * it. */
bool map_has(const struct kv_map *map, uint64_t hash, uint8_t tier);

/* block_map.c: removes an entry; tells the index if it was the tier's last. */
void map_remove_entry(struct kv_map *map, struct copies *entry);

/* block_map.c: applies a piece of a removed event, already cut down to groups
 * that count. */
void map_removed(struct kv_map *map, const struct kv_event *event,
                 uint16_t rank);

/* block_map.c: sets the engine's block size. Returns false, with nothing
 * changed: blocks of another size are known, or the new size cannot be cut. */
bool map_set_size(struct kv_map *map, uint32_t block_tokens);

/* Returns the key of a hash for the engine's block size, and its seed; 0 =
 * unknown. */
uint64_t map_key(const struct kv_map *map, uint64_t hash, uint64_t *seed);

/* stored.c: applies a piece of a stored event, already cut down to groups that
 * count. Returns whether to go on with the rest of the event, whose parent is
 * the last block of this piece. */
bool map_stored(struct kv_map *map, const struct kv_event *event,
                uint16_t rank);

/* stored.c: counts n blocks that have no room. */
void map_unkept(struct kv_map *map, uint32_t n);

/* stored.c: returns whether a stored event's blocks have the engine's size, or
 * may set it; counts the event if not. */
bool map_fits(struct kv_map *map, const struct kv_event *event);

/* stored.c: applies events whose parents now have keys. Returns whether there
 * were any. */
bool map_adopt(struct kv_map *map);

/* stored.c: sets the key of a hash in its entries without one, and tells the
 * index of their tiers, except said_tiers (BLOCK_TIER_BIT()). */
void map_learn(struct kv_map *map, uint64_t hash, uint64_t parent_key,
               uint64_t key, uint64_t seed, unsigned said_tiers);

#endif
