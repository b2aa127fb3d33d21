/* Learns from a finished prefill. See observation.h. */
#include "conductor/core/observation/observation.h"

#include "predictor/cost_model.h"

#define OVERHEAD_STEP_US 1000

int64_t observation_prefill_us(const struct observation_prefill *seen)
{
    double us;

    if (seen->by_layer || seen->model_us <= 0)
        return -1;
    if (seen->model_us == seen->predicted_us)
        return seen->engine_us; /* exactly: ties depend on it */
    us = (double)seen->engine_us * (double)seen->predicted_us /
         (double)seen->model_us;
    return us < (double)COST_MODEL_MAX_US ? (int64_t)us : COST_MODEL_MAX_US;
}

/* The middle one of n, at least 1. */
static int64_t median(const int64_t *us, size_t n)
{
    int64_t sorted[OBSERVATION_OVERHEADS];

    for (size_t i = 0, at; i < n; i++) {
        for (at = i; at > 0 && sorted[at - 1] > us[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = us[i];
    }
    return sorted[(n - 1) / 2];
}

int64_t observation_overhead(struct observation_overheads *seen,
                             int64_t expected_us, int64_t seen_us)
{
    if (seen_us > expected_us + OVERHEAD_STEP_US)
        seen_us = expected_us + OVERHEAD_STEP_US;
    if (seen_us < expected_us - OVERHEAD_STEP_US)
        seen_us = expected_us - OVERHEAD_STEP_US;
    seen->us[seen->n++ % OBSERVATION_OVERHEADS] = seen_us > 0 ? seen_us : 0;
    return median(seen->us, seen->n < OBSERVATION_OVERHEADS
                                ? seen->n
                                : OBSERVATION_OVERHEADS);
}

void observation_load(struct pool *pool, const struct observation_load *seen)
{
    if (seen->holder != POOL_NO_INSTANCE && seen->tier_bytes == 0)
        pool_link_observed(pool, seen->holder, seen->link_bytes, seen->us);
}
