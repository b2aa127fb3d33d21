/* Simulations over nodes, speeds and policies, and how they are shown. */
#ifndef TOOLS_REPLAY_COMPARE_H
#define TOOLS_REPLAY_COMPARE_H

#include <stdio.h>

#include "tools/replay_list.h"
#include "tools/replay_study.h"

struct replay_comparison {
    struct replay_names policies;
    struct replay_numbers speeds;
    struct replay_numbers nodes; /* prefill or coupled ones */
    struct replay_case *cases;   /* (nodes, speeds, policies) */
    size_t n_cases;
};

/* The case of the n-th number of nodes, v-th speed and p-th policy. */
const struct replay_case *
replay_comparison_case(const struct replay_comparison *c, size_t n, size_t v,
                       size_t p);

/* A table, and whether mean TTFT falls from each policy to the next. */
void replay_comparison_print(const struct replay_comparison *c, FILE *file);

/* A line a case. Returns 0 or a negative errno. */
int replay_comparison_csv(const struct replay_comparison *c, const char *path)
    __attribute__((warn_unused_result));

/* An SVG: over speeds with a column for each number of nodes; over nodes if
 * there is one speed; bars if there is one of both. 0 or a negative errno. */
int replay_comparison_plot(const struct replay_comparison *c, const char *path)
    __attribute__((warn_unused_result));

#endif
