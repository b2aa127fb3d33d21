/* The statistics of all reports. Pure. */
#ifndef TOOLS_REPLAY_MATH_H
#define TOOLS_REPLAY_MATH_H

#include <stddef.h>
#include <stdint.h>

/* All zero when count is 0. */
struct replay_summary {
    size_t count;
    double mean;
    double p50;
    double p90;
    double p95;
    double p99;
    double max;
};

/* Sorts values[0 .. count) ascending. O(n log n). */
void replay_sort(double *values, size_t count);

/*
 * Returns the percentile at `share` (0 to 1) of ascending values, by linear
 * interpolation between the ranks around share * (count - 1); 0 without values.
 */
double replay_percentile(const double *sorted, size_t count, double share);

/* Sorts and summarises the values. O(n log n). */
struct replay_summary replay_summarise(double *values, size_t count);

/* Converts microseconds to seconds. */
static inline double replay_seconds(int64_t us)
{
    return (double)us / 1e6;
}

/* Returns part / whole, or 0 when whole is 0. */
double replay_ratio(uint64_t part, uint64_t whole);

/* Mean and percentiles of a stream of numbers in bounded memory. Exact up to
 * REPLAY_EXACT_MAX numbers; beyond, percentiles come from bins 0.1 to 0.2 %
 * wide (mean, maximum and count stay exact). */

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
