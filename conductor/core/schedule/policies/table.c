/* Every policy, one line each. */
#include <string.h>

#include "conductor/core/schedule/policy.h"

/* policy_NAME is defined in policies/NAME.c. */
#define POLICIES(POLICY) \
    POLICY(random)       \
    POLICY(round_robin)  \
    POLICY(least_loaded) \
    POLICY(local_cache)  \
    POLICY(global_cache) \
    POLICY(plan)

#define DECLARE(name) extern const struct schedule_policy policy_##name;
#define ENTRY(name) &policy_##name,

POLICIES(DECLARE)

static const struct schedule_policy *const policies[] = {POLICIES(ENTRY)};

#define N_POLICIES (sizeof(policies) / sizeof(policies[0]))

const struct schedule_policy *schedule_policy_at(size_t i)
{
    return i < N_POLICIES ? policies[i] : NULL;
}

const struct schedule_policy *schedule_policy_by_name(const char *name)
{
    for (size_t i = 0; i < N_POLICIES; i++)
        if (strcmp(policies[i]->name, name) == 0)
            return policies[i];
    return NULL;
}

const char *schedule_policy_name(size_t i)
{
    return i < N_POLICIES ? policies[i]->name : NULL;
}
