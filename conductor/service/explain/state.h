/* What explain.c remembers and write.c writes. Private to them. */
#ifndef CONDUCTOR_SERVICE_EXPLAIN_STATE_H
#define CONDUCTOR_SERVICE_EXPLAIN_STATE_H

#include <stdbool.h>

#include "conductor/core/pool/pool.h"
#include "conductor/service/explain/explain.h"
#include "conductor/service/service.h"
#include "conductor/service/worker/notes.h"

#define EXPLAIN_CANDIDATES_MAX 16
#define EXPLAIN_REASON_BYTES 48

struct explain_candidate {
    char name[POOL_NAME_BYTES];
    char fetch_from[POOL_NAME_BYTES]; /* "": nobody */
    char cost_model[POOL_NAME_BYTES]; /* the file's name; "": none */
    struct prefill_estimate estimate;
    uint32_t block_tokens;  /* of the engine; 0: as many as the index's */
    uint32_t unseen_tokens; /* that it may reuse beyond used_blocks */
};

struct explain_decode {
    char name[POOL_NAME_BYTES];
    struct decode_estimate estimate;
};

/* Blocks that come from one place; times are from the decision on. */
struct explain_source {
    char name[POOL_NAME_BYTES];
    bool own; /* its own tier, else a link */
    enum block_tier tier;
    uint32_t from_block, to_block;
    int64_t start_us, end_us; /* of all that it sends; -1: not planned */
};

struct explain_record {
    char request_id[32];             /* "": none */
    char client_id[64];              /* what the client calls it, or "" */
    char trace[64];                  /* its traceparent, or "" */
    char session[64];                /* likewise */
    char named[SERVICE_MODEL_BYTES]; /* the name of the model that restricts it
                                        to engines that have that; "": none */
    uint64_t number;
    uint64_t decided;   /* which decision of all it is, from 1 on */
    int64_t decided_ms; /* since 1970 */
    const char *policy;
    const char *state;
    char reason[EXPLAIN_REASON_BYTES];
    uint32_t attempt;
    bool of_bytes; /* its tokens are not known: a word of its bytes is one */
    uint32_t prompt_tokens, max_tokens;
    int64_t expected_tokens;         /* of max_tokens */
    uint32_t block_tokens;           /* of the index */
    int64_t slo_ttft_us, slo_tbt_us; /* 0: none */
    char tenant[64];
    int32_t priority;
    double standing; /* 0: shares did not matter */

    enum schedule_verdict verdict;
    bool warmed; /* refused, and computed in the background */
    char prefill[POOL_NAME_BYTES], decode[POOL_NAME_BYTES]; /* "": none */
    char lent[SCHEDULE_LENT_MAX][POOL_NAME_BYTES]; /* (n_lent) to prefill */
    uint32_t n_lent;
    struct note_why copied; /* what of chosen.local_blocks was */
    struct prefill_estimate chosen;
    char cost_model[POOL_NAME_BYTES]; /* that `chosen` is by, likewise */
    uint32_t stored_blocks; /* of chosen.local_blocks, those reported */
    /* Messages of the engine's KV events, rank 0, that this follows from. */
    bool heard;
    uint64_t first_message, last_message;
    double engine_price;
    double price_us, price_limit_us; /* 0: not priced, no limit */
    const char *cost;                /* where the estimates come from; static */
    bool predicts;            /* false: the estimates hold counts, no times */
    struct forecast forecast; /* of its TTFT, with the hand-over */
    int64_t predicted_tbt_us;
    uint32_t n_sources;
    uint32_t n_candidates, n_left_out;

    int64_t ttft_us; /* -1: no token yet */
    bool prefilled;  /* done is set */
    struct msg_prefill_done done;
    struct service_result counted; /* its tokens, once they are */

    uint32_t n_decodes, n_decodes_left_out;

    /* (n_sources, n_candidates, n_decodes) Last: these are not even cleared. */
    struct explain_source sources[LOAD_PLAN_PIECES_MAX];
    struct explain_candidate candidates[EXPLAIN_CANDIDATES_MAX];
    struct explain_decode decodes[EXPLAIN_CANDIDATES_MAX];
};

/* The record of that id, or the last one whose client gave it that id, or NULL.
 * O(1), or O(records). */
const struct explain_record *explain_find(const struct explain *explain,
                                          const char *id);

/* The record of the decision of that count, or NULL. O(1). */
const struct explain_record *explain_find_decided(const struct explain *explain,
                                                  uint64_t decided);

#endif
