/*
 * How sure a predicted TTFT is: what came of predictions like it. An estimate
 * knows the queue as it is, not the shorter prompts that will come and go
 * first, nor by how much a cost model is off for one prompt. So the ratios of
 * what came to what was estimated are remembered, and the next estimate is
 * multiplied by their mean, their median and their 90th percentile. Pure; of a
 * fixed size.
 *
 * Estimates are alike if they are in one octave. How long a request waits and
 * what it costs are both in that; the load is in what came last, since only
 * FORECAST_LAST ratios of an octave are kept.
 *
 * Only the part of a TTFT that is estimated counts. The time that is known,
 * such as what has passed since the arrival, is added as it is.
 *
 * Invariants, for each octave: sorted[0..n) holds the ratios by_age[0..n), in
 * ascending order; n <= FORECAST_LAST.
 */
#ifndef CONDUCTOR_CORE_OBSERVATION_FORECAST_H
#define CONDUCTOR_CORE_OBSERVATION_FORECAST_H

#include <stdint.h>

#define FORECAST_LAST 64u
/* Ratios before which an octave is not asked, but all together; and before
 * which these are not, either. */
#define FORECAST_LEAST 8u
#define FORECAST_OCTAVES 48u

/* The last ratios of one octave. */
struct forecast_ratios {
    float by_age[FORECAST_LAST];       /* a ring */
    float estimated_us[FORECAST_LAST]; /* likewise, what they are ratios to */
    float sorted[FORECAST_LAST];
    uint32_t n;
    uint32_t next; /* of the rings, that is written next */
    double mean;   /* the sum of what came over that of what was estimated */
};

/* Zeroed: nothing is known. */
struct forecasts {
    struct forecast_ratios octaves[FORECAST_OCTAVES];
    struct forecast_ratios all;
};

/* One forecast of a TTFT. Zeroed: there is none. All in microseconds, from
 * arrival on. */
struct forecast {
    int64_t known_us;     /* of the TTFT, that is no estimate */
    int64_t estimated_us; /* the rest as it was estimated; 0: there is none */
    int64_t ttft_us;      /* the mean: what is shown as predicted */
    int64_t p50_us;       /* 0: too little is known */
    int64_t p90_us;       /* likewise */
};

/* Returns the forecast of a TTFT of which known_us (at least 0) is known and
 * the rest estimated (at least 0). O(1). */
struct forecast forecast_make(const struct forecasts *known, int64_t known_us,
                              int64_t estimated_us);

/* What was forecast came: a first token, ttft_us after arrival. A forecast
 * without an estimate teaches nothing. O(FORECAST_LAST). */
void forecast_came(struct forecasts *known, const struct forecast *forecast,
                   int64_t ttft_us);

#endif
