/* The numbers of the report; see replay_report.h. */
#include "tools/replay_report.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* One array per distribution, each with room for every record. */
struct samples {
    double *ttft_s, *tbt_s, *lag_s, *error;
    size_t ttft, tbt, lag, errors;
};

static void count_reason(struct replay_report *report,
                         const struct replay_record *r)
{
    struct replay_reason *slot = NULL;
    for (size_t i = 0; i < report->reason_count && slot == NULL; i++) {
        if (strcmp(report->reasons[i].reason, r->reason) == 0) {
            slot = &report->reasons[i];
        }
    }
    if (slot == NULL && report->reason_count == REPLAY_REASONS_MAX) {
        slot = &report->reasons[REPLAY_REASONS_MAX - 1];
        snprintf(slot->reason, sizeof slot->reason, "other");
    }
    if (slot == NULL) {
        slot = &report->reasons[report->reason_count++];
        snprintf(slot->reason, sizeof slot->reason, "%s", r->reason);
        snprintf(slot->example, sizeof slot->example, "%s", r->message);
    }
    slot->count++;
}

static double seconds(int64_t us)
{
    return (double)us / 1e6;
}

static void add_completed(struct replay_report *report, struct samples *s,
                          const struct replay_record *r)
{
    report->completed++;
    report->input_tokens += r->prompt_tokens;
    report->reused_tokens += r->reused_tokens;
    report->computed_tokens += r->computed_tokens;
    report->output_tokens += r->generated_tokens;
    report->fetched_tokens += r->fetched_tokens;
    report->retries += r->retries;
    if (r->first_token_us < 0) {
        return;
    }
    double ttft_s = seconds(r->first_token_us - r->intended_us);
    double observed_s = seconds(r->first_token_us - r->sent_us);
    bool in_time = ttft_s <= report->context.slo_ttft_s;
    s->ttft_s[s->ttft++] = ttft_s;
    if (r->tbt_us >= 0) {
        s->tbt_s[s->tbt++] = seconds(r->tbt_us);
        in_time = in_time && seconds(r->tbt_us) <= report->context.slo_tbt_s;
    }
    report->effective += in_time ? 1 : 0;
    if (r->predicted_ttft_us >= 0 && observed_s > 0) {
        s->error[s->errors++] =
            fabs(seconds(r->predicted_ttft_us) - observed_s) / observed_s;
    }
}

static void add_record(struct replay_report *report, struct samples *s,
                       const struct replay_record *r)
{
    if (r->outcome == REPLAY_PENDING) {
        return;
    }
    report->total++;
    if (r->sent_us >= 0) {
        s->lag_s[s->lag++] = seconds(r->sent_us - r->intended_us);
    }
    if (r->outcome == REPLAY_COMPLETED) {
        add_completed(report, s, r);
    } else if (r->outcome == REPLAY_REJECTED) {
        report->rejected++;
    } else {
        report->failed++;
        count_reason(report, r);
    }
}

int replay_report_make(const struct replay_record *records, size_t count,
                       const struct replay_context *context,
                       struct replay_report *report)
{
    double *room = calloc(count + 1, 4 * sizeof room[0]);
    if (room == NULL) {
        return -ENOMEM;
    }
    struct samples s = {.ttft_s = room,
                        .tbt_s = room + count,
                        .lag_s = room + 2 * count,
                        .error = room + 3 * count};
    *report = (struct replay_report){.context = *context};
    for (size_t i = 0; i < count; i++) {
        add_record(report, &s, &records[i]);
    }
    if (context->block_tokens > 0) {
        report->fetched_blocks = report->fetched_tokens / context->block_tokens;
    }
    report->prefix_hit_ratio =
        replay_ratio(report->reused_tokens, report->input_tokens);
    report->effective_ratio = replay_ratio(report->effective, report->total);
    report->ttft_s = replay_summarise(s.ttft_s, s.ttft);
    report->tbt_s = replay_summarise(s.tbt_s, s.tbt);
    report->send_lag_s = replay_summarise(s.lag_s, s.lag);
    report->prediction_error = replay_summarise(s.error, s.errors);
    free(room);
    return 0;
}
