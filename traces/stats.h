/*
 * The reuse of one infinite cache: the upper bound for any cluster on a trace,
 * and a measure of generated traces.
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
    uint64_t blocks; /* partial last blocks included */
    uint64_t reused_blocks;
    int64_t first_arrival_us;
    int64_t last_arrival_us;
};

struct trace_stats;

/*
 * Makes a count in blocks of `block_tokens`, at least 1. `with_partial`: a
 * partial last block can be reused, too (the convention of the published
 * numbers); otherwise only full blocks, as in an engine. Remembers every id,
 * unbounded: 24 to 48 bytes each. Returns owned, or NULL: out of memory.
 */
[[nodiscard]] struct trace_stats *trace_stats_new(uint32_t block_tokens,
                                                  bool with_partial);

/* Frees a count; NULL is a no-op. */
void trace_stats_free(struct trace_stats *stats);

/*
 * Adds the next request (borrowed; lengths in the same scale as block_tokens):
 * its leading blocks that were seen before count as reused; all its blocks are
 * then marked as seen. Returns 0 or -ENOMEM. O(blocks).
 */
[[nodiscard]] int trace_stats_add(struct trace_stats *stats,
                                  const struct trace_request *request);

/* Returns the tokens of a request that would count as reused now.
 * O(blocks). */
uint64_t trace_stats_reusable(const struct trace_stats *stats,
                              const struct trace_request *request);

/* Returns the sums so far, borrowed. */
const struct trace_totals *trace_stats_totals(const struct trace_stats *stats);

/* Returns reused_tokens / input_tokens, 0 without input. */
double trace_totals_hit_ratio(const struct trace_totals *totals);

#endif
