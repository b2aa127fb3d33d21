/*
 * Makes traces: of workloads whose statistics match the Mooncake paper's
 * (workloads.c), and of kinds of sessions (kinds.c). How the numbers were found
 * is in DESIGN.md. Integers only: a seed gives the same bytes on every machine.
 */
#ifndef TRACES_GENERATE_H
#define TRACES_GENERATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "traces/trace.h"

/* A workload, and what its requests have in the mean: of the paper's what the
 * paper says (FAST'25), of others what was measured. */
struct trace_workload_facts {
    const char *name;
    uint64_t requests; /* of a trace if nothing is said */
    double input_tokens_mean;
    double output_tokens_mean;
    double hit_ratio; /* of tokens, infinite cache */
    double rate;      /* requests per second that we replay it at */
    /* Sessions have a clock of their own: a rate scales when they start, and
     * not the gaps within them. Until as many end as start, the rate grows. */
    bool sessions;
};

/* The i-th workload, or NULL behind the last one. Static data. */
const struct trace_workload_facts *trace_workload_facts(size_t i);

struct trace_generator;

/*
 * A generator of the named workload. `rate`: requests per second once as many
 * sessions end as start, 0 for the workload's own. Returns 0 with *generator
 * owned by the caller; -ENOENT for an unknown name, -ERANGE for a rate below
 * 1e-6 or above 1e6 (but 0), -ENOMEM.
 */
[[nodiscard]] int trace_generator_new(const char *workload, uint64_t seed,
                                      double rate,
                                      struct trace_generator **generator);

/* Frees it; NULL is a no-op. */
void trace_generator_free(struct trace_generator *generator);

/*
 * Writes the next request into `request` ({0} or one filled before). There is
 * no last one. Memory stays bounded: old sessions are forgotten. Returns 0 or
 * -ENOMEM. O(blocks + remembered sessions).
 */
[[nodiscard]] int trace_generator_next(struct trace_generator *generator,
                                       struct trace_request *request);

#endif
