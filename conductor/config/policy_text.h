/*
 * The options of policies as text, for command lines, configurations and --help
 * of the daemon and the tools. core itself sees only numbers.
 */
#ifndef CONDUCTOR_CONFIG_POLICY_TEXT_H
#define CONDUCTOR_CONFIG_POLICY_TEXT_H

#include <stddef.h>
#include <stdio.h>

#include "conductor/core/schedule/policy.h"

#define POLICY_SETTINGS_MAX 32
#define POLICY_TEXT_BYTES 4096

/* An operator's settings, in their order. */
struct policy_settings {
    struct policy_setting at[POLICY_SETTINGS_MAX];
    size_t n;
};

/* The source of a policy's numbers, which decides which names are allowed. */
enum policy_set_by {
    POLICY_SET_BY_OPERATOR,   /* options only */
    POLICY_SET_BY_SIMULATION, /* options and rules */
};

/*
 * Adds a setting.
 *   text  "name=number".
 * Returns 0, or -EINVAL with a message in `error` (`size` bytes).
 */
[[nodiscard]] int policy_settings_add(struct policy_settings *settings,
                                      const char *text, char *error,
                                      size_t size);

/*
 * Checks that every setting is an option of some policy, with a value in its
 * range.
 *   policies  (n), policies that will run.
 *   set_by    selects which known names a message about an unknown one lists.
 *             Names of rules are always known: see policy_rule_say().
 * Returns 0, or -EINVAL with a message that names policy, option, value and
 * range in `error` (`size` bytes).
 */
[[nodiscard]] int
policy_settings_check(const struct policy_settings *settings,
                      const struct schedule_policy *const *policies, size_t n,
                      enum policy_set_by set_by, char *error, size_t size);

/* Help of --policy-option, and the topic behind --help that has the options. */
#define POLICY_OPTION_HELP                                                 \
    "set an option of the policy; may be repeated; --help policy-options " \
    "lists them"
#define POLICY_OPTION_TOPIC "policy-options"

/* Prints all options of all policies with range, default and meaning. */
void policy_options_list(enum policy_set_by set_by, FILE *out);

/* Returns whether a name is a rule's, which an operator cannot set. If so,
 * writes a warning to `text` (`size` bytes), with the fixed value and the
 * option to use instead. */
bool policy_rule_say(const struct schedule_policy *policy, const char *name,
                     char *text, size_t size);

/* Writes all policies and their options as Markdown tables, for docs/. */
void policy_reference(FILE *out);

#endif
