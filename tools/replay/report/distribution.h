/*
 * Mean and percentiles of a stream of numbers in bounded memory. Exact up to
 * REPLAY_EXACT_MAX numbers; beyond, percentiles come from bins 0.1 to 0.2 %
 * wide (mean, maximum and count stay exact). Pure.
 */
#ifndef TOOLS_REPLAY_REPORT_DISTRIBUTION_H
#define TOOLS_REPLAY_REPORT_DISTRIBUTION_H

#include <stddef.h>
#include <stdint.h>

#include "tools/replay/math.h"

#define REPLAY_EXACT_MAX ((size_t)1 << 20)

/* {0} is an empty distribution. */
struct replay_distribution {
    double *values; /* (capacity), exact; NULL once there are bins */
    size_t count;
    size_t capacity;
    uint64_t *bins;
    double sum;
    double max;
};

/* Frees what the distribution owns and empties it. */
void replay_distribution_fini(struct replay_distribution *d);

/* Adds x, at least 0. Returns 0 or -ENOMEM. O(1) amortised. */
[[nodiscard]] int replay_distribution_add(struct replay_distribution *d,
                                          double x);

/* Summarises the numbers as replay_summarise(). Reorders them. */
struct replay_summary
replay_distribution_summary(struct replay_distribution *d);

#endif
