/* Sends a trace through an infinite cache; see stats.h. */
#include "traces/stats.h"

#include <stdlib.h>

#include "traces/id_map.h"

struct trace_stats {
    struct id_map *seen;
    uint32_t block_tokens;
    bool with_partial;
    struct trace_totals totals;
};

struct trace_stats *trace_stats_new(uint32_t block_tokens, bool with_partial)
{
    struct trace_stats *stats = calloc(1, sizeof *stats);

    if (!stats)
        return NULL;
    stats->seen = id_map_new(SIZE_MAX);
    if (!stats->seen) {
        free(stats);
        return NULL;
    }
    stats->block_tokens = block_tokens;
    stats->with_partial = with_partial;
    return stats;
}

void trace_stats_free(struct trace_stats *stats)
{
    if (stats) {
        id_map_free(stats->seen);
        free(stats);
    }
}

/* Blocks of the request that can be reused. */
static size_t usable_blocks(const struct trace_stats *stats,
                            const struct trace_request *request)
{
    size_t full = request->input_tokens / stats->block_tokens;

    return !stats->with_partial && full < request->block_count
               ? full
               : request->block_count;
}

/* Leading usable blocks that were seen before. */
static size_t count_hits(const struct trace_stats *stats,
                         const struct trace_request *request)
{
    size_t usable = usable_blocks(stats, request);
    size_t hits = 0;

    while (hits < usable && id_map_get(stats->seen, request->hash_ids[hits]))
        hits++;
    return hits;
}

static uint64_t reused_tokens(const struct trace_stats *stats,
                              const struct trace_request *request, size_t hits)
{
    uint64_t reused = (uint64_t)hits * stats->block_tokens;

    return reused < request->input_tokens ? reused : request->input_tokens;
}

uint64_t trace_stats_reusable(const struct trace_stats *stats,
                              const struct trace_request *request)
{
    return reused_tokens(stats, request, count_hits(stats, request));
}

int trace_stats_add(struct trace_stats *stats,
                    const struct trace_request *request)
{
    size_t usable = usable_blocks(stats, request);
    size_t hits = count_hits(stats, request);

    for (size_t i = hits; i < usable; i++) {
        int rc = id_map_put(stats->seen, request->hash_ids[i], 0);

        if (rc != 0)
            return rc;
    }
    struct trace_totals *t = &stats->totals;
    if (t->requests == 0)
        t->first_arrival_us = request->arrival_us;
    t->last_arrival_us = request->arrival_us;
    t->requests++;
    t->input_tokens += request->input_tokens;
    t->output_tokens += request->output_tokens;
    t->reused_tokens += reused_tokens(stats, request, hits);
    t->blocks += request->block_count;
    t->reused_blocks += hits;
    return 0;
}

const struct trace_totals *trace_stats_totals(const struct trace_stats *stats)
{
    return &stats->totals;
}

double trace_totals_hit_ratio(const struct trace_totals *totals)
{
    return totals->input_tokens == 0
               ? 0.0
               : (double)totals->reused_tokens / (double)totals->input_tokens;
}
