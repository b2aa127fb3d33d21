/*
 * The parameters of each generated workload. Internal to traces/.
 */
#ifndef TRACES_WORKLOADS_H
#define TRACES_WORKLOADS_H

#include <stddef.h>
#include <stdint.h>

#include "traces/generate.h"
#include "traces/quantile.h"

struct trace_workload {
    struct trace_workload_facts facts;
    int64_t gap_us;              /* mean time between arrivals */
    int64_t tick_us;             /* arrivals are rounded down to multiples */
    uint32_t continue_per_mille; /* requests that continue a session */
    uint32_t branch_per_mille;  /* sessions with questions about one document */
    uint32_t popular_per_mille; /* sessions that start with a popular prefix */
    uint32_t popular_count;     /* popular prefixes; rank i has weight 1 / i */
    int64_t pause_us;           /* least time between the turns of a session */
    uint32_t input_max_tokens;
    struct quantile_table popular_blocks; /* length of a popular prefix */
    struct quantile_table first_tokens;   /* own part of a first prompt */
    struct quantile_table turn_tokens;    /* new tokens of a later turn */
    struct quantile_table output_tokens;
    /* The session that continues: 0 = the most recent one. */
    struct quantile_table recency;
};

/* Returns the i-th workload, or NULL after the last one. */
const struct trace_workload *trace_workload_at(size_t i);

#endif
