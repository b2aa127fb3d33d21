/* The result of `size` as CSV and picture, and for size.py, which prints it;
 * see size.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "tools/plot/plot.h"
#include "tools/replay/study/size/size.h"
#include "tools/result_file.h"

static uint32_t prefill_of(const struct replay_case *c)
{
    return c->cluster.prefill_nodes + c->cluster.coupled_nodes;
}

static uint32_t nodes_of(const struct replay_case *c)
{
    return cluster_nodes(&c->cluster);
}

/* Returns a simulated size, with the reasons of rejections and failures as
 * text. */
static json_t *case_json(const struct replay_case *c)
{
    const struct replay_report *r = &c->result.report;
    char *reasons = NULL;
    size_t size;
    FILE *file = open_memstream(&reasons, &size);

    if (file) {
        replay_report_reasons(r, file);
        if (fclose(file) != 0)
            file = NULL;
    }
    json_t *json = json_pack(
        "{s:I, s:I, s:b, s:f, s:f, s:I, s:I, s:I, s:s, s:I, s:I, s:f, s:f}",
        "prefill", (json_int_t)prefill_of(c), "decode",
        (json_int_t)c->cluster.decode_nodes, "coupled",
        c->cluster.coupled_nodes > 0, "effective_ratio", r->effective_ratio,
        "effective_token_ratio", r->effective_token_ratio, "rejected",
        (json_int_t)r->rejected, "failed", (json_int_t)r->failed, "late",
        (json_int_t)(r->completed - r->effective), "reasons",
        file ? reasons : "", "input_tokens", (json_int_t)r->input_tokens,
        "offered_tokens", (json_int_t)r->offered_tokens, "ttft_p90_s",
        r->ttft_s.count > 0 ? r->ttft_s.p90 : -1.0, "tbt_p90_s",
        r->tbt_s.count > 0 ? r->tbt_s.p90 : -1.0);

    free(reasons);
    return json;
}

int replay_size_print(const struct replay_sizing *z)
{
    json_t *ended = json_array();

    for (size_t i = 0; i < z->n_ended; i++)
        json_array_append_new(ended, case_json(&z->ended[i]));
    return replay_json_print(
        json_pack(
            "{s:I, s:f, s:s, s:f, s:s, s:f, s:f, s:f, s:b, s:I, s:I, "
            "s:I, s:I, s:I, s:f, s:o}",
            "requests", (json_int_t)z->requests, "speed", z->base->speed,
            "cluster", z->template.name, "link_gbps",
            z->template.link_bytes_per_s * 8 / 1e9, "policy", z->base->policy,
            "slo_ttft_s", z->base->slo_ttft_s, "slo_tbt_s", z->base->slo_tbt_s,
            "target", z->target, "found", (int)z->search.found, "simulated",
            (json_int_t)z->search.count, "prefill_max",
            (json_int_t)z->search.prefill_max, "decode_max",
            (json_int_t)z->search.decode_max, "hopeless",
            (json_int_t)z->hopeless, "misses_max", (json_int_t)z->misses_max,
            "hopeless_ttft_s", z->hopeless_ttft_s, "ended", ended),
        "size.py", "", "");
}

int replay_size_csv(const struct replay_sizing *z, const char *path)
{
    FILE *f = result_open(path);

    if (!f)
        return -errno;
    fputs("prefill,decode,nodes,meets,effective_ratio,requests_judged\n", f);
    for (size_t i = 0; i < z->search.count; i++) {
        const struct search_answer *a = &z->search.answers[i];

        fprintf(f, "%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%d,", a->size.prefill,
                a->size.decode, a->size.prefill + a->size.decode, a->meets);
        if (a->effective_ratio >= 0)
            fprintf(f, "%.6f", a->effective_ratio);
        fprintf(f, ",%" PRIu64 "\n", a->judged);
    }
    return result_close(f);
}

int replay_size_plot(const struct replay_sizing *z, const char *path)
{
    char title[160];
    struct plot plot;
    int rc = plot_begin(&plot);

    snprintf(title, sizeof title,
             "%.4g %% of requests within TTFT %g s and TBT %g s, %s",
             100 * z->target, z->base->slo_ttft_s, z->base->slo_tbt_s,
             z->template.name);
    if (rc == 0)
        rc = replay_size_csv(z, plot.data);
    if (rc == 0) {
        fputs("\nprefill,decode,nodes,effective_ratio,target\n", plot.file);
        for (size_t i = 0; i < z->n_ended; i++) {
            const struct replay_case *c = &z->ended[i];

            fprintf(plot.file,
                    "%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%.6f,%.9g\n",
                    prefill_of(c), c->cluster.decode_nodes, nodes_of(c),
                    c->result.report.effective_ratio, z->target);
        }
    }
    return plot_end(&plot, rc, "size", title, path);
}

static double mean_ttft_s(const struct replay_interval *at)
{
    return at->answered > 0 ? at->ttft_s / (double)at->answered : 0.0;
}

int over_time_print(const struct over_time *o)
{
    json_t *splits = json_array();

    for (size_t i = 0; i < o->n; i++) {
        const struct replay_case *c = &o->cases[i];
        json_t *intervals = json_array();

        for (size_t k = 0; k < o->cases[0].n_intervals; k++) {
            const struct replay_interval *at = &c->intervals[k];

            json_array_append_new(
                intervals, json_pack("[I, I, I, f]", (json_int_t)at->requests,
                                     (json_int_t)at->effective,
                                     (json_int_t)at->answered, at->ttft_s));
        }
        json_array_append_new(
            splits, json_pack("{s:I, s:I, s:o}", "prefill",
                              (json_int_t)c->cluster.prefill_nodes, "decode",
                              (json_int_t)c->cluster.decode_nodes, "intervals",
                              intervals));
    }
    return replay_json_print(
        json_pack("{s:f, s:o}", "interval_s", o->interval_s, "splits", splits),
        "size.py", "", "");
}

int over_time_csv(const struct over_time *o, const char *path)
{
    FILE *f = result_open(path);

    if (!f)
        return -errno;
    fputs("from_s,prefill,decode,requests,effective_ratio,mean_ttft_s\n", f);
    for (size_t k = 0; k < o->cases[0].n_intervals; k++)
        for (size_t i = 0; i < o->n; i++) {
            const struct replay_case *c = &o->cases[i];
            const struct replay_interval *at = &c->intervals[k];

            fprintf(f, "%.6g,%" PRIu32 ",%" PRIu32 ",%" PRIu64 ",%.6f,%.6f\n",
                    (double)k * o->interval_s, c->cluster.prefill_nodes,
                    c->cluster.decode_nodes, at->requests,
                    replay_ratio(at->effective, at->requests), mean_ttft_s(at));
        }
    return result_close(f);
}
