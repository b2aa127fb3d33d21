/* The choice among estimated prefill candidates. Internal to schedule. */
#ifndef CONDUCTOR_CORE_SCHEDULE_POLICY_H
#define CONDUCTOR_CORE_SCHEDULE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/core/plan/estimate.h"

/* What a policy may change from decision to decision. */
struct policy_state {
    uint64_t rng;  /* splitmix64 */
    uint32_t turn; /* slot chosen last by round_robin */
};

struct schedule_policy {
    const char *name;
    bool fetches; /* candidates are estimated with Algorithm 1's fetches */
    bool plans;   /* or with load plans */
    /* Returns the index of the chosen candidate among n, by slot ascending;
     * n if none is eligible. */
    size_t (*choose)(struct policy_state *state,
                     const struct prefill_estimate *candidates, size_t n);
};

/*
 * Whether the policy plan prefers candidate a, both planned: what meets the
 * SLO first; the lower score, or the earlier end if both are late; the shorter
 * queue; the instance whose last prefill came longest ago, so that all fill
 * alike; the lower slot.
 */
bool schedule_plan_before(const struct prefill_estimate *a,
                          const struct prefill_estimate *b);

/* The policy of that name, static; NULL if there is none. */
const struct schedule_policy *schedule_policy_by_name(const char *name);

/* The i-th policy, static; NULL beyond the last. For lists of names. */
const struct schedule_policy *schedule_policy_at(size_t i);

#endif
