/* Charts of a few panels side by side, with ranges and keys chosen from the
 * data: lines over numbers, or groups of bars over names. */
#ifndef TOOLS_PLOT_CHART_H
#define TOOLS_PLOT_CHART_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/plot/plot.h"

#define CHART_SERIES_MAX 12
#define CHART_POINTS_MAX 512

/* One line, or the bars of one colour. Texts and arrays are borrowed. */
struct chart_series {
    const char *name;
    const double *y; /* (n) */
    size_t n;
};

/* A panel. With `groups` it has bars: y[i] stands over groups[i]. */
struct chart {
    const char *title;
    const char *x_label;
    const char *y_label;
    const double *x; /* (n of the series); unused for bars */
    const char *const *groups;
    bool x_log;
    bool y_log;
    double y_max; /* at least so far up; 0: as the data has it */
    bool no_dots; /* for curves of many points */
    enum plot_corner key;
    bool no_key; /* where the panel beside it has the same */
    struct chart_series series[CHART_SERIES_MAX];
    size_t n_series;
};

/* Writes the panels as an SVG. What has no y (NAN) is left out. Returns 0 or a
 * negative errno. */
int chart_write(const char *path, const char *title, const struct chart *charts,
                size_t n_charts) __attribute__((warn_unused_result));

#endif
