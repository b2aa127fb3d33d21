/* The figure of a replay: TTFT over time, and its distribution. */
#ifndef TOOLS_PLOT_FIGURE_H
#define TOOLS_PLOT_FIGURE_H

#include <stddef.h>

#include "tools/replay/report/report.h"

/*
 * Writes an SVG of records[0 .. count) (borrowed) and their report to `path`.
 * Returns 0 or a negative errno. O(n log n).
 */
int replay_figure_write(const struct replay_record *records, size_t count,
                        const struct replay_report *report, const char *path)
    __attribute__((warn_unused_result));

#endif
