/* Figures 1, 6, 7 and 15: effective requests against what is asked for. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/replay/paper/figures/figures.h"

#define TTFT_SLO_S 30.0

/* ---- 1, 6, 7: over the TBT SLO, disaggregated against coupled ---- */

static const double tbt_slos_s[] = {0.025, 0.05, 0.075, 0.1, 0.15,
                                    0.2,   0.25, 0.3,   0.4, 0.5};
#define TBT_SLOS (sizeof tbt_slos_s / sizeof tbt_slos_s[0])

static const double capacity_speeds[] = {1, 2};
#define CAPACITY_SPEEDS 2

struct system {
    const char *name;
    uint32_t prefill; /* nodes; 0: all are coupled */
    bool prefix_cache;
    bool chunked;
    const char *policy;
};

static const struct system systems[] = {
    {"8 prefill + 8 decode", 8, true, true, "global_cache"},
    {"10 + 6", 10, true, true, "global_cache"},
    {"12 + 4", 12, true, true, "global_cache"},
    {"coupled", 0, false, false, "least_loaded"},
    {"coupled, prefix cache", 0, true, false, "local_cache"},
    {"coupled, chunked", 0, false, true, "least_loaded"},
    {"coupled, both", 0, true, true, "local_cache"},
};
#define SYSTEMS (sizeof systems / sizeof systems[0])
#define DISAGGREGATED 3 /* the first of them */

static struct replay_case system_case(const struct figure_run *run,
                                      const struct system *s, double speed)
{
    struct cluster cluster = s->prefill > 0 ? run->paper : run->coupled;

    if (s->prefill > 0) {
        cluster.prefill_nodes = s->prefill;
        cluster.decode_nodes = 16 - s->prefill;
    } else {
        cluster.coupled_nodes = 16;
        cluster.prefix_cache = s->prefix_cache;
        if (!s->chunked) {
            cluster.step_tokens = 0;
            cluster.mix_requests = false;
        }
    }
    struct replay_case c = replay_case_make(&cluster, s->policy);
    c.speed = speed;
    c.keep_latencies = true;
    return c;
}

/* The best of systems[from .. to) at this SLO. */
static double best_of(double (*ratio)[TBT_SLOS], size_t from, size_t to,
                      size_t slo)
{
    double best = 0;

    for (size_t i = from; i < to; i++)
        best = fmax(best, ratio[i][slo]);
    return best;
}

static void capacity_verdict(const struct figure_run *run, double speed,
                             double over_prefix, double largest)
{
    static const double paper[] = {498, 42, 40};
    char what[96];

    if (run->workload == FIGURE_OTHER)
        return;
    bool any_slo = run->workload == FIGURE_CONVERSATION;
    snprintf(what, sizeof what, "at speed %g, %s", speed,
             any_slo ? "the largest gain over coupled"
                     : "the gain over a prefix cache at 200 ms");
    if (!any_slo) {
        figure_verdict_percent(run, what, over_prefix, paper[run->workload]);
        return;
    }
    /* A maximum: what is above it differs. */
    figure_verdict(run, largest <= paper[run->workload] + FIGURE_AGREES_POINTS,
                   "%s %+.0f %%, up to %+.0f %% in the paper", what, largest,
                   paper[run->workload]);
}

static void capacity_row(const struct figure_run *run, double speed,
                         double (*ratio)[TBT_SLOS])
{
    double gain = 0;
    double at_s = 0;

    for (size_t i = 0; i < TBT_SLOS; i++) {
        double ours = best_of(ratio, 0, DISAGGREGATED, i);
        double theirs = best_of(ratio, DISAGGREGATED, SYSTEMS, i);

        if (theirs > 0 && ours / theirs - 1 > gain) {
            gain = ours / theirs - 1;
            at_s = tbt_slos_s[i];
        }
    }
    const size_t slo_200 = 5;
    fprintf(run->table, " %.1f %%, %.1f %%, %.1f %% | ",
            100 * ratio[0][slo_200], 100 * ratio[1][slo_200],
            100 * ratio[2][slo_200]);
    fprintf(run->table, "%.1f %%, %.1f %%, %.1f %%, %.1f %% | ",
            100 * ratio[3][slo_200], 100 * ratio[4][slo_200],
            100 * ratio[5][slo_200], 100 * ratio[6][slo_200]);
    double prefix = ratio[4][slo_200];
    double over_prefix =
        100 * (best_of(ratio, 0, DISAGGREGATED, slo_200) / prefix - 1);
    if (prefix > 0)
        fprintf(run->table, "%+.0f %% | ", over_prefix);
    else
        fputs("- | ", run->table);
    fprintf(run->table, "%+.0f %% at %g ms |\n", 100 * gain, at_s * 1e3);
    capacity_verdict(run, speed, over_prefix, 100 * gain);
}

static int capacity_write(struct figure_run *run,
                          double (*ratio)[SYSTEMS][TBT_SLOS])
{
    static const char *const titles[CAPACITY_SPEEDS] = {"speed 1", "speed 2"};
    struct chart charts[CAPACITY_SPEEDS];
    double x_ms[TBT_SLOS];
    FILE *csv = figure_csv(run, "01", "speed,system,tbt_slo_s,effective_ratio");

    if (!csv)
        return -EIO;
    for (size_t v = 0; v < CAPACITY_SPEEDS; v++) {
        charts[v] = (struct chart){.title = titles[v],
                                   .x_label = "TBT SLO (ms)",
                                   .y_label = "effective requests",
                                   .x = x_ms,
                                   .y_max = 1,
                                   .no_key = v + 1 < CAPACITY_SPEEDS};
        for (size_t s = 0; s < SYSTEMS; s++) {
            chart_line(&charts[v], systems[s].name, ratio[v][s], TBT_SLOS);
            for (size_t i = 0; i < TBT_SLOS; i++) {
                x_ms[i] = tbt_slos_s[i] * 1e3;
                fprintf(csv, "%g,\"%s\",%g,%.6f\n", capacity_speeds[v],
                        systems[s].name, tbt_slos_s[i], ratio[v][s][i]);
            }
        }
    }
    int rc = figure_csv_close(run, csv);
    return rc != 0 ? rc
                   : figure_chart(run, "01",
                                  "effective requests (TTFT within 30 s)",
                                  charts, CAPACITY_SPEEDS);
}

int figure_capacity(struct figure_run *run)
{
    struct replay_case cases[CAPACITY_SPEEDS * SYSTEMS];
    double ratio[CAPACITY_SPEEDS][SYSTEMS][TBT_SLOS];

    for (size_t v = 0; v < CAPACITY_SPEEDS; v++) {
        for (size_t s = 0; s < SYSTEMS; s++) {
            cases[v * SYSTEMS + s] =
                system_case(run, &systems[s], capacity_speeds[v]);
        }
    }
    int rc = figure_simulate(run, cases, CAPACITY_SPEEDS * SYSTEMS);
    for (size_t v = 0; v < CAPACITY_SPEEDS && rc == 0; v++) {
        for (size_t s = 0; s < SYSTEMS; s++) {
            for (size_t i = 0; i < TBT_SLOS; i++) {
                ratio[v][s][i] = replay_case_effective(
                    &cases[v * SYSTEMS + s], TTFT_SLO_S, tbt_slos_s[i]);
            }
        }
    }
    replay_cases_fini(cases, CAPACITY_SPEEDS * SYSTEMS);
    if (rc == 0)
        rc = capacity_write(run, ratio);
    if (rc == 0) {
        for (size_t v = 0; v < CAPACITY_SPEEDS; v++) {
            fprintf(run->table, "| %s | %g |", run->name, capacity_speeds[v]);
            capacity_row(run, capacity_speeds[v], ratio[v]);
        }
    }
    return rc;
}

/* ---- 15: over the split of 16 nodes ---- */

static const double ratio_speeds[] = {1, 2, 4};
#define RATIO_SPEEDS (sizeof ratio_speeds / sizeof ratio_speeds[0])
#define SPLITS 13 /* 2 to 14 prefill nodes */

struct split_series {
    double effective[RATIO_SPEEDS][SPLITS];
    double ttft_s[RATIO_SPEEDS][SPLITS];
    double tbt_s[RATIO_SPEEDS][SPLITS];
};

static int ratio_write(struct figure_run *run, const struct split_series *y)
{
    static const char *const names[RATIO_SPEEDS] = {"speed 1", "speed 2",
                                                    "speed 4"};
    double x[SPLITS];
    struct chart charts[] = {
        {.title = "Effective (TTFT 10 s, TBT 100 ms)",
         .y_label = "share of requests",
         .y_max = 1},
        {.title = "TTFT", .y_label = "mean (s)", .y_log = true},
        {.title = "TBT", .y_label = "mean (s)", .y_log = true}};
    FILE *csv = figure_csv(run, "15",
                           "speed,prefill,decode,effective_ratio,ttft_mean_s,"
                           "tbt_mean_s");
    if (!csv)
        return -EIO;
    for (size_t v = 0; v < RATIO_SPEEDS; v++) {
        for (size_t i = 0; i < SPLITS; i++) {
            x[i] = (double)i + 2;
            fprintf(csv, "%g,%zu,%zu,%.6f,%.6f,%.6f\n", ratio_speeds[v], i + 2,
                    14 - i, y->effective[v][i], y->ttft_s[v][i],
                    y->tbt_s[v][i]);
        }
        chart_line(&charts[0], names[v], y->effective[v], SPLITS);
        chart_line(&charts[1], names[v], y->ttft_s[v], SPLITS);
        chart_line(&charts[2], names[v], y->tbt_s[v], SPLITS);
    }
    for (size_t i = 0; i < 3; i++) {
        charts[i].x = x;
        charts[i].x_label = "prefill nodes of 16";
        charts[i].whole = true;
        charts[i].no_key = i < 2;
    }
    int rc = figure_csv_close(run, csv);
    return rc != 0 ? rc
                   : figure_chart(run, "15", "16 nodes, prefill or decode",
                                  charts, 3);
}

/* Splits within a point of the best, of which there may be many. */
static size_t near_best(const double effective[SPLITS], size_t best)
{
    size_t n = 0;

    for (size_t i = 0; i < SPLITS; i++)
        n += effective[i] >= effective[best] - 0.01;
    return n;
}

static void ratio_verdict(const struct figure_run *run,
                          const struct split_series *y, size_t v, size_t best)
{
    const double *ttft_s = y->ttft_s[v];
    const double *tbt_s = y->tbt_s[v];

    figure_verdict(run, best >= 7 && best <= 9,
                   "at speed %g, %zu + %zu is best (%zu splits are within a "
                   "point of it), about 1:1 in the paper",
                   ratio_speeds[v], best, 16 - best,
                   near_best(y->effective[v], best - 2));
    figure_verdict(run,
                   ttft_s[2] >= ttft_s[6] && ttft_s[6] >= ttft_s[10] &&
                       tbt_s[2] <= tbt_s[6] && tbt_s[6] <= tbt_s[10],
                   "at speed %g, from 4 over 8 to 12 prefill nodes TTFT goes "
                   "%.2f, %.2f, %.2f s and TBT %.1f, %.1f, %.1f ms, down and "
                   "up in the paper",
                   ratio_speeds[v], ttft_s[2], ttft_s[6], ttft_s[10],
                   1e3 * tbt_s[2], 1e3 * tbt_s[6], 1e3 * tbt_s[10]);
}

static void ratio_row(const struct figure_run *run,
                      const struct split_series *y, size_t v)
{
    size_t best = 0;

    for (size_t i = 1; i < SPLITS; i++)
        best = y->effective[v][i] > y->effective[v][best] ? i : best;
    const size_t even = 6;
    fprintf(run->table,
            "| %s | %g | %zu + %zu, %.1f %% | %.1f %% | %.2f s, %.2f s, %.2f s "
            "| %.0f ms, %.0f ms, %.0f ms |\n",
            run->name, ratio_speeds[v], best + 2, 14 - best,
            100 * y->effective[v][best], 100 * y->effective[v][even],
            y->ttft_s[v][2], y->ttft_s[v][even], y->ttft_s[v][10],
            1e3 * y->tbt_s[v][2], 1e3 * y->tbt_s[v][even],
            1e3 * y->tbt_s[v][10]);
    if (run->workload == FIGURE_SYNTHETIC)
        ratio_verdict(run, y, v, best + 2);
}

int figure_ratio(struct figure_run *run)
{
    struct replay_case *cases = calloc(RATIO_SPEEDS * SPLITS, sizeof cases[0]);
    struct split_series y;

    if (!cases) {
        snprintf(run->error, sizeof run->error, "out of memory");
        return -ENOMEM;
    }
    for (size_t v = 0; v < RATIO_SPEEDS; v++) {
        for (size_t i = 0; i < SPLITS; i++) {
            struct cluster cluster = run->paper;

            cluster.prefill_nodes = (uint32_t)i + 2;
            cluster.decode_nodes = 14 - (uint32_t)i;
            struct replay_case *c = &cases[v * SPLITS + i];
            *c = replay_case_make(&cluster, "global_cache");
            c->speed = ratio_speeds[v];
            c->effective_ttft_s = 10;
            c->effective_tbt_s = 0.1;
        }
    }
    int rc = figure_simulate(run, cases, RATIO_SPEEDS * SPLITS);
    for (size_t v = 0; v < RATIO_SPEEDS && rc == 0; v++) {
        for (size_t i = 0; i < SPLITS; i++) {
            const struct replay_report *r =
                &cases[v * SPLITS + i].result.report;

            y.effective[v][i] = r->effective_ratio;
            y.ttft_s[v][i] = r->ttft_s.mean;
            y.tbt_s[v][i] = r->tbt_s.mean;
        }
    }
    replay_cases_fini(cases, RATIO_SPEEDS * SPLITS);
    free(cases);
    if (rc == 0)
        rc = ratio_write(run, &y);
    for (size_t v = 0; v < RATIO_SPEEDS && rc == 0; v++)
        ratio_row(run, &y, v);
    return rc;
}
