/*
 * Records in, report out. Pure: `live` and `simulate` give the same report for
 * the same records.
 */
#ifndef TOOLS_REPLAY_REPORT_REPORT_H
#define TOOLS_REPLAY_REPORT_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "tools/replay/math.h"
#include "tools/replay/report/distribution.h"
#include "tools/replay/report/record.h"

/* What the records alone do not say. Borrowed texts. */
struct replay_context {
    const char *mode;      /* "live" or "simulate" */
    const char *policy;    /* NULL: unknown */
    uint32_t block_tokens; /* of the server, to count fetched blocks */
    double slo_ttft_s;
    double slo_tbt_s;
    double best_possible_hit_ratio; /* below 0: unknown */
    int64_t wall_us;
    uint64_t asked;   /* requests to replay; read if interrupted */
    bool interrupted; /* the user stopped it before all were answered */
    bool no_decode;   /* requests end with their first token */
    bool starts_cold; /* the caches are known to be empty at the start */
};

/* Different reasons kept; the rest is counted under the last, "other". */
#define REPLAY_REASONS_MAX 12

struct replay_reason {
    char reason[48];
    char example[128]; /* the first message */
    bool varies;       /* there were other messages */
    bool rejected;     /* else failed */
    uint64_t count;
};

/* Different tenants kept; the rest is counted under the last one. */
#define REPLAY_TENANTS_MAX 16

/* Of one tenant. */
struct replay_tenant {
    uint64_t tenant; /* 0: those that name nobody */
    bool others;     /* it stands for several */
    uint64_t total, completed, rejected, effective, computed_tokens;
    double ttft_sum_s; /* of the completed */
};

struct replay_report {
    struct replay_context context;
    uint64_t total, completed, rejected, failed;
    uint64_t offered_tokens; /* input of all requests, as asked */
    /* Of completed requests. */
    uint64_t input_tokens, reused_tokens, computed_tokens, output_tokens;
    uint64_t fetched_tokens, fetched_blocks;
    double prefix_hit_ratio; /* reused / input */
    /* More was reused than these requests share, and none was lost whose blocks
     * the others may have found: the server held part of their prompts before,
     * so that the best possible ratio is no bound. */
    bool held_before;
    struct replay_summary ttft_s; /* from the intended time of sending */
    struct replay_summary tbt_s;
    struct replay_summary send_lag_s; /* of all that were sent */
    uint64_t effective;               /* completed within both SLOs */
    double effective_ratio;           /* of all requests */
    uint64_t effective_tokens;        /* their input */
    double effective_token_ratio;     /* of the input of all requests */
    uint64_t
        promised; /* completed requests that were accepted with a TTFT SLO */
    /* Of those: by how much the first token came after the SLO; only the late
     * ones count. */
    struct replay_summary late_s;
    /* |predicted - observed| / observed, observed from the real sending. */
    struct replay_summary prediction_error;
    /* The sum of what was predicted over that of what was observed: 1 is right
     * in the mean. */
    double predicted_ratio;
    uint64_t p90_told; /* requests whose 90th percentile was predicted */
    uint64_t p90_held; /* and those that were within it */
    /* (predicted - observed) / observed: below 0 where it took longer. */
    struct replay_summary signed_error;
    uint64_t retries;
    struct replay_reason reasons[REPLAY_REASONS_MAX];
    size_t reason_count;
    struct replay_tenant tenants[REPLAY_TENANTS_MAX];
    size_t tenant_count;
    bool names_tenants; /* some request names one */
};

/* A report in the making, for records that come one by one and are not kept.
 * Its memory is bounded, see distribution.h. */
struct replay_tally;

/* An empty one, owned by the caller, or NULL without memory. */
[[nodiscard]] struct replay_tally *replay_tally_new(double slo_ttft_s,
                                                    double slo_tbt_s);

/* Frees it; NULL is a no-op. */
void replay_tally_free(struct replay_tally *tally);

/* Takes a record in (borrowed for the call). Returns 0 or -ENOMEM. */
[[nodiscard]] int replay_tally_add(struct replay_tally *tally,
                                   const struct replay_record *r);

/* The report of all records so far. It keeps the context's borrowed texts; the
 * SLOs are those of replay_tally_new(). O(n log n). */
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
 * The report as JSON; unknown numbers are null, others have at most six
 * decimals. Returns a new reference, or NULL without memory.
 */
[[nodiscard]] json_t *replay_report_json(const struct replay_report *report);

/* Writes `json` with sorted keys to `path`. Returns 0 or a negative errno. */
[[nodiscard]] int replay_json_write(const json_t *json, const char *path);

/* ": interrupted after N of M requests", or "" if it was not. */
struct replay_ending {
    char text[96];
};
struct replay_ending replay_report_ending(const struct replay_report *report);

/* What a simulation's reason means, in words, or the reason itself. */
const char *replay_reason_text(const char *reason);

/* Prints a line for each reason of what was rejected or failed: how many, and
 * a sentence on what it means or the server's message. */
void replay_report_reasons(const struct replay_report *report, FILE *file);

/* Prints the report as a table. */
void replay_report_print(const struct replay_report *report, FILE *file);

/* Writes the header of a CSV file of records, and a record's line. Errors stay
 * in the stream: ask ferror(). */
void replay_csv_header(FILE *file);
void replay_csv_line(const struct replay_record *record, FILE *file);

/* Writes a header and a line per record to `path`. 0 or a negative errno. */
[[nodiscard]] int replay_csv_write(const struct replay_record *records,
                                   size_t count, const char *path);

#endif
