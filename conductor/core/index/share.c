/* What all instances can read from a store that they share. A store that has a
 * block in the midst of what an instance holds fills no hole there: engines
 * drop the ends of prompts first. */
#include "conductor/core/index/prefix_index.h"

void prefix_match_share(struct prefix_match *match, uint32_t n, uint32_t store,
                        enum block_tier tier)
{
    uint32_t end = match->blocks[store];

    for (uint32_t i = 0; i < n; i++) {
        uint32_t before = match->last_run[i];

        if (match->blocks[i] >= end ||
            match->runs[before].n_runs == PREFIX_RUNS_MAX)
            continue;
        match->runs[match->n_runs] = (struct prefix_run){
            .first_block = match->blocks[i],
            .end_block = end,
            .before = before,
            .tiers = (uint8_t)BLOCK_TIER_BIT(tier),
            .n_runs = (uint8_t)(match->runs[before].n_runs + 1),
        };
        match->last_run[i] = match->n_runs++;
        if (match->blocks[i] == 0)
            match->holders[match->n_holders++] = i;
        match->blocks[i] = end;
    }
}
