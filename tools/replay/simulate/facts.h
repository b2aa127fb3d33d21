/*
 * What a simulation must know of a trace before it begins: what an infinite
 * cache would reuse, and which blocks are asked for most often. One pass over
 * the file, in bounded memory.
 */
#ifndef TOOLS_REPLAY_SIMULATE_FACTS_H
#define TOOLS_REPLAY_SIMULATE_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "traces/trace.h"

/* Ids that are counted, 24 to 48 bytes each. Ids that come up only after so
 * many others are left out of the ranks, and there is no best ratio. */
#define REPLAY_FACTS_IDS_MAX ((size_t)4 << 20)

/* The ranks of which copies are counted, as in the Mooncake paper's figure 11
 * and with rank 1. */
#define REPLAY_RANKS 5
extern const uint64_t replay_ranks[REPLAY_RANKS];

struct replay_facts {
    double best_possible_hit_ratio; /* in tokens; below 0: unknown */
    uint64_t ranked[REPLAY_RANKS];  /* block ids */
    uint64_t references[REPLAY_RANKS];
    size_t n_ranked; /* fewer if there are fewer blocks */
};

struct replay_counter;

/* Counts in blocks of block_tokens, at least 1. `with_partial`: a partial last
 * block can be reused too, and a prompt as a whole; else its last token is
 * computed in any case, as engines do. Returns owned, or NULL without memory.
 */
[[nodiscard]] struct replay_counter *replay_counter_new(uint32_t block_tokens,
                                                        bool with_partial);

/* Frees it; NULL is a no-op. */
void replay_counter_free(struct replay_counter *counter);

/* Takes in the next request, borrowed. Returns 0 or -ENOMEM. O(blocks). */
[[nodiscard]] int replay_counter_add(struct replay_counter *counter,
                                     const struct trace_request *request);

/* The facts so far. Equal counts are ranked by first appearance. Returns 0 or
 * -ENOMEM. O(ids log ids). */
[[nodiscard]] int replay_counter_facts(const struct replay_counter *counter,
                                       struct replay_facts *facts);

#endif
