/*
 * The predicted cache of an instance that reports no block events: the blocks
 * of the prompts that were sent there, up to its capacity. The least recently
 * used block leaves first, and the last block of a prompt before its others, as
 * in vLLM: a block is of no use without its predecessors. Pure.
 *
 * It only keeps the order of use; the caller updates a prefix_index with the
 * keys it returns.
 */
#ifndef CONDUCTOR_CORE_INDEX_PREDICTED_H
#define CONDUCTOR_CORE_INDEX_PREDICTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PREDICTED_BLOCKS_MAX (1u << 28)

struct predicted;

/* Called for each block that leaves. */
typedef void predicted_evicted(void *arg, uint64_t key);

/*
 * Makes an empty cache. All of its memory, 24 bytes a block, is reserved here
 * (untouched pages cost nothing).
 *   capacity_blocks  1 .. PREDICTED_BLOCKS_MAX.
 *   seed             seed of the hash.
 * Returns the cache, owned, or NULL: out of memory or a bound out of range.
 */
[[nodiscard]] struct predicted *predicted_new(uint32_t capacity_blocks,
                                              uint64_t seed);

/* Frees the cache. NULL is a no-op. */
void predicted_free(struct predicted *p);

/*
 * Records a prompt that was sent: its blocks become the most recently used. Of
 * a prompt longer than the capacity only the first blocks are entered.
 *   keys     (n), borrowed, from block_keys_compute().
 *   had      written: how many leading keys were held before.
 *   evicted  called for each block that leaves; calls nothing of this header.
 * Returns how many leading keys are held now: the lesser of n and the capacity.
 * O(n).
 */
size_t predicted_use(struct predicted *p, const uint64_t *keys, size_t n,
                     size_t *had, predicted_evicted *evicted, void *arg);

/*
 * Removes wrongly predicted blocks. Keys that are not held are ignored.
 *   keys     (n), borrowed.
 *   evicted  called for each block that leaves, as in predicted_use().
 * O(n).
 */
void predicted_drop(struct predicted *p, const uint64_t *keys, size_t n,
                    predicted_evicted *evicted, void *arg);

/* Removes all blocks. O(held); does not touch unused pages. */
void predicted_clear(struct predicted *p);

/*
 * Changes the capacity (1 .. PREDICTED_BLOCKS_MAX). The least recently used
 * blocks that have no room leave, as in predicted_use().
 * Returns 0, or -ENOMEM with nothing changed. O(held).
 */
[[nodiscard]] int predicted_resize(struct predicted *p,
                                   uint32_t capacity_blocks,
                                   predicted_evicted *evicted, void *arg);

/* Returns the capacity in blocks. */
uint32_t predicted_capacity(const struct predicted *p);

/* Returns the number of blocks held. For tests. */
uint32_t predicted_held(const struct predicted *p);

/* Returns whether a block is held. */
bool predicted_has(const struct predicted *p, uint64_t key);

/* Checks the invariants at the top of predicted.c. For tests. */
bool predicted_check(const struct predicted *p);

#endif
