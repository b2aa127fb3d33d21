/* The correction of an instance: the smoothed ratio of observed to predicted
 * time. A slow, shared or throttled machine shows in it, and its predictions
 * follow. Pure.
 *
 * A completion counts by the work that it stands for. With a fixed share each,
 * the many short prompts, which say least, would count most.
 *
 * Invariant: 0 < min_ratio <= ratio <= max_ratio, all finite.
 */
#ifndef PREDICTOR_CORRECTION_H
#define PREDICTOR_CORRECTION_H

#include <math.h>
#include <stdint.h>

#define CORRECTION_NOISE 0.03
#define CORRECTION_SUMS 30.0
/* What was learned counts in full from this share of all that can be on. */
#define CORRECTION_KNOWN 0.2

/* Plain data; set it up with correction_init(). */
struct correction {
    double ratio; /* observed to predicted, smoothed */
    /* Corrected predictions are compared with what was observed in sums of at
     * least tau_us / CORRECTION_SUMS each: */
    double sum_predicted_us; /* of the sum under way */
    double sum_observed_us;
    double square;    /* of what sums were off by, as a part of what was
                         predicted, smoothed; 0 at first */
    double known;     /* share of square's weight that was observed: the rest
                         of it is the 0 that it began with */
    int64_t tau_us;   /* predicted work that counts for 1 - 1/e, above 0 */
    double min_ratio; /* bounds of each observation, so of the ratio too */
    double max_ratio;
};

/* Sets the ratio to 1 (or to the bound nearest to 1). `tau_us` is the predicted
 * work after which 1 - 1/e of the ratio is what was observed in it, above 0;
 * the bounds are finite and satisfy 0 < min_ratio <= max_ratio. Returns 0, or
 * -EINVAL with `c` untouched. */
[[nodiscard]] int correction_init(struct correction *c, int64_t tau_us,
                                  double min_ratio, double max_ratio);

/* Takes in one completion: the time that the cost model alone predicted (that
 * is, without correction) and the time it took, in microseconds.
 *   ratio += (1 - exp(-predicted / tau)) * (clamp(observed / predicted) -
 * ratio), and square and known likewise. A pair with predicted < 1 or observed
 * < 0 says nothing and is ignored. */
void correction_observe(struct correction *c, int64_t predicted_us,
                        int64_t observed_us);

/* Moves the ratio back towards 1, within the bounds, for an instance that got
 * no work while each other instance like it got `work_us`: old observations
 * count less and less. It forgets at half the rate at which it learns. */
void correction_forget(struct correction *c, int64_t work_us);

/* What predictions are multiplied by: the ratio, but 1 as long as it is within
 * CORRECTION_NOISE of 1. So close to 1 it says more about the last completions
 * than about the machine, and equal instances would look different by chance.
 */
static inline double correction_factor(const struct correction *c)
{
    return fabs(c->ratio - 1.0) <= CORRECTION_NOISE ? 1.0 : c->ratio;
}

/* How far observations are from corrected predictions: the standard deviation
 * of sums of them, as a part of these. Not too small while little is known, but
 * for the first few sums: one slow begin is no rule. */
static inline double correction_spread(const struct correction *c)
{
    return sqrt(c->square / fmax(c->known, CORRECTION_KNOWN));
}

/* The predicted work, in microseconds, in each of these sums, at least. */
static inline double correction_sum_us(const struct correction *c)
{
    return (double)c->tau_us / CORRECTION_SUMS;
}

/* The predicted time times the factor, in microseconds, rounded to nearest and
 * clamped to 0 .. INT64_MAX / 4, so that a few of them can be added. */
int64_t correction_apply_us(const struct correction *c, int64_t predicted_us);

#endif
