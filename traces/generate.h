/*
 * Makes traces whose statistics match the Mooncake paper's workloads. What is
 * drawn and from where is in workloads.c; how the numbers were fitted is
 * in DESIGN.md. Integers only: a seed gives the same bytes on every machine.
 */
#ifndef TRACES_GENERATE_H
#define TRACES_GENERATE_H

#include <stddef.h>
#include <stdint.h>

#include "traces/trace.h"

/* A workload of the paper, and what the paper says about it (FAST'25). */
struct trace_workload_facts {
    const char *name;
    uint64_t requests;
    double input_tokens_mean;
    double output_tokens_mean;
    double hit_ratio; /* of tokens, infinite cache */
    double rate;      /* requests per second that we replay it at */
};

/* The i-th workload, or NULL behind the last one. Static data. */
const struct trace_workload_facts *trace_workload_facts(size_t i);

struct trace_generator;

/*
 * A generator of the named workload. `rate`: requests per second, 0 for the
 * workload's own. Returns 0 with *generator owned by the caller; -ENOENT for an
 * unknown name, -ERANGE for a rate below 1e-6 or above 1e6 (but 0), -ENOMEM.
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
