#include "conductor/core/index/block_cut.h"

#include "conductor/core/index/block_key.h"

bool block_cuts(uint32_t engine_tokens, uint32_t index_tokens)
{
    bool more = engine_tokens > index_tokens;
    uint32_t large = more ? engine_tokens : index_tokens;
    uint32_t small = more ? index_tokens : engine_tokens;

    return small > 0 && large % small == 0 && large / small <= BLOCK_CUTS_MAX;
}

uint32_t block_cut_join(uint32_t index_tokens, uint32_t engine_tokens)
{
    uint32_t a = index_tokens, b = engine_tokens;

    if (a < BLOCK_TOKENS_MIN || b < BLOCK_TOKENS_MIN)
        return a > b ? a : b;
    while (b > 0) {
        uint32_t rest = a % b;

        a = b;
        b = rest;
    }
    return a >= BLOCK_TOKENS_MIN ? a : 0;
}
