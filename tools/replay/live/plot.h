/* The picture of a live replay: TTFT over time, its distribution, and predicted
 * over observed TTFT. */
#ifndef TOOLS_REPLAY_LIVE_PLOT_H
#define TOOLS_REPLAY_LIVE_PLOT_H

#include <stddef.h>

#include "tools/replay/report/report.h"

/*
 * Writes an SVG of records[0 .. count) and their report (both borrowed) to
 * `path`. Returns as chart_write(). O(n log n).
 */
[[nodiscard]] int replay_live_plot(const struct replay_record *records,
                                   size_t count,
                                   const struct replay_report *report,
                                   const char *path);

#endif
