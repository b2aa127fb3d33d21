/* Writes a comparison as table, CSV and picture; see compare.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/plot/plot.h"
#include "tools/replay/study/compare/compare.h"
#include "tools/result_file.h"

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

/* Order of the Mooncake paper's Figure 5, slowest first. */
static const char *const paper_order[] = {"random", "least_loaded",
                                          "local_cache", "global_cache"};

/* Least seeds for a verdict; with fewer it may be chance. */
#define VERDICT_SEEDS 3
#define PAPER_ORDER (sizeof paper_order / sizeof paper_order[0])

void replay_comparison_policies(struct replay_names *policies)
{
    policies->count = 0;
    for (size_t i = 0; i < PAPER_ORDER; i++)
        policies->names[policies->count++] = paper_order[i];
    policies->names[policies->count++] = POLICY_DEFAULT;
}

/* Returns a policy's place in the comparison; count = not there. */
static size_t place_of(const struct replay_comparison *c, const char *name)
{
    size_t p = 0;

    while (p < c->policies.count && strcmp(c->policies.names[p], name) != 0)
        p++;
    return p;
}

/* Returns whether the mean TTFT of policy `slower` is at least `faster`'s. */
static bool in_order(const struct replay_comparison *c, size_t n, size_t v,
                     size_t slower, size_t faster)
{
    return replay_comparison_case(c, n, v, slower)->result.report.ttft_s.mean >=
           replay_comparison_case(c, n, v, faster)->result.report.ttft_s.mean;
}

/* Returns the number of points where the mean TTFT falls along the policies at
 * places[0 .. n). */
static size_t ordered_points(const struct replay_comparison *c,
                             const size_t *places, size_t n_places)
{
    size_t ordered = 0;

    for (size_t n = 0; n < replay_comparison_clusters(c); n++) {
        for (size_t v = 0; v < c->speeds.count; v++) {
            size_t i = 1;

            while (i < n_places && in_order(c, n, v, places[i - 1], places[i]))
                i++;
            ordered += i >= n_places;
        }
    }
    return ordered;
}

/* Returns the number of points where only the ideal policy may be faster than
 * the one at `place`. */
static size_t lowest_points(const struct replay_comparison *c, size_t place)
{
    size_t ideal = place_of(c, "ideal_pool");
    size_t lowest = 0;

    for (size_t n = 0; n < replay_comparison_clusters(c); n++) {
        for (size_t v = 0; v < c->speeds.count; v++) {
            size_t p = 0;

            while (p < c->policies.count &&
                   (p == ideal || in_order(c, n, v, p, place)))
                p++;
            lowest += p == c->policies.count;
        }
    }
    return lowest;
}

/* Prints verdicts, which do not depend on the order of the policies given. */
static void print_verdicts(const struct replay_comparison *c, bool with_slo,
                           FILE *file)
{
    size_t points = replay_comparison_clusters(c) * c->speeds.count;
    size_t plan = place_of(c, "plan");
    size_t places[PAPER_ORDER];
    size_t n = 0;

    for (size_t i = 0; i < PAPER_ORDER; i++) {
        places[n] = place_of(c, paper_order[i]);
        n += places[n] < c->policies.count;
    }
    bool any = !c->of_rules && c->policies.count > 1 &&
               (n > 1 || plan < c->policies.count);

    if (any && c->n_seeds < VERDICT_SEEDS) {
        fprintf(file, "\nno verdict: that takes --seeds %d\n", VERDICT_SEEDS);
        return;
    }
    if (any) {
        fprintf(file, "\nmean TTFT%s:\n",
                with_slo ? " of accepted requests, which are not the same for "
                           "each policy"
                         : "");
    }
    for (size_t i = 0; any && i < n && n > 1; i++) {
        fprintf(file, "%s%s", i > 0 ? " >= " : "  ",
                c->policies.names[places[i]]);
    }
    if (any && n > 1) {
        fprintf(file, ": at %zu of %zu points\n", ordered_points(c, places, n),
                points);
    }
    if (any && plan < c->policies.count) {
        fprintf(file, "  plan is the lowest: at %zu of %zu points\n",
                lowest_points(c, plan), points);
    }
}

static bool decodes(const struct cluster *c)
{
    return c->decode_nodes + c->coupled_nodes > 0;
}

/* Writes a cluster's node count to `name`: "8", or "8+8" with decode nodes. */
static void nodes_name(const struct cluster *c, char *name, size_t size)
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
    if (c->n_seeds > 1)
        fprintf(file, "; means of %zu seeds", c->n_seeds);
    fprintf(file, "; effective: TTFT within %g s", one->effective_ttft_s);
    if (decodes(&one->cluster) && isfinite(one->effective_tbt_s))
        fprintf(file, ", TBT within %g s", one->effective_tbt_s);
    fputs("\n\n", file);
}

/* Prints a number 9 columns wide, or "-" if not measured. */
static void print_number(double x, bool measured, int digits, FILE *file)
{
    if (measured)
        fprintf(file, " %9.*f", digits, x);
    else
        fprintf(file, " %9s", "-");
}

static void print_case(const struct replay_case *one, int width, bool with_slo,
                       FILE *file)
{
    const struct replay_report *r = &one->result.report;
    bool any = r->ttft_s.count > 0;
    char nodes[32];

    nodes_name(&one->cluster, nodes, sizeof nodes);
    fprintf(file, "%7s %7g %6g  %-*s", nodes,
            one->cluster.link_bytes_per_s * 8 / 1e9, one->speed, width,
            one->label);
    print_number(r->ttft_s.mean, any, 3, file);
    print_number(r->ttft_s.p50, any, 3, file);
    print_number(r->ttft_s.p90, any, 3, file);
    print_number(r->ttft_s.p99, any, 3, file);
    if (decodes(&one->cluster))
        print_number(r->tbt_s.p90, r->tbt_s.count > 0, 4, file);
    if (any)
        fprintf(file, " %6.2f%%", 100 * r->prefix_hit_ratio);
    else
        fprintf(file, " %7s", "-");
    fprintf(file, " %8.2f%% %8.2f%% %10.3f", 100 * r->effective_ratio,
            100 * r->effective_token_ratio, replay_case_goodput(one));
    print_number(r->predicted_ratio, r->prediction_error.count > 0, 3, file);
    print_number(100 * replay_ratio(r->p90_held, r->p90_told), r->p90_told > 0,
                 1, file);
    if (with_slo) {
        fprintf(file, "  %8llu  %8llu", (unsigned long long)r->rejected,
                (unsigned long long)r->late_s.count);
        print_number(r->late_s.max, r->late_s.max > 0, 3, file);
        fputc(' ', file);
        print_number(one->error_s.p99, one->error_s.count > 0, 3, file);
        print_number(one->error_s.max, one->error_s.count > 0, 3, file);
    }
    fputc('\n', file);
}

/* Returns the width of the column of policies. */
static int name_width(const struct replay_comparison *c)
{
    size_t width = 14;

    for (size_t p = 0; p < c->policies.count; p++)
        if (strlen(c->policies.names[p]) > width)
            width = strlen(c->policies.names[p]);
    return (int)width;
}

void replay_comparison_print(const struct replay_comparison *c, FILE *file)
{
    bool with_slo = c->cases[0].slo_ttft_s > 0 || c->cases[0].slo_tbt_s > 0;
    bool tbt = decodes(&c->cases[0].cluster);

    int width = name_width(c);

    print_head(c, file);
    fprintf(file,
            "%7s %7s %6s  %-*s %9s %9s %9s %9s%s %7s %9s %9s %10s %9s %9s%s\n",
            "", "", "", width, "", "TTFT (s)", "", "", "",
            tbt ? "   TBT (s)" : "", "", "effective", "effective", "goodput",
            "predicted", "% within",
            with_slo ? "                     by most "
                       " prediction off by (s)"
                     : "");
    fprintf(file,
            "%7s %7s %6s  %-*s %9s %9s %9s %9s%s %7s %9s %9s %10s %9s %9s%s\n",
            "nodes", "Gbit/s", "speed", width, "policy", "mean", "p50", "p90",
            "p99", tbt ? "       p90" : "", "hits", "requests", "tokens",
            "(req/s)", "/ actual", "its p90",
            with_slo ? "  rejected      late       (s)        p99       max"
                     : "");
    for (size_t i = 0; i < c->n_cases; i++)
        print_case(&c->cases[i], width, with_slo, file);
    print_verdicts(c, with_slo, file);
}

/* Writes a number, or nothing if not measured, and a comma. */
static void csv_number(FILE *f, double x, bool measured)
{
    if (measured)
        fprintf(f, "%.6f", x);
    fputc(',', f);
}

static void csv_case(FILE *f, const struct replay_case *one, bool with_seed)
{
    const struct replay_report *r = &one->result.report;
    bool any = r->ttft_s.count > 0;

    fprintf(f, "%u,%u,%g,%g,%s,",
            (unsigned)(one->cluster.prefill_nodes + one->cluster.coupled_nodes),
            (unsigned)one->cluster.decode_nodes,
            one->cluster.link_bytes_per_s * 8 / 1e9, one->speed, one->label);
    csv_number(f, r->ttft_s.mean, any);
    csv_number(f, r->ttft_s.p50, any);
    csv_number(f, r->ttft_s.p90, any);
    csv_number(f, r->ttft_s.p99, any);
    csv_number(f, r->tbt_s.p90, r->tbt_s.count > 0);
    csv_number(f, r->prefix_hit_ratio, any);
    fprintf(f, "%.6f,%.6f,%.6f,%llu,%llu,%llu,%.3f,%llu,%zu,%.6f,",
            r->effective_ratio, r->effective_token_ratio,
            replay_case_goodput(one), (unsigned long long)r->completed,
            (unsigned long long)r->rejected, (unsigned long long)r->failed,
            one->prefill_s, (unsigned long long)r->promised, r->late_s.count,
            r->late_s.max);
    csv_number(f, r->predicted_ratio, r->prediction_error.count > 0);
    csv_number(f, replay_ratio(r->p90_held, r->p90_told), r->p90_told > 0);
    csv_number(f, one->error_s.p99, one->error_s.count > 0);
    if (one->error_s.count > 0)
        fprintf(f, "%.6f", one->error_s.max);
    if (with_seed)
        fprintf(f, ",%llu", (unsigned long long)one->seed);
    fputc('\n', f);
}

int replay_comparison_csv(const struct replay_comparison *c, const char *path)
{
    FILE *f = result_open(path);

    if (!f)
        return -errno;
    fputs("nodes,decode_nodes,link_gbps,speed,policy,ttft_mean_s,ttft_p50_s,"
          "ttft_p90_s,ttft_p99_s,tbt_p90_s,hit_ratio,effective_ratio,"
          "effective_token_ratio,goodput_per_s,completed,rejected,failed,"
          "prefill_s,promised,late,latest_s,predicted_ratio,p90_held_ratio,"
          "error_p99_s,error_max_s",
          f);
    fputs(c->n_seeds > 1 ? ",seed\n" : "\n", f);
    for (size_t i = 0; i < c->n_cases * c->n_seeds; i++)
        csv_case(f, &c->runs[i], c->n_seeds > 1);
    return result_close(f);
}

int replay_comparison_plot(const struct replay_comparison *c, const char *path)
{
    char title[160];
    struct plot plot;
    int rc = plot_begin(&plot);

    snprintf(title, sizeof title, "%llu requests on %s",
             (unsigned long long)c->cases[0].result.report.total,
             c->cases[0].cluster.name);
    if (rc == 0)
        rc = replay_comparison_csv(c, plot.data);
    return plot_end(&plot, rc, "compare", title, path);
}
