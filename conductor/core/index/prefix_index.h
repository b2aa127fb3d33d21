/*
 * Which instances hold which blocks, and how much of a prompt's prefix each
 * of them has. It takes the workers' block events and answers for all
 * instances at once. Its answers equal those of a linear scan over the
 * prompt's keys, whatever the order of the events and whatever the workers
 * claim; only the cost depends on them (see prefix_index_match).
 *
 * Instances are small numbers, the pool's slots. Keys come from block_key.h;
 * 0 stands for "no parent" and is not a key.
 */
#ifndef CONDUCTOR_CORE_INDEX_PREFIX_INDEX_H
#define CONDUCTOR_CORE_INDEX_PREFIX_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PREFIX_INDEX_INSTANCES_MAX 32768u

enum block_tier { TIER_DEVICE, TIER_HOST, TIER_DISK };
#define BLOCK_TIERS 3

struct prefix_index;

struct prefix_index_config {
    uint32_t max_instances; /* 1..PREFIX_INDEX_INSTANCES_MAX */
    uint32_t max_keys;      /* distinct blocks known at once, at least 1 */
    uint64_t max_shared;    /* holder records of blocks with several holders;
                               0 means 4 * max_keys */
    uint64_t seed;          /* of the index's own hashing */
};

struct prefix_index_stats {
    uint64_t keys;           /* distinct blocks known, ghosts among them */
    uint64_t ghosts;         /* known only as the parent of a held block */
    uint64_t holders;        /* (instance, block) pairs held */
    uint64_t bytes;          /* memory in use by these; grows and shrinks */
    uint64_t bytes_max;      /* what the bounds can make of it */
    uint32_t open_instances; /* instances with holes in their prefixes */
};

/* A stretch of a prompt's blocks in one best tier of one instance. */
struct prefix_run {
    uint32_t first_block;
    uint32_t n_blocks;
    enum block_tier tier;
};

/*
 * Makes an empty index. All of its memory is reserved here (untouched pages
 * cost nothing); no later call allocates.
 * Returns the index, owned by the caller, or NULL: out of memory or a bound
 * out of range.
 */
struct prefix_index *prefix_index_new(const struct prefix_index_config *config)
    __attribute__((warn_unused_result));

/* Frees the index. NULL is a no-op. */
void prefix_index_free(struct prefix_index *index);

/*
 * An instance stored a block. Repeating an event changes nothing.
 *   parent_key  key of the block before it, 0 for a prompt's first block. It
 *               need not be known yet: events may come in any order.
 * Returns 0, or, with nothing changed:
 *   -EINVAL  instance, tier or key out of range, or a block before itself
 *   -EEXIST  the block is known under another parent: a worker lies, or two
 *            prompts collide in 64 bits. Count it; the block is not usable.
 *   -ENOSPC  a bound of the configuration is reached
 * Cost: two hash probes and the holders of both blocks, logarithmic.
 */
int prefix_index_stored(struct prefix_index *index, uint32_t instance,
                        enum block_tier tier, uint64_t parent_key, uint64_t key)
    __attribute__((warn_unused_result));

/*
 * An instance stored a chain: keys[0] behind parent_key, keys[i] behind
 * keys[i-1]. Stops at the first block that fails.
 *   keys    (n), borrowed.
 *   n_done  blocks stored, written in every case; may be NULL. After an
 *           -EEXIST the caller may go on behind the failed block.
 * Returns 0 or the failed block's error, see prefix_index_stored().
 */
int prefix_index_stored_chain(struct prefix_index *index, uint32_t instance,
                              enum block_tier tier, uint64_t parent_key,
                              const uint64_t *keys, size_t n, size_t *n_done)
    __attribute__((warn_unused_result));

/*
 * An instance dropped a block from a tier. Dropping what it does not hold
 * changes nothing.
 * Returns 0, or -EINVAL: instance or tier out of range.
 */
int prefix_index_removed(struct prefix_index *index, uint32_t instance,
                         enum block_tier tier, uint64_t key)
    __attribute__((warn_unused_result));

/* The same for n keys in any sequence, borrowed; faster than one by one. */
int prefix_index_removed_keys(struct prefix_index *index, uint32_t instance,
                              enum block_tier tier, const uint64_t *keys,
                              size_t n) __attribute__((warn_unused_result));

/*
 * An instance lost all its blocks in all tiers, or goes away. Its number may
 * be used for another instance afterwards.
 * Cost: proportional to the keys ever known at once, until the last block of
 * the instance is found; nothing if it holds none.
 */
void prefix_index_cleared(struct prefix_index *index, uint32_t instance);

/*
 * For every instance, how many leading blocks of a prompt it holds, in any
 * tier.
 *   keys    (n), borrowed; n below 2^32.
 *   blocks  (max_instances), written: blocks[i] for instance i, 0..n.
 * Cost: for instances without holes O(log n) probes for the deepest known
 * block, then O(log n) for each depth at which a holder's prefix ends. If
 * some instance has holes, or a worker lied about a parent: one probe for
 * each block as far as such an instance reaches.
 */
void prefix_index_match(struct prefix_index *index, const uint64_t *keys,
                        size_t n, uint32_t *blocks);

/*
 * The leading blocks one instance holds, cut into runs of equal best tier
 * (device before host before disk).
 *   runs  (max_runs), written; neighbouring runs differ in tier.
 * Returns the number of runs written; the match may be longer than they
 * tell if max_runs is reached. Cost: one probe a block.
 */
size_t prefix_index_runs(const struct prefix_index *index, uint32_t instance,
                         const uint64_t *keys, size_t n,
                         struct prefix_run *runs, size_t max_runs);

/* The tiers in which an instance holds a block, bit 1 << tier; 0 if none. */
unsigned prefix_index_tiers(const struct prefix_index *index, uint32_t instance,
                            uint64_t key);

/* Blocks that an instance holds; 0 for one out of range. */
uint64_t prefix_index_held(const struct prefix_index *index, uint32_t instance);

/* The bound of instances, the length of prefix_index_match()'s result. */
uint32_t prefix_index_max_instances(const struct prefix_index *index);

/* Counts for metrics. */
struct prefix_index_stats prefix_index_stats(const struct prefix_index *index);

/*
 * Checks every invariant at the top of prefix_index.c. For tests.
 * Returns true if all hold. Cost: O(keys * holders).
 */
bool prefix_index_check(const struct prefix_index *index);

#endif
