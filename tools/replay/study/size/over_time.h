/* Which split of a fixed number of nodes serves best, over the time of a trace.
 */
#ifndef TOOLS_REPLAY_STUDY_SIZE_OVER_TIME_H
#define TOOLS_REPLAY_STUDY_SIZE_OVER_TIME_H

#include <stddef.h>
#include <stdio.h>

#include "tools/replay/study/study.h"

/* Every split of so many nodes, simulated to its end, by prefill nodes. */
struct over_time {
    double interval_s;
    struct replay_case *cases; /* (n), with intervals; owned */
    size_t n;
};

/* Frees the cases. */
void over_time_fini(struct over_time *o);

/* A line for each interval with the split that serves most of its requests
 * within the SLOs, of equal ones that with the shortest mean TTFT, and last the
 * best of those that stay as they are. */
void over_time_print(const struct over_time *o, FILE *file);

/* A line for each interval and split. 0 or a negative errno. */
[[nodiscard]] int over_time_csv(const struct over_time *o, const char *path);

#endif
