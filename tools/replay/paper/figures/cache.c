/* Figures 8, 9, 10 and 11: what caches keep, save and copy. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/replay/paper/figures/figures.h"

/* ---- 8: GPU time of prefill ---- */

int figure_prefill(struct figure_run *run)
{
    static const char *const names[] = {"no prefix cache", "local caches",
                                        "global cache"};
    static const char *const policies[] = {"least_loaded", "local_cache",
                                           "global_cache"};
    struct replay_case cases[3];
    double seconds[3];
    for (size_t i = 0; i < 3; i++) {
        cases[i] = replay_case_make(&run->reference, policies[i]);
        cases[i].cluster.prefix_cache = i > 0;
    }
    int rc = figure_simulate(run, cases, 3);
    FILE *csv =
        rc == 0 ? figure_csv(run, "08", "system,prefill_s_per_request") : NULL;
    if (!csv) {
        replay_cases_fini(cases, 3);
        return rc != 0 ? rc : -EIO;
    }
    for (size_t i = 0; i < 3; i++) {
        seconds[i] =
            cases[i].prefill_s / (double)cases[i].result.report.completed;
        fprintf(csv, "\"%s\",%.6f\n", names[i], seconds[i]);
    }
    replay_cases_fini(cases, 3);
    const struct chart chart = {.title = "Prefill time of a request",
                                .y_label = "seconds on a node, mean",
                                .groups = names,
                                .series = {{.y = seconds, .n = 3}},
                                .n_series = 1};
    fprintf(
        run->table, "| %s | %.3f s | %.3f s (%+.0f %%) | %.3f s (%+.0f %%) | ",
        run->name, seconds[0], seconds[1], 100 * (seconds[1] / seconds[0] - 1),
        seconds[2], 100 * (seconds[2] / seconds[0] - 1));
    static const char *const paper[] = {"-36 %", "-53 %", "-64 %", "-"};
    static const double percent[] = {-36, -53, -64};
    fprintf(run->table, "%s |\n", paper[run->workload]);
    if (run->workload != FIGURE_OTHER) {
        figure_verdict_percent(run, "prefill time with the global cache",
                               100 * (seconds[2] / seconds[0] - 1),
                               percent[run->workload]);
    }
    rc = figure_csv_close(run, csv);
    return rc != 0 ? rc
                   : figure_chart(run, "08", "GPU time of prefill", &chart, 1);
}

/* ---- 9: one LRU cache ---- */

#define LRU_POINTS 121

int figure_lru(struct figure_run *run)
{
    static const double mtokens[] = {1, 3, 10, 30, 50};
    double x[LRU_POINTS];
    double y[LRU_POINTS];
    const struct replay_workload *f = run->facts;
    FILE *csv = figure_csv(run, "09", "capacity_mtokens,hit_ratio_blocks");

    if (!csv)
        return -EIO;
    for (size_t i = 0; i < LRU_POINTS; i++) {
        x[i] = 0.1 * pow(2000, (double)i / (LRU_POINTS - 1));
        y[i] = replay_workload_lru_ratio(f, x[i] * 1e6);
        fprintf(csv, "%.6g,%.6f\n", x[i], y[i]);
    }
    fprintf(run->table, "| %s |", run->name);
    for (size_t i = 0; i < sizeof mtokens / sizeof mtokens[0]; i++) {
        double ratio = replay_workload_lru_ratio(f, mtokens[i] * 1e6);

        fprintf(run->table, " %.4f (%.0f %%) |", ratio,
                100 * ratio / f->best_block_ratio);
    }
    fprintf(run->table, " %.4f |\n", f->best_block_ratio);
    if (run->workload != FIGURE_OTHER) {
        double few = replay_workload_lru_ratio(f, 3e6) / f->best_block_ratio;
        double many = replay_workload_lru_ratio(f, 50e6) / f->best_block_ratio;

        figure_verdict(run, few < 0.5,
                       "3 M tokens reach %.0f %% of the highest ratio, less "
                       "than half in the paper (in most cases)",
                       100 * few);
        figure_verdict(run, many >= 0.95,
                       "50 M tokens reach %.0f %%, nearly all in the paper",
                       100 * many);
    }
    const struct chart chart = {
        .title = "One LRU cache",
        .x_label = "capacity (M tokens)",
        .y_label = "hit ratio (blocks)",
        .x = x,
        .x_log = true,
        .series = {{.y = y, .n = LRU_POINTS, .mark = CHART_CURVE}},
        .n_series = 1};
    int rc = figure_csv_close(run, csv);
    return rc != 0
               ? rc
               : figure_chart(run, "09", "hit ratio over capacity", &chart, 1);
}

/* ---- 10: local and global caches of the same size ---- */

int figure_global(struct figure_run *run)
{
    static const char *const names[] = {"least loaded", "local", "global",
                                        "ideal pool"};
    static const char *const policies[] = {"least_loaded", "local_cache",
                                           "global_cache", "ideal_pool"};
    struct replay_case cases[4];
    double hits[4];
    double seconds[4];
    for (size_t i = 0; i < 4; i++) {
        cases[i] = replay_case_make(&run->reference, policies[i]);
        cases[i].cluster.prefill_nodes = 10;
    }
    int rc = figure_simulate(run, cases, 4);
    FILE *csv = rc == 0 ? figure_csv(run, "10",
                                     "policy,hit_ratio,prefill_s_per_request")
                        : NULL;
    if (!csv) {
        replay_cases_fini(cases, 4);
        return rc != 0 ? rc : -EIO;
    }
    for (size_t i = 0; i < 4; i++) {
        hits[i] = cases[i].result.report.prefix_hit_ratio;
        seconds[i] =
            cases[i].prefill_s / (double)cases[i].result.report.completed;
        fprintf(csv, "%s,%.6f,%.6f\n", policies[i], hits[i], seconds[i]);
    }
    replay_cases_fini(cases, 4);
    fprintf(run->table,
            "| %s | %.1f %% | %.1f %% | %.1f %% | %.1f %% | %.2f, %.2f | "
            "%+.0f %%, %+.0f %% |\n",
            run->name, 100 * hits[0], 100 * hits[1], 100 * hits[2],
            100 * hits[3], hits[2] / hits[0], hits[2] / hits[1],
            100 * (seconds[2] / seconds[0] - 1),
            100 * (seconds[2] / seconds[1] - 1));
    if (run->workload != FIGURE_OTHER) {
        double times = hits[2] / hits[0];
        double change = 100 * (seconds[2] / seconds[0] - 1);

        figure_verdict(run, times <= 2.36 * 1.05,
                       "hits of placement by load times %.2f, up to 2.36 in "
                       "the paper",
                       times);
        figure_verdict(run, change >= -48 - FIGURE_AGREES_POINTS,
                       "prefill time against placement by load %+.0f %%, down "
                       "to -48 %% in the paper",
                       change);
    }
    const struct chart charts[] = {{.title = "Hit ratio",
                                    .y_label = "share of input tokens",
                                    .groups = names,
                                    .series = {{.y = hits, .n = 4}},
                                    .n_series = 1},
                                   {.title = "Prefill time of a request",
                                    .y_label = "seconds on a node, mean",
                                    .groups = names,
                                    .series = {{.y = seconds, .n = 4}},
                                    .n_series = 1}};
    rc = figure_csv_close(run, csv);
    return rc != 0
               ? rc
               : figure_chart(run, "10", "10 nodes of 3 M tokens", charts, 2);
}

/* ---- 11: copies of popular keys ---- */

#define COPIES_POINTS 512

/* At most COPIES_POINTS times, evenly thinned. Returns how many. */
static size_t copies_series(const struct replay_case *c, double *x,
                            double (*y)[COPIES_POINTS], FILE *csv)
{
    const struct replay_copies *copies = &c->result.copies;
    size_t width = c->result.facts.n_ranked;
    size_t step = copies->n / COPIES_POINTS + 1;
    size_t n = 0;

    for (size_t t = 0; t < copies->n; t++) {
        double at_s = (double)copies->at_us[t] / 1e6;
        bool shown = t % step == 0;

        fprintf(csv, "%.0f", at_s);
        for (size_t w = 0; w < width; w++) {
            uint32_t count = copies->copies[t * width + w];

            fprintf(csv, ",%u", (unsigned)count);
            if (shown)
                y[w][n] = count;
        }
        for (size_t w = width; w < REPLAY_RANKS; w++)
            fputc(',', csv); /* there is no block of that rank */
        fputc('\n', csv);
        if (shown)
            x[n++] = at_s;
    }
    return n;
}

/* "Almost every" of the 16 is 14 and more, "few" less than half. */
static void copies_verdict(const struct figure_run *run,
                           const double mean[REPLAY_RANKS])
{
    const size_t rank_100 = 2;
    double all = run->reference.prefill_nodes;

    if (run->workload == FIGURE_OTHER || !isfinite(mean[rank_100]))
        return;
    bool few = run->workload == FIGURE_SYNTHETIC;
    figure_verdict(run,
                   few ? mean[0] < all / 2 && mean[rank_100] < all / 2
                       : mean[rank_100] >= 0.875 * all,
                   "the key of rank 1 is on %.1f of %.0f nodes, that of rank "
                   "100 on %.1f, %s in the paper",
                   mean[0], all, mean[rank_100],
                   few ? "few copies" : "the top 100 on almost every one");
}

static void copies_row(const struct figure_run *run,
                       const struct replay_case *c)
{
    const struct replay_copies *copies = &c->result.copies;
    size_t width = c->result.facts.n_ranked;
    double mean[REPLAY_RANKS];

    fprintf(run->table, "| %s |", run->name);
    for (size_t w = 0; w < REPLAY_RANKS; w++) {
        double sum = 0;

        mean[w] = NAN;
        for (size_t t = copies->n / 2; t < copies->n && w < width; t++)
            sum += copies->copies[t * width + w];
        if (w < width && copies->n > 0) {
            mean[w] = sum / (double)(copies->n - copies->n / 2);
            fprintf(run->table, " %.1f (%llu) |", mean[w],
                    (unsigned long long)c->result.facts.references[w]);
        } else {
            fputs(" - |", run->table);
        }
    }
    fputc('\n', run->table);
    copies_verdict(run, mean);
}

int figure_replicas(struct figure_run *run)
{
    static const char *const names[REPLAY_RANKS] = {
        "rank 1", "rank 10", "rank 100", "rank 1000", "rank 10000"};
    struct replay_case c = replay_case_make(&run->reference, "global_cache");
    double x[COPIES_POINTS];

    double(*y)[COPIES_POINTS] = calloc(REPLAY_RANKS, sizeof *y);
    FILE *csv = NULL;
    c.with_facts = true;
    int rc = y ? figure_simulate(run, &c, 1) : -ENOMEM;
    if (rc == 0) {
        csv = figure_csv(run, "11",
                         "at_s,rank_1,rank_10,rank_100,rank_1000,rank_10000");
        rc = csv ? 0 : -EIO;
    }
    if (rc == 0) {
        size_t n = copies_series(&c, x, y, csv);
        struct chart chart = {.title = "Copies of keys, every 30 s",
                              .x_label = "time (s)",
                              .y_label = "nodes that hold it",
                              .x = x,
                              .y_max = 16,
                              .n_series = c.result.facts.n_ranked};

        for (size_t w = 0; w < chart.n_series; w++)
            chart.series[w] = (struct chart_series){
                .name = names[w], .y = y[w], .n = n, .mark = CHART_CURVE};
        copies_row(run, &c);
        rc = figure_csv_close(run, csv);
        if (rc == 0)
            rc = figure_chart(run, "11", "copies of popular keys", &chart, 1);
    }
    replay_cases_fini(&c, 1);
    free(y);
    return rc;
}
