/* A comparison as a figure; see compare.h. */
#include <math.h>
#include <stdio.h>

#include "tools/plot/plot.h"
#include "tools/replay/study/compare.h"

/* What is drawn, a row of panels each. */
struct metric {
    const char *name;
    double (*of)(const struct replay_case *c);
    bool log;
};

static double mean_of(const struct replay_case *c)
{
    return c->result.report.ttft_s.mean;
}

static double p50_of(const struct replay_case *c)
{
    return c->result.report.ttft_s.p50;
}

static double p90_of(const struct replay_case *c)
{
    return c->result.report.ttft_s.p90;
}

static double p99_of(const struct replay_case *c)
{
    return c->result.report.ttft_s.p99;
}

static double hits_of(const struct replay_case *c)
{
    return c->result.report.prefix_hit_ratio;
}

static double effective_of(const struct replay_case *c)
{
    return c->result.report.effective_ratio;
}

static const struct metric metrics[] = {
    {"mean TTFT (s)", mean_of, true},
    {"p99 TTFT (s)", p99_of, true},
    {"prefix hit ratio", hits_of, false},
    {"effective requests", effective_of, false},
    {"goodput (requests/s)", replay_case_goodput, false},
};

#define ROWS (sizeof metrics / sizeof metrics[0])

static void metric_range(const struct replay_comparison *c,
                         const struct metric *m, double *min, double *max)
{
    *min = m->log ? INFINITY : 0;
    *max = m->log ? 1e-6 : 0;
    for (size_t i = 0; i < c->n_cases; i++) {
        double y = m->of(&c->cases[i]);

        *min = m->log && y > 1e-6 ? fmin(*min, y) : *min;
        *max = fmax(*max, y);
    }
    *min = isfinite(*min) ? *min : 1e-6;
    plot_nice_range(min, max, m->log);
}

/* What lines go along, and how many columns of panels that leaves. */
struct layout {
    const struct replay_numbers *along;
    const char *label;
    bool over_speeds;
    size_t columns;
};

static struct layout lay_out(const struct replay_comparison *c)
{
    if (c->speeds.count > 1) {
        return (struct layout){&c->speeds, "speed", true,
                               replay_comparison_clusters(c)};
    }
    if (c->nodes.count == 1)
        return (struct layout){&c->links, "link (Gbit/s)", false, 1};
    return (struct layout){&c->nodes, "prefill nodes", false,
                           c->links.count > 0 ? c->links.count : 1};
}

static const struct replay_case *case_at(const struct replay_comparison *c,
                                         const struct layout *l, size_t column,
                                         size_t i, size_t p)
{
    return l->over_speeds
               ? replay_comparison_case(c, column, i, p)
               : replay_comparison_case(c, column * l->along->count + i, 0, p);
}

static void name_column(const struct replay_comparison *c,
                        const struct layout *l, size_t column, char *title,
                        size_t size)
{
    const struct replay_case *one = case_at(c, l, column, 0, 0);
    char nodes[32];

    replay_comparison_nodes(&one->cluster, nodes, sizeof nodes);
    int n = l->over_speeds || l->along == &c->links
                ? snprintf(title, size, "%s nodes", nodes)
                : snprintf(title, size, "speed %g", one->speed);
    if (c->links.count > 1 && l->along != &c->links) {
        snprintf(title + n, size - (size_t)n, ", %g Gbit/s",
                 one->cluster.link_bytes_per_s * 8 / 1e9);
    }
}

/* One panel: a line a policy. */
static void draw_lines(struct plot *plot, const struct replay_comparison *c,
                       const struct layout *l, size_t column, size_t row)
{
    const struct replay_numbers *along = l->along;
    const struct metric *m = &metrics[row];
    double x[REPLAY_LIST_MAX];
    double y[REPLAY_LIST_MAX];
    double x_min = INFINITY;
    double x_max = -INFINITY;
    double y_min;
    double y_max;
    char title[96];

    for (size_t i = 0; i < along->count; i++) {
        x[i] = along->values[i];
        x_min = fmin(x_min, x[i]);
        x_max = fmax(x_max, x[i]);
    }
    plot_nice_range(&x_min, &x_max, false);
    metric_range(c, m, &y_min, &y_max);
    name_column(c, l, column, title, sizeof title);
    const struct plot_panel panel = {80 + 360 * (double)column,
                                     80 + 270 * (double)row,
                                     270,
                                     180,
                                     x_min,
                                     x_max,
                                     y_min,
                                     y_max,
                                     false,
                                     m->log,
                                     title,
                                     l->label,
                                     m->name};
    plot_axes(plot, &panel);
    for (size_t p = 0; p < c->policies.count; p++) {
        for (size_t i = 0; i < along->count; i++)
            y[i] = m->of(case_at(c, l, column, i, p));
        plot_line(plot, &panel, x, y, along->count, false, plot_colour(p));
        plot_points(plot, &panel, x, y, along->count, PLOT_DOT, plot_colour(p));
        if (column == 0 && row == 0) {
            plot_key(plot, &panel, PLOT_BOTTOM_RIGHT, p, c->policies.count,
                     c->policies.names[p], plot_colour(p));
        }
    }
}

static int plot_lines(const struct replay_comparison *c, const char *title,
                      const char *path)
{
    const struct layout layout = lay_out(c);
    size_t columns = layout.columns;
    struct plot *plot = NULL;
    int rc = plot_open(path, 80 + 360 * (int)columns + 240 * (columns == 1),
                       70 + 270 * (int)ROWS, title, &plot);

    if (rc != 0)
        return rc;
    for (size_t column = 0; column < columns; column++)
        for (size_t row = 0; row < ROWS; row++)
            draw_lines(plot, c, &layout, column, row);
    return plot_close(plot);
}

/* Groups of bars, a bar a policy, from of[0 .. n). */
static void draw_bars(struct plot *plot, const struct replay_comparison *c,
                      struct plot_panel *panel,
                      double (*const *of)(const struct replay_case *c),
                      const char *const *names, size_t n)
{
    double width = 0.8 / (double)c->policies.count;

    panel->x_min = 0;
    panel->x_max = (double)n;
    panel->y_min = 0;
    panel->y_max = 0;
    for (size_t g = 0; g < n; g++)
        for (size_t p = 0; p < c->policies.count; p++)
            panel->y_max = fmax(panel->y_max, of[g](&c->cases[p]));
    plot_nice_range(&panel->y_min, &panel->y_max, false);
    plot_axes_named(plot, panel, names, n);
    for (size_t g = 0; g < n; g++) {
        for (size_t p = 0; p < c->policies.count; p++) {
            double y = of[g](&c->cases[p]);
            char text[24];

            snprintf(text, sizeof text, "%.3g", y);
            plot_bar(plot, panel, (double)g + 0.1 + width * ((double)p + 0.5),
                     width * 0.92, y, text, plot_colour(p));
        }
    }
}

static int plot_bars(const struct replay_comparison *c, const char *title,
                     const char *path)
{
    static double (*const ttft[])(const struct replay_case *) = {
        mean_of, p50_of, p90_of, p99_of};
    static const char *const ttft_names[] = {"mean", "p50", "p90", "p99"};
    static double (*const ratios[])(const struct replay_case *) = {
        hits_of, effective_of};
    static const char *const ratio_names[] = {"hit ratio", "effective"};
    struct plot *plot = NULL;
    int rc = plot_open(path, 1160, 450, title, &plot);
    if (rc != 0)
        return rc;
    struct plot_panel left = {.left = 80,
                              .top = 80,
                              .width = 600,
                              .height = 300,
                              .title = "TTFT",
                              .x_label = "",
                              .y_label = "seconds"};
    struct plot_panel right = {.left = 760,
                               .top = 80,
                               .width = 370,
                               .height = 300,
                               .title = "Ratios",
                               .x_label = "",
                               .y_label = "share"};
    draw_bars(plot, c, &left, ttft, ttft_names, 4);
    draw_bars(plot, c, &right, ratios, ratio_names, 2);
    for (size_t p = 0; p < c->policies.count; p++) {
        plot_key(plot, &left, PLOT_TOP_LEFT, p, c->policies.count,
                 c->policies.names[p], plot_colour(p));
    }
    return plot_close(plot);
}

int replay_comparison_plot(const struct replay_comparison *c, const char *path)
{
    char title[160];

    snprintf(title, sizeof title, "%llu requests on %s",
             (unsigned long long)c->cases[0].result.report.total,
             c->cases[0].cluster.name);
    if (replay_comparison_clusters(c) == 1 && c->speeds.count == 1)
        return plot_bars(c, title, path);
    return plot_lines(c, title, path);
}
