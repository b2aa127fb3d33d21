/* The option --policy-option of subcommands. */
#ifndef TOOLS_REPLAY_SIMULATE_POLICIES_H
#define TOOLS_REPLAY_SIMULATE_POLICIES_H

#include "conductor/policy_text.h"
#include "tools/replay/command.h"

struct replay_policies {
    struct option_list texts;
    struct policy_settings settings;
};

/* Row for a subcommand's option table. */
#define REPLAY_POLICY_SPEC(p)                                          \
    {                                                                  \
        "policy-option", OPTION_LIST, &(p).texts, "NAME=NUMBER", 0, 0, \
            POLICY_OPTION_HELP                                         \
    }

/* The topic of --help, for a subcommand's struct option_usage. */
#define REPLAY_POLICY_TOPIC \
    .topic = POLICY_OPTION_TOPIC, .explain = replay_policies_explain
void replay_policies_explain(FILE *out);

/* Parses as replay_parse(), with a table that has REPLAY_POLICY_SPEC(*p). */
[[nodiscard]] int replay_policies_parse(struct replay_policies *p,
                                        const struct option_usage *usage,
                                        const struct option_table *table,
                                        int argc, char **argv, int *status);

/*
 * Checks the options against policies[0 .. n), all of which exist. Returns 0,
 * or -1 after printing an error of the subcommand `name`.
 */
[[nodiscard]] int replay_policies_check(const struct replay_policies *p,
                                        const char *name,
                                        const char *const *policies, size_t n);

#endif
