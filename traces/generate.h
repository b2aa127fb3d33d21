/*
 * Makes traces: workloads whose statistics match the Mooncake paper's
 * (workloads.c), and workloads of sessions (kinds.c). DESIGN.md tells how the
 * numbers were found. Integers only: a seed gives the same bytes on every
 * machine.
 */
#ifndef TRACES_GENERATE_H
#define TRACES_GENERATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "traces/trace.h"

/* A workload and means of its requests: from the paper (FAST'25) for its
 * workloads, measured for the others. */
struct trace_workload_facts {
    const char *name;
    uint64_t requests; /* default length of a trace */
    double input_tokens_mean;
    double output_tokens_mean;
    double hit_ratio; /* share of prompt tokens, with an infinite cache */
    double rate;      /* default requests per second */
    /* The rate scales the starts of sessions, not the gaps within them. So the
     * request rate grows until as many sessions end as start. */
    bool sessions;
};

/* Returns the i-th workload, static, or NULL after the last one. */
const struct trace_workload_facts *trace_workload_facts(size_t i);

struct trace_generator;

/*
 * Makes a generator of the named workload. `rate`: requests per second once as
 * many sessions end as start; 0 = the workload's own. Returns 0 with *generator
 * owned by the caller; -ENOENT for an unknown name, -ERANGE for a rate other
 * than 0 below 1e-6 or above 1e6, -ENOMEM.
 */
[[nodiscard]] int trace_generator_new(const char *workload, uint64_t seed,
                                      double rate,
                                      struct trace_generator **generator);

/* Frees a generator; NULL is a no-op. */
void trace_generator_free(struct trace_generator *generator);

/*
 * Writes the next request into `request` ({0} or one filled before), without
 * end. Memory is bounded: old sessions are forgotten. Returns 0 or -ENOMEM.
 * O(blocks + remembered sessions).
 */
[[nodiscard]] int trace_generator_next(struct trace_generator *generator,
                                       struct trace_request *request);

#endif
