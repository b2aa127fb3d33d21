/*
 * The outcome of one request of a trace: filled by a live replay or a
 * simulation, read by the report, the CSV file and the figures. Plain data.
 */
#ifndef TOOLS_REPLAY_REPORT_RECORD_H
#define TOOLS_REPLAY_REPORT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum replay_outcome {
    REPLAY_PENDING, /* not answered: not counted */
    REPLAY_COMPLETED,
    REPLAY_REJECTED, /* 429: no choice meets the SLO */
    REPLAY_FAILED,
};

/* Times count from the start of the replay; -1 = unknown. */
struct replay_record {
    uint64_t index; /* in the trace, from 0 */
    enum replay_outcome outcome;
    int status;          /* HTTP status, 0 = none */
    char reason[48];     /* of a failure: short, one per cause */
    char message[128];   /* of a failure: the server's message */
    int64_t intended_us; /* when the trace wants it sent */
    int64_t sent_us;
    int64_t first_token_us;
    int64_t end_us;
    int64_t tbt_us;        /* mean of the longest 10 % of its intervals */
    int64_t slo_ttft_us;   /* TTFT limit it was accepted with; 0 = none */
    uint32_t input_tokens; /* as requested */
    uint32_t output_tokens;
    uint64_t tenant;        /* 0 = not named */
    uint32_t prompt_tokens; /* as counted by the server */
    uint32_t reused_tokens;
    bool tells_reused;       /* false: the server did not say, reused is 0 */
    uint32_t local_tokens;   /* reused from the prefill instance's cache */
    uint32_t fetched_tokens; /* reused from other instances */
    uint32_t computed_tokens;
    uint32_t generated_tokens;
    int64_t predicted_ttft_us;
    int64_t predicted_p90_us; /* 90th percentile of the predicted TTFT */
    int64_t queue_us;
    int64_t prefill_us;
    uint32_t retries;
    char id[48];
    char prefill[32]; /* names of the chosen instances */
    char decode[32];
};

/*
 * Copies an external text into to[0 .. size), cut to fit and terminated. Bytes
 * other than printable ASCII become '?', since it goes to terminals and into
 * JSON, where half a character would be invalid. `from` NULL = "".
 */
void replay_copy_text(char *to, size_t size, const char *from);

/* Returns the name of an outcome, as in the CSV file. */
const char *replay_outcome_name(enum replay_outcome outcome);

#endif
