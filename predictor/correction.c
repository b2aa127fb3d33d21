/* Smooths the ratio of observed to predicted time. See correction.h. */
#include "predictor/correction.h"

#include <errno.h>
#include <math.h>

static double clamp(double x, double low, double high)
{
    if (x < low)
        return low;
    return x > high ? high : x;
}

int correction_init(struct correction *c, int64_t tau_us, double min_ratio,
                    double max_ratio)
{
    if (tau_us < 1 ||
        !(min_ratio > 0.0 && min_ratio <= max_ratio && isfinite(max_ratio)))
        return -EINVAL;
    *c = (struct correction){
        .ratio = clamp(1.0, min_ratio, max_ratio),
        .tau_us = tau_us,
        .min_ratio = min_ratio,
        .max_ratio = max_ratio,
    };
    return 0;
}

/* Returns the weight of an observation of `work_us`, in [0, 1]. */
static double weight_of(const struct correction *c, int64_t work_us)
{
    return 1.0 - exp(-(double)work_us / (double)c->tau_us);
}

static void approach(struct correction *c, double target, double weight)
{
    /* The clamp removes only rounding errors. */
    c->ratio = clamp(c->ratio + weight * (target - c->ratio), c->min_ratio,
                     c->max_ratio);
}

/* Prompts that share steps split their time arbitrarily, which matters little
 * in a sum. */
static void add_to_sum(struct correction *c, double predicted_us, double seen)
{
    double off, weight;

    c->sum_predicted_us += predicted_us * c->ratio;
    c->sum_observed_us += predicted_us * seen;
    if (c->sum_predicted_us < correction_sum_us(c))
        return;
    off = c->sum_observed_us / c->sum_predicted_us - 1.0;
    weight = weight_of(c, (int64_t)c->sum_predicted_us);
    c->square += weight * (off * off - c->square);
    c->known += weight * (1.0 - c->known);
    c->sum_predicted_us = 0.0;
    c->sum_observed_us = 0.0;
}

void correction_observe(struct correction *c, int64_t predicted_us,
                        int64_t observed_us)
{
    double seen;

    if (predicted_us < 1 || observed_us < 0)
        return;
    seen = clamp((double)observed_us / (double)predicted_us, c->min_ratio,
                 c->max_ratio);
    add_to_sum(c, (double)predicted_us, seen);
    approach(c, seen, weight_of(c, predicted_us));
}

void correction_forget(struct correction *c, int64_t work_us)
{
    if (work_us > 0)
        approach(c, 1.0, weight_of(c, work_us) / 2.0);
}

int64_t correction_apply_us(const struct correction *c, int64_t predicted_us)
{
    const int64_t most_us = INT64_MAX / 4;
    double factor = correction_factor(c);

    if (predicted_us <= 0)
        return 0;
    if (factor == 1.0) /* the usual case, without rounding */
        return predicted_us < most_us ? predicted_us : most_us;
    double us = (double)predicted_us * factor;
    if (!(us < (double)most_us))
        return most_us;
    return (int64_t)llround(us);
}
