/* See chart.h. */
#include "tools/plot/chart.h"

#include <math.h>
#include <stdio.h>

#define LEFT 80.0
#define TOP 80.0
#define WIDTH 330.0
#define HEIGHT 280.0
#define STEP (WIDTH + 110.0)

/* A logarithmic axis begins here at the lowest. */
#define LOG_FLOOR 1e-6

static void y_range(const struct chart *c, double *min, double *max)
{
    *min = c->y_log ? INFINITY : 0;
    *max = c->y_log ? LOG_FLOOR : c->y_max;
    for (size_t s = 0; s < c->n_series; s++) {
        for (size_t i = 0; i < c->series[s].n; i++) {
            double y = c->series[s].y[i];

            if (!isfinite(y))
                continue;
            if (c->y_log && y > LOG_FLOOR)
                *min = fmin(*min, y);
            *max = fmax(*max, y);
        }
    }
    *min = isfinite(*min) ? *min : LOG_FLOOR;
    plot_nice_range(min, max, c->y_log);
}

static void x_range(const struct chart *c, double *min, double *max)
{
    *min = INFINITY;
    *max = -INFINITY;
    for (size_t s = 0; s < c->n_series; s++) {
        for (size_t i = 0; i < c->series[s].n; i++) {
            *min = fmin(*min, c->x[i]);
            *max = fmax(*max, c->x[i]);
        }
    }
    if (!isfinite(*min)) {
        *min = c->x_log ? 1 : 0;
        *max = *min + 1;
    }
    plot_nice_range(min, max, c->x_log);
}

static void draw_series(struct plot *plot, const struct plot_panel *panel,
                        const struct chart *c, size_t s)
{
    double x[CHART_POINTS_MAX];
    double y[CHART_POINTS_MAX];
    size_t n = 0;

    for (size_t i = 0; i < c->series[s].n && n < CHART_POINTS_MAX; i++) {
        if (isfinite(c->series[s].y[i])) {
            x[n] = c->x[i];
            y[n++] = fmax(c->series[s].y[i], panel->y_min);
        }
    }
    plot_line(plot, panel, x, y, n, false, plot_colour(s));
    if (!c->no_dots)
        plot_points(plot, panel, x, y, n, PLOT_DOT, plot_colour(s));
}

static void draw_bars(struct plot *plot, const struct plot_panel *panel,
                      const struct chart *c, size_t s)
{
    double width = 0.8 / (double)c->n_series;

    for (size_t i = 0; i < c->series[s].n; i++) {
        double y = c->series[s].y[i];
        char text[24];

        if (isfinite(y)) {
            snprintf(text, sizeof text, "%.3g", y);
            plot_bar(plot, panel, (double)i + 0.1 + width * ((double)s + 0.5),
                     width * 0.92, y, text, plot_colour(s));
        }
    }
}

static void draw(struct plot *plot, const struct chart *c, size_t column)
{
    struct plot_panel panel = {.left = LEFT + STEP * (double)column,
                               .top = TOP,
                               .width = WIDTH,
                               .height = HEIGHT,
                               .x_log = c->x_log,
                               .y_log = c->y_log,
                               .title = c->title,
                               .x_label = c->x_label,
                               .y_label = c->y_label};

    y_range(c, &panel.y_min, &panel.y_max);
    if (c->groups) {
        panel.x_max = (double)c->series[0].n;
        plot_axes_named(plot, &panel, c->groups, c->series[0].n);
    } else {
        x_range(c, &panel.x_min, &panel.x_max);
        plot_axes(plot, &panel);
    }
    for (size_t s = 0; s < c->n_series; s++)
        (c->groups ? draw_bars : draw_series)(plot, &panel, c, s);
    for (size_t s = 0; s < c->n_series && c->n_series > 1 && !c->no_key; s++) {
        plot_key(plot, &panel, c->key, s, c->n_series, c->series[s].name,
                 plot_colour(s));
    }
}

int chart_write(const char *path, const char *title, const struct chart *charts,
                size_t n_charts)
{
    struct plot *plot = NULL;
    int rc = plot_open(path, (int)(LEFT + STEP * (double)n_charts - 50),
                       (int)(TOP + HEIGHT + 60), title, &plot);

    if (rc != 0)
        return rc;
    for (size_t i = 0; i < n_charts; i++)
        draw(plot, &charts[i], i);
    return plot_close(plot);
}
