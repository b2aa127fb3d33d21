/* The facts of a workload as JSON and as a figure; see workload.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/plot/plot.h"
#include "tools/replay/study/workload.h"

#define CURVE_POINTS 121

static json_t *summary_json(const struct replay_summary *s)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "mean", s->mean, "p50",
                     s->p50, "p90", s->p90, "p99", s->p99, "max", s->max);
}

static json_t *caches_json(const struct replay_workload *f,
                           const double *mtokens, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) {
        json_t *row =
            json_pack("{s:f, s:f}", "mtokens", mtokens[i], "hit_ratio",
                      replay_workload_lru_ratio(f, mtokens[i] * 1e6));

        if (json_array_append_new(list, row) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *popularity_json(const struct replay_workload *f)
{
    json_t *list = json_array();

    for (uint64_t rank = 1; rank <= f->unique_blocks; rank *= 10) {
        json_t *row = json_pack("{s:I, s:I}", "rank", (json_int_t)rank,
                                "touches", (json_int_t)f->popularity[rank - 1]);

        if (json_array_append_new(list, row) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *replay_workload_json(const struct replay_workload *f,
                             const double *mtokens, size_t n)
{
    /* "o" steals its reference, also when packing fails; NULL makes it fail. */
    return json_pack(
        "{s:I, s:f, s:I, s:I, s:I, s:o, s:o, s:{s:I, s:I, s:I, s:I, s:f},"
        " s:{s:f, s:f}, s:{s:f, s:f}, s:o, s:o}",
        "requests", (json_int_t)f->totals.requests, "span_s", f->span_s,
        "arrival_times", (json_int_t)f->arrival_times, "arrivals_at_once_max",
        (json_int_t)f->arrivals_at_once_max, "skipped_lines",
        (json_int_t)f->skipped_lines, "input_tokens",
        summary_json(&f->input_tokens), "output_tokens",
        summary_json(&f->output_tokens), "blocks", "tokens",
        (json_int_t)f->block_tokens, "touched", (json_int_t)f->totals.blocks,
        "different", (json_int_t)f->unique_blocks, "used_once",
        (json_int_t)f->used_once_blocks, "first_block_share",
        f->first_block_share, "reuse_gap_s", "p50", f->gap_p50_s, "p90",
        f->gap_p90_s, "best_possible_hit_ratio", "blocks", f->best_block_ratio,
        "tokens", f->best_token_ratio, "lru", caches_json(f, mtokens, n),
        "popularity", popularity_json(f));
}

static void draw_capacity(struct plot *plot, const struct replay_workload *f)
{
    double x[CURVE_POINTS];
    double y[CURVE_POINTS];
    double least = 0.1;
    double most =
        (double)f->unique_blocks * (double)f->block_tokens / 1e6 * 1.2;
    double top = f->best_block_ratio * 1.1;
    double zero = 0;

    most = most > 1 ? most : 1;
    plot_nice_range(&least, &most, true);
    plot_nice_range(&zero, &top, false);
    for (size_t i = 0; i < CURVE_POINTS; i++) {
        x[i] =
            least * pow(most / least, (double)i / (double)(CURVE_POINTS - 1));
        y[i] = replay_workload_lru_ratio(f, x[i] * 1e6);
    }
    struct plot_panel panel = {80,
                               80,
                               310,
                               300,
                               least,
                               most,
                               0,
                               top,
                               true,
                               false,
                               "One LRU cache",
                               "capacity (M tokens)",
                               "hit ratio (blocks)"};
    plot_axes(plot, &panel);
    plot_line(plot, &panel, x, y, CURVE_POINTS, false, plot_colour(0));
    char text[48];
    snprintf(text, sizeof text, "infinite: %.4f", f->best_block_ratio);
    plot_guide(plot, &panel, f->best_block_ratio, false, text, "#777");
}

static void draw_popularity(struct plot *plot, const struct replay_workload *f)
{
    double x[CURVE_POINTS];
    double y[CURVE_POINTS];
    double x_min = 1;
    double x_max = (double)f->unique_blocks;
    double y_min = 0.5;
    double y_max = f->popularity[0];

    plot_nice_range(&x_min, &x_max, true);
    plot_nice_range(&y_min, &y_max, true);
    for (size_t i = 0; i < CURVE_POINTS; i++) {
        x[i] = floor(pow((double)f->unique_blocks,
                         (double)i / (double)(CURVE_POINTS - 1)) +
                     1e-9);
        uint64_t rank = x[i] > 1 ? (uint64_t)x[i] - 1 : 0;
        y[i] = f->popularity[rank < f->unique_blocks ? rank : 0];
    }
    struct plot_panel panel = {480,
                               80,
                               310,
                               300,
                               x_min,
                               x_max,
                               y_min,
                               y_max,
                               true,
                               true,
                               "Popularity of blocks",
                               "rank",
                               "touches"};
    plot_axes(plot, &panel);
    plot_line(plot, &panel, x, y, CURVE_POINTS, true, plot_colour(1));
}

static void draw_gaps(struct plot *plot, struct replay_workload *f)
{
    double x[CURVE_POINTS];
    double y[CURVE_POINTS];
    double least = 0.1;
    double most = trace_reuse_gap_ms(f->reuse, 1) / 1e3;

    most = most > 1 ? most : 1;
    plot_nice_range(&least, &most, true);
    for (size_t i = 0; i < CURVE_POINTS; i++) {
        y[i] = (double)i / (double)(CURVE_POINTS - 1);
        x[i] = trace_reuse_gap_ms(f->reuse, y[i]) / 1e3;
        x[i] = x[i] > least ? x[i] : least;
    }
    struct plot_panel panel = {880,
                               80,
                               310,
                               300,
                               least,
                               most,
                               0,
                               1,
                               true,
                               false,
                               "Time until a block comes back",
                               "gap (s)",
                               "share of reuses"};
    plot_axes(plot, &panel);
    plot_line(plot, &panel, x, y, CURVE_POINTS, false, plot_colour(2));
    char text[48];
    snprintf(text, sizeof text, "p50 %.0f s", f->gap_p50_s);
    plot_guide(plot, &panel, f->gap_p50_s, true, text, "#777");
}

int replay_workload_plot(struct replay_workload *f, const char *path)
{
    char title[160];
    struct plot *plot = NULL;

    snprintf(title, sizeof title,
             "%llu requests, %.0f tokens in and %.0f out on average, at best "
             "%.1f %% of the input reused",
             (unsigned long long)f->totals.requests, f->input_tokens.mean,
             f->output_tokens.mean, 100 * f->best_token_ratio);
    int rc = plot_open(path, 1230, 450, title, &plot);
    if (rc != 0)
        return rc;
    draw_capacity(plot, f);
    draw_popularity(plot, f);
    draw_gaps(plot, f);
    return plot_close(plot);
}
