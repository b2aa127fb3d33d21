/*
 * How sure a predicted TTFT is, by what came of predictions like it. An
 * estimate knows the queue as it is, but not the shorter prompts that will come
 * and go first, nor the cost model's error for one prompt. So the ratios of
 * actual to estimated times are remembered, and the next estimate is multiplied
 * by their mean, their median and their 90th percentile. Pure; of a fixed size.
 *
 * Estimates are alike if they are in one octave, which covers a request's wait
 * and its cost; the load is covered by keeping only the last FORECAST_LAST
 * ratios of an octave.
 *
 * Only the estimated part of a TTFT counts. The known part, such as the time
 * since arrival, is added as it is.
 *
 * Invariants, for each octave: sorted[0..n) holds the ratios by_age[0..n), in
 * ascending order; n <= FORECAST_LAST.
 */
#ifndef CONDUCTOR_CORE_OBSERVATION_FORECAST_H
#define CONDUCTOR_CORE_OBSERVATION_FORECAST_H

#include <stdint.h>

#define FORECAST_LAST 64u
/* Fewest ratios to predict from: an octave with fewer is predicted by all
 * octaves. */
#define FORECAST_LEAST 8u
#define FORECAST_OCTAVES 48u

/* The last ratios of one octave. */
struct forecast_ratios {
    float by_age[FORECAST_LAST];       /* a ring */
    float estimated_us[FORECAST_LAST]; /* likewise: their estimates */
    float sorted[FORECAST_LAST];
    uint32_t n;
    uint32_t next; /* index in the rings to write next */
    double mean;   /* sum of actual times / sum of estimates */
};

/* Zeroed = nothing is known. */
struct forecasts {
    struct forecast_ratios octaves[FORECAST_OCTAVES];
    struct forecast_ratios all;
};

/* One forecast of a TTFT, in microseconds from arrival on. Zeroed = none. */
struct forecast {
    int64_t known_us;     /* known part of the TTFT */
    int64_t estimated_us; /* the rest, estimated; 0 = none */
    int64_t ttft_us;      /* the mean: shown as the prediction */
    int64_t p50_us;       /* 0 = too little is known */
    int64_t p90_us;       /* likewise */
};

/* Returns the forecast of a TTFT of which known_us (at least 0) is known and
 * the rest estimated (at least 0). O(1). */
struct forecast forecast_make(const struct forecasts *known, int64_t known_us,
                              int64_t estimated_us);

/* Records that the first token came ttft_us after arrival. Ignores a forecast
 * without an estimate. O(FORECAST_LAST). */
void forecast_came(struct forecasts *known, const struct forecast *forecast,
                   int64_t ttft_us);

#endif
