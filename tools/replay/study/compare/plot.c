/* A comparison as a figure; see compare.h. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/plot/chart.h"
#include "tools/replay/study/compare/compare.h"

#define CHARTS_MAX 5 /* in a column */

/* A value of a case: a member of its report, or the goodput. */
struct metric {
    const char *name;
    size_t offset;
    bool log;
};

#define REPORT(member) offsetof(struct replay_report, member)
#define GOODPUT SIZE_MAX

/* Rows of frames, or bars. */
static const struct metric lines[CHARTS_MAX] = {
    {"mean TTFT (s)", REPORT(ttft_s.mean), true},
    {"p99 TTFT (s)", REPORT(ttft_s.p99), true},
    {"prefix hit ratio", REPORT(prefix_hit_ratio), false},
    {"effective requests", REPORT(effective_ratio), false},
    {"goodput (requests/s)", GOODPUT, false},
};
static const size_t bars[] = {
    REPORT(ttft_s.mean), REPORT(ttft_s.p50),       REPORT(ttft_s.p90),
    REPORT(ttft_s.p99),  REPORT(prefix_hit_ratio), REPORT(effective_ratio)};

static double value_of(const struct replay_case *c, size_t offset)
{
    return offset == GOODPUT
               ? replay_case_goodput(c)
               : *(const double *)((const char *)&c->result.report + offset);
}

/* The x axis of lines, and the number of columns. */
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

/* Common to a column of frames. */
struct column {
    char title[96];
};

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

/* Sets the smallest (above 0) and largest value of a row, so that its frames
 * share a scale. */
static void set_scale(const struct replay_comparison *c, const struct metric *m,
                      struct chart *chart)
{
    for (size_t i = 0; i < c->n_cases; i++) {
        double y = value_of(&c->cases[i], m->offset);

        if (y > 0 && (chart->y_min == 0 || y < chart->y_min))
            chart->y_min = y;
        chart->y_max = y > chart->y_max ? y : chart->y_max;
    }
}

static int plot_lines(const struct replay_comparison *c, const char *title,
                      const char *path)
{
    const struct layout l = lay_out(c);
    size_t n = l.columns * CHARTS_MAX;
    size_t points = l.along->count;
    struct chart *charts = calloc(n, sizeof charts[0]);
    struct column *names = calloc(l.columns, sizeof names[0]);
    double *values = calloc(n * c->policies.count * points, sizeof values[0]);
    int rc = -ENOMEM;

    for (size_t k = 0; k < n && charts && names && values; k++) {
        const struct metric *m = &lines[k / l.columns];
        size_t column = k % l.columns;

        name_column(c, &l, column, names[column].title,
                    sizeof names[column].title);
        charts[k] = (struct chart){.title = names[column].title,
                                   .x_label = l.label,
                                   .y_label = m->name,
                                   .x = l.along->values,
                                   .whole = l.along == &c->nodes,
                                   .y_log = m->log,
                                   .no_key = column + 1 < l.columns};
        set_scale(c, m, &charts[k]);
        for (size_t p = 0; p < c->policies.count; p++) {
            double *y = values + (k * c->policies.count + p) * points;

            for (size_t i = 0; i < points; i++)
                y[i] = value_of(case_at(c, &l, column, i, p), m->offset);
            chart_line(&charts[k], c->policies.names[p], y, points);
        }
        rc = 0;
    }
    if (rc == 0)
        rc = chart_write(path, title, charts, n, l.columns);
    free(values);
    free(names);
    free(charts);
    return rc;
}

/* Draws groups of bars, one bar per policy. */
static int plot_bars(const struct replay_comparison *c, const char *title,
                     const char *path)
{
    static const char *const names[] = {"mean", "p50",       "p90",
                                        "p99",  "hit ratio", "effective"};
    double values[REPLAY_LIST_MAX][6];
    struct chart charts[] = {
        {.title = "TTFT",
         .y_label = "seconds",
         .groups = names,
         .no_key = true},
        {.title = "Ratios", .y_label = "share", .groups = names + 4}};

    for (size_t p = 0; p < c->policies.count; p++) {
        const char *name = c->policies.names[p];

        for (size_t i = 0; i < 6; i++)
            values[p][i] = value_of(&c->cases[p], bars[i]);
        chart_line(&charts[0], name, values[p], 4);
        chart_line(&charts[1], name, values[p] + 4, 2);
    }
    return chart_write(path, title, charts, 2, 2);
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
