/* Figures 5 and 13, and goodput under an SLO: TTFT against load and network. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay/paper/figures/figures.h"
#include "tools/replay/study/compare/compare.h"

/* ---- 5: policies ---- */

static const char *const figure_5_policies[] = {"random", "least_loaded",
                                                "local_cache", "global_cache"};
static const double figure_5_nodes[] = {8, 10, 16};
static const double figure_5_speeds[] = {1, 2, 3};

/* Of the conversation trace alone; 14 % at a load that the paper omits. */
static void policies_verdict(const struct figure_run *run, int in_order,
                             double least, double most)
{
    if (run->workload != FIGURE_CONVERSATION)
        return;
    figure_verdict(run, in_order == 9,
                   "the order random > load > local > global holds at %d of 9 "
                   "points",
                   in_order);
    figure_verdict(run, least <= -14 && -14 <= most,
                   "global to local is %+.0f to %+.0f %% by load, -14 %% in "
                   "the paper",
                   least, most);
}

/* A row for each number of nodes at speed 1 and for 16 nodes at the others. */
static void policies_rows(const struct figure_run *run,
                          const struct replay_comparison *c)
{
    int in_order = 0;
    double least = INFINITY;
    double most = -INFINITY;

    for (size_t n = 0; n < 3; n++) {
        for (size_t v = 0; v < 3; v++) {
            double mean[4];
            bool falls = true;

            for (size_t p = 0; p < 4; p++) {
                mean[p] = replay_comparison_case(c, n, v, p)
                              ->result.report.ttft_s.mean;
                falls = falls && (p == 0 || mean[p] <= mean[p - 1]);
            }
            fprintf(run->table,
                    "| %s | %g | %g | %.2f | %.2f | %.2f | %.2f | %+.0f %% | "
                    "%s |\n",
                    run->name, c->nodes.values[n], c->speeds.values[v], mean[0],
                    mean[1], mean[2], mean[3], 100 * (mean[3] / mean[2] - 1),
                    falls ? "yes" : "no");
            in_order += falls;
            least = fmin(least, 100 * (mean[3] / mean[2] - 1));
            most = fmax(most, 100 * (mean[3] / mean[2] - 1));
        }
    }
    policies_verdict(run, in_order, least, most);
}

int figure_policies(struct figure_run *run)
{
    static const struct replay_comparison none;
    struct replay_comparison c = none;
    struct replay_case cases[36];
    char path[FIGURE_PATH_BYTES];

    memcpy(c.policies.names, figure_5_policies, sizeof figure_5_policies);
    memcpy(c.nodes.values, figure_5_nodes, sizeof figure_5_nodes);
    memcpy(c.speeds.values, figure_5_speeds, sizeof figure_5_speeds);
    c.policies.count = 4;
    c.nodes.count = c.speeds.count = 3;
    c.cases = cases;
    c.n_cases = 36;
    for (size_t i = 0; i < 36; i++) {
        cases[i] = replay_case_make(&run->reference, figure_5_policies[i % 4]);
        cases[i].speed = figure_5_speeds[i / 4 % 3];
        cases[i].cluster.prefill_nodes = (uint32_t)figure_5_nodes[i / 12];
    }
    int rc = figure_simulate(run, cases, 36);
    if (rc == 0) {
        policies_rows(run, &c);
        figure_path(run, "05", "csv", path);
        rc = replay_comparison_csv(&c, path);
        if (rc != 0)
            snprintf(run->error, sizeof run->error, "%.900s: %s", path,
                     strerror(-rc));
    }
    if (rc == 0) {
        figure_path(run, "05", "svg", path);
        rc = figure_drawn(run, path, replay_comparison_plot(&c, path));
    }
    replay_cases_fini(cases, 36);
    return rc;
}

/* ---- 13: bandwidth ---- */

static const double gbps[] = {24, 50, 100, 150, 200, 400, 800};
#define RATES (sizeof gbps / sizeof gbps[0])
static const double rate_speeds[] = {1, 1.5};
#define RATE_SPEEDS 2

/* Of synthetic alone; "sharply worse" is twice as long and more. */
static void bandwidth_verdict(const struct figure_run *run, double speed,
                              const double mean[RATES])
{
    const size_t gbps_100 = 2;
    double longest = 0;

    if (run->workload != FIGURE_SYNTHETIC)
        return;
    for (size_t i = gbps_100; i < RATES; i++)
        longest = fmax(longest, mean[i]);
    figure_verdict(run, longest < 2,
                   "at speed %g, from 100 Gbit/s on the mean is at most %.2f "
                   "s, under 2 s in the paper",
                   speed, longest);
    figure_verdict(run, mean[0] >= 2 * mean[gbps_100],
                   "at speed %g, 24 Gbit/s take %.2f times as long as 100, "
                   "sharply longer (here: twice) in the paper",
                   speed, mean[0] / mean[gbps_100]);
}

static int bandwidth_write(struct figure_run *run, double (*mean)[RATES],
                           double (*p90)[RATES])
{
    static const char *const names[] = {"speed 1", "speed 1.5"};
    FILE *csv = figure_csv(run, "13", "speed,link_gbps,ttft_mean_s,ttft_p90_s");

    if (!csv)
        return -EIO;
    for (size_t v = 0; v < RATE_SPEEDS; v++) {
        fprintf(run->table, "| %s | %g |", run->name, rate_speeds[v]);
        for (size_t i = 0; i < RATES; i++) {
            fprintf(csv, "%g,%g,%.6f,%.6f\n", rate_speeds[v], gbps[i],
                    mean[v][i], p90[v][i]);
            fprintf(run->table, " %.2f |", mean[v][i]);
        }
        fputc('\n', run->table);
        bandwidth_verdict(run, rate_speeds[v], mean[v]);
    }
    struct chart charts[] = {{.title = "Mean TTFT",
                              .x_label = "link (Gbit/s)",
                              .y_label = "seconds",
                              .x = gbps,
                              .x_log = true,
                              .y_log = true},
                             {.title = "p90 TTFT",
                              .x_label = "link (Gbit/s)",
                              .y_label = "seconds",
                              .x = gbps,
                              .x_log = true,
                              .y_log = true}};
    for (size_t v = 0; v < RATE_SPEEDS; v++) {
        chart_line(&charts[0], names[v], mean[v], RATES);
        chart_line(&charts[1], names[v], p90[v], RATES);
    }
    charts[0].no_key = true;
    int rc = figure_csv_close(run, csv);
    return rc != 0 ? rc
                   : figure_chart(run, "13", "TTFT over bandwidth", charts, 2);
}

int figure_bandwidth(struct figure_run *run)
{
    struct replay_case cases[RATE_SPEEDS * RATES];
    double mean[RATE_SPEEDS][RATES];
    double p90[RATE_SPEEDS][RATES];

    for (size_t i = 0; i < RATE_SPEEDS * RATES; i++) {
        cases[i] = replay_case_make(&run->paper, "global_cache");
        cases[i].speed = rate_speeds[i / RATES];
        cases[i].cluster.link_bytes_per_s = gbps[i % RATES] * 1e9 / 8;
    }
    int rc = figure_simulate(run, cases, RATE_SPEEDS * RATES);
    for (size_t i = 0; i < RATE_SPEEDS * RATES && rc == 0; i++) {
        mean[i / RATES][i % RATES] = cases[i].result.report.ttft_s.mean;
        p90[i / RATES][i % RATES] = cases[i].result.report.ttft_s.p90;
    }
    replay_cases_fini(cases, RATE_SPEEDS * RATES);
    return rc == 0 ? bandwidth_write(run, mean, p90) : rc;
}

/* ---- goodput under a TTFT SLO of 30 s ---- */

#define GOODPUT_SPEEDS 8

int figure_goodput(struct figure_run *run)
{
    static const char *const names[] = {"reference-16", "paper-16"};
    struct replay_case cases[2 * GOODPUT_SPEEDS];
    double x[GOODPUT_SPEEDS];
    double goodput[2][GOODPUT_SPEEDS];
    double effective[2][GOODPUT_SPEEDS];

    for (size_t i = 0; i < 2 * GOODPUT_SPEEDS; i++) {
        cases[i] = replay_case_make(
            i < GOODPUT_SPEEDS ? &run->reference : &run->paper, "global_cache");
        cases[i].speed = (double)(i % GOODPUT_SPEEDS) + 1;
        cases[i].slo_ttft_s = cases[i].effective_ttft_s = 30;
        cases[i].effective_tbt_s = 0;
    }
    int rc = figure_simulate(run, cases, 2 * GOODPUT_SPEEDS);
    FILE *csv = rc == 0 ? figure_csv(run, "goodput",
                                     "cluster,speed,goodput_per_s,"
                                     "effective_ratio,rejected,late,latest_s,"
                                     "error_p99_s,error_max_s")
                        : NULL;
    if (!csv) {
        replay_cases_fini(cases, 2 * GOODPUT_SPEEDS);
        return rc != 0 ? rc : -EIO;
    }
    for (size_t k = 0; k < 2; k++) {
        double highest = 0;
        double drop = 0;
        uint64_t late = 0;
        double latest_s = 0;
        double p99_s = 0;
        double max_s = 0;

        fprintf(run->table, "| %s | %s |", run->name, names[k]);
        for (size_t v = 0; v < GOODPUT_SPEEDS; v++) {
            const struct replay_case *c = &cases[k * GOODPUT_SPEEDS + v];

            x[v] = c->speed;
            goodput[k][v] = replay_case_goodput(c);
            effective[k][v] = c->result.report.effective_ratio;
            highest = fmax(highest, goodput[k][v]);
            drop = fmax(drop, 1 - goodput[k][v] / highest);
            late += c->late;
            latest_s = fmax(latest_s, c->latest_s);
            p99_s = fmax(p99_s, c->error_s.p99);
            max_s = fmax(max_s, c->error_s.max);
            fprintf(csv, "%s,%g,%.6f,%.6f,%llu,%llu,%.6f,%.6f,%.6f\n", names[k],
                    x[v], goodput[k][v], effective[k][v],
                    (unsigned long long)c->result.report.rejected,
                    (unsigned long long)c->late, c->latest_s, c->error_s.p99,
                    c->error_s.max);
            fprintf(run->table, " %.2f |", goodput[k][v]);
        }
        fprintf(run->table, " %.1f %% | %llu, %.3f s | %.3f s, %.3f s |\n",
                100 * drop, (unsigned long long)late, latest_s, p99_s, max_s);
    }
    replay_cases_fini(cases, 2 * GOODPUT_SPEEDS);
    struct chart charts[] = {{.title = "Goodput",
                              .x_label = "speed",
                              .y_label = "effective requests/s",
                              .x = x},
                             {.title = "Effective requests",
                              .x_label = "speed",
                              .y_label = "share of all",
                              .x = x,
                              .y_max = 1}};
    for (size_t k = 0; k < 2; k++) {
        chart_line(&charts[0], names[k], goodput[k], GOODPUT_SPEEDS);
        chart_line(&charts[1], names[k], effective[k], GOODPUT_SPEEDS);
    }
    charts[0].no_key = true;
    rc = figure_csv_close(run, csv);
    return rc != 0 ? rc
                   : figure_chart(run, "goodput", "goodput, TTFT SLO 30 s",
                                  charts, 2);
}
