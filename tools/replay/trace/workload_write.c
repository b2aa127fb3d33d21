/* The facts of a workload as JSON and as a picture; see workload.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/plot/chart.h"
#include "tools/replay/trace/workload.h"

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

/* What the three curves show. */
struct curves {
    double mtokens[CURVE_POINTS], hits[CURVE_POINTS];
    double ranks[CURVE_POINTS], touches[CURVE_POINTS];
    double gaps_s[CURVE_POINTS], shares[CURVE_POINTS];
};

/* The i-th point of a curve from `least` to `most`, evenly on a logarithmic
 * axis. */
static double spread(double least, double most, size_t i)
{
    return least * pow(most / least, (double)i / (double)(CURVE_POINTS - 1));
}

static void fill_curves(struct replay_workload *f, struct curves *c)
{
    double blocks = (double)f->unique_blocks;
    double mtokens = fmax(1, blocks * (double)f->block_tokens / 1e6 * 1.2);

    for (size_t i = 0; i < CURVE_POINTS; i++) {
        c->mtokens[i] = spread(0.1, mtokens, i);
        c->hits[i] = replay_workload_lru_ratio(f, c->mtokens[i] * 1e6);
        c->ranks[i] = floor(spread(1, blocks, i) + 1e-9);
        uint64_t rank = c->ranks[i] > 1 ? (uint64_t)c->ranks[i] - 1 : 0;
        c->touches[i] = f->popularity[rank < f->unique_blocks ? rank : 0];
        c->shares[i] = (double)i / (double)(CURVE_POINTS - 1);
        c->gaps_s[i] =
            fmax(0.1, trace_reuse_gap_ms(f->reuse, c->shares[i]) / 1e3);
    }
}

int replay_workload_plot(struct replay_workload *f, const char *path)
{
    const double edges[2] = {-INFINITY, INFINITY};
    const double best[2] = {f->best_block_ratio, f->best_block_ratio};
    const double p50[2] = {f->gap_p50_s, f->gap_p50_s};
    char names[2][48];
    char title[160];
    struct curves c;

    fill_curves(f, &c);
    snprintf(names[0], sizeof names[0], "infinite: %.4f", best[0]);
    snprintf(names[1], sizeof names[1], "p50 %.0f s", p50[0]);
    snprintf(title, sizeof title,
             "%llu requests, %.0f tokens in and %.0f out on average, at best "
             "%.1f %% of the input reused",
             (unsigned long long)f->totals.requests, f->input_tokens.mean,
             f->output_tokens.mean, 100 * f->best_token_ratio);
    const struct chart charts[] = {
        {.title = "One LRU cache",
         .x_label = "capacity (M tokens)",
         .y_label = "hit ratio (blocks)",
         .x_log = true,
         .y_max = 1.05 * best[0],
         .series = {{"LRU", c.hits, CURVE_POINTS, c.mtokens, CHART_CURVE},
                    {names[0], best, 2, edges, CHART_RULE}},
         .n_series = 2},
        {.title = "Popularity of blocks",
         .x_label = "rank",
         .y_label = "touches",
         .x_log = true,
         .y_log = true,
         .series = {{NULL, c.touches, CURVE_POINTS, c.ranks, CHART_STAIRS}},
         .n_series = 1},
        {.title = "Time until a block comes back",
         .x_label = "gap (s)",
         .y_label = "share of reuses",
         .x_log = true,
         .series = {{NULL, c.shares, CURVE_POINTS, c.gaps_s, CHART_CURVE},
                    {names[1], edges, 2, p50, CHART_RULE}},
         .n_series = 2}};
    return chart_write(path, title, charts, 3, 3);
}
