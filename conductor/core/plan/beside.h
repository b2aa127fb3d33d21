/*
 * What the decodes of an aggregated instance mean for a prefill that goes
 * there: they slow it down, and they may leave no room for its own decode.
 */
#ifndef CONDUCTOR_CORE_PLAN_BESIDE_H
#define CONDUCTOR_CORE_PLAN_BESIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/core/pool/instance.h"
#include "predictor/cost_model.h"

/* How decodes slow a prefill beside them, in microseconds by the cost model;
 * zeros where none run. */
struct beside {
    double prompt_us; /* they add to a prompt, and */
    double token_us;  /* to each token that is computed */
    int64_t step_us;  /* until their step under way is over, on average */
};

/*
 * The slow-down on an instance. A step has a token of every decode, as many of
 * prompts as step_tokens leaves, and reads the weights once; the last step of a
 * prompt is half full on average. The decodes are all that the instance has
 * accepted, for those whose prompts wait in front will run by then, and those
 * that it has from others.
 *   cost, instance  borrowed.
 *   step_tokens     most tokens of a step; 0: of any number.
 */
struct beside beside_of(const struct cost_model *cost, uint32_t step_tokens,
                        const struct pool_instance *instance);

/* Whether any run. */
static inline bool beside_any(const struct beside *beside)
{
    return beside->prompt_us > 0.0;
}

/*
 * How long until an instance that has no room to decode a request has it,
 * about, and for those that wait for it already. What its decodes have to
 * produce yet is taken to lie evenly between nothing and twice the mean, m:
 * after s steps s / 2m of them have ended, and given back as much of what they
 * reserve. estimate_decode_fits_in_us() looks at each of them, and takes as
 * long. n_tokens, max_output_tokens  of the request, both at least 1. Returns
 * microseconds; 0 where nothing decodes: until a prefill ends.
 */
int64_t beside_room_us(const struct cost_model *cost,
                       const struct pool_instance *instance, int64_t n_tokens,
                       int64_t max_output_tokens);

/*
 * How much later a prefill ends since its last step computes prompts that stand
 * behind it, too: as much of what waits there as that step has room for. 0
 * where they are served by age: nothing stands behind a new one. wait_us until
 * it begins, by pool_queue_place(). prefill_us  its own time, beside what
 * decodes there.
 */
int64_t beside_shared_us(const struct cost_model *cost, uint32_t step_tokens,
                         const struct pool_instance *instance,
                         const struct beside *beside, int64_t wait_us,
                         int64_t prefill_us, int64_t now_us);

/*
 * The time of a decode step on an instance whose accepted prefills share it:
 * as many of their tokens as fit, at what these take on average.
 *   step_us  without them.
 * Cost: O(waiting + running).
 */
int64_t beside_step_us(uint32_t step_tokens,
                       const struct pool_instance *instance, int64_t step_us);

/*
 * The work of a prefill as decodes beside it will see it: without what decodes
 * add, which each step has once, however many prompts share it.
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
 * The highest TBT, the mean of the longest tenth of the intervals, that any
 * decode of an instance will have had at its end, if the instance takes the
 * request; that of a step on its own where none decodes. Of its intervals, some
 * are steps that have a chunk of a prompt, so long as that takes; the others
 * are steps on their own. The chunks are those of the prefills that the
 * instance has accepted after its own, and of the request: since the prefills
 * of an instance run one after another, these are what it has had beside it and
 * will have, if nothing else is accepted. No more of those to come than it has
 * tokens to come. While the chunks are fewer than a tenth of the intervals, all
 * of them count; else the longest of them do, as if their lengths lay evenly
 * within sqrt(3) standard deviations of the mean.
 * Where a step with a full chunk takes longer than the SLO, each decode can
 * thus bear so many of them: a prefill that takes more is refused here, or goes
 * elsewhere.
 * What chunks add to a step counts with one standard deviation of the
 * predictions' errors on the instance (correction_spread()) more.
 * Decodes without likely_tokens are left out.
 * Cost: O(waiting + running + decodes).
 */
int64_t beside_tbt_us(const struct cost_model *cost, uint32_t step_tokens,
                      const struct pool_instance *instance,
                      const struct beside_request *request);

#endif
