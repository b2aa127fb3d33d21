/* The messages of a pipelined prefill, by the rules of message.h: the
 * conductor names the members to the leader, which has a connection to
 * each. */
#ifndef PROTO_STAGE_H
#define PROTO_STAGE_H

#include "proto/message.h"

#define MSG_STAGES_MAX 15 /* members, without the leader */
#define MSG_CHUNK_TOKENS_MAX 16384u

/* A worker that computes layers of a leader's prompt, from the end of the
 * previous member's layers. */
struct msg_member {
    char host[MSG_HOST_MAX];
    uint16_t port;
    uint32_t to_layer;
};

/* A PREFILL that makes its receiver lead a group. */
struct msg_prefill_group {
    uint32_t chunk_tokens;
    uint32_t to_layer; /* the leader computes layers [0, to_layer) */
    uint8_t n_members; /* at least 1 */
    struct msg_member members[MSG_STAGES_MAX];
    struct msg_prefill prefill; /* mode COMPUTE, no sources */
};

/* A member's stage; chunks begin at from_token. */
struct msg_stage_begin {
    uint32_t n_tokens; /* of the prompt */
    uint32_t from_token;
    uint32_t chunk_tokens;
    uint32_t from_layer, to_layer;
};

/* Activations of n_tokens tokens between two stages. */
struct msg_stage_rows {
    uint32_t from_token, n_tokens;
    uint64_t checksum; /* XXH3-64 of data, seed 0 */
    uint32_t n_data;
    const uint8_t *data; /* n_tokens * activation_bytes */
};

/* K rows, then V rows, of one layer of a stage. */
struct msg_stage_kv {
    uint32_t layer;
    uint32_t from_token, n_tokens;
    uint64_t checksum;
    uint32_t n_data;
    const uint8_t *data; /* 2 * n_tokens * kv_row_bytes */
};

/* A chunk was computed. */
struct msg_stage_done {
    uint32_t to_token;    /* its end */
    uint32_t first_token; /* the answer's, from the last stage's last chunk;
                             else 0 */
};

MSG_DECLARE(msg_prefill_group);
MSG_DECLARE(msg_stage_begin);
MSG_DECLARE(msg_stage_rows);
MSG_DECLARE(msg_stage_kv);
MSG_DECLARE(msg_stage_done);

#endif
