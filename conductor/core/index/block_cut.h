/*
 * Block sizes that fit together: engines of one model may have blocks of
 * different sizes, and the model's index has one. Sizes are tokens per block.
 */
#ifndef CONDUCTOR_CORE_INDEX_BLOCK_CUT_H
#define CONDUCTOR_CORE_INDEX_BLOCK_CUT_H

#include <stdbool.h>
#include <stdint.h>

#define BLOCK_CUTS_MAX 512u

/* Returns whether an engine's blocks can be cut for an index: one size is a
 * multiple of the other, by at most BLOCK_CUTS_MAX. */
bool block_cuts(uint32_t engine_tokens, uint32_t index_tokens);

/*
 * Joins an engine to an index: returns the largest block size that divides both
 * sizes, so that no cached block is lost. An engine size below BLOCK_TOKENS_MIN
 * does not make it smaller, since an index with one token per block would have
 * 16 times as many blocks as one with 16.
 *   index_tokens  size for the engines joined so far, in any order; 0 = none.
 * Returns 0 if both sizes are at least BLOCK_TOKENS_MIN and the result is not.
 * After the last engine, ask block_cuts() for each of them.
 */
uint32_t block_cut_join(uint32_t index_tokens, uint32_t engine_tokens);

#endif
