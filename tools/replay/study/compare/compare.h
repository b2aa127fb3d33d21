/* Simulations over nodes, speeds and policies, and how they are shown. */
#ifndef TOOLS_REPLAY_STUDY_COMPARE_COMPARE_H
#define TOOLS_REPLAY_STUDY_COMPARE_COMPARE_H

#include <stdio.h>

#include "tools/replay/list.h"
#include "tools/replay/study/study.h"

struct replay_comparison {
    struct replay_names policies;
    struct replay_numbers speeds;
    struct replay_numbers nodes; /* prefill or coupled ones */
    struct replay_numbers links; /* Gbit/s; none: the file's */
    struct replay_case *cases;   /* (links, nodes, speeds, policies), each the
                                    mean of its runs */
    size_t n_cases;
    struct replay_case *runs; /* (n_cases, n_seeds); `cases` with one seed */
    size_t n_seeds;
    bool of_rules; /* one policy, as it is and without each of its rules */
};

/* What is compared if nothing is said: the policies of the Mooncake paper's
 * Figure 5, and the default one. */
void replay_comparison_policies(struct replay_names *policies);

/* Links times nodes: at how many clusters policies are compared. */
size_t replay_comparison_clusters(const struct replay_comparison *c);

/* The case of the n-th cluster (links, nodes), v-th speed and p-th policy. */
const struct replay_case *
replay_comparison_case(const struct replay_comparison *c, size_t n, size_t v,
                       size_t p);

/* "8", or "8+8" with decode nodes: how many a cluster has, into `name`. */
void replay_comparison_nodes(const struct cluster *c, char *name, size_t size);

/* What was asked for, a table, and at how many points the mean TTFT of the
 * policies is in the order that the Mooncake paper has (Figure 5), and `plan`'s
 * the lowest: of accepted requests, where an SLO had others rejected. */
void replay_comparison_print(const struct replay_comparison *c, FILE *file);

/* Makes the cases of their runs: means over the seeds, of the largest numbers
 * the largest. With one seed they are the runs. */
void replay_comparison_average(struct replay_comparison *c);

/* A line for each request of each run, which have written theirs into `csv`.
 * Returns 0 or a negative errno. */
[[nodiscard]] int
replay_comparison_requests_csv(const struct replay_comparison *c,
                               const char *path);

/* A line a run. Returns 0 or a negative errno. */
[[nodiscard]] int replay_comparison_csv(const struct replay_comparison *c,
                                        const char *path);

/* An SVG: over speeds with a column for each cluster; with one speed over
 * nodes, or over links if there is one number of nodes; bars for one cluster. 0
 * or a negative errno. */
[[nodiscard]] int replay_comparison_plot(const struct replay_comparison *c,
                                         const char *path);

#endif
