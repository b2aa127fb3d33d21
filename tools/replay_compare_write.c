/* A comparison as table, CSV and figure; see replay_compare.h. */
#include "tools/replay_compare.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/replay_plot.h"

const struct replay_case *
replay_comparison_case(const struct replay_comparison *c, size_t n, size_t v,
                       size_t p)
{
    return &c->cases[(n * c->speeds.count + v) * c->policies.count + p];
}

/* Points (nodes and speed) at which no policy is faster than the next. */
static size_t ordered_points(const struct replay_comparison *c)
{
    size_t ordered = 0;
    for (size_t n = 0; n < c->nodes.count; n++) {
        for (size_t v = 0; v < c->speeds.count; v++) {
            size_t p = 1;
            while (p < c->policies.count &&
                   replay_comparison_case(c, n, v, p - 1)
                           ->result.report.ttft_s.mean >=
                       replay_comparison_case(c, n, v, p)
                           ->result.report.ttft_s.mean) {
                p++;
            }
            ordered += p >= c->policies.count;
        }
    }
    return ordered;
}

void replay_comparison_print(const struct replay_comparison *c, FILE *file)
{
    bool with_slo = c->cases[0].slo_ttft_s > 0 || c->cases[0].slo_tbt_s > 0;
    fprintf(file, "%5s %6s  %-14s %9s %9s %9s %9s %7s %9s %8s%s\n", "nodes",
            "speed", "policy", "mean (s)", "p50", "p90", "p99", "hits",
            "effective", "goodput",
            with_slo ? "  rejected      late  latest (s)  predicted off p99, "
                       "max (s)"
                     : "");
    for (size_t n = 0; n < c->nodes.count; n++) {
        for (size_t v = 0; v < c->speeds.count; v++) {
            for (size_t p = 0; p < c->policies.count; p++) {
                const struct replay_case *one =
                    replay_comparison_case(c, n, v, p);
                const struct replay_report *r = &one->result.report;
                fprintf(file,
                        "%5.0f %6g  %-14s %9.3f %9.3f %9.3f %9.3f %6.2f%% "
                        "%8.2f%% %8.3f",
                        c->nodes.values[n], c->speeds.values[v],
                        c->policies.names[p], r->ttft_s.mean, r->ttft_s.p50,
                        r->ttft_s.p90, r->ttft_s.p99, 100 * r->prefix_hit_ratio,
                        100 * r->effective_ratio, replay_case_goodput(one));
                if (with_slo) {
                    fprintf(file, "  %8llu  %8llu  %10.3f  %8.3f %8.3f",
                            (unsigned long long)r->rejected,
                            (unsigned long long)one->late, one->latest_s,
                            one->error_s.p99, one->error_s.max);
                }
                fputc('\n', file);
            }
        }
    }
    if (c->policies.count > 1) {
        fputs("\nmean TTFT", file);
        for (size_t p = 0; p < c->policies.count; p++) {
            fprintf(file, "%s%s", p > 0 ? " >= " : " ", c->policies.names[p]);
        }
        fprintf(file, ": at %zu of %zu points\n", ordered_points(c),
                c->nodes.count * c->speeds.count);
    }
}

int replay_comparison_csv(const struct replay_comparison *c, const char *path)
{
    FILE *f = fopen(path, "w");
    if (f == NULL) {
        return -errno;
    }
    fputs("nodes,speed,policy,ttft_mean_s,ttft_p50_s,ttft_p90_s,ttft_p99_s,"
          "tbt_p90_s,hit_ratio,effective_ratio,goodput_per_s,completed,"
          "rejected,failed,prefill_s,late,latest_s,error_p99_s,error_max_s\n",
          f);
    for (size_t i = 0; i < c->n_cases; i++) {
        const struct replay_case *one = &c->cases[i];
        const struct replay_report *r = &one->result.report;
        fprintf(
            f,
            "%u,%g,%s,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%llu,%llu,"
            "%llu,%.3f,%llu,%.6f,%.6f,%.6f\n",
            (unsigned)(one->cluster.prefill_nodes + one->cluster.coupled_nodes),
            one->speed, one->policy, r->ttft_s.mean, r->ttft_s.p50,
            r->ttft_s.p90, r->ttft_s.p99, r->tbt_s.p90, r->prefix_hit_ratio,
            r->effective_ratio, replay_case_goodput(one),
            (unsigned long long)r->completed, (unsigned long long)r->rejected,
            (unsigned long long)r->failed, one->prefill_s,
            (unsigned long long)one->late, one->latest_s, one->error_s.p99,
            one->error_s.max);
    }
    bool failed = ferror(f) != 0;
    return (fclose(f) != 0 || failed) ? -EIO : 0;
}

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

/* One panel: a line a policy over speeds, or over nodes if `over_nodes`. */
static void draw_lines(struct plot *plot, const struct replay_comparison *c,
                       size_t column, size_t row, bool over_nodes)
{
    const struct replay_numbers *along = over_nodes ? &c->nodes : &c->speeds;
    const struct metric *m = &metrics[row];
    double x[REPLAY_LIST_MAX];
    double y[REPLAY_LIST_MAX];
    double x_min = INFINITY;
    double x_max = -INFINITY;
    double y_min;
    double y_max;
    char title[64];
    for (size_t i = 0; i < along->count; i++) {
        x[i] = along->values[i];
        x_min = fmin(x_min, x[i]);
        x_max = fmax(x_max, x[i]);
    }
    plot_nice_range(&x_min, &x_max, false);
    metric_range(c, m, &y_min, &y_max);
    snprintf(title, sizeof title, over_nodes ? "speed %g" : "%g nodes",
             over_nodes ? c->speeds.values[0] : c->nodes.values[column]);
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
                                     over_nodes ? "prefill nodes" : "speed",
                                     m->name};
    plot_axes(plot, &panel);
    for (size_t p = 0; p < c->policies.count; p++) {
        for (size_t i = 0; i < along->count; i++) {
            y[i] = m->of(over_nodes ? replay_comparison_case(c, i, 0, p)
                                    : replay_comparison_case(c, column, i, p));
        }
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
    bool over_nodes = c->speeds.count == 1;
    size_t columns = over_nodes ? 1 : c->nodes.count;
    struct plot *plot = NULL;
    int rc = plot_open(path, 80 + 360 * (int)columns + 240 * (columns == 1),
                       70 + 270 * (int)ROWS, title, &plot);
    if (rc != 0) {
        return rc;
    }
    for (size_t column = 0; column < columns; column++) {
        for (size_t row = 0; row < ROWS; row++) {
            draw_lines(plot, c, column, row, over_nodes);
        }
    }
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
    for (size_t g = 0; g < n; g++) {
        for (size_t p = 0; p < c->policies.count; p++) {
            panel->y_max = fmax(panel->y_max, of[g](&c->cases[p]));
        }
    }
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
    if (rc != 0) {
        return rc;
    }
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
    if (c->nodes.count == 1 && c->speeds.count == 1) {
        return plot_bars(c, title, path);
    }
    return plot_lines(c, title, path);
}
