/*
 * The options of policies as text: what an operator writes on a command line
 * or in a configuration, and what --help says. For the daemon and the tools;
 * core itself sees only numbers.
 */
#ifndef CONDUCTOR_POLICY_TEXT_H
#define CONDUCTOR_POLICY_TEXT_H

#include <stddef.h>
#include <stdio.h>

#include "conductor/core/schedule/policy.h"

#define POLICY_SETTINGS_MAX 32
#define POLICY_TEXT_BYTES 4096

/* The settings that an operator gave, in their order. */
struct policy_settings {
    struct policy_setting at[POLICY_SETTINGS_MAX];
    size_t n;
};

/* Who sets a policy's numbers. */
enum policy_set_by {
    POLICY_SET_BY_OPERATOR,   /* its options */
    POLICY_SET_BY_SIMULATION, /* its rules, too */
};

/*
 * Adds one.
 *   text  "name=number".
 * Returns 0, or -EINVAL with a message in `error` (`size` bytes).
 */
[[nodiscard]] int policy_settings_add(struct policy_settings *settings,
                                      const char *text, char *error,
                                      size_t size);

/*
 * Whether every setting is one of some policy, with a value in its range.
 *   policies  (n), those that are to run.
 *   set_by    whose names a message about an unknown one lists. A rule's name
 *             is known in any case: see policy_rule_say().
 * Returns 0, or -EINVAL with a message that names policy, option, value and
 * range in `error` (`size` bytes).
 */
[[nodiscard]] int
policy_settings_check(const struct policy_settings *settings,
                      const struct schedule_policy *const *policies, size_t n,
                      enum policy_set_by set_by, char *error, size_t size);

/* For --help: what the option does, and everything that may be set of every
 * policy with its range and default. */
void policy_options_help(enum policy_set_by set_by,
                         char text[POLICY_TEXT_BYTES]);

/* Returns whether a name is that of a rule, which an operator cannot set. If
 * so, writes a warning that says so to `text` (`size` bytes): the value that
 * holds, and the option to use instead. */
bool policy_rule_say(const struct schedule_policy *policy, const char *name,
                     char *text, size_t size);

/* All policies and their options as Markdown tables, for docs/. */
void policy_reference(FILE *out);

#endif
