/* Writes a comparison as CSV and picture, and for compare.py, which prints it;
 * see compare.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/plot/plot.h"
#include "tools/replay/study/compare/compare.h"
#include "tools/result_file.h"

size_t replay_comparison_clusters(const struct replay_comparison *c)
{
    return c->nodes.count * (c->links.count > 0 ? c->links.count : 1);
}

void replay_comparison_policies(struct replay_names *policies)
{
    *policies =
        (struct replay_names){.names = {"random", "least_loaded", "local_cache",
                                        "global_cache", POLICY_DEFAULT},
                              .count = 5};
}

/* Writes a number, or nothing if not measured, and a comma. */
static void csv_number(FILE *f, double x, bool measured, bool exact)
{
    if (measured)
        fprintf(f, exact ? "%.17g" : "%.6f", x);
    fputc(',', f);
}

/* Writes a line; if exact, with all digits, and what means over seeds need. */
static void csv_case(FILE *f, const struct replay_case *one, bool with_seed,
                     bool exact)
{
    const struct replay_report *r = &one->result.report;
    bool any = r->ttft_s.count > 0;

    fprintf(f, "%u,%u,%g,%g,%s,",
            (unsigned)(one->cluster.prefill_nodes + one->cluster.coupled_nodes),
            (unsigned)one->cluster.decode_nodes,
            one->cluster.link_bytes_per_s * 8 / 1e9, one->speed, one->label);
    csv_number(f, r->ttft_s.mean, any, exact);
    csv_number(f, r->ttft_s.p50, any, exact);
    csv_number(f, r->ttft_s.p90, any, exact);
    csv_number(f, r->ttft_s.p99, any, exact);
    csv_number(f, r->tbt_s.p90, r->tbt_s.count > 0, exact);
    csv_number(f, r->prefix_hit_ratio, any, exact);
    csv_number(f, r->effective_ratio, true, exact);
    csv_number(f, r->effective_token_ratio, true, exact);
    csv_number(
        f, one->arrivals_s > 0 ? (double)r->effective / one->arrivals_s : 0.0,
        true, exact);
    fprintf(f, "%llu,%llu,%llu,%.3f,%llu,%zu,",
            (unsigned long long)r->completed, (unsigned long long)r->rejected,
            (unsigned long long)r->failed, one->prefill_s,
            (unsigned long long)r->promised, r->late_s.count);
    csv_number(f, r->late_s.max, true, exact);
    csv_number(f, r->predicted_ratio, r->prediction_error.count > 0, exact);
    csv_number(f, replay_ratio(r->p90_held, r->p90_told), r->p90_told > 0,
               exact);
    csv_number(f, one->error_s.p99, one->error_s.count > 0, exact);
    if (one->error_s.count > 0)
        fprintf(f, exact ? "%.17g" : "%.6f", one->error_s.max);
    if (exact)
        fprintf(f, ",%llu,%.17g,%llu,%llu", (unsigned long long)r->effective,
                one->arrivals_s, (unsigned long long)r->p90_told,
                (unsigned long long)r->p90_held);
    else if (with_seed)
        fprintf(f, ",%llu", (unsigned long long)one->seed);
    fputc('\n', f);
}

static void csv_all(FILE *f, const struct replay_comparison *c, bool exact)
{
    fputs("nodes,decode_nodes,link_gbps,speed,policy,ttft_mean_s,ttft_p50_s,"
          "ttft_p90_s,ttft_p99_s,tbt_p90_s,hit_ratio,effective_ratio,"
          "effective_token_ratio,goodput_per_s,completed,rejected,failed,"
          "prefill_s,promised,late,latest_s,predicted_ratio,p90_held_ratio,"
          "error_p99_s,error_max_s",
          f);
    fputs(exact            ? ",effective,arrivals_s,p90_told,p90_held\n"
          : c->n_seeds > 1 ? ",seed\n"
                           : "\n",
          f);
    for (size_t i = 0; i < c->n_runs; i++)
        csv_case(f, &c->runs[i], c->n_seeds > 1, exact);
}

int replay_comparison_csv(const struct replay_comparison *c, const char *path)
{
    FILE *f = result_open(path);

    if (!f)
        return -errno;
    csv_all(f, c, false);
    return result_close(f);
}

int replay_comparison_print(const struct replay_comparison *c)
{
    const struct replay_case *one = &c->runs[0];
    const struct cluster *nodes = &one->cluster;
    json_t *head = json_pack(
        "{s:I, s:s, s:s, s:f, s:f, s:f, s:f, s:b, s:b, s:I, s:I}", "requests",
        (json_int_t)one->result.report.total, "cluster", nodes->name,
        "admission", one->admission ? one->admission : "plain", "slo_ttft_s",
        one->slo_ttft_s, "slo_tbt_s", one->slo_tbt_s, "effective_ttft_s",
        one->effective_ttft_s, "effective_tbt_s",
        isfinite(one->effective_tbt_s) ? one->effective_tbt_s : 0.0, "decodes",
        nodes->decode_nodes + nodes->coupled_nodes > 0, "of_rules",
        (int)c->of_rules, "seeds", (json_int_t)c->n_seeds, "policies",
        (json_int_t)c->policies.count);
    char *text = json_dumps(head, JSON_REAL_PRECISION(17));
    FILE *file = tmpfile();
    int rc = text && file ? 0 : -ENOMEM;

    if (rc == 0) {
        csv_all(file, c, true);
        rc = plot_script("compare.py", text, "", file, NULL);
    }
    if (file)
        fclose(file);
    free(text);
    json_decref(head);
    return rc;
}

int replay_comparison_plot(const struct replay_comparison *c, const char *path)
{
    char title[160];
    struct plot plot;
    int rc = plot_begin(&plot);

    snprintf(title, sizeof title, "%llu requests on %s",
             (unsigned long long)c->runs[0].result.report.total,
             c->runs[0].cluster.name);
    if (rc == 0)
        rc = replay_comparison_csv(c, plot.data);
    return plot_end(&plot, rc, "compare", title, path);
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
    for (size_t i = 0; rc == 0 && i < c->n_runs; i++)
        rc = copy_requests(&c->runs[i], f);
    int closed = result_close(f);
    return rc != 0 ? rc : closed;
}
