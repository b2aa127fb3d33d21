/*
 * The place of a decode: the time from when its KV begins to come, which is
 * when its prefill begins, until its expected last token, with the KV of its
 * prompt and expected output. Its instance takes memory for all of that when
 * the KV begins to come.
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
    int64_t ready_us;          /* and when its prefill will have ended */
    double overhang_steps;     /* it may wait for room for so many steps */
    int64_t slo_tbt_us;        /* but no longer than this; 0: none */
    int64_t now_us;
};

/*
 * Estimates the decoding of a request on an instance whose decodes are
 * predicted. There is room if its KV fits, at each time of its place, beside
 * that of all whose places are there then, and they leave a place in the batch;
 * looked at in 64 parts, what is there in some of a part counts in all of it.
 * A place of a decode
 * that has not begun is where it was predicted; if that has passed it begins
 * now, or, where its instance lets shorter ones pass, behind all that waits
 * there. What runs ends after its expected tokens at the present step time. A
 * place that ends within the overhang does not count.
 * The batch, its KV and the TBT are those of all accepted decodes where these
 * keep the SLO, else the most that are there at one time from the end of the
 * prefill on.
 *   out  written in full.
 * Cost: O(1) where all accepted decodes leave room and keep the SLO; else
 * O(decodes).
 */
void place_estimate(const struct estimate_model *model,
                    const struct pool_instance *instance,
                    const struct place_request *request,
                    struct decode_estimate *out);

#endif
