/*
 * Learns from a finished prefill: the speed of its engine, and of the link that
 * it loaded over. The daemon and the simulator report what they saw; this
 * module decides what counts. Pure.
 */
#ifndef CONDUCTOR_CORE_OBSERVATION_OBSERVATION_H
#define CONDUCTOR_CORE_OBSERVATION_OBSERVATION_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/core/pool/pool.h"

/* A prefill's computing, as planned and as it was. */
struct observation_prefill {
    int64_t predicted_us; /* of what was planned, by the cost model alone */
    int64_t model_us;     /* of what was computed in the end, likewise */
    int64_t engine_us;    /* time that it took, at least 0 */
    /* Layers of its KV were loaded while earlier ones computed: the engine
     * waited for some, for an unknown time, and may have computed more slowly
     * during the copying. The time depends on links as much as on the engine,
     * so it is ignored. */
    bool by_layer;
};

/*
 * Returns the time that the prefill would have taken for the planned work, so
 * that the correction compares like with like even if more or fewer blocks were
 * reused than expected. At most COST_MODEL_MAX_US if it is scaled; -1 =
 * unknown.
 */
int64_t observation_prefill_us(const struct observation_prefill *seen);

/* Loading KV blocks of one prefill, from one holder. */
struct observation_load {
    uint32_t holder;    /* pool id; POOL_NO_INSTANCE: several, or none */
    int64_t link_bytes; /* loaded over the holder's link */
    int64_t tier_bytes; /* read from a slow tier in addition */
    int64_t us;         /* from the first request to the last block */
};

/* Smooths the rate of the holder's link in; ignores loads that also read a slow
 * tier. Instances report the rates of their own tiers. */
void observation_load(struct pool *pool, const struct observation_load *seen);

/* Samples kept of the part of a TTFT outside queue and prefill. */
#define OBSERVATION_OVERHEADS 15
struct observation_overheads {
    int64_t us[OBSERVATION_OVERHEADS];
    uint64_t n; /* seen so far */
};

/*
 * Adds a sample, `seen_us`. Returns the value expected for the next request:
 * the samples' median, since one stall of the machine or one long prompt tells
 * nothing about the next request. A sample counts for at most 1 ms above or
 * below `expected_us` (the last returned value; 0 at first): nobody can make a
 * request look hopeless at once. Never below 0.
 */
int64_t observation_overhead(struct observation_overheads *seen,
                             int64_t expected_us, int64_t seen_us);

#endif
