/*
 * What an instance that says nothing of its cache is assumed to hold: the
 * blocks of the prompts that were sent there, under its capacity, least
 * recently used ones leaving first. Of one prompt the last blocks leave first,
 * as in vLLM: a block without those before it is of no use. Pure.
 *
 * It keeps the order of use; its caller keeps a prefix_index by the keys that
 * come back.
 */
#ifndef CONDUCTOR_CORE_INDEX_PREDICTED_H
#define CONDUCTOR_CORE_INDEX_PREDICTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PREDICTED_BLOCKS_MAX (1u << 28)

struct predicted;

/* A block that left. */
typedef void predicted_evicted(void *arg, uint64_t key);

/*
 * Makes an empty cache. All of its memory, 24 bytes a block, is reserved here
 * (untouched pages cost nothing).
 *   capacity_blocks  1 .. PREDICTED_BLOCKS_MAX.
 *   seed             of its hashing.
 * Returns it owned, or NULL: out of memory or a bound out of range.
 */
[[nodiscard]] struct predicted *predicted_new(uint32_t capacity_blocks,
                                              uint64_t seed);

/* NULL is a no-op. */
void predicted_free(struct predicted *p);

/*
 * A prompt was sent: its blocks are there now, used more recently than all
 * others. Of a prompt that is longer than the capacity only the first blocks.
 *   keys     (n), borrowed, from block_keys_compute().
 *   had      written: how many leading keys were held before.
 *   evicted  called for each block that left; it calls nothing of this header.
 * Returns how many leading keys are held now: the lesser of n and the capacity.
 * O(n).
 */
size_t predicted_use(struct predicted *p, const uint64_t *keys, size_t n,
                     size_t *had, predicted_evicted *evicted, void *arg);

/*
 * Blocks that are not there after all: those of the n keys that it holds leave.
 *   evicted  called for each, as in predicted_use().
 * O(n).
 */
void predicted_drop(struct predicted *p, const uint64_t *keys, size_t n,
                    predicted_evicted *evicted, void *arg);

/* Forgets all of it. O(held); pages that were not touched stay so. */
void predicted_clear(struct predicted *p);

/*
 * Another capacity (1 .. PREDICTED_BLOCKS_MAX): what has no room in it leaves,
 * in the order of use, as in predicted_use().
 * Returns 0, or -ENOMEM with nothing changed. O(held).
 */
[[nodiscard]] int predicted_resize(struct predicted *p,
                                   uint32_t capacity_blocks,
                                   predicted_evicted *evicted, void *arg);

/* The most blocks that it holds. */
uint32_t predicted_capacity(const struct predicted *p);

/* Blocks held: tests see by it that nothing else is. */
uint32_t predicted_held(const struct predicted *p);

/* Whether it holds a block. */
bool predicted_has(const struct predicted *p, uint64_t key);

/* Checks the invariants at the top of predicted.c. For tests. */
bool predicted_check(const struct predicted *p);

#endif
