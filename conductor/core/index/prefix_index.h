/*
 * Which instances hold which blocks, and how much of a prompt's prefix each
 * of them has, in which tiers. It takes block events in any order, with holes,
 * duplicates and lies, and answers for all instances at once.
 *
 * A key names its whole prefix, so an event's parent is a hint where to put a
 * block and nothing more: what an instance says changes only what is said of
 * that instance. The answer for an instance equals a linear scan over the keys
 * of what is indexed of it, and is never longer than what it reported.
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

/* The last one is nobody's own: a store that instances share, see
 * prefix_match_share(). Nothing is stored or removed in it. */
enum block_tier { TIER_DEVICE, TIER_HOST, TIER_DISK, TIER_SHARED };
#define BLOCK_TIERS 3 /* of an instance's own */
#define LOAD_TIERS 4  /* from which it loads */
#define BLOCK_TIER_BIT(tier) (1u << (tier))

struct prefix_index;

struct prefix_index_config {
    uint32_t max_instances; /* 1..PREFIX_INDEX_INSTANCES_MAX */
    uint64_t max_bytes;     /* of all of its memory but the instances' own, at
                               least PREFIX_INDEX_BYTES_MIN */
    bool evicts;            /* when it is full, cold blocks leave; else what is
                               new is not indexed */
    uint64_t max_pairs; /* (instance, block) pairs that there can be at once:
                           the table is no larger than they need, and
                           faster for it; 0: any number */
    bool grows;         /* the table is small at first, up to 262,144 blocks,
                           and doubles: at once, some 40 ns a block, and so for
                           simulations. One that would be no more than twice as
                           large has its full size at once */
    uint64_t seed;      /* of its hashing: random where strangers choose
                           keys */
};
#define PREFIX_INDEX_BYTES_MIN 16384u

struct prefix_index_stats {
    uint64_t keys;      /* distinct blocks in the table, dead ones among them */
    uint64_t holders;   /* (instance, block) pairs indexed */
    uint64_t unindexed; /* pairs that were reported and had no room */
    uint64_t evicted;   /* pairs that left to make room, ever */
    uint64_t pages;     /* pages of keys in use */
    uint64_t bytes;     /* memory in use by these; grows and shrinks */
    uint64_t bytes_max; /* what is reserved */
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

/* Touches another huge page of the table, 2 MiB, which takes some 0.3 ms: else
 * the first events do so, many of them in one turn of a loop. Returns whether
 * there are more. */
bool prefix_index_touch(struct prefix_index *index);

/* Frees the index. NULL is a no-op. */
void prefix_index_free(struct prefix_index *index);

/*
 * The most blocks that may be indexed of one instance; UINT64_MAX at first.
 * What is above it is not indexed, and counted. A block in several tiers takes
 * one. A lower quota drops nothing.
 */
void prefix_index_set_quota(struct prefix_index *index, uint32_t instance,
                            uint64_t max_blocks);

/*
 * An instance stored a chain: keys[0] behind parent_key, keys[i] behind
 * keys[i-1]. Repeating an event changes nothing.
 *   parent_key  key of the block before keys[0], 0 for a prompt's first block:
 *               where to put new blocks, if it is known.
 *   keys        (n), borrowed.
 * Returns 0, or -EINVAL: instance, tier or a key out of range; the blocks
 * before that key are indexed, or -ENOSPC: some were not indexed, since the
 * instance's quota or the memory is used up.
 * Cost: O(n), one probe for a page of 16 known blocks, one for each new block.
 */
[[nodiscard]] int prefix_index_stored(struct prefix_index *index,
                                      uint32_t instance, enum block_tier tier,
                                      uint64_t parent_key, const uint64_t *keys,
                                      size_t n);

/* What looking for room has cost until now, in blocks whose storing takes as
 * long: in a full index one event may cost as much as some 580 of them, 512 for
 * its looks, and what the last one changes in a page or takes to begin a round.
 */
uint64_t prefix_index_room_cost(const struct prefix_index *index);

/* Brings nearer what is looked at when these are stored or removed: for blocks
 * that do not come in one event. Changes nothing. */
void prefix_index_prefetch(const struct prefix_index *index,
                           const uint64_t *keys, size_t n);

/*
 * An instance dropped blocks from a tier. Dropping what it does not hold
 * changes nothing.
 *   keys  (n), borrowed, in any sequence; runs of a chain are fastest.
 * Returns 0, or -EINVAL: instance or tier out of range.
 */
[[nodiscard]] int prefix_index_removed(struct prefix_index *index,
                                       uint32_t instance, enum block_tier tier,
                                       const uint64_t *keys, size_t n);

/*
 * An instance lost all its blocks in all tiers, or goes away. Its number may
 * be used for another instance at once.
 * Cost: O(1); what it leaves behind is removed by prefix_index_work(). What is
 * stored after eight clears whose remains were not removed yet is not indexed,
 * nor is it after two, if others have cleared as often by then.
 */
void prefix_index_cleared(struct prefix_index *index, uint32_t instance);

/*
 * Goes on with removing what cleared instances left.
 *   max_pages  that nothing leaves; a page that changes counts as 128 of them,
 *              and four records as one. 16,384 take about 200 us.
 * Returns whether there is more to do.
 */
bool prefix_index_work(struct prefix_index *index, uint32_t max_pages);

/*
 * Whether blocks of an instance (below max_instances) were reported and not
 * indexed, for which there would be room by now: it should be asked for its
 * inventory.
 */
bool prefix_index_incomplete(const struct prefix_index *index,
                             uint32_t instance);

/* An instance (below max_instances) begins to report all that it holds, once
 * more and without a clear: its unindexed blocks are counted anew. */
void prefix_index_told_again(struct prefix_index *index, uint32_t instance);

/* That inventory is over, or given up: then what was unindexed before it counts
 * besides what had no room since. */
void prefix_index_told(struct prefix_index *index, uint32_t instance,
                       bool whole);

/* Blocks of an instance (below max_instances) that were reported, were not
 * removed, and are not indexed. A block that is reported twice counts twice, as
 * does one that was evicted from two tiers. */
uint64_t prefix_index_unindexed(const struct prefix_index *index,
                                uint32_t instance);

/* A stretch of a prompt's blocks that instances hold in the same tiers.
 * Instances with the same runs up to here share them. */
struct prefix_run {
    uint32_t first_block;
    uint32_t end_block;
    uint32_t before; /* the run in prefix_match.runs before it; 0: none */
    uint8_t tiers;   /* BLOCK_TIER_BIT()s, at least one */
    uint8_t n_runs;  /* this one and those before it */
};

/* Runs told for one instance; what follows is left out of the match. */
#define PREFIX_RUNS_MAX 16u

/* What all instances hold of one prompt. */
struct prefix_match {
    uint32_t *blocks;        /* (max_instances): leading blocks, in any tier */
    uint32_t *last_run;      /* (max_instances): in runs; 0 with blocks 0 */
    struct prefix_run *runs; /* (n_runs), runs[0] all 0 */
    uint32_t n_runs;
    uint32_t *holders; /* (n_holders): instances with blocks above 0, in no
                          order */
    uint32_t n_holders;
    uint32_t n_keys; /* of the prompt */
    /* Scratch of prefix_index_match(). */
    uint32_t max_instances;
    uint64_t *alive;
    struct prefix_alive *alive_as;
};

/* Room for the answers of an index with that many instances. Returns 0 or
 * -ENOMEM. prefix_match_fini() frees it; a zeroed one is fine. */
[[nodiscard]] int prefix_match_init(struct prefix_match *match,
                                    uint32_t max_instances);
void prefix_match_fini(struct prefix_match *match);

/*
 * For every instance, how many leading blocks of a prompt it holds, and in
 * which tiers.
 *   keys   (n), borrowed; n below 2^32.
 *   match  of prefix_match_init() for at least as many instances; written.
 * Cost: one probe for each page of 16 blocks as far as anybody matches, none
 * where a chain's pages stand one behind the other; the holders of a page only
 * where they, or their tiers, change.
 */
void prefix_index_match(struct prefix_index *index, const uint64_t *keys,
                        size_t n, struct prefix_match *match);

/*
 * An instance can also read what another one of the index's holds, a store that
 * several share: where it holds less of the prompt it goes on there, as if it
 * was a tier of its own.
 *   instance, store  below max_instances; they differ.
 */
void prefix_match_share(struct prefix_match *match, uint32_t instance,
                        uint32_t store, enum block_tier tier);

/* The tiers in which an instance holds a block, BLOCK_TIER_BIT()s. */
unsigned prefix_index_tiers(const struct prefix_index *index, uint32_t instance,
                            uint64_t key);

/* Blocks that are indexed of an instance; 0 for one out of range. */
uint64_t prefix_index_held(const struct prefix_index *index, uint32_t instance);

/* The bound of instances. */
uint32_t prefix_index_max_instances(const struct prefix_index *index);

/* Counts for metrics. */
struct prefix_index_stats prefix_index_stats(const struct prefix_index *index);

/*
 * Checks every invariant at the top of pages.h. For tests.
 * Returns true if all hold. Cost: O(keys * holders).
 */
bool prefix_index_check(const struct prefix_index *index);

#endif
