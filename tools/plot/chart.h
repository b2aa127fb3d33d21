/*
 * Charts as SVG, drawn by gnuplot in a child process. The caller gives numbers
 * and names; this file chooses ranges, ticks, colours, dashes and keys. The
 * same data and the same gnuplot give the same bytes.
 */
#ifndef TOOLS_PLOT_CHART_H
#define TOOLS_PLOT_CHART_H

#include <stdbool.h>
#include <stddef.h>

#define CHART_SERIES_MAX 64

enum chart_mark {
    CHART_LINE,    /* joined points; bars where the chart has groups */
    CHART_CURVE,   /* a line without points, for many series */
    CHART_STAIRS,  /* a curve whose y changes at each x */
    CHART_DOTS,    /* separate points */
    CHART_CROSSES, /* separate points, as crosses */
    CHART_RULE,    /* a thin dashed line for a limit or mean; moved to the
                      frame's edge if outside (+-INFINITY is allowed) */
};

/* Data drawn in one colour. Texts and arrays are borrowed. */
struct chart_series {
    const char *name; /* in the key; NULL = not in the key */
    const double *y;  /* (n); NAN leaves the point out */
    size_t n;
    const double *x; /* (n); NULL = the chart's x */
    enum chart_mark mark;
};

/* One frame. With `groups` it has bars: y[i] stands over groups[i]. */
struct chart {
    const char *title;
    const char *x_label; /* NULL = none */
    const char *y_label;
    const double *x; /* (n of the series) */
    const char *const *groups;
    bool x_log;
    bool y_log;
    bool square;  /* equal axes, for predicted over observed */
    bool whole;   /* x counts things, with `square` y too: whole ticks */
    double y_min; /* a logarithmic axis begins here or lower; 0 = by the data */
    double y_max; /* the axis ends here or higher; 0 = by the data */
    bool no_key;  /* the frame beside it has the same key */
    struct chart_series series[CHART_SERIES_MAX];
    size_t n_series;
};

/* Adds a line (bars with groups) over the chart's x; borrows name and
 * y[0 .. n). */
void chart_line(struct chart *chart, const char *name, const double *y,
                size_t n);

/*
 * Writes charts[0 .. n) in rows of `columns` to `path`. Texts may hold any
 * characters. Returns 0; -ENOPKG when gnuplot is missing; -EPROTO when gnuplot
 * failed (it printed why); or a negative errno. On an error the file is
 * unchanged, unless writing it failed. Waits for gnuplot: about 0.1 s.
 */
[[nodiscard]] int chart_write(const char *path, const char *title,
                              const struct chart *charts, size_t n,
                              size_t columns);

/* Returns what an error of chart_write() means, and what to do. */
const char *chart_error(int rc);

#endif
