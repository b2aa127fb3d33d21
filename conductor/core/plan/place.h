/*
 * The place of a decode: KV memory for its prompt and expected output, from the
 * begin of its prefill, when its KV begins to come, until its expected last
 * token. The instance takes all of it at the begin.
 */
#ifndef CONDUCTOR_CORE_PLAN_PLACE_H
#define CONDUCTOR_CORE_PLAN_PLACE_H

#include "conductor/core/plan/estimate.h"

struct place_request {
    int64_t n_tokens;
    int64_t max_output_tokens; /* at least 1 */
    int64_t expected_tokens;   /* of these, at least 1 */
    const struct pool *pool;   /* of all instances */
    int64_t comes_us;          /* absolute: when its KV will begin to come */
    int64_t ready_us;          /* absolute: when its prefill will have ended */
    double overhang_steps;     /* most steps that it may wait for room; the */
    int64_t slo_tbt_us;        /* wait must not exceed this; 0 = no SLO */
    int64_t now_us;
};

/*
 * Estimates the decoding of a request on an instance whose decodes are
 * predicted. There is room if at each time of its place the KV of all places,
 * its own included, fits, and so does the batch. The time is divided into 64
 * parts; a place held for some of a part counts for all of it.
 *
 * The place of a decode that has not begun is as predicted; if its predicted
 * begin has passed, it begins now, or, where shorter prefills pass its prefill,
 * behind all that waits there. A running decode ends after its expected tokens
 * at the present step time. A place that ends within the overhang does not
 * count.
 *
 * The batch, its KV and the TBT are those of all accepted decodes if these keep
 * the SLO, else the most that are there at one time from the end of the prefill
 * on.
 *   out  written in full.
 * Cost: O(1) where all accepted decodes leave room and keep the SLO; else
 * O(decodes).
 */
void place_estimate(const struct estimate_model *model,
                    const struct pool_instance *instance,
                    const struct place_request *request,
                    struct decode_estimate *out);

#endif
