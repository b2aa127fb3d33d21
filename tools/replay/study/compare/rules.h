/* A policy with and without each of its rules, to show each rule's worth. */
#ifndef TOOLS_REPLAY_STUDY_COMPARE_RULES_H
#define TOOLS_REPLAY_STUDY_COMPARE_RULES_H

#include "conductor/policy_text.h"
#include "tools/replay/list.h"

#define REPLAY_RULES_MAX (POLICY_OPTIONS_MAX + 1)

/* Lines of the comparison; the first is the policy as it is. */
struct replay_rules {
    struct policy_settings settings[REPLAY_RULES_MAX];
    char labels[REPLAY_RULES_MAX][80];
    size_t n;
};

/*
 * Reads which rules to turn off, one at a time.
 *   text    "switches": all options of the policy that are 0 or 1, and 1; or
 *           comma-separated names of options that can be 0 and are not.
 *   policy  exists.
 *   base    settings of every line.
 *   rules   written.
 *   names   written: the labels, borrowed from `rules`.
 * Returns 0, or -EINVAL with a message of one line.
 */
[[nodiscard]] int replay_rules_read(const char *text, const char *policy,
                                    const struct policy_settings *base,
                                    struct replay_rules *rules,
                                    struct replay_names *names,
                                    char error[REPLAY_LIST_ERROR_BYTES]);

#endif
