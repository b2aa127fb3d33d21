/* What a finished prefill teaches. See observation.h. */
#include "conductor/core/observation/observation.h"

#include "predictor/cost_model.h"

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

void observation_load(struct pool *pool, const struct observation_load *seen)
{
    if (seen->holder != POOL_NO_INSTANCE && seen->tier_bytes == 0)
        (void)pool_link_observed(pool, seen->holder, seen->link_bytes,
                                 seen->us);
}
