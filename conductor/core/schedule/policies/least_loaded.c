/* least_loaded: the shortest queue, without regard to caches; a baseline. */
#include "conductor/core/schedule/policy.h"

static int64_t queue_of(const struct prefill_estimate *candidate)
{
    return candidate->queue_us;
}

static size_t choose(const struct policy_choice *choice)
{
    return policy_choose_lowest(choice, queue_of);
}

const struct schedule_policy policy_least_loaded = {
    .name = "least_loaded",
    .help = "the instance with the shortest queue",
    .without_cost_model = true,
    .choose = choose,
};
