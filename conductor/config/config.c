/* The daemon's configuration: its values are set by name, and read. */
#include "conductor/config/config.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "conductor/config/internal.h"
#include "conductor/config/policy_text.h"

int config_policy_option(struct config *c, const char *text,
                         char err[CONFIG_ERROR_MAX])
{
    char all[2 * CONFIG_STRING_MAX];
    int n = snprintf(all, sizeof(all), "%s%s%s", c->policy_options,
                     *c->policy_options ? "," : "", text);

    if (n < 0 || (size_t)n >= sizeof(all))
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                         "policy_options: %.60s...: too long", text);
    return config_set(c, "policy_options", all, err);
}

bool config_is_text(const struct option_spec *o)
{
    return o->kind < OPTION_COUNT;
}

bool config_is_switch(const struct option_spec *o)
{
    return o->kind == OPTION_COUNT && o->min == 0 && o->max == 1;
}

const char *config_type_name(const struct option_spec *o)
{
    return config_is_settings(o)     ? "an object of numbers"
           : config_is_text(o)       ? "a string"
           : config_is_switch(o)     ? "true or false"
           : o->kind == OPTION_COUNT ? "a whole number"
                                     : "a number";
}

static bool is_of_policy(const struct config *c, const char *name)
{
    const struct schedule_policy *policy = schedule_policy_by_name(c->policy);

    return policy && policy_option_by_name(policy, name);
}

/* Members of a configuration that are no options. */
static const char *const lists[CONFIG_LISTS] = {"engines", "stores",
                                                "worker_costs"};

int config_set(struct config *c, const char *name, const char *value,
               char err[CONFIG_ERROR_MAX])
{
    struct option_spec specs[CONFIG_OPTIONS_MAX];
    struct option_table table = config_table(c, specs);
    const struct option_spec *o = option_find(&table, name, strlen(name));
    char why[CONFIG_ERROR_MAX / 2];

    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
        specs[table.count++].name = lists[i];
    const char *nearest = option_nearest(&table, name, strlen(name));

    bool is_list = nearest && strcmp(nearest, name) == 0;
    if (!o && nearest && !is_list && !is_of_policy(c, name))
        return error_say(err, CONFIG_ERROR_MAX, -ENOENT,
                         "%.100s: no such option: did you mean %s? "
                         "(--config-reference lists them)",
                         name, nearest);
    if (!o)
        return error_say(
            err, CONFIG_ERROR_MAX, -ENOENT, "%.100s: no such option (%s)", name,
            strcmp(name, "index_max_blocks") == 0
                ? "index_mib replaces it: 24 MiB per million blocks"
            : is_list ? "it is a list, which only a configuration file can hold"
            : is_of_policy(c, name) ? "it is an option of the policy: set it "
                                      "in policy_options, or by --policy-option"
                                    : "--config-reference lists them");
    if (config_is_switch(o))
        value = strcmp(value, "true") == 0    ? "1"
                : strcmp(value, "false") == 0 ? "0"
                                              : value;
    if (option_set(o, value, why, sizeof(why)) == 0)
        return 0;
    return error_say(
        err, CONFIG_ERROR_MAX, -EINVAL,
        config_is_text(o) ? "%s: \"%.150s\": %s" : "%s: %.150s: %s", name,
        value, config_is_switch(o) ? "must be true or false" : why);
}

void config_drop_rules(struct config *c)
{
    const struct schedule_policy *policy = schedule_policy_by_name(c->policy);
    struct policy_settings settings;
    char all[CONFIG_STRING_MAX], why[CONFIG_ERROR_MAX];
    const char *text = all;

    snprintf(all, sizeof(all), "%s", c->policy_options);
    if (config_settings(all, &settings, why, sizeof(why)))
        return;
    c->policy_options[0] = '\0';
    for (size_t i = 0; i < settings.n; i++) {
        size_t n = strcspn(text, ","), at = strlen(c->policy_options);

        if (policy_rule_say(policy, settings.at[i].name, why, sizeof(why)))
            log_warn("policy_options: %s", why);
        else
            snprintf(c->policy_options + at, sizeof(all) - at, "%s%.*s",
                     at > 0 ? "," : "", (int)n, text);
        text += n + (text[n] == ',');
    }
}

const struct schedule_policy *config_policy(const struct config *c,
                                            double options[POLICY_OPTIONS_MAX])
{
    const struct schedule_policy *policy = schedule_policy_by_name(c->policy);
    struct policy_settings settings;
    char error[CONFIG_ERROR_MAX];

    if (!policy)
        return NULL;
    policy_options_init(policy, options);
    /* The policy may lack these two; the option table checks their ranges. */
    (void)!policy_options_set(policy, options, "kvcache_balancing_threshold",
                              c->kvcache_balancing_threshold);
    (void)!policy_options_set(policy, options, "seed", (double)c->seed);
    if (config_settings(c->policy_options, &settings, error, sizeof(error)) ==
        0)
        policy_options_apply(policy, options, settings.at, settings.n);
    return policy;
}

void config_defaults(struct config *c)
{
    struct option_spec specs[CONFIG_OPTIONS_MAX];
    const struct option_table table = config_table(c, specs);
    char why[CONFIG_ERROR_MAX];

    memset(c, 0, sizeof(*c));
    /* The table's own defaults are valid: a unit test sets each. */
    for (size_t i = 0; i < table.count; i++)
        (void)!option_set(&specs[i], specs[i].initial, why, sizeof(why));
}
