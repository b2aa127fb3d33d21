/* Mean, median and 90th percentile of a TTFT. See forecast.h. */
#include "conductor/core/observation/forecast.h"

#include <string.h>

/* Largest ratio kept: a machine that stood still for an hour says nothing of
 * the next request. */
#define RATIO_MAX 1000.0f

static uint32_t octave_of(int64_t us)
{
    uint32_t octave = 0;

    while (us > 1 && octave < FORECAST_OCTAVES - 1) {
        us /= 2;
        octave++;
    }
    return octave;
}

/* The first place in sorted[0..n) that is not below `ratio`. */
static uint32_t place_of(const struct forecast_ratios *r, uint32_t n,
                         float ratio)
{
    uint32_t at = 0;

    while (at < n && r->sorted[at] < ratio)
        at++;
    return at;
}

static void forget_oldest(struct forecast_ratios *r)
{
    uint32_t at = place_of(r, r->n, r->by_age[r->next]);

    r->n--;
    memmove(&r->sorted[at], &r->sorted[at + 1],
            (r->n - at) * sizeof(r->sorted[0]));
}

static void keep(struct forecast_ratios *r, float ratio, int64_t estimated_us)
{
    double came_us = 0.0, sum_us = 0.0;
    uint32_t at;

    if (r->n == FORECAST_LAST)
        forget_oldest(r);
    at = place_of(r, r->n, ratio);
    memmove(&r->sorted[at + 1], &r->sorted[at],
            (r->n - at) * sizeof(r->sorted[0]));
    r->sorted[at] = ratio;
    r->by_age[r->next] = ratio;
    r->estimated_us[r->next] = (float)estimated_us;
    r->next = (r->next + 1) % FORECAST_LAST;
    r->n++;
    for (uint32_t i = 0; i < r->n; i++) {
        came_us += (double)r->by_age[i] * (double)r->estimated_us[i];
        sum_us += (double)r->estimated_us[i];
    }
    r->mean = came_us / sum_us;
}

/* More than a float's rounding: a time that repeats exactly is not above it. */
#define ROUNDING 1e-6

/* The ratio that the next one is expected not to exceed n times in ten: it may
 * rank anywhere among the kept ones. */
static double tenths(const struct forecast_ratios *r, uint32_t n)
{
    uint32_t place = (n * (r->n + 1) + 9) / 10;

    return (double)r->sorted[(place < r->n ? place : r->n) - 1] *
           (1.0 + ROUNDING);
}

static int64_t times(int64_t us, double ratio)
{
    double product = (double)us * ratio + 0.5;

    return product < (double)(INT64_MAX / 4) ? (int64_t)product : INT64_MAX / 4;
}

struct forecast forecast_make(const struct forecasts *known, int64_t known_us,
                              int64_t estimated_us)
{
    const struct forecast_ratios *r = &known->octaves[octave_of(estimated_us)];
    struct forecast f = {.known_us = known_us,
                         .estimated_us = estimated_us,
                         .ttft_us = known_us + estimated_us};

    if (r->n < FORECAST_LEAST)
        r = &known->all;
    if (r->n < FORECAST_LEAST)
        return f;
    f.ttft_us = known_us + times(estimated_us, r->mean);
    f.p50_us = known_us + times(estimated_us, tenths(r, 5));
    f.p90_us = known_us + times(estimated_us, tenths(r, 9));
    return f;
}

void forecast_came(struct forecasts *known, const struct forecast *forecast,
                   int64_t ttft_us)
{
    int64_t us = ttft_us - forecast->known_us;
    float ratio;

    if (forecast->estimated_us <= 0)
        return;
    ratio = us > 0 ? (float)((double)us / (double)forecast->estimated_us) : 0;
    if (ratio > RATIO_MAX)
        ratio = RATIO_MAX;
    keep(&known->octaves[octave_of(forecast->estimated_us)], ratio,
         forecast->estimated_us);
    keep(&known->all, ratio, forecast->estimated_us);
}
