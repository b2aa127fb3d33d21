/*
 * Facts of a trace that a simulation needs in advance: an infinite cache's hit
 * ratio, and the most used blocks. One pass over the file, in bounded memory.
 */
#ifndef TOOLS_REPLAY_SIMULATE_FACTS_H
#define TOOLS_REPLAY_SIMULATE_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "traces/trace.h"

/* Most block ids counted, 24 to 48 bytes each. Later new ids are not ranked,
 * and the best ratio is then unknown. */
#define REPLAY_FACTS_IDS_MAX ((size_t)4 << 20)

/* Ranks whose copies are counted: those of the Mooncake paper's figure 11, and
 * rank 1. */
#define REPLAY_RANKS 5
extern const uint64_t replay_ranks[REPLAY_RANKS];

struct replay_facts {
    double best_possible_hit_ratio; /* in tokens; below 0 = unknown */
    uint64_t ranked[REPLAY_RANKS];  /* block ids */
    uint64_t references[REPLAY_RANKS];
    size_t n_ranked; /* fewer than REPLAY_RANKS if there are few blocks */
};

struct replay_counter;

/* Creates a counter of blocks of block_tokens, at least 1. `with_partial`: a
 * partial last block, and a whole prompt, can be reused; else a prompt's last
 * token is always computed, as in engines. Returns it, owned, or NULL when out
 * of memory. */
[[nodiscard]] struct replay_counter *replay_counter_new(uint32_t block_tokens,
                                                        bool with_partial);

/* Frees a counter; NULL is a no-op. */
void replay_counter_free(struct replay_counter *counter);

/* Counts the next request (borrowed). Returns 0 or -ENOMEM. O(blocks). */
[[nodiscard]] int replay_counter_add(struct replay_counter *counter,
                                     const struct trace_request *request);

/* Fills in the facts so far. Equal counts are ranked by first appearance.
 * Returns 0 or -ENOMEM. O(ids log ids). */
[[nodiscard]] int replay_counter_facts(const struct replay_counter *counter,
                                       struct replay_facts *facts);

#endif
