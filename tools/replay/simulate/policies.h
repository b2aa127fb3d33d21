/* The numbers of policies on a subcommand's line: --policy-option. */
#ifndef TOOLS_REPLAY_SIMULATE_POLICIES_H
#define TOOLS_REPLAY_SIMULATE_POLICIES_H

#include "base/options.h"
#include "conductor/policy_text.h"

struct replay_policies {
    struct option_list texts;
    struct policy_settings settings;
    char help[POLICY_TEXT_BYTES];
};

/* How it appears in a subcommand's table, of one that was begun. */
#define REPLAY_POLICY_SPEC(p)                                          \
    {                                                                  \
        "policy-option", OPTION_LIST, &(p).texts, "NAME=NUMBER", 0, 0, \
            (p).help                                                   \
    }

/* Makes room for as many options as a line of argc words can hold, and writes
 * their help. Returns 0 or -ENOMEM. */
int replay_policies_begin(struct replay_policies *p, int argc)
    __attribute__((warn_unused_result));

/*
 * Reads what the line said, and frees the room in any case.
 *   policies  (n) names, those that are to run; they exist. With none it only
 *             frees.
 * Returns 0, or -1 after a complaint of the subcommand `name`.
 */
int replay_policies_end(struct replay_policies *p, const char *name,
                        const char *const *policies, size_t n)
    __attribute__((warn_unused_result));

#endif
