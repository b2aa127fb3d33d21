/* What `size` found, and how it is shown. */
#ifndef TOOLS_REPLAY_STUDY_SIZE_SIZE_H
#define TOOLS_REPLAY_STUDY_SIZE_SIZE_H

#include <stdint.h>
#include <stdio.h>

#include "tools/replay/study/size/search.h"
#include "tools/replay/study/study.h"

/* Totals below the answer whose splits are all simulated to their ends. */
#define SIZE_TOTALS_BELOW 3

struct replay_sizing {
    const struct replay_case *base; /* policy, SLOs, speed; borrowed */
    double target;
    struct cluster template;
    uint64_t requests;
    uint64_t misses_max; /* so many may miss an SLO */
    /* Of them, those that miss one alone on an idle cluster of any size. */
    uint64_t hopeless;
    double hopeless_ttft_s; /* the longest that one of these takes; 0: none */
    struct search search;
    /* Simulated to their ends: found: the answer, then all splits of up to
     * SIZE_TOTALS_BELOW totals below it, most nodes first; else the sizes that
     * got furthest; none where too many requests are hopeless. */
    struct replay_case *ended; /* (n_ended) */
    size_t n_ended;
};

/* The answer, what it serves, and the best split of the totals below; or the
 * best that was reached and what stood in the way. */
void replay_size_print(const struct replay_sizing *z, FILE *file);

/* A line for every size that was simulated. 0 or a negative errno. */
[[nodiscard]] int replay_size_csv(const struct replay_sizing *z,
                                  const char *path);

/* The sizes that meet the target and those that don't, and the best share of
 * every total that was simulated to its end, as SVG; needs an answer. 0 or a
 * negative errno. */
[[nodiscard]] int replay_size_plot(const struct replay_sizing *z,
                                   const char *path);

#endif
