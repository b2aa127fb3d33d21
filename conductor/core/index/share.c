/* A match that goes on in a shared store. Holes inside an instance's own blocks
 * are not filled from the store: engines drop the ends of prompts first. */
#include "conductor/core/index/prefix_index.h"

void prefix_match_share(struct prefix_match *match, uint32_t instance,
                        uint32_t store, enum block_tier tier)
{
    uint32_t end = match->blocks[store];
    uint32_t before = match->last_run[instance];

    if (match->blocks[instance] >= end ||
        match->runs[before].n_runs == PREFIX_RUNS_MAX)
        return;
    match->runs[match->n_runs] = (struct prefix_run){
        .first_block = match->blocks[instance],
        .end_block = end,
        .before = before,
        .tiers = (uint8_t)BLOCK_TIER_BIT(tier),
        .n_runs = (uint8_t)(match->runs[before].n_runs + 1),
    };
    match->last_run[instance] = match->n_runs++;
    if (match->blocks[instance] == 0)
        match->holders[match->n_holders++] = instance;
    match->blocks[instance] = end;
}
