/*
 * The prefix index: which instances hold which blocks, in which tiers. It takes
 * block events in any order, with holes, duplicates and lies, and matches a
 * prompt's prefix against all instances at once.
 *
 * A key names its whole prefix, so an event's parent key is only a hint where
 * to put a block: an instance's events change the answers for that instance
 * alone. An instance's answer equals a linear scan over its indexed keys, and
 * is never longer than the prefix that it reported.
 *
 * Instances are small numbers, the pool's slots. Keys come from block_key.h;
 * 0 stands for "no parent" and is not a key.
 */
#ifndef CONDUCTOR_CORE_INDEX_PREFIX_INDEX_H
#define CONDUCTOR_CORE_INDEX_PREFIX_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PREFIX_INDEX_INSTANCES_MAX 32000u

/* Tiers of KV blocks, the fastest first; block_tiers describes them.
 * TIER_SHARED is a store that instances share (prefix_match_share()): no event
 * names it. */
enum block_tier { TIER_DEVICE, TIER_HOST, TIER_DISK, TIER_SHARED, LOAD_TIERS };
#define BLOCK_TIERS TIER_SHARED             /* tiers of an instance's own */
#define BLOCK_TIER_NAMES "device host disk" /* of these, as in block_tiers */
#define BLOCK_TIER_BIT(tier) (1u << (tier))
#define BLOCK_TIERS_ALL (BLOCK_TIER_BIT(BLOCK_TIERS) - 1)

struct block_tier_kind {
    const char *name; /* in cluster files, answers and reports */
    bool sent; /* an instance sends other instances what it holds there, even if
                  it has to read it first */
    const char *media[8]; /* its names in KV events, NULL after the last */
};

extern const struct block_tier_kind block_tiers[LOAD_TIERS];

struct prefix_index;

struct prefix_index_config {
    uint32_t max_instances; /* 1..PREFIX_INDEX_INSTANCES_MAX */
    uint64_t max_bytes;     /* memory for pages, table and records, at least
                               PREFIX_INDEX_BYTES_MIN; arrays with a member for
                               each instance come on top */
    bool evicts;            /* when full: true = cold blocks leave, false = new
                               blocks are not indexed */
    uint64_t max_pairs; /* most (instance, block) pairs at once: bounds the size
                           of the table, since a small one is faster;
                           0 = unlimited */
    bool grows;         /* for simulations: the table begins with room for
                           262,144 blocks and doubles when it is crowded, in one
                           go of some 40 ns a block; if at most twice that room
                           is needed, it has its full size from the start */
    uint64_t seed;      /* of the hashing: random where strangers choose keys */
};
#define PREFIX_INDEX_BYTES_MIN 16384u

struct prefix_index_stats {
    uint64_t keys;      /* distinct blocks in the table, also without holder */
    uint64_t holders;   /* (instance, block) pairs indexed */
    uint64_t unindexed; /* pairs that were reported and had no room */
    uint64_t evicted;   /* pairs evicted since prefix_index_new() */
    uint64_t pages;     /* pages of keys in use */
    uint64_t bytes;     /* memory of pages, keys and records in use */
    uint64_t bytes_max; /* memory reserved */
    bool sweeping;      /* cleared instances still have records to be removed */
};

/*
 * Makes an empty index. All of its memory is reserved here (untouched pages
 * cost nothing); no later call allocates.
 * Returns the index, owned by the caller, or NULL: out of memory or a bound
 * out of range.
 */
[[nodiscard]] struct prefix_index *
prefix_index_new(const struct prefix_index_config *config);

/* Touches the next huge page of the table (2 MiB, some 0.3 ms), so that the
 * first events do not have to touch many in one turn of the event loop.
 * Returns whether untouched pages are left. */
bool prefix_index_touch(struct prefix_index *index);

/* Frees the index. NULL is a no-op. */
void prefix_index_free(struct prefix_index *index);

/*
 * Sets the most indexed blocks of one instance; UINT64_MAX at first. Blocks
 * beyond it are counted as unindexed. A block in several tiers counts once.
 * Lowering the quota drops no block.
 */
void prefix_index_set_quota(struct prefix_index *index, uint32_t instance,
                            uint64_t max_blocks);

/*
 * Records that an instance stored a chain: keys[0] behind parent_key, keys[i]
 * behind keys[i-1]. Repeating an event changes nothing.
 *   parent_key  key of the block before keys[0], a hint where to put new
 *               blocks; 0 = keys[0] is a prompt's first block.
 *   keys        (n), borrowed.
 * Returns 0; -EINVAL: instance, tier or a key out of range (blocks before that
 * key are indexed); -ENOSPC: the instance's quota or the memory is used up, and
 * some blocks were not indexed; prefix_index_unindexed() counts them.
 * Cost: O(n), one probe for a page of 16 known blocks, one for each new block.
 */
int prefix_index_stored(struct prefix_index *index, uint32_t instance,
                        enum block_tier tier, uint64_t parent_key,
                        const uint64_t *keys, size_t n);

/* Returns the total eviction work so far, in block equivalents (the time to
 * store one block). In a full index one event costs up to some 580: 512 to look
 * at pages, the rest to change the last page or to begin a round. */
uint64_t prefix_index_room_cost(const struct prefix_index *index);

/* Prefetches the table's buckets of keys that several events are about to store
 * or remove. */
void prefix_index_prefetch(const struct prefix_index *index,
                           const uint64_t *keys, size_t n);

/*
 * Records that an instance dropped blocks from a tier. Blocks that it does not
 * hold are ignored.
 *   keys  (n), borrowed, in any sequence; runs of a chain are fastest.
 * Returns 0, or -EINVAL: instance or tier out of range.
 */
int prefix_index_removed(struct prefix_index *index, uint32_t instance,
                         enum block_tier tier, const uint64_t *keys, size_t n);

/*
 * Records that an instance lost all its blocks in all tiers, or went away. Its
 * number may be used for another instance at once.
 * Cost: O(1); prefix_index_work() removes its old records. An instance with
 * eight such clears (two, if other instances use all spare holders) gets no new
 * block indexed until one is done.
 */
void prefix_index_cleared(struct prefix_index *index, uint32_t instance);

/*
 * Goes on removing the records of cleared instances.
 *   max_pages  work to do, in pages looked at: a page that changes counts as
 *              128, four records as one. 16,384 take about 200 us.
 * Returns whether there is more to do.
 */
bool prefix_index_work(struct prefix_index *index, uint32_t max_pages);

/*
 * Returns whether an instance (below max_instances) should be asked for its
 * inventory: some blocks that it reported are not indexed, and by now there is
 * room for them.
 */
bool prefix_index_incomplete(const struct prefix_index *index,
                             uint32_t instance);

/* Begins an inventory: an instance (below max_instances) reports all its blocks
 * again, without a clear. Its unindexed blocks are counted anew. */
void prefix_index_told_again(struct prefix_index *index, uint32_t instance);

/* Ends an inventory.
 *   whole  false = it was given up: the blocks that were unindexed before it
 *          count in addition to those since. */
void prefix_index_told(struct prefix_index *index, uint32_t instance,
                       bool whole);

/* Returns how many blocks an instance (below max_instances) reported and has
 * not removed that are not indexed. A block that is reported twice, or was
 * evicted from two tiers, counts twice. */
uint64_t prefix_index_unindexed(const struct prefix_index *index,
                                uint32_t instance);

/* Consecutive blocks of a prompt that an instance holds in the same tiers.
 * Instances with the same runs up to here share them. */
struct prefix_run {
    uint32_t first_block;
    uint32_t end_block;
    uint32_t before; /* the preceding run, an index in runs; 0 = none */
    uint8_t tiers;   /* BLOCK_TIER_BIT()s, at least one */
    uint8_t n_runs;  /* this one and those before it */
};

/* Most runs of one instance; blocks behind the last are left out of a match. */
#define PREFIX_RUNS_MAX 16u

/* The blocks of one prompt that each instance holds. */
struct prefix_match {
    uint32_t *blocks;        /* (max_instances): leading blocks, in any tier */
    uint32_t *last_run;      /* (max_instances): index in runs; 0 = no blocks */
    struct prefix_run *runs; /* (n_runs), runs[0] all 0 */
    uint32_t n_runs;
    uint32_t *holders; /* (n_holders): instances with blocks above 0, in no
                          order */
    uint32_t n_holders;
    uint32_t n_keys; /* blocks of the prompt */
    /* Scratch of prefix_index_match(). */
    uint32_t max_instances;
    uint64_t *alive;
    struct prefix_alive *alive_as;
};

/* Allocates a match for an index with max_instances instances. Returns 0 or
 * -ENOMEM. prefix_match_fini() frees it; it accepts a zeroed one. */
[[nodiscard]] int prefix_match_init(struct prefix_match *match,
                                    uint32_t max_instances);
void prefix_match_fini(struct prefix_match *match);

/*
 * Finds, for every instance, how many leading blocks of a prompt it holds, and
 * in which tiers.
 *   keys   (n), borrowed; n below 2^32.
 *   match  from prefix_match_init() for at least as many instances; written.
 * Cost: one probe for each page of 16 blocks until no instance matches, none
 * for a page next to the chain's previous one; records are read only in pages
 * where the holders or their tiers change.
 */
void prefix_index_match(struct prefix_index *index, const uint64_t *keys,
                        size_t n, struct prefix_match *match);

/*
 * Lengthens an instance's match by the blocks of a shared store that it reads:
 * where its own leading blocks end, those of the store follow, in `tier`.
 *   instance, store  below max_instances; they differ. The store is in the
 *                    index as an instance.
 */
void prefix_match_share(struct prefix_match *match, uint32_t instance,
                        uint32_t store, enum block_tier tier);

/* Returns the tiers in which an instance holds a block, BLOCK_TIER_BIT()s. */
unsigned prefix_index_tiers(const struct prefix_index *index, uint32_t instance,
                            uint64_t key);

/* Returns an instance's indexed blocks; 0 for an instance out of range. */
uint64_t prefix_index_held(const struct prefix_index *index, uint32_t instance);

/* Returns max_instances of the configuration. */
uint32_t prefix_index_max_instances(const struct prefix_index *index);

/* Returns an invariant that broke since the last call; NULL = none. */
const char *prefix_index_broken(struct prefix_index *index);

/* Returns counts for metrics. */
struct prefix_index_stats prefix_index_stats(const struct prefix_index *index);

#endif
