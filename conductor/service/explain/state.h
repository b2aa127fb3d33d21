/* The records, which explain.c fills in and write.c writes. Private to both. */
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
    char fetch_from[POOL_NAME_BYTES]; /* "" = none */
    char cost_model[POOL_NAME_BYTES]; /* the file's name; "" = none */
    struct prefill_estimate estimate;
    int64_t tested_us;      /* as in the record */
    uint32_t block_tokens;  /* of the engine; 0 = the index's */
    uint32_t unseen_tokens; /* cached tokens it may reuse beyond used_blocks */
};

struct explain_decode {
    char name[POOL_NAME_BYTES];
    struct decode_estimate estimate;
};

/* Blocks loaded from one source; times count from the decision. */
struct explain_source {
    char name[POOL_NAME_BYTES];
    bool own; /* a tier of the prefill instance; else a link */
    enum block_tier tier;
    uint32_t from_block, to_block;
    int64_t start_us, end_us; /* of all its blocks; -1 = not planned */
};

struct explain_record {
    char request_id[32];             /* "" = empty record */
    char client_id[64];              /* the client's id, or "" */
    char trace[64];                  /* the client's traceparent, or "" */
    char session[64];                /* the client's id of the session, or "" */
    char named[SERVICE_MODEL_BYTES]; /* the alias or adapter by which engines
                                        were filtered; "" = none */
    uint64_t number;
    uint64_t decided;   /* count of the decision among all, from 1 on */
    int64_t decided_ms; /* Unix time */
    const char *policy;
    const char *state;
    char reason[EXPLAIN_REASON_BYTES];
    uint32_t attempt;
    bool of_bytes; /* token counts are guesses from bytes */
    uint32_t prompt_tokens, max_tokens;
    int64_t expected_tokens;         /* expected answer */
    uint32_t block_tokens;           /* of the index */
    int64_t slo_ttft_us, slo_tbt_us; /* 0 = none */
    char tenant[64];
    int32_t priority;
    double standing; /* 0 = shares did not matter */

    enum schedule_verdict verdict;
    bool warmed; /* refused, but computed in the background */
    char prefill[POOL_NAME_BYTES], decode[POOL_NAME_BYTES]; /* "" = none */
    char lent[SCHEDULE_LENT_MAX][POOL_NAME_BYTES]; /* (n_lent) to prefill */
    uint32_t n_lent;
    struct note_why copied; /* copies that gave it chosen.local_blocks */
    struct prefill_estimate chosen;
    char cost_model[POOL_NAME_BYTES]; /* of `chosen`; "" = its model's */
    uint32_t stored_blocks;           /* reported part of chosen.local_blocks */
    /* Numbers of the engine's KV event messages (rank 0) known at the decision.
     */
    bool heard;
    uint64_t first_message, last_message;
    double engine_price, evicted_us; /* as in the decision */
    int64_t equal_us;
    double price_us, price_limit_us; /* 0 = not priced; no limit */
    const char *cost;                /* source of the estimates; static */
    bool predicts;            /* false: estimates are counts, not times */
    struct forecast forecast; /* of its TTFT, hand-over included */
    int64_t tested_us; /* TTFT from arrival, as tested against the limit; 0 =
                          not tested */
    int64_t predicted_tbt_us;
    uint32_t n_sources;
    uint32_t n_candidates, n_left_out;

    int64_t ttft_us; /* -1 = no token yet */
    bool prefilled;  /* done is set */
    struct msg_prefill_done done;
    struct service_result counted; /* its tokens, once counted */

    uint32_t n_decodes, n_decodes_left_out;

    /* (n_sources, n_candidates, n_decodes). Must be last: not cleared on reuse.
     */
    struct explain_source sources[LOAD_PLAN_PIECES_MAX];
    struct explain_candidate candidates[EXPLAIN_CANDIDATES_MAX];
    struct explain_decode decodes[EXPLAIN_CANDIDATES_MAX];
};

/* Returns the record with this request id, else the last one with this client's
 * id or trace id, or NULL. O(1), else O(records). */
const struct explain_record *explain_find(const struct explain *explain,
                                          const char *id);

/* Returns the record of the decision with this count, or NULL. O(1). */
const struct explain_record *explain_find_decided(const struct explain *explain,
                                                  uint64_t decided);

#endif
