/* The result of `size`, and its output. */
#ifndef TOOLS_REPLAY_STUDY_SIZE_SIZE_H
#define TOOLS_REPLAY_STUDY_SIZE_SIZE_H

#include <stdint.h>
#include <stdio.h>

#include "tools/replay/study/size/search.h"
#include "tools/replay/study/study.h"

/* Totals below the answer whose splits are all fully simulated. */
#define SIZE_TOTALS_BELOW 3

struct replay_sizing {
    const struct replay_case *base; /* policy, SLOs, speed; borrowed */
    double target;
    struct cluster template;
    uint64_t requests;
    uint64_t misses_max; /* most requests that may miss an SLO */
    /* Of `requests`: those that miss an SLO alone, on an idle cluster of any
     * size. */
    uint64_t hopeless;
    double hopeless_ttft_s; /* longest TTFT among them; 0 = none */
    struct search search;
    /* Fully simulated. If found: the answer, then all splits of up to
     * SIZE_TOTALS_BELOW totals below it, most nodes first; else the sizes that
     * got furthest. Empty if too many requests are hopeless. */
    struct replay_case *ended; /* (n_ended) */
    size_t n_ended;
};

/* Has size.py print the answer, the requests it serves, and the best split of
 * the totals below; or the best size reached and the obstacle. Returns 0 or an
 * error of plot_script(). */
[[nodiscard]] int replay_size_print(const struct replay_sizing *z);

/* Writes a line for every size simulated. Returns 0 or a negative errno. */
[[nodiscard]] int replay_size_csv(const struct replay_sizing *z,
                                  const char *path);

/* Draws an SVG of the sizes that meet the target and those that don't, and the
 * best share of every fully simulated total; needs an answer. Returns 0 or a
 * negative errno. */
[[nodiscard]] int replay_size_plot(const struct replay_sizing *z,
                                   const char *path);

/* Every split of a node count, fully simulated, by prefill nodes. */
struct over_time {
    double interval_s;
    struct replay_case *cases; /* (n), with intervals; owned */
    size_t n;
};

/* Has size.py print a line per interval: the split with the most effective
 * requests of those that arrived in it (ties: shortest mean TTFT); last, the
 * best fixed split. Returns as replay_size_print(). */
[[nodiscard]] int over_time_print(const struct over_time *o);

/* Writes a line per interval and split. Returns 0 or a negative errno. */
[[nodiscard]] int over_time_csv(const struct over_time *o, const char *path);

#endif
