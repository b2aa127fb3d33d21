/* Statistics of a closed loop's turns and sessions. Pure. */
#ifndef TOOLS_REPLAY_REPORT_SESSIONS_H
#define TOOLS_REPLAY_REPORT_SESSIONS_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/replay/report/distribution.h"
#include "traces/recorded/loop.h"

/* Answered turns. {0} is an empty tally. */
struct replay_sessions_tally {
    struct replay_distribution ttft_s;
    struct replay_distribution turn_s;
    int64_t last_end_us;
};

struct replay_sessions {
    struct closed_loop_counts counts;
    double finished_per_hour;
    struct replay_summary ttft_s; /* from a turn's start to its first token */
    struct replay_summary turn_s; /* from a turn's start to its last token */
};

/* Adds an answered turn: the times from its start, and its end. Returns 0 or
 * -ENOMEM. */
[[nodiscard]] int replay_sessions_add(struct replay_sessions_tally *tally,
                                      int64_t ttft_us, int64_t turn_us,
                                      int64_t end_us);

/* Computes the report. until_us: end of the time for sessions per hour; 0 = the
 * last answer's end. */
void replay_sessions_report(struct replay_sessions_tally *tally,
                            const struct closed_loop_counts *counts,
                            int64_t until_us, struct replay_sessions *report);

/* Returns the report as JSON: a new reference, or NULL when out of memory. */
[[nodiscard]] json_t *
replay_sessions_json(const struct replay_sessions *report);

/* Prints the report as lines of a table. */
void replay_sessions_print(const struct replay_sessions *report, FILE *file);

/* Frees what the tally owns. */
void replay_sessions_fini(struct replay_sessions_tally *tally);

#endif
