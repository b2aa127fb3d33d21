/* The correction of an instance: the smoothed ratio of observed to predicted
 * time. It adapts predictions to a slow, shared or throttled machine. Pure.
 *
 * A completion is weighted by its work. With equal weights the many short
 * prompts, the least informative ones, would count most.
 *
 * Invariant: 0 < min_ratio <= ratio <= max_ratio, all finite. */
#ifndef PREDICTOR_CORRECTION_H
#define PREDICTOR_CORRECTION_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define CORRECTION_NOISE 0.03
#define CORRECTION_SUMS 30.0
/* correction_spread() divides by at least this share of the full weight. */
#define CORRECTION_KNOWN 0.2

/* Plain data; set it up with correction_init(). */
struct correction {
    double ratio; /* observed to predicted, smoothed */
    /* Corrected predictions are compared with observations in sums of at least
     * tau_us / CORRECTION_SUMS each: */
    double sum_predicted_us; /* of the current sum */
    double sum_observed_us;
    double square; /* squared relative error of the sums, smoothed; 0 at
                      first */
    double known; /* observed share of `square`, 0 .. 1; the rest is its initial
                     0 */
    int64_t tau_us;   /* predicted work that counts for 1 - 1/e, above 0 */
    double min_ratio; /* bounds of each observation, so also of the ratio */
    double max_ratio;
};

/* Sets the ratio to 1 (or to the bound nearest to 1). `tau_us` > 0 is the
 * predicted work after which the ratio has moved 1 - 1/e of the way to what was
 * observed; the bounds are finite and satisfy 0 < min_ratio <= max_ratio.
 * Returns 0, or -EINVAL with `c` untouched. */
[[nodiscard]] int correction_init(struct correction *c, int64_t tau_us,
                                  double min_ratio, double max_ratio);

/* Adds a completion: the time predicted by the cost model alone (without
 * correction) and the time it took, in microseconds.
 *   ratio += w (clamp(observed / predicted) - ratio), w = 1 - exp(-predicted /
 *   tau), and square and known likewise with the sums' w
 * Ignores pairs with predicted < 1 or observed < 0. */
void correction_observe(struct correction *c, int64_t predicted_us,
                        int64_t observed_us);

/* Moves the ratio back towards 1, within the bounds, for an instance that got
 * no work while each similar instance got `work_us`. It forgets at half the
 * rate at which it learns. */
void correction_forget(struct correction *c, int64_t work_us);

/* Returns the factor for predictions: the ratio, or 1 if it is within
 * CORRECTION_NOISE of 1. Such a ratio reflects the last completions more than
 * the machine, and would make equal instances look different by chance. */
static inline double correction_factor(const struct correction *c)
{
    return fabs(c->ratio - 1.0) <= CORRECTION_NOISE ? 1.0 : c->ratio;
}

/* Returns whether anything was observed. */
static inline bool correction_knows(const struct correction *c)
{
    return c->known > 0.0 || c->sum_predicted_us > 0.0;
}

/* Returns the relative standard deviation of observed sums from corrected
 * predicted ones. Dividing by `known` makes up for the initial 0; the lower
 * bound keeps one slow first sum from counting in full. */
static inline double correction_spread(const struct correction *c)
{
    return sqrt(c->square / fmax(c->known, CORRECTION_KNOWN));
}

/* Returns the least predicted work in each of these sums, in microseconds. */
static inline double correction_sum_us(const struct correction *c)
{
    return (double)c->tau_us / CORRECTION_SUMS;
}

/* Returns the predicted time times the factor, in microseconds, rounded to
 * nearest and clamped to 0 .. INT64_MAX / 4, so that a few can be added. */
int64_t correction_apply_us(const struct correction *c, int64_t predicted_us);

#endif
