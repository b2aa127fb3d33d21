/* See plot.h. */
#include "tools/replay/live/plot.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "tools/plot/chart.h"

/* Lower bound for a logarithmic axis: nothing is faster than 0.1 ms. */
#define TTFT_FLOOR_S 1e-4

/* The points, in seconds; each array has room for every record and one more. */
struct points {
    double *sent, *ttft; /* of answered requests */
    double *sorted, *shares;
    size_t answered;
    double *rejected, *failed; /* when they were sent */
    size_t n_rejected, n_failed;
    double *observed, *predicted;
    size_t n_predicted;
    double *top; /* INFINITY = the frame's upper edge */
};

static double seconds(int64_t us)
{
    return fmax((double)us / 1e6, TTFT_FLOOR_S);
}

static void add(struct points *p, const struct replay_record *r)
{
    double at_s = (double)r->intended_us / 1e6;

    if (r->outcome == REPLAY_REJECTED)
        p->rejected[p->n_rejected++] = at_s;
    if (r->outcome == REPLAY_FAILED)
        p->failed[p->n_failed++] = at_s;
    if (r->outcome != REPLAY_COMPLETED || r->first_token_us < 0)
        return;
    p->sent[p->answered] = at_s;
    p->ttft[p->answered++] = seconds(r->first_token_us - r->intended_us);
    if (r->predicted_ttft_us >= 0 && r->sent_us >= 0) {
        p->observed[p->n_predicted] = seconds(r->first_token_us - r->sent_us);
        p->predicted[p->n_predicted++] = seconds(r->predicted_ttft_us);
    }
}

static void collect(struct points *p, const struct replay_record *records,
                    size_t count)
{
    for (size_t i = 0; i < count; i++) {
        add(p, &records[i]);
        p->top[i] = INFINITY;
    }
    for (size_t i = 0; i < p->answered; i++) {
        p->sorted[i + 1] = p->ttft[i];
        p->shares[i + 1] = (double)(i + 1) / (double)p->answered;
    }
    replay_sort(p->sorted + 1, p->answered);
    p->sorted[0] = p->answered > 0 ? p->sorted[1] : 0;
}

static int draw(const struct points *p, const struct replay_report *report,
                const char *path)
{
    const double edges[2] = {-INFINITY, INFINITY};
    const double slo[2] = {report->context.slo_ttft_s,
                           report->context.slo_ttft_s};
    const double p50[2] = {report->ttft_s.p50, report->ttft_s.p50};
    const double p99[2] = {report->ttft_s.p99, report->ttft_s.p99};
    char names[5][48];
    char title[320];

    snprintf(names[0], sizeof names[0], "rejected (%zu)", p->n_rejected);
    snprintf(names[1], sizeof names[1], "failed (%zu)", p->n_failed);
    snprintf(names[2], sizeof names[2], "SLO %g s", slo[0]);
    snprintf(names[3], sizeof names[3], "p50 %.3g s", p50[0]);
    snprintf(names[4], sizeof names[4], "p99 %.3g s", p99[0]);
    snprintf(title, sizeof title,
             "%s replay, policy %s: %" PRIu64 " of %" PRIu64
             " requests answered, %.1f %% of input reused%s",
             report->context.mode,
             report->context.policy ? report->context.policy : "unknown",
             report->completed, report->total, 100 * report->prefix_hit_ratio,
             replay_report_ending(report).text);
    const struct chart charts[] = {
        {.title = "TTFT of completed requests",
         .x_label = "sent at (s)",
         .y_label = "TTFT (s)",
         .y_log = true,
         .series = {{"completed", p->ttft, p->answered, p->sent, CHART_DOTS},
                    {p->n_rejected > 0 ? names[0] : NULL, p->top, p->n_rejected,
                     p->rejected, CHART_CROSSES},
                    {p->n_failed > 0 ? names[1] : NULL, p->top, p->n_failed,
                     p->failed, CHART_CROSSES},
                    {names[2], slo, 2, edges, CHART_RULE}},
         .n_series = 4},
        {.title = "Distribution",
         .x_label = "TTFT (s)",
         .y_label = "share of requests",
         .x_log = true,
         .y_max = 1,
         .series = {{NULL, p->shares, p->answered + (p->answered > 0),
                     p->sorted, CHART_STAIRS},
                    {names[3], edges, 2, p50, CHART_RULE},
                    {names[4], edges, 2, p99, CHART_RULE}},
         .n_series = p->answered > 0 ? 3 : 1},
        {.title = "Prediction, from the real sending on",
         .x_label = "TTFT observed (s)",
         .y_label = "TTFT predicted (s)",
         .x_log = true,
         .y_log = true,
         .square = true,
         .series = {{NULL, p->predicted, p->n_predicted, p->observed,
                     CHART_DOTS},
                    {"as observed", edges, 2, edges, CHART_RULE}},
         .n_series = 2}};
    return chart_write(path, title, charts, p->n_predicted > 0 ? 3 : 2, 3);
}

int replay_live_plot(const struct replay_record *records, size_t count,
                     const struct replay_report *report, const char *path)
{
    struct points p = {0};
    double **arrays[] = {&p.sent,     &p.ttft,      &p.sorted,
                         &p.shares,   &p.top,       &p.failed,
                         &p.rejected, &p.predicted, &p.observed};
    const size_t n = sizeof arrays / sizeof arrays[0];
    double *values = calloc(count + 1, n * sizeof values[0]);

    if (!values)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        *arrays[i] = values + i * (count + 1);
    collect(&p, records, count);
    int rc = draw(&p, report, path);
    free(values);
    return rc;
}
