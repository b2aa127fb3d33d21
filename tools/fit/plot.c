/* Draws predicted against measured times as an SVG. See plot.h. */
#include "tools/fit/plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/plot/chart.h"

#define RULES 3

/* What one frame shows; the chart borrows it. */
struct panel {
    char title[160];
    double *measured, *predicted; /* (count), milliseconds; one allocation */
    double ends[2];
    double rules[RULES][2];
};

static int fill(struct panel *p, const char *name, const struct fit_part *part,
                struct chart *chart)
{
    static const double factors[RULES] = {1, 1.1, 1 / 1.1};
    static const char *const names[RULES] = {"exact", "10 % off", NULL};

    p->measured = calloc(part->count + 1, 2 * sizeof p->measured[0]);
    if (!p->measured)
        return -ENOMEM;
    p->predicted = p->measured + part->count;
    snprintf(p->title, sizeof p->title,
             "%s: %zu points, cross-validated error: median %.1f %%, p95 "
             "%.1f %%",
             name, part->count, 100 * part->errors.median_rel,
             100 * part->errors.p95_rel);
    p->ends[0] = INFINITY;
    for (size_t i = 0; i < part->count; i++) {
        const struct fit_point *at = &part->points[i];

        p->measured[i] = at->us / 1e3;
        p->predicted[i] = fit_predict_us(part->form, &part->result,
                                         (double)at->a, (double)at->b) /
                          1e3;
        p->ends[0] = fmin(p->ends[0], p->measured[i]);
        p->ends[1] = fmax(p->ends[1], p->measured[i]);
    }
    *chart = (struct chart){.title = p->title,
                            .x_label = "measured (ms)",
                            .y_label = "predicted (ms)",
                            .x = p->measured,
                            .x_log = true,
                            .y_log = true,
                            .square = true,
                            .n_series = 1 + RULES};
    chart->series[0] = (struct chart_series){
        .y = p->predicted, .n = part->count, .mark = CHART_DOTS};
    for (size_t r = 0; r < RULES; r++) {
        for (size_t e = 0; e < 2; e++)
            p->rules[r][e] = p->ends[e] * factors[r];
        chart->series[1 + r] = (struct chart_series){names[r], p->rules[r], 2,
                                                     p->ends, CHART_RULE};
    }
    return 0;
}

int fit_plot_save(const char *path, const struct cost_model *m,
                  const struct fit_report *report, char *err, size_t err_size)
{
    struct panel panels[2] = {0};
    struct chart charts[2];
    char title[1024];

    snprintf(title, sizeof title, "%s on %s, %s, %s", m->model, m->engine,
             m->machine, m->date);
    int rc = fill(&panels[0], "Prefill", &report->prefill, &charts[0]);
    if (rc == 0)
        rc = fill(&panels[1], "Decode step", &report->decode, &charts[1]);
    if (rc == 0)
        rc = chart_write(path, title, charts, 2, 2);
    free(panels[0].measured);
    free(panels[1].measured);
    if (rc != 0)
        snprintf(err, err_size, "plot %s: %s", path, chart_error(rc));
    return rc;
}
