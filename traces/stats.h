/*
 * What one infinite cache would reuse: the best that any cluster can do on a
 * trace, and the measure of a generated trace.
 */
#ifndef TRACES_STATS_H
#define TRACES_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "traces/trace.h"

struct trace_totals {
    uint64_t requests;
    uint64_t input_tokens;
    uint64_t output_tokens;
    uint64_t reused_tokens;
    uint64_t blocks; /* the partial last ones count */
    uint64_t reused_blocks;
    int64_t first_arrival_us;
    int64_t last_arrival_us;
};

struct trace_stats;

/*
 * Counts in blocks of `block_tokens`, at least 1. `with_partial`: a last block
 * that isn't full can be reused too, with the tokens it has (the convention of
 * the published numbers); otherwise only full blocks can, which is what an
 * engine does. Remembers every id, without a bound: 24 to 48 bytes each.
 * Returns owned, or NULL without memory.
 */
[[nodiscard]] struct trace_stats *trace_stats_new(uint32_t block_tokens,
                                                  bool with_partial);

/* Frees it; NULL is a no-op. */
void trace_stats_free(struct trace_stats *stats);

/*
 * Adds the next request (borrowed; lengths in the same scale as block_tokens):
 * its leading blocks that were seen before count as reused, then all its
 * blocks are seen. Returns 0 or -ENOMEM. O(blocks).
 */
[[nodiscard]] int trace_stats_add(struct trace_stats *stats,
                                  const struct trace_request *request);

/* The tokens of a request that would count as reused now. O(blocks). */
uint64_t trace_stats_reusable(const struct trace_stats *stats,
                              const struct trace_request *request);

/* The sums so far, borrowed. */
const struct trace_totals *trace_stats_totals(const struct trace_stats *stats);

/* reused_tokens / input_tokens, 0 when there are none. */
double trace_totals_hit_ratio(const struct trace_totals *totals);

#endif
