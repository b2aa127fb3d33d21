/*
 * Prefills and decodes that share an aggregated instance: decodes slow prefills
 * down and may leave no room for their own decodes, prefills raise the TBT.
 */
#ifndef CONDUCTOR_CORE_PLAN_BESIDE_H
#define CONDUCTOR_CORE_PLAN_BESIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/core/pool/instance.h"
#include "predictor/cost_model.h"

/* Slow-down of a prefill by the decodes beside it, in us by the cost model; all
 * 0 without decodes. */
struct beside {
    double prompt_us; /* added per prompt */
    double token_us;  /* added per computed token */
    int64_t step_us;  /* until the decode step under way ends, on average */
};

/*
 * Returns the slow-down on an instance. A step has a token of every decode, as
 * many prompt tokens as step_tokens leaves, and reads the weights once; the
 * last step of a prompt is half full on average. All accepted decodes count,
 * since those still in prefill come first, and those from outside the pool.
 *   step_tokens  most tokens of a step; 0 = unlimited.
 */
struct beside beside_of(const struct cost_model *cost, uint32_t step_tokens,
                        const struct pool_instance *instance);

/* Returns whether there are decodes. */
static inline bool beside_any(const struct beside *beside)
{
    return beside->prompt_us > 0.0;
}

/*
 * Returns about how long (us) it takes until a full instance has room to decode
 * a request and all requests that wait for it already. The output left of its
 * decodes is taken as uniform between 0 and twice the mean m: after s steps a
 * part s / 2m of them has ended and given its reservation back.
 * estimate_decode_fits_in_us() looks at each decode instead, in O(decodes).
 *   n_tokens, max_output_tokens  of the request, both at least 1.
 * Returns 0 without decodes: room appears when a prefill ends.
 */
int64_t beside_room_us(const struct cost_model *cost,
                       const struct pool_instance *instance, int64_t n_tokens,
                       int64_t max_output_tokens);

/*
 * Returns how much later (us) a prefill ends because its last step is filled up
 * with prompts that wait behind it. 0 for orders by age: no prompt waits behind
 * a new one.
 *   wait_us     until it begins, by pool_queue_place().
 *   prefill_us  its own time, slowed down by the decodes.
 */
int64_t beside_shared_us(const struct cost_model *cost, uint32_t step_tokens,
                         const struct pool_instance *instance,
                         const struct beside *beside, int64_t wait_us,
                         int64_t prefill_us, int64_t now_us);

/*
 * Returns the time of a decode step that is filled up with tokens of the
 * accepted prefills, at their mean cost per token; at least step_us.
 *   step_us  of the step without prefills.
 * Cost: O(waiting + running).
 */
int64_t beside_step_us(uint32_t step_tokens,
                       const struct pool_instance *instance, int64_t step_us);

/*
 * Returns the work of a prefill as it slows decodes down: without the time that
 * decodes add, which each step has once, however many prompts share it.
 *   step_tokens  most tokens of a step.
 */
struct pool_work beside_work_of(const struct cost_model *cost,
                                uint32_t step_tokens,
                                const struct pool_instance *instance,
                                int64_t uncached_tokens, int64_t cached_tokens);

/* A request's prefill on an aggregated instance. */
struct beside_request {
    struct pool_work work; /* of beside_work_of() */
    int64_t now_us;
};

/*
 * Returns the highest TBT that any decode of an instance will have had at its
 * end, if the instance takes the request; without decodes, the time of a decode
 * step. The TBT of a decode is the mean of the longest tenth of its intervals.
 *
 * An interval is a step with or without a chunk of a prompt. The decode has
 * beside it all chunks of the prefills that the instance accepted after the
 * decode's own, and of the request, since prefills run one after another; from
 * now on at most one per token that it has yet to produce. While the chunks are
 * fewer than a tenth of the intervals, all count; else the longest, with
 * lengths taken as uniform within sqrt(3) standard deviations of the mean.
 *
 * So a decode with an SLO below the step of a full chunk bears a limited number
 * of chunks: a prefill with more is refused here, or goes elsewhere. The time
 * that chunks add to a step is raised by one standard deviation of the
 * predictions' errors on the instance (correction_spread()). Decodes without
 * likely_tokens are left out.
 * Cost: O(waiting + running + decodes).
 */
int64_t beside_tbt_us(const struct cost_model *cost, uint32_t step_tokens,
                      const struct pool_instance *instance,
                      const struct beside_request *request);

#endif
