/* The results of a sweep as CSV and JSON, and for sweep.py, which prints them;
 * see sweep.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "tools/replay/report/report.h"
#include "tools/replay/study/sweep/sweep.h"
#include "tools/result_file.h"

static const char *const cause_names[SWEEP_CAUSES] = {
    [SWEEP_ERRORS] = "errors",       [SWEEP_LINKS] = "slow links",
    [SWEEP_UNEQUAL] = "slow nodes",  [SWEEP_DISKS] = "disks",
    [SWEEP_OVERLOAD] = "load",       [SWEEP_AGGREGATED] = "aggregated",
    [SWEEP_MIXED] = "two kinds",     [SWEEP_ASKS] = "max_tokens",
    [SWEEP_CACHES] = "small caches",
};

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
          "promised,late,latest_s,predicted_ratio,p90_held_ratio,seeds,"
          "ttft_mean_s_seeds,ttft_p99_s_seeds,effective_ratio_seeds,"
          "effective_token_ratio_seeds\n",
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

/* Returns a number, with at most six decimals unless it is to be exact. */
static json_t *real(bool exact, double x)
{
    return isnan(x) ? json_null() : json_real(exact ? x : round(x * 1e6) / 1e6);
}

static json_t *causes_json(unsigned causes)
{
    json_t *list = json_array();

    for (int c = 0; c < SWEEP_CAUSES; c++)
        if ((causes >> c & 1) != 0)
            json_array_append_new(list, json_string(cause_names[c]));
    return list;
}

/* Returns a metric; if exact, its values are sums over the seeds. */
static json_t *metric_json(const struct sweep *s, const struct sweep_result *r,
                           int m, bool exact)
{
    const struct sweep_loss *loss = &r->loss[m];
    json_t *values = json_object();

    for (size_t p = 0; p < s->policies.count; p++)
        json_object_set_new(
            values, s->policies.names[p],
            real(exact, r->all[p].at[m] / (exact ? 1.0 : (double)r->seeds)));
    return json_pack("{s:o, s:s, s:o, s:o, s:b, s:o}", "values", values,
                     "against", s->policies.names[loss->other], "first_loss",
                     real(exact, loss->first), "loss", real(exact, loss->loss),
                     "loses", (int)sweep_loses(s, r, (enum sweep_metric)m),
                     "causes", causes_json(loss->causes));
}

/* Returns requests accepted with the SLO, and late ones, over all seeds. */
static json_t *promises_json(const struct sweep *s,
                             const struct sweep_result *r, bool exact)
{
    json_t *all = json_object();

    for (size_t p = 0; p < s->policies.count; p++)
        json_object_set_new(all, s->policies.names[p],
                            json_pack("{s:I, s:I, s:o}", "promised",
                                      (json_int_t)r->all[p].promised, "late",
                                      (json_int_t)r->all[p].late, "latest_s",
                                      real(exact, r->all[p].latest_s)));
    return all;
}

static json_t *case_json(const struct sweep *s, const struct sweep_result *r,
                         bool exact)
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
        (json_int_t)c->coupled_nodes, "link_gbps", real(exact, d->link_gbps),
        "load", real(exact, r->one.load), "speed", real(exact, r->one.speed),
        "disks", (int)d->disks, "slow_nodes", real(exact, d->slow_nodes),
        "slow_speed", real(exact, d->slow_speed), "prefill_error_sigma",
        real(exact, d->prefill_error_sigma), "decode_error_sigma",
        real(exact, d->decode_error_sigma), "slo_ttft_s",
        real(exact, d->slo_ttft_s), "slo_tbt_s", real(exact, d->slo_tbt_s),
        "max_tokens", (json_int_t)d->max_tokens, "mixed_nodes",
        real(exact, d->mixed_nodes), "mixed_cost", real(exact, d->mixed_cost),
        "mixed_memory", real(exact, d->mixed_memory), "cache",
        real(exact, d->cache), "rate", real(exact, r->one.rate), "seeds",
        (json_int_t)r->seeds, "ttft", metric_json(s, r, SWEEP_TTFT, exact),
        "p99", metric_json(s, r, SWEEP_P99, exact), "effective",
        metric_json(s, r, SWEEP_EFFECTIVE, exact), "tokens",
        metric_json(s, r, SWEEP_TOKENS, exact), "promises",
        promises_json(s, r, exact));
}

static json_t *sweep_as_json(const struct sweep *sweep,
                             const struct sweep_result *results, bool exact)
{
    json_t *cases = json_array();
    json_t *policies = json_array();

    for (size_t i = 0; i < sweep->n_cases; i++)
        json_array_append_new(cases, case_json(sweep, &results[i], exact));
    for (size_t p = 0; p < sweep->policies.count; p++)
        json_array_append_new(policies, json_string(sweep->policies.names[p]));
    return json_pack("{s:s, s:I, s:o, s:o, s:o}", "description",
                     sweep->description->name, "seed", (json_int_t)sweep->seed,
                     "threshold", real(exact, sweep->threshold), "policies",
                     policies, "cases", cases);
}

int sweep_json(const struct sweep *sweep, const struct sweep_result *results,
               const char *path)
{
    json_t *json = sweep_as_json(sweep, results, false);
    int rc = json ? replay_json_write(json, path) : -ENOMEM;

    json_decref(json);
    return rc;
}

int sweep_print(const struct sweep *sweep, const struct sweep_result *results)
{
    const struct sweep_description *d = sweep->description;
    json_t *json = sweep_as_json(sweep, results, true);
    json_t *traces = json_array();
    int rc = json ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < sweep->n_cases; i++) {
        const struct sweep_draw *draw = &results[i].one.draw;
        json_t *more = json_pack("{s:o, s:f, s:I}", "has",
                                 causes_json(sweep_causes_of(draw)),
                                 "drawn_load", draw->load, "trace_at",
                                 (json_int_t)(draw->trace - d->traces));

        rc = json_object_update_new(
            json_array_get(json_object_get(json, "cases"), i), more);
    }
    for (size_t t = 0; t < d->n_traces; t++)
        json_array_append_new(traces, json_string(d->traces[t].name));
    if (rc == 0)
        rc = json_object_set_new(json, "traces", traces);
    if (rc == 0)
        return replay_json_print(json, "sweep.py", sweep->again,
                                 sweep->causes ? "causes" : "");
    json_decref(json);
    return -ENOMEM;
}
