/* The best split of a fixed number of nodes, over the time of a trace. */
#ifndef TOOLS_REPLAY_STUDY_SIZE_OVER_TIME_H
#define TOOLS_REPLAY_STUDY_SIZE_OVER_TIME_H

#include <stddef.h>
#include <stdio.h>

#include "tools/replay/study/study.h"

/* Every split of a node count, fully simulated, by prefill nodes. */
struct over_time {
    double interval_s;
    struct replay_case *cases; /* (n), with intervals; owned */
    size_t n;
};

/* Frees the cases. */
void over_time_fini(struct over_time *o);

/* Prints a line per interval: the split with the most effective requests of
 * those that arrived in it (ties: shortest mean TTFT); last, the best fixed
 * split. */
void over_time_print(const struct over_time *o, FILE *file);

/* Writes a line per interval and split. Returns 0 or a negative errno. */
[[nodiscard]] int over_time_csv(const struct over_time *o, const char *path);

#endif
