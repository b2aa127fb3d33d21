/* The options of policies. */
#include "conductor/core/schedule/policy.h"

#include <errno.h>
#include <math.h>
#include <string.h>

void policy_options_init(const struct schedule_policy *policy,
                         double values[POLICY_OPTIONS_MAX])
{
    for (size_t i = 0; i < POLICY_OPTIONS_MAX; i++)
        values[i] = i < policy->n_options ? policy->options[i].initial : 0.0;
}

const struct policy_option *
policy_option_by_name(const struct schedule_policy *policy, const char *name)
{
    for (size_t i = 0; i < policy->n_options; i++)
        if (strcmp(policy->options[i].name, name) == 0)
            return &policy->options[i];
    return NULL;
}

double policy_option_value(const struct schedule_policy *policy,
                           const double values[POLICY_OPTIONS_MAX],
                           const char *name, double otherwise)
{
    const struct policy_option *o = policy_option_by_name(policy, name);

    return o ? values[o - policy->options] : otherwise;
}

int policy_options_set(const struct schedule_policy *policy,
                       double values[POLICY_OPTIONS_MAX], const char *name,
                       double value)
{
    const struct policy_option *o = policy_option_by_name(policy, name);

    if (!o)
        return -ENOENT;
    if (!(value >= o->min && value <= o->max) ||
        (o->whole && floor(value) != value))
        return -ERANGE;
    values[o - policy->options] = value;
    return 0;
}

void policy_options_apply(const struct schedule_policy *policy,
                          double values[POLICY_OPTIONS_MAX],
                          const struct policy_setting *settings, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)!policy_options_set(policy, values, settings[i].name,
                                  settings[i].value);
}

/* Whether an option is not 0; `without`: a policy does not have it. */
static bool is_on(const struct schedule_policy *policy,
                  const double values[POLICY_OPTIONS_MAX], const char *name,
                  bool without)
{
    const struct policy_option *o = policy_option_by_name(policy, name);

    return o ? values[o - policy->options] > 0.0 : without;
}

const char *policy_queue_order(const struct schedule_policy *policy,
                               const double values[POLICY_OPTIONS_MAX],
                               const char *configured, bool yields)
{
    bool awaits = is_on(policy, values, "await", true);
    bool preempts = yields && is_on(policy, values, "preempt", false);
    const char *order = policy->queue_orders[awaits][preempts];

    return order && is_on(policy, values, "order", true) ? order : configured;
}

bool policy_corrects(const struct schedule_policy *policy,
                     const double values[POLICY_OPTIONS_MAX])
{
    return is_on(policy, values, "correction", true);
}
