/*
 * Turns records into a report. Pure: `live` and `simulate` give the same report
 * for the same records.
 */
#ifndef TOOLS_REPLAY_REPORT_REPORT_H
#define TOOLS_REPLAY_REPORT_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "tools/replay/math.h"
#include "tools/replay/report/record.h"
#include "traces/recorded/loop.h"

/* Facts that the records do not contain. Texts are borrowed. */
struct replay_context {
    const char *mode;      /* "live" or "simulate" */
    const char *policy;    /* NULL = unknown */
    uint32_t block_tokens; /* of the server, to count fetched blocks */
    double slo_ttft_s;
    double slo_tbt_s;
    double best_possible_hit_ratio; /* of all requests offered; below 0 =
                                       unknown */
    int64_t wall_us;
    uint64_t asked;   /* requests to replay; used if interrupted */
    bool interrupted; /* the user stopped it early */
    bool no_decode;   /* requests end with their first token */
    bool no_slo;      /* nobody asked for a limit: effective requests, by the
                         limits above, are in files only */
    bool starts_cold; /* caches are empty at the start */
};

/* Reasons kept; the rest counts as the last one, "other". */
#define REPLAY_REASONS_MAX 12

struct replay_reason {
    char reason[48];
    char example[128]; /* the first message */
    bool varies;       /* other messages came, too */
    bool rejected;     /* else failed */
    uint64_t count;
};

/* Tenants kept; the rest counts as the last one. */
#define REPLAY_TENANTS_MAX 16

/* The requests of one tenant. */
struct replay_tenant {
    uint64_t tenant; /* 0 = requests without a tenant */
    bool others;     /* stands for several tenants */
    uint64_t total, completed, rejected, effective, computed_tokens;
    double ttft_sum_s; /* of completed requests */
};

struct replay_report {
    struct replay_context context;
    uint64_t total, completed, rejected, failed;
    uint64_t offered_tokens; /* requested input of all requests */
    /* Of completed requests. */
    uint64_t input_tokens, reused_tokens, computed_tokens, output_tokens;
    uint64_t fetched_tokens, fetched_blocks;
    double prefix_hit_ratio; /* reused / input */
    /* Reused / offered tokens exceed the best possible ratio, and no request
     * failed: the server held parts of the prompts before, and that ratio is no
     * bound. */
    bool held_before;
    struct replay_summary ttft_s; /* from the intended sending */
    struct replay_summary tbt_s;
    struct replay_summary send_lag_s; /* of all requests sent */
    uint64_t effective;               /* completed within both SLOs */
    double effective_ratio;           /* effective / all requests */
    uint64_t effective_tokens;        /* input tokens of effective requests */
    double effective_token_ratio;     /* effective / offered tokens */
    uint64_t promised;                /* completed, accepted with a TTFT SLO */
    /* Of promised requests, late ones only: first token after the SLO. */
    struct replay_summary late_s;
    /* |predicted - observed| / observed TTFT, observed from the real sending.
     */
    struct replay_summary prediction_error;
    /* Sum of predicted / sum of observed TTFT: 1 = right on average. */
    double predicted_ratio;
    uint64_t p90_told; /* requests with a predicted 90th percentile */
    uint64_t p90_held; /* of these, TTFT within it */
    /* (predicted - observed) / observed: below 0 = took longer. */
    struct replay_summary signed_error;
    uint64_t retries;
    struct replay_reason reasons[REPLAY_REASONS_MAX];
    size_t reason_count;
    struct replay_tenant tenants[REPLAY_TENANTS_MAX];
    size_t tenant_count;
    bool names_tenants; /* at least one request names a tenant */
};

/* A report under construction, for records that come one by one and are not
 * kept. Its memory is bounded, see distribution.h. */
struct replay_tally;

/* Returns an empty tally, owned, or NULL when out of memory. */
[[nodiscard]] struct replay_tally *replay_tally_new(double slo_ttft_s,
                                                    double slo_tbt_s);

/* Frees a tally; NULL is a no-op. */
void replay_tally_free(struct replay_tally *tally);

/* Adds a record (borrowed for the call). Returns 0 or -ENOMEM. */
[[nodiscard]] int replay_tally_add(struct replay_tally *tally,
                                   const struct replay_record *r);

/* Fills in the report of all records so far. It keeps the context's borrowed
 * texts; its SLOs are those of replay_tally_new(). O(n log n). */
void replay_tally_report(struct replay_tally *tally,
                         const struct replay_context *context,
                         struct replay_report *report);

/*
 * Computes the report of records[0 .. count) (borrowed); the report keeps the
 * context's borrowed texts. Returns 0 or -ENOMEM. O(n log n).
 */
[[nodiscard]] int replay_report_make(const struct replay_record *records,
                                     size_t count,
                                     const struct replay_context *context,
                                     struct replay_report *report);

/*
 * Returns the report as JSON: a new reference, or NULL when out of memory.
 * Unknown numbers are null; others have at most six decimals.
 */
[[nodiscard]] json_t *replay_report_json(const struct replay_report *report);

/* Writes `json` with sorted keys to `path`. Returns 0 or a negative errno. */
[[nodiscard]] int replay_json_write(const json_t *json, const char *path);

/* ": interrupted after N of M requests", or "" if it was not interrupted. */
struct replay_ending {
    char text[96];
};
struct replay_ending replay_report_ending(const struct replay_report *report);

/* Returns what a simulation's reason means, or the reason itself. */
const char *replay_reason_text(const char *reason);

/* Prints a line for each reason of rejections and failures: the count, and its
 * meaning or the server's message. */
void replay_report_reasons(const struct replay_report *report, FILE *file);

/* Prints the report as a table. */
void replay_report_print(const struct replay_report *report, FILE *file);

/* Write a CSV file's header, and the line of a record. Errors stay in the
 * stream: check ferror(). */
void replay_csv_header(FILE *file);
void replay_csv_line(const struct replay_record *record, FILE *file);

/* Writes a header and a line per record to `path`. Returns 0 or a negative
 * errno. */
[[nodiscard]] int replay_csv_write(const struct replay_record *records,
                                   size_t count, const char *path);

/* Statistics of a closed loop's turns and sessions. */

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
