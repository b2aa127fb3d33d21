/* local_cache: the shortest TTFT that each instance reaches with its own cache
 * alone. */
#include "conductor/core/schedule/policy.h"

static int64_t score_of(const struct prefill_estimate *candidate)
{
    return candidate->score_us;
}

static size_t choose(const struct policy_choice *choice)
{
    return policy_choose_lowest(choice, score_of);
}

const struct schedule_policy policy_local_cache = {
    .name = "local_cache",
    .help = "the instance that finishes first with its own cache",
    .choose = choose,
};
