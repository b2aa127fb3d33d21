/* See sessions.h. */
#include "tools/replay/report/sessions.h"

#include "tools/replay/math.h"

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

void replay_sessions_fini(struct replay_sessions_tally *tally)
{
    replay_distribution_fini(&tally->ttft_s);
    replay_distribution_fini(&tally->turn_s);
}
