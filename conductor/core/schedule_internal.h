/* The inside of the scheduler, shared by its files. Not for others. */
#ifndef CONDUCTOR_CORE_SCHEDULE_INTERNAL_H
#define CONDUCTOR_CORE_SCHEDULE_INTERNAL_H

#include "conductor/core/schedule.h"
#include "conductor/core/schedule_policy.h"

struct scheduler {
    struct estimate_model model;
    const struct schedule_policy *policy;
    const struct admission_policy *admission;
    struct policy_state state;
    double threshold;
    bool coupled;
    bool pooled_cache;
    struct pool *pool;
    struct prefix_index *index;
    struct prefix_index *expected; /* NULL: what is pending in the pool */
    uint32_t *ready;               /* (instances): leading blocks stored */
    uint32_t *pending;             /* (instances): leading blocks expected */
    struct prefill_estimate *candidates;
    struct decode_estimate *decode_candidates;
};

/* Estimates every prefill candidate and lets the policy choose: writes
 * candidates, chosen and prefill, or the verdict and retry_after_us.
 * Returns whether one was chosen. */
bool schedule_choose_prefill(struct scheduler *s,
                             const struct schedule_request *request,
                             struct schedule_decision *decision);

/* SelectDecodingInstance: the lowest predicted TBT among those with room.
 * Writes decode_candidates, decode and tbt_us, or the verdict and
 * retry_after_us. Returns true if one was chosen or none is needed. */
bool schedule_choose_decode(struct scheduler *s,
                            const struct schedule_request *request,
                            struct schedule_decision *decision);

/* When a decode candidate will fit the request, from now; -1: never. */
int64_t schedule_decode_fits_in_us(const struct scheduler *s,
                                   const struct schedule_request *request,
                                   const struct decode_estimate *candidate);

#endif
