/* What a sweep found, as text, CSV and JSON; see sweep.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay/report/report.h"
#include "tools/replay/study/sweep/sweep.h"
#include "tools/result_file.h"

static const char *const metric_names[SWEEP_METRICS] = {"ttft", "effective"};
static const char *const cause_names[SWEEP_CAUSES] = {
    [SWEEP_ERRORS] = "errors",      [SWEEP_LINKS] = "slow links",
    [SWEEP_UNEQUAL] = "slow nodes", [SWEEP_DISKS] = "disks",
    [SWEEP_OVERLOAD] = "load",      [SWEEP_AGGREGATED] = "aggregated",
    [SWEEP_MIXED] = "two kinds",    [SWEEP_ASKS] = "max_tokens",
};

const char *sweep_metric_name(enum sweep_metric metric)
{
    return metric_names[metric];
}

const char *sweep_cause_name(enum sweep_cause cause)
{
    return cause_names[cause];
}

/* "errors+load" of bits; "-" if there are none. */
static void join_causes(unsigned causes, char *text, size_t size)
{
    size_t n = 0;

    (void)snprintf(text, size, "-");
    for (int c = 0; c < SWEEP_CAUSES; c++)
        if ((causes >> c & 1) != 0 && n < size)
            n += (size_t)snprintf(text + n, size - n, "%s%s", n > 0 ? "+" : "",
                                  cause_names[c]);
}

static void name_nodes(const struct cluster *c, char *text, size_t size)
{
    if (c->coupled_nodes > 0)
        (void)snprintf(text, size, "%u", (unsigned)c->coupled_nodes);
    else
        (void)snprintf(text, size, "%u+%u", (unsigned)c->prefill_nodes,
                       (unsigned)c->decode_nodes);
}

/* A loss that is to be shown. */
struct shown {
    const struct sweep_result *result;
    enum sweep_metric metric;
    double loss;
};

static int worst_first(const void *a, const void *b)
{
    const struct shown *x = a;
    const struct shown *y = b;

    if (x->loss != y->loss)
        return x->loss < y->loss ? 1 : -1;
    if (x->result != y->result)
        return x->result < y->result ? -1 : 1;
    return (x->metric > y->metric) - (x->metric < y->metric);
}

static void print_value(enum sweep_metric metric, double x, FILE *f)
{
    if (metric == SWEEP_TTFT)
        fprintf(f, " %8.3fs", x);
    else
        fprintf(f, " %8.2f%%", 100 * x);
}

static void print_loss(const struct sweep *s, const struct shown *shown,
                       FILE *f)
{
    const struct sweep_result *r = shown->result;
    const struct sweep_loss *loss = &r->loss[shown->metric];
    const struct sweep_draw *d = &r->one.draw;
    double seeds = (double)r->seeds;
    char nodes[32], causes[96];

    name_nodes(&r->one.cluster, nodes, sizeof nodes);
    join_causes(loss->causes, causes, sizeof causes);
    fprintf(f, "%6.1f%% %-9s %-13s", 100 * loss->loss,
            metric_names[shown->metric], s->policies.names[loss->other]);
    print_value(shown->metric, r->sum[shown->metric][0] / seeds, f);
    print_value(shown->metric, r->sum[shown->metric][loss->other] / seeds, f);
    fprintf(f, " %6llu %7s %6.0f %5.2f %6.2f", (unsigned long long)d->number,
            nodes, d->link_gbps, d->load, d->prefill_error_sigma);
    if (d->slow_nodes > 0)
        fprintf(f, "  %2.0f%% at %.2f", 100 * d->slow_nodes, d->slow_speed);
    else
        fprintf(f, "  %11s", "-");
    fprintf(f, " %5s %5.1f  %s, %s", d->disks ? "yes" : "-", d->slo_ttft_s,
            d->hardware->name, d->trace->name);
    if (s->causes)
        fprintf(f, "; %s", causes);
    fputc('\n', f);
}

static void print_losses(const struct sweep *s,
                         const struct sweep_result *results, FILE *f)
{
    struct shown *all = calloc(s->n_cases * SWEEP_METRICS, sizeof(all[0]));
    size_t n = 0;

    if (!all)
        return;
    for (size_t i = 0; i < s->n_cases; i++)
        for (int m = 0; m < SWEEP_METRICS; m++)
            if (results[i].loss[m].loss > s->threshold)
                all[n++] = (struct shown){&results[i], (enum sweep_metric)m,
                                          results[i].loss[m].loss};
    qsort(all, n, sizeof(all[0]), worst_first);
    if (n > 0)
        fprintf(f,
                "%7s %-9s %-13s %9s %9s %6s %7s %6s %5s %6s  %11s %5s %5s  "
                "hardware, trace%s\n",
                "loss", "metric", "against", s->policies.names[0], "other",
                "case", "nodes", "Gbit/s", "load", "errors", "slow nodes",
                "disks", "SLO", s->causes ? "; what it takes" : "");
    for (size_t i = 0; i < n; i++)
        print_loss(s, &all[i], f);
    if (n > 0)
        fputc('\n', f);
    free(all);
}

/* How many cases lose, of those that have a feature. */
static void print_group(const struct sweep *s,
                        const struct sweep_result *results, const char *name,
                        unsigned with, unsigned without, FILE *f)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n_cases; i++) {
        unsigned has = sweep_causes_of(&results[i].one.draw);

        n += (has & with) == with && (has & without) == 0;
    }
    if (n == 0)
        return;
    fprintf(f, "  %-14s %6zu", name, n);
    for (int m = 0; m < SWEEP_METRICS; m++) {
        size_t lost = 0, badly = 0;
        double worst = 0.0;

        for (size_t i = 0; i < s->n_cases; i++) {
            unsigned has = sweep_causes_of(&results[i].one.draw);
            double loss = results[i].loss[m].loss;

            if ((has & with) != with || (has & without) != 0)
                continue;
            lost += loss > s->threshold;
            badly += loss > 0.1;
            worst = loss > worst ? loss : worst;
        }
        fprintf(f, " %9zu %7zu %7.1f%%", lost, badly, 100 * worst);
    }
    fputc('\n', f);
}

static void print_groups(const struct sweep *s,
                         const struct sweep_result *results, FILE *f)
{
    fprintf(f,
            "%s against the best of the others: cases worse by more than "
            "%g %%, by more than 10 %%, and the worst\n"
            "  %-14s %6s %9s %7s %8s %9s %7s %8s\n",
            s->policies.names[0], 100 * s->threshold, "", "cases", "TTFT",
            "> 10 %", "worst", "effective", "> 10 %", "worst");
    print_group(s, results, "all", 0, 0, f);
    for (int c = 0; c < SWEEP_CAUSES; c++)
        print_group(s, results, cause_names[c], 1u << c, 0, f);
    print_group(s, results, "none of these", 0, (1u << SWEEP_CAUSES) - 1, f);
}

/* The mean of the logarithm tells how a policy does over all cases: no single
 * one outweighs the others. */
static void print_means(const struct sweep *s,
                        const struct sweep_result *results, FILE *f)
{
    for (size_t p = 1; p < s->policies.count; p++) {
        double logs = 0, points = 0;
        size_t n = 0, m = 0;

        for (size_t i = 0; i < s->n_cases; i++) {
            const double *ttft = results[i].value[SWEEP_TTFT];
            const double *share = results[i].value[SWEEP_EFFECTIVE];

            if (ttft[0] > 0 && ttft[p] > 0) {
                logs += log(ttft[0] / ttft[p]);
                n++;
            }
            if (!isnan(share[0]) && !isnan(share[p])) {
                points += share[0] - share[p];
                m++;
            }
        }
        fprintf(f, "  than %-14s mean TTFT %+.1f %%, effective %+.2f points\n",
                s->policies.names[p],
                n > 0 ? 100 * (exp(logs / (double)n) - 1) : 0.0,
                m > 0 ? 100 * points / (double)m : 0.0);
    }
}

void sweep_print(const struct sweep *sweep, const struct sweep_result *results,
                 FILE *file)
{
    const struct sweep *s = sweep;

    fprintf(file, "sweep %s, seed %llu: %llu cases\n\n", s->description->name,
            (unsigned long long)s->seed, (unsigned long long)s->n_cases);
    print_losses(s, results, file);
    print_groups(s, results, file);
    fprintf(file,
            "\n%s, the mean over all cases (of a TTFT's ratio the "
            "geometric one):\n",
            s->policies.names[0]);
    print_means(s, results, file);
}

static void csv_number(FILE *f, double x)
{
    if (!isnan(x))
        fprintf(f, "%.6f", x);
    fputc(',', f);
}

int sweep_csv(const struct sweep *sweep, const struct sweep_result *results,
              const char *path)
{
    FILE *f = result_open(path);

    if (!f)
        return -errno;
    fputs("case,seed,hardware,trace,requests,prefill_nodes,decode_nodes,"
          "coupled_nodes,link_gbps,load,speed,disks,slow_nodes,slow_speed,"
          "prefill_error_sigma,decode_error_sigma,slo_ttft_s,slo_tbt_s,"
          "max_tokens,mixed_nodes,mixed_cost,mixed_memory,policy,"
          "ttft_mean_s,effective_ratio,seeds,ttft_mean_s_seeds,"
          "effective_ratio_seeds\n",
          f);
    for (size_t i = 0; i < sweep->n_cases; i++) {
        const struct sweep_result *r = &results[i];
        const struct sweep_draw *d = &r->one.draw;
        const struct cluster *c = &r->one.cluster;
        double seeds = (double)r->seeds;

        for (size_t p = 0; p < sweep->policies.count; p++) {
            fprintf(f,
                    "%llu,%llu,%s,%s,%llu,%u,%u,%u,%.3f,%.4f,%.17g,%d,%.3f,"
                    "%.3f,%.4f,%.4f,%.3f,%.4f,%u,%.3f,%.3f,%.3f,%s,",
                    (unsigned long long)d->number, (unsigned long long)d->seed,
                    d->hardware->name, d->trace->name,
                    (unsigned long long)d->requests, (unsigned)c->prefill_nodes,
                    (unsigned)c->decode_nodes, (unsigned)c->coupled_nodes,
                    d->link_gbps, d->load, r->one.speed, d->disks,
                    d->slow_nodes, d->slow_speed, d->prefill_error_sigma,
                    d->decode_error_sigma, d->slo_ttft_s, d->slo_tbt_s,
                    (unsigned)d->max_tokens, d->mixed_nodes, d->mixed_cost,
                    d->mixed_memory, sweep->policies.names[p]);
            csv_number(f, r->value[SWEEP_TTFT][p]);
            csv_number(f, r->value[SWEEP_EFFECTIVE][p]);
            fprintf(f, "%llu,", (unsigned long long)r->seeds);
            csv_number(f, r->sum[SWEEP_TTFT][p] / seeds);
            if (!isnan(r->sum[SWEEP_EFFECTIVE][p]))
                fprintf(f, "%.6f", r->sum[SWEEP_EFFECTIVE][p] / seeds);
            fputc('\n', f);
        }
    }
    return result_close(f);
}

static json_t *real(double x)
{
    return isnan(x) ? json_null() : json_real(round(x * 1e6) / 1e6);
}

static json_t *causes_json(unsigned causes)
{
    json_t *list = json_array();

    for (int c = 0; c < SWEEP_CAUSES; c++)
        if ((causes >> c & 1) != 0)
            json_array_append_new(list, json_string(cause_names[c]));
    return list;
}

static json_t *metric_json(const struct sweep *s, const struct sweep_result *r,
                           int m)
{
    const struct sweep_loss *loss = &r->loss[m];
    json_t *values = json_object();

    for (size_t p = 0; p < s->policies.count; p++)
        json_object_set_new(values, s->policies.names[p],
                            real(r->sum[m][p] / (double)r->seeds));
    return json_pack("{s:o, s:s, s:o, s:o, s:b, s:o}", "values", values,
                     "against", s->policies.names[loss->other], "first_loss",
                     real(loss->first), "loss", real(loss->loss), "loses",
                     loss->loss > s->threshold, "causes",
                     causes_json(loss->causes));
}

static json_t *case_json(const struct sweep *s, const struct sweep_result *r)
{
    const struct sweep_draw *d = &r->one.draw;
    const struct cluster *c = &r->one.cluster;

    return json_pack(
        "{s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:b, s:o,"
        " s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:I, s:o, s:o}",
        "case", (json_int_t)d->number, "seed", (json_int_t)d->seed, "hardware",
        d->hardware->name, "trace", d->trace->name, "requests",
        (json_int_t)d->requests, "prefill_nodes", (json_int_t)c->prefill_nodes,
        "decode_nodes", (json_int_t)c->decode_nodes, "coupled_nodes",
        (json_int_t)c->coupled_nodes, "link_gbps", real(d->link_gbps), "load",
        real(d->load), "speed", real(r->one.speed), "disks", (int)d->disks,
        "slow_nodes", real(d->slow_nodes), "slow_speed", real(d->slow_speed),
        "prefill_error_sigma", real(d->prefill_error_sigma),
        "decode_error_sigma", real(d->decode_error_sigma), "slo_ttft_s",
        real(d->slo_ttft_s), "slo_tbt_s", real(d->slo_tbt_s), "max_tokens",
        (json_int_t)d->max_tokens, "mixed_nodes", real(d->mixed_nodes),
        "mixed_cost", real(d->mixed_cost), "mixed_memory",
        real(d->mixed_memory), "seeds", (json_int_t)r->seeds, "ttft",
        metric_json(s, r, SWEEP_TTFT), "effective",
        metric_json(s, r, SWEEP_EFFECTIVE));
}

int sweep_json(const struct sweep *sweep, const struct sweep_result *results,
               const char *path)
{
    json_t *cases = json_array();
    json_t *policies = json_array();

    for (size_t i = 0; i < sweep->n_cases; i++)
        json_array_append_new(cases, case_json(sweep, &results[i]));
    for (size_t p = 0; p < sweep->policies.count; p++)
        json_array_append_new(policies, json_string(sweep->policies.names[p]));
    json_t *json = json_pack(
        "{s:s, s:I, s:o, s:o, s:o}", "description", sweep->description->name,
        "seed", (json_int_t)sweep->seed, "threshold", real(sweep->threshold),
        "policies", policies, "cases", cases);
    int rc = json ? replay_json_write(json, path) : -ENOMEM;

    json_decref(json);
    return rc;
}
