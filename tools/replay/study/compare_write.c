/* A comparison as table and CSV; see compare.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/replay/study/compare.h"

const struct replay_case *
replay_comparison_case(const struct replay_comparison *c, size_t n, size_t v,
                       size_t p)
{
    return &c->cases[(n * c->speeds.count + v) * c->policies.count + p];
}

size_t replay_comparison_clusters(const struct replay_comparison *c)
{
    return c->nodes.count * (c->links.count > 0 ? c->links.count : 1);
}

/* Points (cluster and speed) at which no policy is faster than the next. */
static size_t ordered_points(const struct replay_comparison *c)
{
    size_t ordered = 0;

    for (size_t n = 0; n < replay_comparison_clusters(c); n++) {
        for (size_t v = 0; v < c->speeds.count; v++) {
            size_t p = 1;

            while (p < c->policies.count &&
                   replay_comparison_case(c, n, v, p - 1)
                           ->result.report.ttft_s.mean >=
                       replay_comparison_case(c, n, v, p)
                           ->result.report.ttft_s.mean)
                p++;
            ordered += p >= c->policies.count;
        }
    }
    return ordered;
}

static bool decodes(const struct cluster *c)
{
    return c->decode_nodes + c->coupled_nodes > 0;
}

void replay_comparison_nodes(const struct cluster *c, char *name, size_t size)
{
    unsigned nodes = (unsigned)(c->prefill_nodes + c->coupled_nodes);

    if (c->decode_nodes > 0)
        snprintf(name, size, "%u+%u", nodes, (unsigned)c->decode_nodes);
    else
        snprintf(name, size, "%u", nodes);
}

static void print_head(const struct replay_comparison *c, FILE *file)
{
    const struct replay_case *one = &c->cases[0];

    fprintf(file, "%llu requests on nodes of %s, admission %s\nasked for: ",
            (unsigned long long)one->result.report.total, one->cluster.name,
            one->admission ? one->admission : "plain");
    if (one->slo_ttft_s > 0) {
        fprintf(file, "TTFT within %g s%s", one->slo_ttft_s,
                one->slo_tbt_s > 0 ? ", " : "");
    }
    if (one->slo_tbt_s > 0)
        fprintf(file, "TBT within %g s", one->slo_tbt_s);
    if (!(one->slo_ttft_s > 0 || one->slo_tbt_s > 0))
        fputs("no SLO", file);
    fprintf(file, "; effective: TTFT within %g s", one->effective_ttft_s);
    if (decodes(&one->cluster) && isfinite(one->effective_tbt_s))
        fprintf(file, ", TBT within %g s", one->effective_tbt_s);
    fputs("\n\n", file);
}

/* Seconds, or "-" where nothing was measured. */
static void print_seconds(double x, bool measured, int digits, FILE *file)
{
    if (measured)
        fprintf(file, " %9.*f", digits, x);
    else
        fprintf(file, " %9s", "-");
}

static void print_case(const struct replay_case *one, bool with_slo, FILE *file)
{
    const struct replay_report *r = &one->result.report;
    bool any = r->ttft_s.count > 0;
    char nodes[32];

    replay_comparison_nodes(&one->cluster, nodes, sizeof nodes);
    fprintf(file, "%7s %7g %6g  %-14s", nodes,
            one->cluster.link_bytes_per_s * 8 / 1e9, one->speed, one->policy);
    print_seconds(r->ttft_s.mean, any, 3, file);
    print_seconds(r->ttft_s.p50, any, 3, file);
    print_seconds(r->ttft_s.p90, any, 3, file);
    print_seconds(r->ttft_s.p99, any, 3, file);
    if (decodes(&one->cluster))
        print_seconds(r->tbt_s.p90, r->tbt_s.count > 0, 4, file);
    if (any)
        fprintf(file, " %6.2f%%", 100 * r->prefix_hit_ratio);
    else
        fprintf(file, " %7s", "-");
    fprintf(file, " %8.2f%% %10.3f", 100 * r->effective_ratio,
            replay_case_goodput(one));
    if (with_slo) {
        fprintf(file, "  %8llu  %8llu", (unsigned long long)r->rejected,
                (unsigned long long)one->late);
        print_seconds(one->latest_s, one->late > 0, 3, file);
        fputc(' ', file);
        print_seconds(one->error_s.p99, one->error_s.count > 0, 3, file);
        print_seconds(one->error_s.max, one->error_s.count > 0, 3, file);
    }
    fputc('\n', file);
}

void replay_comparison_print(const struct replay_comparison *c, FILE *file)
{
    bool with_slo = c->cases[0].slo_ttft_s > 0 || c->cases[0].slo_tbt_s > 0;
    bool tbt = decodes(&c->cases[0].cluster);

    print_head(c, file);
    fprintf(file, "%7s %7s %6s  %-14s %9s %9s %9s %9s%s %7s %9s %10s%s\n", "",
            "", "", "", "TTFT (s)", "", "", "", tbt ? "   TBT (s)" : "", "", "",
            "goodput",
            with_slo ? "                     by most "
                       " prediction off by (s)"
                     : "");
    fprintf(file, "%7s %7s %6s  %-14s %9s %9s %9s %9s%s %7s %9s %10s%s\n",
            "nodes", "Gbit/s", "speed", "policy", "mean", "p50", "p90", "p99",
            tbt ? "       p90" : "", "hits", "effective", "(req/s)",
            with_slo ? "  rejected      late       (s)        p99       max"
                     : "");
    for (size_t i = 0; i < c->n_cases; i++)
        print_case(&c->cases[i], with_slo, file);
    if (c->policies.count > 1) {
        fprintf(file, "\nmean TTFT%s",
                with_slo ? " of accepted requests, which are not the same for "
                           "each policy:\n "
                         : "");
        for (size_t p = 0; p < c->policies.count; p++)
            fprintf(file, "%s%s", p > 0 ? " >= " : " ", c->policies.names[p]);
        fprintf(file, ": at %zu of %zu points\n", ordered_points(c),
                replay_comparison_clusters(c) * c->speeds.count);
    }
}

/* A number, or nothing where it was not measured, and a comma. */
static void csv_number(FILE *f, double x, bool measured)
{
    if (measured)
        fprintf(f, "%.6f", x);
    fputc(',', f);
}

static void csv_case(FILE *f, const struct replay_case *one)
{
    const struct replay_report *r = &one->result.report;
    bool any = r->ttft_s.count > 0;

    fprintf(f, "%u,%u,%g,%g,%s,",
            (unsigned)(one->cluster.prefill_nodes + one->cluster.coupled_nodes),
            (unsigned)one->cluster.decode_nodes,
            one->cluster.link_bytes_per_s * 8 / 1e9, one->speed, one->policy);
    csv_number(f, r->ttft_s.mean, any);
    csv_number(f, r->ttft_s.p50, any);
    csv_number(f, r->ttft_s.p90, any);
    csv_number(f, r->ttft_s.p99, any);
    csv_number(f, r->tbt_s.p90, r->tbt_s.count > 0);
    csv_number(f, r->prefix_hit_ratio, any);
    fprintf(f, "%.6f,%.6f,%llu,%llu,%llu,%.3f,%llu,%.6f,", r->effective_ratio,
            replay_case_goodput(one), (unsigned long long)r->completed,
            (unsigned long long)r->rejected, (unsigned long long)r->failed,
            one->prefill_s, (unsigned long long)one->late, one->latest_s);
    csv_number(f, one->error_s.p99, one->error_s.count > 0);
    if (one->error_s.count > 0)
        fprintf(f, "%.6f", one->error_s.max);
    fputc('\n', f);
}

int replay_comparison_csv(const struct replay_comparison *c, const char *path)
{
    FILE *f = fopen(path, "w");

    if (!f)
        return -errno;
    fputs("nodes,decode_nodes,link_gbps,speed,policy,ttft_mean_s,ttft_p50_s,"
          "ttft_p90_s,ttft_p99_s,tbt_p90_s,hit_ratio,effective_ratio,"
          "goodput_per_s,completed,rejected,failed,prefill_s,late,latest_s,"
          "error_p99_s,error_max_s\n",
          f);
    for (size_t i = 0; i < c->n_cases; i++)
        csv_case(f, &c->cases[i]);
    bool failed = ferror(f) != 0;
    return (fclose(f) != 0 || failed) ? -EIO : 0;
}
