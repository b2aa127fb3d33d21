/* The report on a closed loop; see report.h. */
#include <inttypes.h>

#include "tools/replay/math.h"
#include "tools/replay/report/report.h"

int replay_sessions_add(struct replay_sessions_tally *tally, int64_t ttft_us,
                        int64_t turn_us, int64_t end_us)
{
    int rc = replay_distribution_add(&tally->ttft_s, replay_seconds(ttft_us));

    if (rc == 0)
        rc = replay_distribution_add(&tally->turn_s, replay_seconds(turn_us));
    if (end_us > tally->last_end_us)
        tally->last_end_us = end_us;
    return rc;
}

void replay_sessions_report(struct replay_sessions_tally *tally,
                            const struct closed_loop_counts *counts,
                            int64_t until_us, struct replay_sessions *report)
{
    double hours =
        replay_seconds(until_us > 0 ? until_us : tally->last_end_us) / 3600;

    *report = (struct replay_sessions){
        .counts = *counts,
        .finished_per_hour = hours > 0 ? (double)counts->finished / hours : 0.0,
        .ttft_s = replay_distribution_summary(&tally->ttft_s),
        .turn_s = replay_distribution_summary(&tally->turn_s)};
}

static json_t *summary_json(const struct replay_summary *s)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "mean", s->mean, "p50",
                     s->p50, "p95", s->p95, "p99", s->p99, "max", s->max);
}

json_t *replay_sessions_json(const struct replay_sessions *report)
{
    const struct closed_loop_counts *n = &report->counts;

    return json_pack(
        "{s:f, s:{s:I, s:I, s:I}, s:I, s:o, s:o}", "sessions_finished_per_hour",
        report->finished_per_hour, "sessions", "started",
        (json_int_t)n->started, "finished", (json_int_t)n->finished, "lost",
        (json_int_t)n->lost, "turns", (json_int_t)n->turns, "ttft_s",
        summary_json(&report->ttft_s), "turn_s", summary_json(&report->turn_s));
}

static void print_summary(const char *name, const struct replay_summary *s,
                          FILE *file)
{
    fprintf(file, "  %-22s %10.3f %10.3f %10.3f %10.3f\n", name, s->mean,
            s->p50, s->p95, s->p99);
}

void replay_sessions_print(const struct replay_sessions *report, FILE *file)
{
    const struct closed_loop_counts *n = &report->counts;

    fprintf(file,
            "  %-22s %10" PRIu64 "  finished %" PRIu64 " (%.1f an hour), lost "
            "%" PRIu64 "\n  %-22s %10s %10s %10s %10s\n",
            "sessions started", n->started, n->finished,
            report->finished_per_hour, n->lost, "", "mean", "p50", "p95",
            "p99");
    print_summary("TTFT of turns (s)", &report->ttft_s, file);
    print_summary("time of turns (s)", &report->turn_s, file);
    fputc('\n', file);
}

void replay_sessions_fini(struct replay_sessions_tally *tally)
{
    replay_distribution_fini(&tally->ttft_s);
    replay_distribution_fini(&tally->turn_s);
}
