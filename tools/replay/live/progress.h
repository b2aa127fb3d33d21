/* How far a replay is, on stderr: one moving line, or lines in a log. */
#ifndef TOOLS_REPLAY_LIVE_PROGRESS_H
#define TOOLS_REPLAY_LIVE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/replay/report/record.h"

struct replay_progress {
    size_t total;
    size_t completed, rejected, failed;
    uint64_t prompt_tokens, reused_tokens;
    int64_t ttft_sum_us;
    size_t ttft_count;
    bool on_terminal;
    int64_t shown_us; /* when a line was last written */
};

/* Starts counting; looks once whether stderr is a terminal. */
void replay_progress_init(struct replay_progress *progress, size_t total);

/* Counts a finished record. */
void replay_progress_add(struct replay_progress *progress,
                         const struct replay_record *record);

/*
 * Shows the state at now_us: every call on a terminal, every five seconds
 * elsewhere, always when `last`, which also ends the line.
 */
void replay_progress_show(struct replay_progress *progress, int64_t now_us,
                          size_t sent, size_t in_flight, bool last);

#endif
