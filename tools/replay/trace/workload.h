/*
 * Statistics of a workload: one pass over a trace, then numbers, JSON and a
 * plot. For `stats`, and for code that needs them before a replay.
 */
#ifndef TOOLS_REPLAY_TRACE_WORKLOAD_H
#define TOOLS_REPLAY_TRACE_WORKLOAD_H

#include <jansson.h>

#include "tools/replay/math.h"
#include "tools/replay/trace/stream.h"
#include "traces/reuse.h"
#include "traces/stats.h"

struct replay_workload {
    struct trace_totals totals; /* infinite cache, partial blocks included */
    uint64_t block_tokens;
    uint64_t skipped_lines;
    double span_s;
    uint64_t arrival_times; /* distinct */
    uint64_t arrivals_at_once_max;
    struct replay_summary input_tokens;
    struct replay_summary output_tokens;
    uint64_t unique_blocks;
    uint64_t used_once_blocks;
    double first_block_share; /* share of requests with the most frequent first
                                 block */
    double gap_p50_s;
    double gap_p90_s;
    double best_block_ratio;
    double best_token_ratio;
    uint32_t *popularity;      /* (unique_blocks), most used first; owned */
    struct trace_reuse *reuse; /* owned */
};

/*
 * Reads the whole source, with progress on stderr. Returns 0 with *facts owned
 * by the caller; or a negative errno with a message in `error`: a trace without
 * requests is -EINVAL. O(blocks log blocks).
 */
[[nodiscard]] int
replay_workload_read(const struct replay_stream_options *source,
                     struct replay_workload **facts,
                     char error[REPLAY_STREAM_ERROR_BYTES]);

/* Frees the facts; NULL is a no-op. */
void replay_workload_free(struct replay_workload *facts);

/* Returns the block hit ratio of one LRU cache of this capacity, in whole
 * blocks. O(capacity). */
double replay_workload_lru_ratio(const struct replay_workload *facts,
                                 double capacity_tokens);

/* Returns all facts as JSON, with the LRU's hit ratio at mtokens[0 .. n)
 * millions of tokens: a new reference, or NULL when out of memory. */
[[nodiscard]] json_t *replay_workload_json(const struct replay_workload *facts,
                                           const double *mtokens, size_t n);

/* Writes an SVG: LRU hit ratio over capacity, popularity over rank, and the
 * distribution of reuse gaps. Returns 0 or a negative errno. */
[[nodiscard]] int replay_workload_plot(struct replay_workload *facts,
                                       const char *path);

#endif
