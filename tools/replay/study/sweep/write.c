/* The results of a sweep as text, CSV and JSON; see sweep.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay/report/report.h"
#include "tools/replay/study/sweep/sweep.h"
#include "tools/result_file.h"

static const char *const metric_names[SWEEP_METRICS] = {
    [SWEEP_TTFT] = "ttft",
    [SWEEP_P99] = "p99",
    [SWEEP_EFFECTIVE] = "effective",
    [SWEEP_TOKENS] = "tokens",
};
static const char *const cause_names[SWEEP_CAUSES] = {
    [SWEEP_ERRORS] = "errors",       [SWEEP_LINKS] = "slow links",
    [SWEEP_UNEQUAL] = "slow nodes",  [SWEEP_DISKS] = "disks",
    [SWEEP_OVERLOAD] = "load",       [SWEEP_AGGREGATED] = "aggregated",
    [SWEEP_MIXED] = "two kinds",     [SWEEP_ASKS] = "max_tokens",
    [SWEEP_CACHES] = "small caches",
};

const char *sweep_metric_name(enum sweep_metric metric)
{
    return metric_names[metric];
}

const char *sweep_cause_name(enum sweep_cause cause)
{
    return cause_names[cause];
}

/* Writes the causes as "errors+load"; "-" if none. */
static void join_causes(unsigned causes, char *text, size_t size)
{
    size_t n = 0;

    snprintf(text, size, "-");
    for (int c = 0; c < SWEEP_CAUSES; c++)
        if ((causes >> c & 1) != 0 && n < size)
            n += (size_t)snprintf(text + n, size - n, "%s%s", n > 0 ? "+" : "",
                                  cause_names[c]);
}

static void name_nodes(const struct cluster *c, char *text, size_t size)
{
    if (c->coupled_nodes > 0)
        snprintf(text, size, "%u", (unsigned)c->coupled_nodes);
    else
        snprintf(text, size, "%u+%u", (unsigned)c->prefill_nodes,
                 (unsigned)c->decode_nodes);
}

/* Most commands shown. */
#define COMMANDS_MAX 10

/* A loss to show. */
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
    if (sweep_metric_is_share(metric))
        fprintf(f, " %8.2f%%", 100 * x);
    else
        fprintf(f, " %8.3fs", x);
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
    print_value(shown->metric, r->all[0].at[shown->metric] / seeds, f);
    print_value(shown->metric, r->all[loss->other].at[shown->metric] / seeds,
                f);
    fprintf(f, " %6llu %7s %6.0f %5.2f %6.2f", (unsigned long long)d->number,
            nodes, d->link_gbps, r->one.load, d->prefill_error_sigma);
    if (d->slow_nodes > 0)
        fprintf(f, "  %2.0f%% at %.2f", 100 * d->slow_nodes, d->slow_speed);
    else
        fprintf(f, "  %11s", "-");
    if (d->cache > 0)
        fprintf(f, " %4.0f%%", 100 * d->cache);
    else
        fprintf(f, " %5s", d->disks ? "disk" : "-");
    fprintf(f, " %5.1f  %s, %s", d->slo_ttft_s, d->hardware->name,
            d->trace->name);
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
            if (sweep_loses(s, &results[i], (enum sweep_metric)m))
                all[n++] = (struct shown){&results[i], (enum sweep_metric)m,
                                          results[i].loss[m].loss};
    qsort(all, n, sizeof(all[0]), worst_first);
    if (n > 0)
        fprintf(f,
                "%7s %-9s %-13s %9s %9s %6s %7s %6s %5s %6s  %11s %5s %5s  "
                "hardware, trace%s\n",
                "loss", "metric", "against", s->policies.names[0], "other",
                "case", "nodes", "Gbit/s", "load", "errors", "slow nodes",
                "cache", "SLO", s->causes ? "; what it takes" : "");
    for (size_t i = 0; i < n; i++)
        print_loss(s, &all[i], f);
    if (n > 0)
        fputs("\nto see one alone:\n", f);
    for (size_t i = 0, shown = 0; i < n && shown < COMMANDS_MAX; i++) {
        size_t k = 0;

        while (k < i && all[k].result != all[i].result)
            k++;
        if (k < i)
            continue;
        fprintf(f, "  %s --case %llu\n", s->again,
                (unsigned long long)all[i].result->one.draw.number);
        shown++;
    }
    if (n > 0)
        fputc('\n', f);
    free(all);
}

/* The cases of a row. */
struct group {
    const char *name;
    unsigned with, without;          /* causes, as bits */
    const struct sweep_trace *trace; /* NULL = any */
};

static bool is_in(const struct group *g, const struct sweep_draw *draw)
{
    unsigned has = sweep_causes_of(draw);

    return (has & g->with) == g->with && (has & g->without) == 0 &&
           (!g->trace || g->trace == draw->trace);
}

/* Prints how many cases of a group lose, and the largest loss. */
static void print_group(const struct sweep *s,
                        const struct sweep_result *results,
                        const struct group *g, FILE *f)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n_cases; i++)
        n += is_in(g, &results[i].one.draw);
    if (n == 0)
        return;
    fprintf(f, "  %-20.20s %6zu", g->name, n);
    for (int m = 0; m < SWEEP_METRICS; m++) {
        size_t lost = 0;
        double worst = 0.0;

        for (size_t i = 0; i < s->n_cases; i++) {
            if (!is_in(g, &results[i].one.draw) ||
                !sweep_loses(s, &results[i], (enum sweep_metric)m))
                continue;
            lost++;
            worst = fmax(worst, results[i].loss[m].loss);
        }
        fprintf(f, " %9zu %7.1f%%", lost, 100 * worst);
    }
    fputc('\n', f);
}

static void print_groups(const struct sweep *s,
                         const struct sweep_result *results, FILE *f)
{
    const struct sweep_description *d = s->description;

    fprintf(f,
            "\ncases that lose, and the worst, by what they have\n"
            "  %-20s %6s",
            "", "cases");
    for (int m = 0; m < SWEEP_METRICS; m++)
        fprintf(f, " %9s %8s", metric_names[m], "worst");
    fputc('\n', f);
    print_group(s, results, &(struct group){.name = "all"}, f);
    for (int c = 0; c < SWEEP_CAUSES; c++)
        print_group(s, results,
                    &(struct group){.name = cause_names[c], .with = 1u << c},
                    f);
    print_group(s, results,
                &(struct group){.name = "none of these",
                                .without = (1u << SWEEP_CAUSES) - 1},
                f);
    for (size_t t = 0; t < d->n_traces; t++)
        print_group(
            s, results,
            &(struct group){.name = d->traces[t].name, .trace = &d->traces[t]},
            f);
}

/* Prints the first policy against the best of the others: the number of cases
 * worse by more than each step, the worst, and the mean of all. For ratios it
 * is geometric, so that no case outweighs the others. */
static void print_against_best(const struct sweep *s,
                               const struct sweep_result *results,
                               const char *name, enum sweep_metric metric,
                               double load_least, double load_most, FILE *f)
{
    static const double steps[] = {0.02, 0.1, 0.5};
    bool share = sweep_metric_is_share(metric);
    size_t above[3] = {0}, n = 0;
    double worst = -INFINITY, sum = 0.0;

    for (size_t i = 0; i < s->n_cases; i++) {
        double load = results[i].one.draw.load;
        double loss = results[i].loss[metric].loss;

        if (load <= load_least || load > load_most ||
            isnan(results[i].all[0].at[metric]))
            continue;
        n++;
        for (int k = 0; k < 3; k++)
            above[k] += loss > steps[k];
        worst = fmax(worst, loss);
        sum += share ? -loss : log1p(loss);
    }
    if (n == 0)
        return;
    fprintf(f, "  %-28s %6zu %7zu %7zu %7zu %8.1f%s", name, n, above[0],
            above[1], above[2], 100 * worst, share ? "  " : " %");
    if (share)
        fprintf(f, " %+9.2f\n", 100 * sum / (double)n);
    else
        fprintf(f, " %9.3f x\n", exp(sum / (double)n));
}

static void print_all_against_best(const struct sweep *s,
                                   const struct sweep_result *results, FILE *f)
{
    fprintf(f,
            "%s against the best of the others in each case; shares in "
            "points\n  %-28s %6s %7s %7s %7s %10s %9s\n",
            s->policies.names[0], "worse by more than", "cases", "2", "10",
            "50", "worst", "mean");
    print_against_best(s, results, "mean TTFT", SWEEP_TTFT, 0, INFINITY, f);
    print_against_best(s, results, "p99 TTFT, load up to 1", SWEEP_P99, 0, 1,
                       f);
    print_against_best(s, results, "p99 TTFT, load above 1", SWEEP_P99, 1,
                       INFINITY, f);
    print_against_best(s, results, "effective requests", SWEEP_EFFECTIVE, 0,
                       INFINITY, f);
    print_against_best(s, results, "effective input tokens", SWEEP_TOKENS, 0,
                       INFINITY, f);
}

/* Prints each policy's broken promises, and the first policy compared with it.
 */
static void print_policies(const struct sweep *s,
                           const struct sweep_result *results, FILE *f)
{
    fprintf(f, "\n%-16s %10s %8s %12s %12s   %s beside it: %9s %9s %9s %9s\n",
            "policy", "accepted", "late", "by most (s)", "cases late",
            s->policies.names[0], "mean TTFT", "p99", "requests", "tokens");
    for (size_t p = 0; p < s->policies.count; p++) {
        double sum[SWEEP_METRICS] = {0}, latest_s = 0.0;
        uint64_t promised = 0, late = 0, cases = 0;

        for (size_t i = 0; i < s->n_cases; i++) {
            const struct sweep_values *first = &results[i].all[0];
            const struct sweep_values *v = &results[i].all[p];

            promised += v->promised;
            late += v->late;
            cases += v->late > 0;
            latest_s = fmax(latest_s, v->latest_s);
            for (int m = 0; m < SWEEP_METRICS; m++)
                if (sweep_metric_is_share((enum sweep_metric)m))
                    sum[m] +=
                        (first->at[m] - v->at[m]) / (double)results[i].seeds;
                else if (first->at[m] > 0 && v->at[m] > 0)
                    sum[m] += log(first->at[m] / v->at[m]);
        }
        fprintf(f, "%-16s %10llu %8llu %12.3f %12llu", s->policies.names[p],
                (unsigned long long)promised, (unsigned long long)late,
                latest_s, (unsigned long long)cases);
        if (p > 0)
            fprintf(f, "   %*s %8.3fx %8.3fx %+8.2f %+8.2f",
                    (int)strlen(s->policies.names[0]) + 11, "",
                    exp(sum[SWEEP_TTFT] / (double)s->n_cases),
                    exp(sum[SWEEP_P99] / (double)s->n_cases),
                    100 * sum[SWEEP_EFFECTIVE] / (double)s->n_cases,
                    100 * sum[SWEEP_TOKENS] / (double)s->n_cases);
        fputc('\n', f);
    }
}

/* Prints all results of one case. */
static void print_alone(const struct sweep *s, const struct sweep_result *r,
                        FILE *f)
{
    const struct sweep_draw *d = &r->one.draw;
    double seeds = (double)r->seeds;
    char nodes[32];

    name_nodes(&r->one.cluster, nodes, sizeof nodes);
    fprintf(f, "case %llu: %llu requests of %s (seed %llu, speed %g",
            (unsigned long long)d->number, (unsigned long long)d->requests,
            d->trace->name, (unsigned long long)d->seed, r->one.speed);
    if (r->one.rate > 0)
        fprintf(f, ", rate %.6g", r->one.rate);
    fprintf(f,
            ") on %s nodes of %s, load %.3f, %.0f Gbit/s, errors %.2f, SLO %g "
            "s; means of %llu seeds\n\n%-16s %9s %9s %10s %10s %9s %8s %9s\n",
            nodes, d->hardware->name, r->one.load, d->link_gbps,
            d->prefill_error_sigma, d->slo_ttft_s, (unsigned long long)r->seeds,
            "policy", "TTFT", "p99", "effective", "tokens", "accepted", "late",
            "by most");
    for (size_t p = 0; p < s->policies.count; p++) {
        const struct sweep_values *v = &r->all[p];

        fprintf(f, "%-16s", s->policies.names[p]);
        for (int m = 0; m < SWEEP_METRICS; m++) {
            if (sweep_metric_is_share((enum sweep_metric)m))
                fputc(' ', f);
            print_value((enum sweep_metric)m, v->at[m] / seeds, f);
        }
        fprintf(f, " %8llu %8llu %8.3fs\n", (unsigned long long)v->promised,
                (unsigned long long)v->late, v->latest_s);
    }
    fputc('\n', f);
}

void sweep_print(const struct sweep *sweep, const struct sweep_result *results,
                 FILE *file)
{
    const struct sweep *s = sweep;

    fprintf(file, "sweep %s, seed %llu: %llu cases\n\n", s->description->name,
            (unsigned long long)s->seed, (unsigned long long)s->n_cases);
    if (s->n_cases == 1)
        print_alone(s, results, file);
    print_losses(s, results, file);
    print_all_against_best(s, results, file);
    print_policies(s, results, file);
    print_groups(s, results, file);
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
          "max_tokens,mixed_nodes,mixed_cost,mixed_memory,cache,rate,policy,"
          "ttft_mean_s,ttft_p99_s,effective_ratio,effective_token_ratio,"
          "promised,late,latest_s,predicted_ratio,p90_held_ratio,seeds,ttft_"
          "mean_s_seeds,ttft_p99_s_seeds,"
          "effective_ratio_seeds,effective_token_ratio_seeds\n",
          f);
    for (size_t i = 0; i < sweep->n_cases; i++) {
        const struct sweep_result *r = &results[i];
        const struct sweep_draw *d = &r->one.draw;
        const struct cluster *c = &r->one.cluster;
        double seeds = (double)r->seeds;

        for (size_t p = 0; p < sweep->policies.count; p++) {
            fprintf(f,
                    "%llu,%llu,%s,%s,%llu,%u,%u,%u,%.3f,%.4f,%.17g,%d,%.3f,"
                    "%.3f,%.4f,%.4f,%.3f,%.4f,%u,%.3f,%.3f,%.3f,%.4f,%.17g,%s,",
                    (unsigned long long)d->number, (unsigned long long)d->seed,
                    d->hardware->name, d->trace->name,
                    (unsigned long long)d->requests, (unsigned)c->prefill_nodes,
                    (unsigned)c->decode_nodes, (unsigned)c->coupled_nodes,
                    d->link_gbps, r->one.load, r->one.speed, d->disks,
                    d->slow_nodes, d->slow_speed, d->prefill_error_sigma,
                    d->decode_error_sigma, d->slo_ttft_s, d->slo_tbt_s,
                    (unsigned)d->max_tokens, d->mixed_nodes, d->mixed_cost,
                    d->mixed_memory, d->cache, r->one.rate,
                    sweep->policies.names[p]);
            for (int m = 0; m < SWEEP_METRICS; m++)
                csv_number(f, r->own[p].at[m]);
            fprintf(f, "%llu,%llu,%.6f,",
                    (unsigned long long)r->own[p].promised,
                    (unsigned long long)r->own[p].late, r->own[p].latest_s);
            csv_number(f, r->own[p].predicted_ratio);
            csv_number(f, r->own[p].p90_held_ratio);
            fprintf(f, "%llu,", (unsigned long long)r->seeds);
            for (int m = 0; m + 1 < SWEEP_METRICS; m++)
                csv_number(f, r->all[p].at[m] / seeds);
            fprintf(f, "%.6f\n", r->all[p].at[SWEEP_TOKENS] / seeds);
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
                            real(r->all[p].at[m] / (double)r->seeds));
    return json_pack("{s:o, s:s, s:o, s:o, s:b, s:o}", "values", values,
                     "against", s->policies.names[loss->other], "first_loss",
                     real(loss->first), "loss", real(loss->loss), "loses",
                     (int)sweep_loses(s, r, (enum sweep_metric)m), "causes",
                     causes_json(loss->causes));
}

/* Returns requests accepted with the SLO, and late ones, over all seeds. */
static json_t *promises_json(const struct sweep *s,
                             const struct sweep_result *r)
{
    json_t *all = json_object();

    for (size_t p = 0; p < s->policies.count; p++)
        json_object_set_new(all, s->policies.names[p],
                            json_pack("{s:I, s:I, s:o}", "promised",
                                      (json_int_t)r->all[p].promised, "late",
                                      (json_int_t)r->all[p].late, "latest_s",
                                      real(r->all[p].latest_s)));
    return all;
}

static json_t *case_json(const struct sweep *s, const struct sweep_result *r)
{
    const struct sweep_draw *d = &r->one.draw;
    const struct cluster *c = &r->one.cluster;

    return json_pack(
        "{s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:b, s:o,"
        " s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:o, "
        "s:o, s:o, s:o, s:o}",
        "case", (json_int_t)d->number, "seed", (json_int_t)d->seed, "hardware",
        d->hardware->name, "trace", d->trace->name, "requests",
        (json_int_t)d->requests, "prefill_nodes", (json_int_t)c->prefill_nodes,
        "decode_nodes", (json_int_t)c->decode_nodes, "coupled_nodes",
        (json_int_t)c->coupled_nodes, "link_gbps", real(d->link_gbps), "load",
        real(r->one.load), "speed", real(r->one.speed), "disks", (int)d->disks,
        "slow_nodes", real(d->slow_nodes), "slow_speed", real(d->slow_speed),
        "prefill_error_sigma", real(d->prefill_error_sigma),
        "decode_error_sigma", real(d->decode_error_sigma), "slo_ttft_s",
        real(d->slo_ttft_s), "slo_tbt_s", real(d->slo_tbt_s), "max_tokens",
        (json_int_t)d->max_tokens, "mixed_nodes", real(d->mixed_nodes),
        "mixed_cost", real(d->mixed_cost), "mixed_memory",
        real(d->mixed_memory), "cache", real(d->cache), "rate",
        real(r->one.rate), "seeds", (json_int_t)r->seeds, "ttft",
        metric_json(s, r, SWEEP_TTFT), "p99", metric_json(s, r, SWEEP_P99),
        "effective", metric_json(s, r, SWEEP_EFFECTIVE), "tokens",
        metric_json(s, r, SWEEP_TOKENS), "promises", promises_json(s, r));
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
