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
    for (size_t i = 0; i < n; i++) /* config_check() has tried them */
        (void)!policy_options_set(policy, values, settings[i].name,
                                  settings[i].value);
}

struct schedule_rules policy_rules(const struct schedule_policy *policy,
                                   const double values[POLICY_OPTIONS_MAX])
{
    struct schedule_rules rules = {.by_score = false};

    if (policy->rules)
        policy->rules(values, &rules);
    return rules;
}

void policy_price_rules(const double *values, struct schedule_rules *rules)
{
    rules->price.on = values[0] > 0.0;
    rules->price.rho = values[1];
    rules->price.eases = values[2] > 0.0;
    rules->price.floor = values[3];
}
