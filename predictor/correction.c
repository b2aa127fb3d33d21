/* The smoothed ratio of observed to predicted time. See correction.h. */
#include "predictor/correction.h"

#include <errno.h>
#include <math.h>

static double clamp(double x, double low, double high)
{
    if (x < low)
        return low;
    return x > high ? high : x;
}

int correction_init(struct correction *c, double smoothing, double min_ratio,
                    double max_ratio)
{
    if (!(smoothing > 0.0 && smoothing <= 1.0))
        return -EINVAL;
    if (!(min_ratio > 0.0 && min_ratio <= max_ratio && isfinite(max_ratio)))
        return -EINVAL;
    *c = (struct correction){
        .ratio = clamp(1.0, min_ratio, max_ratio),
        .smoothing = smoothing,
        .min_ratio = min_ratio,
        .max_ratio = max_ratio,
    };
    return 0;
}

void correction_observe(struct correction *c, int64_t predicted_us,
                        int64_t observed_us)
{
    if (predicted_us < 1 || observed_us < 0)
        return;
    double seen = clamp((double)observed_us / (double)predicted_us,
                        c->min_ratio, c->max_ratio);
    /* The second clamp only takes off what rounding may add. */
    c->ratio = clamp(c->ratio + c->smoothing * (seen - c->ratio), c->min_ratio,
                     c->max_ratio);
    if (c->observations < INT64_MAX)
        c->observations++;
}

void correction_forget(struct correction *c, double share)
{
    c->ratio =
        clamp(c->ratio + share * (1.0 - c->ratio), c->min_ratio, c->max_ratio);
}

double correction_factor(const struct correction *c)
{
    return fabs(c->ratio - 1.0) <= CORRECTION_NOISE ? 1.0 : c->ratio;
}

int64_t correction_apply_us(const struct correction *c, int64_t predicted_us)
{
    const int64_t most_us = INT64_MAX / 4;
    double factor = correction_factor(c);

    if (predicted_us <= 0)
        return 0;
    if (factor == 1.0) /* as long as predictions hold; saves the rounding */
        return predicted_us < most_us ? predicted_us : most_us;
    double us = (double)predicted_us * factor;
    if (!(us < (double)most_us))
        return most_us;
    return (int64_t)llround(us);
}
