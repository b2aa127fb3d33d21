/* A comparison over several seeds, and its requests; see compare.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/replay/report/report.h"
#include "tools/replay/study/compare/compare.h"
#include "tools/result_file.h"

/* Averages the summaries that have values. */
static void
average_summary(struct replay_summary *mean, const struct replay_case *runs,
                size_t n,
                const struct replay_summary *(*of)(const struct replay_case *))
{
    struct replay_summary sum = {0};
    double seen = 0;

    for (size_t i = 0; i < n; i++) {
        const struct replay_summary *s = of(&runs[i]);

        if (s->count == 0)
            continue;
        seen++;
        sum.count += s->count;
        sum.mean += s->mean;
        sum.p50 += s->p50;
        sum.p90 += s->p90;
        sum.p99 += s->p99;
        sum.max = fmax(sum.max, s->max);
    }
    *mean = sum;
    if (seen == 0)
        return;
    mean->mean /= seen;
    mean->p50 /= seen;
    mean->p90 /= seen;
    mean->p99 /= seen;
}

static const struct replay_summary *ttft_of(const struct replay_case *c)
{
    return &c->result.report.ttft_s;
}

static const struct replay_summary *tbt_of(const struct replay_case *c)
{
    return &c->result.report.tbt_s;
}

static const struct replay_summary *late_of(const struct replay_case *c)
{
    return &c->result.report.late_s;
}

static const struct replay_summary *error_of(const struct replay_case *c)
{
    return &c->error_s;
}

static void average(struct replay_case *mean, const struct replay_case *runs,
                    size_t n)
{
    struct replay_report *r = &mean->result.report;
    double hits = 0, effective = 0, tokens = 0, predicted = 0;

    *mean = runs[0];
    mean->result.copies = (struct replay_copies){0};
    for (size_t i = 1; i < n; i++) {
        const struct replay_report *other = &runs[i].result.report;

        r->completed += other->completed;
        r->rejected += other->rejected;
        r->failed += other->failed;
        r->effective += other->effective;
        mean->arrivals_s += runs[i].arrivals_s;
        mean->prefill_s += runs[i].prefill_s;
        r->promised += other->promised;
        r->p90_told += other->p90_told;
        r->p90_held += other->p90_held;
    }
    for (size_t i = 0; i < n; i++) {
        hits += runs[i].result.report.prefix_hit_ratio;
        effective += runs[i].result.report.effective_ratio;
        tokens += runs[i].result.report.effective_token_ratio;
        predicted += runs[i].result.report.predicted_ratio;
    }
    r->completed /= n;
    r->rejected /= n;
    r->failed /= n;
    r->promised /= n;
    mean->prefill_s /= (double)n;
    r->prefix_hit_ratio = hits / (double)n;
    r->effective_ratio = effective / (double)n;
    r->effective_token_ratio = tokens / (double)n;
    r->predicted_ratio = predicted / (double)n;
    average_summary(&r->ttft_s, runs, n, ttft_of);
    average_summary(&r->tbt_s, runs, n, tbt_of);
    average_summary(&r->late_s, runs, n, late_of);
    r->late_s.count /= n;
    average_summary(&mean->error_s, runs, n, error_of);
}

void replay_comparison_average(struct replay_comparison *c)
{
    for (size_t i = 0; c->n_seeds > 1 && i < c->n_cases; i++)
        average(&c->cases[i], &c->runs[i * c->n_seeds], c->n_seeds);
}

/* Copies one run's lines, each prefixed by the run's parameters. */
static int copy_requests(const struct replay_case *run, FILE *to)
{
    char *line = NULL;
    size_t size = 0;

    rewind(run->csv);
    while (getline(&line, &size, run->csv) > 0)
        fprintf(
            to, "%u,%u,%g,%g,%s,%llu,%s",
            (unsigned)(run->cluster.prefill_nodes + run->cluster.coupled_nodes),
            (unsigned)run->cluster.decode_nodes,
            run->cluster.link_bytes_per_s * 8 / 1e9, run->speed, run->label,
            (unsigned long long)run->seed, line);
    free(line);
    return ferror(run->csv) ? -EIO : 0;
}

int replay_comparison_requests_csv(const struct replay_comparison *c,
                                   const char *path)
{
    FILE *f = result_open(path);
    int rc = 0;

    if (!f)
        return -errno;
    fputs("nodes,decode_nodes,link_gbps,speed,policy,seed,", f);
    replay_csv_header(f);
    for (size_t i = 0; rc == 0 && i < c->n_cases * c->n_seeds; i++)
        rc = copy_requests(&c->runs[i], f);
    int closed = result_close(f);
    return rc != 0 ? rc : closed;
}
