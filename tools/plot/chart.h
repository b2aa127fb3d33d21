/*
 * Charts as SVG, drawn by gnuplot, which runs as a child process. A caller
 * gives numbers and names; ranges, ticks, colours, dashes and the key beside
 * each frame are chosen here. The same data and gnuplot give the same bytes.
 */
#ifndef TOOLS_PLOT_CHART_H
#define TOOLS_PLOT_CHART_H

#include <stdbool.h>
#include <stddef.h>

#define CHART_SERIES_MAX 64

enum chart_mark {
    CHART_LINE,    /* joined points; bars where the chart has groups */
    CHART_CURVE,   /* a line without points, for many of them */
    CHART_STAIRS,  /* as a curve; y changes at each x */
    CHART_DOTS,    /* points that are not joined */
    CHART_CROSSES, /* the same, as crosses */
    CHART_RULE,    /* a thin dashed line, moved to the frame where it is outside
                      of it (so +-INFINITY is allowed): a limit or a mean */
};

/* What is drawn in one colour. Texts and arrays are borrowed. */
struct chart_series {
    const char *name; /* in the key; NULL: not there */
    const double *y;  /* (n); a point with NAN is left out */
    size_t n;
    const double *x; /* (n); NULL: the chart's */
    enum chart_mark mark;
};

/* One frame. With `groups` it has bars: y[i] stands over groups[i]. */
struct chart {
    const char *title;
    const char *x_label; /* NULL: none */
    const char *y_label;
    const double *x; /* (n of the series) */
    const char *const *groups;
    bool x_log;
    bool y_log;
    bool square;  /* both axes are equal: predicted over observed */
    bool whole;   /* x counts things, with `square` y too: whole ticks */
    double y_min; /* at most so far up begins a logarithmic axis; 0: any */
    double y_max; /* at least so far up; 0: as the data has it */
    bool no_key;  /* the frame beside it has the same */
    struct chart_series series[CHART_SERIES_MAX];
    size_t n_series;
};

/* Adds a line (bars with groups) over the chart's x; borrows name and
 * y[0 .. n). */
void chart_line(struct chart *chart, const char *name, const double *y,
                size_t n);

/*
 * Writes charts[0 .. n) in rows of `columns` to `path`. Texts may hold
 * anything. Returns 0; -ENOPKG when gnuplot is missing; -EPROTO when it failed,
 * which it has said; or a negative errno. On an error the file is as it was,
 * unless writing it failed. Waits for gnuplot: about 0.1 s.
 */
[[nodiscard]] int chart_write(const char *path, const char *title,
                              const struct chart *charts, size_t n,
                              size_t columns);

/* What an error of chart_write() means, and what helps. */
const char *chart_error(int rc);

#endif
