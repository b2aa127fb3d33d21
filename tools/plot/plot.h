/*
 * Small SVG plots: panels with axes, points, lines and a legend. It knows
 * nothing about what is plotted. The same data gives the same bytes.
 */
#ifndef TOOLS_PLOT_PLOT_H
#define TOOLS_PLOT_PLOT_H

#include <stdbool.h>
#include <stddef.h>

struct plot;

/* A panel: where it is in pixels, and what its axes show. Borrowed texts. */
struct plot_panel {
    double left, top, width, height; /* of the area inside the axes */
    double x_min, x_max, y_min, y_max;
    bool x_log, y_log; /* both ends above 0 then */
    const char *title;
    const char *x_label;
    const char *y_label;
};

enum plot_mark { PLOT_DOT, PLOT_CROSS };

/* Text is escaped; colours are any that SVG knows. */

/* Starts an SVG file. Returns 0 with *plot owned, or a negative errno. */
int plot_open(const char *path, int width, int height, const char *title,
              struct plot **plot) __attribute__((warn_unused_result));

/* Ends and closes the file, frees the plot. Returns 0 or -EIO. */
int plot_close(struct plot *plot) __attribute__((warn_unused_result));

/*
 * Moves *min and *max outward to a range that is pleasant to read and never
 * empty: to nice multiples, or to 1, 2 or 5 times a power of ten if `log`.
 */
void plot_nice_range(double *min, double *max, bool log);

/* Writes the panel's title above it. */
void plot_title(struct plot *plot, const struct plot_panel *panel);

/* Draws frame, grid, ticks and labels of the panel. */
void plot_axes(struct plot *plot, const struct plot_panel *panel);

/* Draws marks at (x[i], y[i]); those outside of the panel are left out. */
void plot_points(struct plot *plot, const struct plot_panel *panel,
                 const double *x, const double *y, size_t count,
                 enum plot_mark mark, const char *colour);

/* Joins the points; as stairs (y changes at each x) if `step`. Points are
 * moved to the panel's edge if they lie outside. */
void plot_line(struct plot *plot, const struct plot_panel *panel,
               const double *x, const double *y, size_t count, bool step,
               const char *colour);

/* A dashed line across the panel at x (`vertical`) or y = value, with a text
 * beside it; nothing if the value lies outside. */
void plot_guide(struct plot *plot, const struct plot_panel *panel, double value,
                bool vertical, const char *text, const char *colour);

/* Draws a lane, a flat panel without scales: crosses at x[0 .. count), its
 * title on the left. */
void plot_lane(struct plot *plot, const struct plot_panel *lane,
               const double *x, size_t count, const char *colour);

/* Writes the text of a vertical guide at `value` a line above that of another
 * at `below` if both would stand at one place. Otherwise as plot_guide(). */
void plot_guide_above(struct plot *plot, const struct plot_panel *panel,
                      double value, double below, const char *text,
                      const char *colour);

/* The i-th of a set of colours that differ from each other; it repeats. */
const char *plot_colour(size_t i);

/* Where the key of a panel with many series stands. */
enum plot_corner {
    PLOT_TOP_LEFT,
    PLOT_TOP_RIGHT,
    PLOT_BOTTOM_LEFT,
    PLOT_BOTTOM_RIGHT
};

/* The i-th of `count` entries of the panel's key, inside its corner. */
void plot_key(struct plot *plot, const struct plot_panel *panel,
              enum plot_corner corner, size_t i, size_t count, const char *text,
              const char *colour);

/* As plot_axes(), with names[i] (count) below x = i + 0.5 instead of ticks. */
void plot_axes_named(struct plot *plot, const struct plot_panel *panel,
                     const char *const *names, size_t count);

/* A bar from the panel's lower edge up to y, from x - width / 2 on; `text`
 * above it may be NULL. Linear x only. */
void plot_bar(struct plot *plot, const struct plot_panel *panel, double x,
              double width, double y, const char *text, const char *colour);

#endif
