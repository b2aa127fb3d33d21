/*
 * Which sizes of blocks go together: engines of one model may have blocks of
 * different sizes, and the model's index has one. Sizes are tokens in a block.
 */
#ifndef CONDUCTOR_CORE_INDEX_BLOCK_CUT_H
#define CONDUCTOR_CORE_INDEX_BLOCK_CUT_H

#include <stdbool.h>
#include <stdint.h>

#define BLOCK_CUTS_MAX 512u

/* Whether an engine's blocks can be cut for an index: one of the sizes is so
 * many times the other, or less. */
bool block_cuts(uint32_t engine_tokens, uint32_t index_tokens);

/*
 * The size of the index of engines with blocks of these two sizes: the largest
 * that divides both, so that nothing is lost. Sizes below BLOCK_TOKENS_MIN do
 * not make it smaller: an index of one token a block is 16 times one of 16.
 *   index_tokens  of those before, in whatever order; 0: there are none.
 * Returns it; 0: it would be below BLOCK_TOKENS_MIN although both are not. The
 * engine's blocks may be ones that cannot be cut for it: ask block_cuts() of
 * all engines at last.
 */
uint32_t block_cut_join(uint32_t index_tokens, uint32_t engine_tokens);

#endif
