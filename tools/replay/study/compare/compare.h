/* Compares policies by simulations over nodes, speeds and links. */
#ifndef TOOLS_REPLAY_STUDY_COMPARE_COMPARE_H
#define TOOLS_REPLAY_STUDY_COMPARE_COMPARE_H

#include <stdio.h>

#include "tools/replay/options.h"
#include "tools/replay/study/study.h"

struct replay_comparison {
    struct replay_names policies;
    struct replay_numbers speeds;
    struct replay_numbers nodes; /* prefill or coupled nodes */
    struct replay_numbers links; /* Gbit/s; empty = the file's */
    struct replay_case *runs;    /* (n_runs): links, nodes, speeds, policies,
                                    seeds */
    size_t n_runs;
    size_t n_seeds;
    bool of_rules; /* compares one policy with and without each of its rules */
};

/* Sets the default policies: those of the Mooncake paper's Figure 5, and this
 * project's default. */
void replay_comparison_policies(struct replay_names *policies);

/* Returns the number of clusters: links times nodes. */
size_t replay_comparison_clusters(const struct replay_comparison *c);

/* Has compare.py print the parameters, a table of means over the seeds, and at
 * how many points the policies' mean TTFT is in the Mooncake paper's order
 * (Figure 5), and `plan`'s is the lowest. With an SLO, of accepted requests
 * only. Returns 0 or an error of plot_script(). */
[[nodiscard]] int replay_comparison_print(const struct replay_comparison *c);

/* Writes a line for each request of each run, from the runs' `csv`. Returns 0
 * or a negative errno. */
[[nodiscard]] int
replay_comparison_requests_csv(const struct replay_comparison *c,
                               const char *path);

/* Writes a line per run. Returns 0 or a negative errno. */
[[nodiscard]] int replay_comparison_csv(const struct replay_comparison *c,
                                        const char *path);

/* Writes an SVG: over speeds, with a column per cluster; with one speed over
 * nodes, or over links if the node count is fixed; bars for one cluster.
 * Returns 0 or a negative errno. */
[[nodiscard]] int replay_comparison_plot(const struct replay_comparison *c,
                                         const char *path);

/* A policy with and without each of its rules. */
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
