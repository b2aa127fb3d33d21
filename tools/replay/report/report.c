/* The numbers of the report; see report.h. */
#include "tools/replay/report/report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A hit ratio above the best by more than this is no rounding error. */
#define HIT_RATIO_SLACK 0.01

void replay_copy_text(char *to, size_t size, const char *from)
{
    size_t n = 0;

    while (from && from[n] != '\0' && n + 1 < size) {
        to[n] = from[n] >= ' ' && from[n] <= '~' ? from[n] : '?';
        n++;
    }
    to[n] = '\0';
}

const char *replay_outcome_name(enum replay_outcome outcome)
{
    static const char *const names[] = {"pending", "completed", "rejected",
                                        "failed"};

    return names[outcome];
}

struct replay_tally {
    struct replay_report report; /* without its distributions */
    struct replay_distribution ttft_s, tbt_s, lag_s, error;
    struct replay_distribution ratio; /* predicted / observed */
    struct replay_distribution late_s;
    double predicted_s, observed_s; /* sums over predicted requests */
};

static void count_reason(struct replay_report *report,
                         const struct replay_record *r)
{
    bool rejected = r->outcome == REPLAY_REJECTED;
    struct replay_reason *slot = NULL;

    for (size_t i = 0; i < report->reason_count && !slot; i++)
        if (report->reasons[i].rejected == rejected &&
            strcmp(report->reasons[i].reason, r->reason) == 0)
            slot = &report->reasons[i];
    if (!slot && report->reason_count == REPLAY_REASONS_MAX) {
        slot = &report->reasons[REPLAY_REASONS_MAX - 1];
        snprintf(slot->reason, sizeof slot->reason, "other");
    }
    if (!slot) {
        slot = &report->reasons[report->reason_count++];
        slot->rejected = rejected;
        snprintf(slot->reason, sizeof slot->reason, "%s", r->reason);
        snprintf(slot->example, sizeof slot->example, "%s", r->message);
    }
    slot->varies = slot->varies || strcmp(slot->example, r->message) != 0;
    slot->count++;
}

static struct replay_tenant *tenant_of(struct replay_report *report,
                                       uint64_t tenant)
{
    struct replay_tenant *all = report->tenants;

    report->names_tenants = report->names_tenants || tenant > 0;
    for (size_t i = 0; i < report->tenant_count; i++)
        if (!all[i].others && all[i].tenant == tenant)
            return &all[i];
    if (report->tenant_count < REPLAY_TENANTS_MAX) {
        all[report->tenant_count].tenant = tenant;
        return &all[report->tenant_count++];
    }
    all[REPLAY_TENANTS_MAX - 1].others = true;
    return &all[REPLAY_TENANTS_MAX - 1];
}

/* Counts a request with a TTFT SLO, and its lateness. */
static int add_promise(struct replay_tally *t, const struct replay_record *r)
{
    int64_t late_us = r->first_token_us - r->intended_us - r->slo_ttft_us;

    if (r->slo_ttft_us <= 0)
        return 0;
    t->report.promised++;
    return late_us > 0
               ? replay_distribution_add(&t->late_s, replay_seconds(late_us))
               : 0;
}

static int add_completed(struct replay_tally *t, const struct replay_record *r,
                         struct replay_tenant *tenant)
{
    struct replay_report *report = &t->report;

    tenant->completed++;
    tenant->computed_tokens += r->computed_tokens;
    report->completed++;
    report->input_tokens += r->prompt_tokens;
    report->reused_tokens += r->reused_tokens;
    report->computed_tokens += r->computed_tokens;
    report->output_tokens += r->generated_tokens;
    report->fetched_tokens += r->fetched_tokens;
    report->retries += r->retries;
    if (r->first_token_us < 0)
        return 0;
    double ttft_s = replay_seconds(r->first_token_us - r->intended_us);
    double observed_s = replay_seconds(r->first_token_us - r->sent_us);
    bool in_time = ttft_s <= report->context.slo_ttft_s;
    int rc = replay_distribution_add(&t->ttft_s, ttft_s);
    if (rc == 0 && r->tbt_us >= 0) {
        rc = replay_distribution_add(&t->tbt_s, replay_seconds(r->tbt_us));
        in_time =
            in_time && replay_seconds(r->tbt_us) <= report->context.slo_tbt_s;
    }
    report->effective += in_time ? 1 : 0;
    report->effective_tokens += in_time ? r->input_tokens : 0;
    tenant->effective += in_time ? 1 : 0;
    tenant->ttft_sum_s += ttft_s;
    if (rc == 0)
        rc = add_promise(t, r);
    report->p90_told += r->predicted_p90_us >= 0;
    report->p90_held += r->predicted_p90_us >= r->first_token_us - r->sent_us;
    if (rc == 0 && r->predicted_ttft_us >= 0 && observed_s > 0) {
        double predicted_s = replay_seconds(r->predicted_ttft_us);

        t->predicted_s += predicted_s;
        t->observed_s += observed_s;
        rc = replay_distribution_add(&t->error, fabs(predicted_s - observed_s) /
                                                    observed_s);
        if (rc == 0)
            rc = replay_distribution_add(&t->ratio, predicted_s / observed_s);
    }
    return rc;
}

struct replay_tally *replay_tally_new(double slo_ttft_s, double slo_tbt_s)
{
    struct replay_tally *t = calloc(1, sizeof *t);

    if (t) {
        t->report.context.slo_ttft_s = slo_ttft_s;
        t->report.context.slo_tbt_s = slo_tbt_s;
    }
    return t;
}

void replay_tally_free(struct replay_tally *tally)
{
    if (!tally)
        return;
    replay_distribution_fini(&tally->ttft_s);
    replay_distribution_fini(&tally->tbt_s);
    replay_distribution_fini(&tally->lag_s);
    replay_distribution_fini(&tally->error);
    replay_distribution_fini(&tally->ratio);
    replay_distribution_fini(&tally->late_s);
    free(tally);
}

int replay_tally_add(struct replay_tally *tally, const struct replay_record *r)
{
    struct replay_tenant *tenant;
    int rc = 0;

    if (r->outcome == REPLAY_PENDING)
        return 0;
    tenant = tenant_of(&tally->report, r->tenant);
    tenant->total++;
    tenant->rejected += r->outcome == REPLAY_REJECTED;
    tally->report.total++;
    tally->report.offered_tokens += r->input_tokens;
    if (r->sent_us >= 0) {
        rc = replay_distribution_add(
            &tally->lag_s, replay_seconds(r->sent_us - r->intended_us));
    }
    if (rc == 0 && r->outcome == REPLAY_COMPLETED) {
        rc = add_completed(tally, r, tenant);
    } else if (r->outcome == REPLAY_REJECTED) {
        tally->report.rejected++;
        if (r->reason[0] != '\0')
            count_reason(&tally->report, r);
    } else if (r->outcome == REPLAY_FAILED) {
        tally->report.failed++;
        count_reason(&tally->report, r);
    }
    return rc;
}

/* Subtracts 1 from each number of the summary. */
static struct replay_summary less_one(struct replay_summary s)
{
    s.mean -= 1;
    s.p50 -= 1;
    s.p90 -= 1;
    s.p95 -= 1;
    s.p99 -= 1;
    s.max -= 1;
    return s;
}

void replay_tally_report(struct replay_tally *tally,
                         const struct replay_context *context,
                         struct replay_report *report)
{
    double slo_ttft_s = tally->report.context.slo_ttft_s;
    double slo_tbt_s = tally->report.context.slo_tbt_s;

    *report = tally->report;
    report->context = *context;
    report->context.slo_ttft_s = slo_ttft_s;
    report->context.slo_tbt_s = slo_tbt_s;
    if (context->block_tokens > 0)
        report->fetched_blocks = report->fetched_tokens / context->block_tokens;
    report->prefix_hit_ratio =
        replay_ratio(report->reused_tokens, report->input_tokens);
    report->held_before =
        !context->starts_cold && !context->interrupted && report->failed == 0 &&
        context->best_possible_hit_ratio >= 0 &&
        replay_ratio(report->reused_tokens, report->offered_tokens) >
            context->best_possible_hit_ratio + HIT_RATIO_SLACK;
    report->effective_ratio = replay_ratio(report->effective, report->total);
    report->effective_token_ratio =
        replay_ratio(report->effective_tokens, report->offered_tokens);
    report->late_s = replay_distribution_summary(&tally->late_s);
    report->ttft_s = replay_distribution_summary(&tally->ttft_s);
    report->tbt_s = replay_distribution_summary(&tally->tbt_s);
    report->send_lag_s = replay_distribution_summary(&tally->lag_s);
    report->prediction_error = replay_distribution_summary(&tally->error);
    report->predicted_ratio = tally->predicted_s / tally->observed_s;
    report->signed_error = less_one(replay_distribution_summary(&tally->ratio));
}

int replay_report_make(const struct replay_record *records, size_t count,
                       const struct replay_context *context,
                       struct replay_report *report)
{
    struct replay_tally *tally =
        replay_tally_new(context->slo_ttft_s, context->slo_tbt_s);
    int rc = tally ? 0 : -ENOMEM;

    for (size_t i = 0; i < count && rc == 0; i++)
        rc = replay_tally_add(tally, &records[i]);
    if (rc == 0)
        replay_tally_report(tally, context, report);
    replay_tally_free(tally);
    return rc;
}
