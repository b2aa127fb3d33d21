/* The report as a table, as JSON and as CSV; see report.h. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "tools/replay/report/report.h"
#include "tools/result_file.h"

/* Six decimals are microseconds; more would be noise that changes files. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(round(x * 1e6) / 1e6) : json_null();
}

static json_t *known(bool is_known, double x)
{
    return is_known ? number(x) : json_null();
}

static json_t *count(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *summary_json(const struct replay_summary *s)
{
    bool any = s->count > 0;

    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "mean", known(any, s->mean),
                     "p50", known(any, s->p50), "p90", known(any, s->p90),
                     "p99", known(any, s->p99), "max", known(any, s->max));
}

static json_t *reasons_json(const struct replay_report *report, bool rejected)
{
    json_t *list = json_array();

    for (size_t i = 0; i < report->reason_count; i++) {
        const struct replay_reason *r = &report->reasons[i];

        if (r->rejected == rejected &&
            json_array_append_new(
                list, json_pack("{s:s, s:o, s:s}", "reason", r->reason, "count",
                                count(r->count), "example", r->example)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Returns the list of tenants; `others` marks an entry for several. */
static json_t *tenants_json(const struct replay_report *report)
{
    json_t *list = json_array();
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < report->tenant_count; i++) {
        const struct replay_tenant *t = &report->tenants[i];

        rc = json_array_append_new(
            list,
            json_pack(
                "{s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o}", "tenant",
                count(t->tenant), "others", (int)t->others, "total",
                count(t->total), "completed", count(t->completed), "rejected",
                count(t->rejected), "effective", count(t->effective),
                "computed_tokens", count(t->computed_tokens), "ttft_mean_s",
                known(t->completed > 0, t->ttft_sum_s / (double)t->completed)));
    }
    if (rc == 0)
        return list;
    json_decref(list);
    return NULL;
}

/* Bias of predictions and send lag only matter in live replays. */
static bool is_live(const struct replay_report *r)
{
    return strcmp(r->context.mode, "live") == 0;
}

json_t *replay_report_json(const struct replay_report *r)
{
    const struct replay_context *c = &r->context;
    bool predicted = r->prediction_error.count > 0;
    bool promises = r->promised > 0;

    json_t *json = json_pack(
        "{s:s, s:s?, s:{s:o, s:o, s:o, s:o}, s:{s:o, s:o, s:o, s:o, s:o},"
        " s:{s:o}, s:o, s:o, s:o, s:o, s:o,"
        " s:{s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o},"
        " s:{s:o, s:{s:o, s:o}, s:o, s:o}, s:o, s:o, s:o, s:o, s:b, s:b}",
        "mode", c->mode, "policy", c->policy, /**/
        "requests", "total", count(r->total), "completed", count(r->completed),
        "rejected", count(r->rejected), "failed", count(r->failed), /**/
        "tokens", "input", count(r->input_tokens), "reused",
        count(r->reused_tokens), "computed", count(r->computed_tokens),
        "output", count(r->output_tokens), "fetched",
        count(r->fetched_tokens),                        /**/
        "blocks", "fetched", count(r->fetched_blocks),   /**/
        "prefix_hit_ratio", number(r->prefix_hit_ratio), /**/
        "best_possible_hit_ratio",
        known(c->best_possible_hit_ratio >= 0, c->best_possible_hit_ratio),
        "ttft_s", summary_json(&r->ttft_s),         /**/
        "tbt_s", summary_json(&r->tbt_s),           /**/
        "send_lag_s", summary_json(&r->send_lag_s), /**/
        "slo", "asked", (int)!c->no_slo, "ttft_s", number(c->slo_ttft_s),
        "tbt_s", number(c->slo_tbt_s), /**/
        "effective", count(r->effective), "effective_ratio",
        number(r->effective_ratio), "effective_tokens",
        count(r->effective_tokens), "effective_token_ratio",
        number(r->effective_token_ratio), "promised",
        promises ? count(r->promised) : json_null(), "late",
        promises ? count(r->late_s.count) : json_null(), "late_s",
        summary_json(&r->late_s), /**/
        "prediction", "requests", count(r->prediction_error.count),
        "ttft_abs_rel_error", "p50", known(predicted, r->prediction_error.p50),
        "p90", known(predicted, r->prediction_error.p90), "ttft_mean_ratio",
        known(predicted, r->predicted_ratio), "ttft_p90_held_ratio",
        known(r->p90_told > 0, replay_ratio(r->p90_held, r->p90_told)), /**/
        "retries", count(r->retries),                                   /**/
        "failures", reasons_json(r, false),                             /**/
        "rejections", reasons_json(r, true),                            /**/
        "wall_s", number((double)c->wall_us / 1e6), "held_before",
        (int)r->held_before, "interrupted", (int)c->interrupted);
    if (json && is_live(r) &&
        json_object_set_new(
            json_object_get(json, "prediction"), "ttft_rel_error",
            json_pack("{s:o}", "p50", known(predicted, r->signed_error.p50))) !=
            0) {
        json_decref(json);
        return NULL;
    }
    if (json && r->names_tenants &&
        json_object_set_new(json, "tenants", tenants_json(r)) != 0) {
        json_decref(json);
        return NULL;
    }
    return json;
}

int replay_json_write(const json_t *json, const char *path)
{
    FILE *f = result_open(path);

    if (!f)
        return -errno;
    int rc = json_dumpf(
        json, f, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(12));
    fputc('\n', f);
    return result_close(f) != 0 || rc != 0 ? -EIO : 0;
}

static void print_summary(FILE *f, const char *name,
                          const struct replay_summary *s, double scale)
{
    if (s->count == 0) {
        fprintf(f, "  %-22s %10s\n", name, "-");
        return;
    }
    fprintf(f, "  %-22s %10.1f %10.1f %10.1f %10.1f %10.1f\n", name,
            s->mean * scale, s->p50 * scale, s->p90 * scale, s->p99 * scale,
            s->max * scale);
}

const char *replay_reason_text(const char *reason)
{
    static const struct {
        const char *reason, *text;
    } all[] = {
        {"too_long", "prompt and answer are longer than the KV memory of any "
                     "node (kv_tokens, or the prefill cache)"},
        {"no_capacity", "no node had room, and none was to have it within "
                        "the TTFT SLO"},
        {"reject_slo_ttft", "no choice would have met the TTFT SLO"},
        {"reject_slo_tbt", "no choice would have met the TBT SLO"},
        {"reject_price", "too much work for what it would have saved others"},
        {"link_busy", "its KV could not have come in time over any link"},
        {"reject_share", "its tenant had its share, and others had not"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i].reason, reason) == 0)
            return all[i].text;
    return reason;
}

void replay_report_reasons(const struct replay_report *r, FILE *f)
{
    for (size_t i = 0; i < r->reason_count; i++) {
        const struct replay_reason *x = &r->reasons[i];
        const char *text = replay_reason_text(x->reason);
        bool known = text != x->reason;

        fprintf(f, "    %s: %-20s %6" PRIu64 "  %s%s\n",
                x->rejected ? "rejected" : "failed", x->reason, x->count,
                x->varies && !known ? "for example: " : "",
                known ? text : x->example);
    }
}

/* Prints the hit ratio of completed requests; if some did not complete, also
 * that of all offered, which the infinite cache covers. */
static void print_hits(const struct replay_report *r, FILE *f)
{
    if (r->input_tokens == 0) {
        fprintf(f, "  %-22s %10s\n", "prefix hit ratio", "-");
        return;
    }
    fprintf(f, "  %-22s %9.1f%%  of completed requests", "prefix hit ratio",
            100 * r->prefix_hit_ratio);
    if (r->held_before) {
        fputs("\n    more than these requests share: the server already held "
              "part of their\n    prompts. Restart the workers, or use "
              "another --seed, to measure reuse.",
              f);
    } else if (r->context.best_possible_hit_ratio >= 0) {
        bool all = r->completed == r->total;

        if (!all) {
            fprintf(f, "\n  %-22s %9.1f%%  of all offered", "",
                    100 * replay_ratio(r->reused_tokens, r->offered_tokens));
        }
        fprintf(f, "  (an infinite cache: %.1f%%)",
                100 * r->context.best_possible_hit_ratio);
    }
    fputc('\n', f);
}

static void print_counts(const struct replay_report *r, FILE *f)
{
    fprintf(f,
            "  %-22s %10" PRIu64 "  completed %" PRIu64 ", rejected %" PRIu64
            ", failed %" PRIu64 "\n",
            "requests", r->total, r->completed, r->rejected, r->failed);
    replay_report_reasons(r, f);
    fprintf(f,
            "  %-22s %10" PRIu64 "  completed %" PRIu64 ": reused %" PRIu64
            ", computed %" PRIu64 "\n",
            "input tokens offered", r->offered_tokens, r->input_tokens,
            r->reused_tokens, r->computed_tokens);
    if (!r->context.no_decode) {
        fprintf(f, "  %-22s %10" PRIu64 "\n", "output tokens",
                r->output_tokens);
    }
    fprintf(f, "  %-22s %10" PRIu64 "  (%" PRIu64 " blocks)\n",
            "fetched tokens", r->fetched_tokens, r->fetched_blocks);
    print_hits(r, f);
}

struct replay_ending replay_report_ending(const struct replay_report *report)
{
    struct replay_ending ending = {""};

    if (report->context.interrupted) {
        snprintf(ending.text, sizeof ending.text,
                 ": interrupted after %" PRIu64 " of %" PRIu64 " requests",
                 report->total, report->context.asked);
    }
    return ending;
}

static void print_tenants(const struct replay_report *r, FILE *f)
{
    if (!r->names_tenants)
        return;
    fprintf(f, "\n  %-22s %10s %10s %10s %10s %14s\n", "tenant", "requests",
            "rejected", "effective", "TTFT (ms)", "tokens");
    for (size_t i = 0; i < r->tenant_count; i++) {
        const struct replay_tenant *t = &r->tenants[i];
        char name[32];

        snprintf(name, sizeof name, "%" PRIu64, t->tenant);
        fprintf(f,
                "  %-22s %10" PRIu64 " %10" PRIu64 " %10" PRIu64
                " %10.1f %14" PRIu64 "\n",
                t->others ? "others" : name, t->total, t->rejected,
                t->effective,
                t->completed ? 1e3 * t->ttft_sum_s / (double)t->completed : 0.0,
                t->computed_tokens);
    }
}

/* Prints broken promises: requests accepted with a TTFT SLO that missed it. */
static void print_promises(const struct replay_report *r, FILE *f)
{
    if (r->promised == 0)
        return;
    fprintf(f, "  %-22s %10zu  of %" PRIu64 " accepted with a TTFT SLO",
            "promises broken", r->late_s.count, r->promised);
    if (r->late_s.count > 0)
        fprintf(f, "; by %.3f s in the mean, %.3f s at most", r->late_s.mean,
                r->late_s.max);
    fputc('\n', f);
}

static void print_forecasts(const struct replay_report *r, FILE *f)
{
    if (r->prediction_error.count == 0)
        return;
    fprintf(f, "  %-22s %10.3f of the mean that came", "TTFT predicted, mean",
            r->predicted_ratio);
    if (r->p90_told > 0)
        fprintf(f, "; %.1f %% came within the predicted p90",
                100 * replay_ratio(r->p90_held, r->p90_told));
    fputc('\n', f);
}

/* Writes how many requests came within the limits that were asked for. */
static void print_effective(const struct replay_report *r, FILE *f)
{
    const struct replay_context *c = &r->context;

    if (c->no_slo)
        return;
    fprintf(f,
            "\n  %-22s %9.1f%%  (%" PRIu64 " of %" PRIu64 " within TTFT %g s",
            "effective requests", 100 * r->effective_ratio, r->effective,
            r->total, c->slo_ttft_s);
    if (!c->no_decode)
        fprintf(f, " and TBT %g s", c->slo_tbt_s);
    fprintf(f, ")\n  %-22s %9.1f%%  (%" PRIu64 " of %" PRIu64 ")\n",
            "effective input tokens", 100 * r->effective_token_ratio,
            r->effective_tokens, r->offered_tokens);
}

void replay_report_print(const struct replay_report *r, FILE *f)
{
    const struct replay_context *c = &r->context;

    fprintf(f, "\n%s replay, policy %s, %.1f s%s\n\n", c->mode,
            c->policy ? c->policy : "unknown", (double)c->wall_us / 1e6,
            replay_report_ending(r).text);
    print_counts(r, f);
    fprintf(f, "\n  %-22s %10s %10s %10s %10s %10s\n", "", "mean", "p50", "p90",
            "p99", "max");
    print_summary(f, "TTFT, completed (ms)", &r->ttft_s, 1e3);
    if (!c->no_decode)
        print_summary(f, "TBT, slowest 10 % (ms)", &r->tbt_s, 1e3);
    if (is_live(r))
        print_summary(f, "send lag (ms)", &r->send_lag_s, 1e3);
    print_summary(f, "TTFT predicted off (%)", &r->prediction_error, 1e2);
    if (is_live(r))
        print_summary(f, "  signed (%)", &r->signed_error, 1e2);
    print_forecasts(r, f);
    print_tenants(r, f);
    print_effective(r, f);
    print_promises(r, f);
    fputc('\n', f);
}

/* Writes a text between quotes, quotes doubled (RFC 4180). */
static void csv_text(FILE *f, const char *text)
{
    fputc('"', f);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            fputc('"', f);

        fputc(*text, f);
    }
    fputc('"', f);
}

/* Writes seconds; empty if unknown. */
static void csv_time(FILE *f, bool is_known, int64_t us)
{
    if (is_known)
        fprintf(f, "%.6f", (double)us / 1e6);
    fputc(',', f);
}

void replay_csv_line(const struct replay_record *r, FILE *f)
{
    bool first = r->first_token_us >= 0;

    fprintf(f, "%" PRIu64 ",%s,%d,", r->index, replay_outcome_name(r->outcome),
            r->status);
    csv_time(f, true, r->intended_us);
    csv_time(f, r->sent_us >= 0, r->sent_us - r->intended_us);
    csv_time(f, first, r->first_token_us - r->intended_us);
    csv_time(f, r->predicted_ttft_us >= 0, r->predicted_ttft_us);
    csv_time(f, r->predicted_p90_us >= 0, r->predicted_p90_us);
    csv_time(f, r->tbt_us >= 0, r->tbt_us);
    csv_time(f, r->end_us >= 0, r->end_us - r->intended_us);
    csv_time(f, r->queue_us >= 0, r->queue_us);
    csv_time(f, r->prefill_us >= 0, r->prefill_us);
    fprintf(f,
            "%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32
            ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",",
            r->input_tokens, r->output_tokens, r->prompt_tokens,
            r->reused_tokens, r->local_tokens, r->fetched_tokens,
            r->computed_tokens, r->generated_tokens, r->retries);
    const char *const texts[] = {r->prefill, r->decode, r->id, r->reason,
                                 r->message};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        csv_text(f, texts[i]);
        fputc(i + 1 < sizeof texts / sizeof texts[0] ? ',' : '\n', f);
    }
}

void replay_csv_header(FILE *f)
{
    fputs("index,outcome,status,intended_s,send_lag_s,ttft_s,predicted_ttft_s,"
          "predicted_ttft_p90_s,tbt_s,total_s,queue_s,prefill_s,input_tokens,"
          "output_tokens,prompt_tokens,reused_tokens,local_tokens,"
          "fetched_tokens,computed_tokens,generated_tokens,retries,prefill,"
          "decode,id,reason,message\n",
          f);
}

int replay_csv_write(const struct replay_record *records, size_t n,
                     const char *path)
{
    FILE *f = result_open(path);

    if (!f)
        return -errno;
    replay_csv_header(f);
    for (size_t i = 0; i < n; i++)
        replay_csv_line(&records[i], f);
    return result_close(f);
}
