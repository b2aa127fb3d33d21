/* What passes between the stages of a prompt: how it is cut into chunks, the
 * ring in which activations wait, and KV that goes layer by layer. */
#ifndef WORKERS_PIPELINE_ROWS_H
#define WORKERS_PIPELINE_ROWS_H

#include "base/frame_conn.h"
#include "proto/stage.h"
#include "workers/engine/engine.h"

/* Chunks that may be on their way to a stage, or wait there. */
#define ROWS_WINDOW_CHUNKS 2u

/* The chunks of a prompt: chunk i holds the tokens from
 * from_token + i x chunk_tokens on, at most chunk_tokens. */
struct chunk_cut {
    uint32_t from_token;
    uint32_t n_tokens; /* of the prompt */
    uint32_t chunk_tokens;
};

/* The number of the chunk that token t >= from_token is in. */
static inline uint32_t chunk_index(const struct chunk_cut *cut, uint32_t t)
{
    return (t - cut->from_token) / cut->chunk_tokens;
}

/* The end of that chunk. */
static inline uint32_t chunk_end(const struct chunk_cut *cut, uint32_t t)
{
    uint32_t left = cut->n_tokens - t;
    uint32_t room =
        cut->chunk_tokens - (t - cut->from_token) % cut->chunk_tokens;

    return t + (room < left ? room : left);
}

/* Whether the chunk of token t is inside the window behind `done` tokens, which
 * end a chunk or are part of one. */
static inline bool chunk_in_window(const struct chunk_cut *cut, uint32_t t,
                                   uint32_t done)
{
    return t < cut->n_tokens &&
           chunk_index(cut, t) < chunk_index(cut, done) + ROWS_WINDOW_CHUNKS;
}

/* Activations of up to ROWS_WINDOW_CHUNKS chunks. Those of one chunk lie one
 * behind the other.
 * Invariant: from_token <= taken <= filled <= n_tokens, and the chunks of
 * [taken, filled) are in the window. */
struct rows_ring {
    const struct chunk_cut *cut; /* borrowed */
    uint8_t *data;               /* owned; NULL: it has no rows */
    uint32_t row_bytes;
    uint32_t filled; /* tokens in front of it are or were here */
    uint32_t taken;  /* tokens in front of it are no longer needed */
};

/* 0 or -ENOMEM. `cut` is borrowed. */
[[nodiscard]] int rows_ring_init(struct rows_ring *ring,
                                 const struct chunk_cut *cut,
                                 uint32_t row_bytes);
void rows_ring_fini(struct rows_ring *ring);

/* The row of token t; the rest of its chunk follows. */
void *rows_ring_at(const struct rows_ring *ring, uint32_t t);

/* Whether the chunk of token t may be written. */
static inline bool rows_ring_has_room(const struct rows_ring *ring, uint32_t t)
{
    return chunk_in_window(ring->cut, t, ring->taken);
}

/* KV of some layers of a prompt, in blocks that somebody else owns. */
struct rows_kv {
    const struct engine_kv_layout *layout; /* borrowed */
    void *const *blocks;                   /* borrowed */
    uint32_t from_layer, to_layer;
};

/* How far KV was sent: range by range, and within one layer by layer. */
struct rows_kv_cursor {
    uint32_t from_token, end_token; /* the range; empty: none is chosen */
    uint32_t layer;
    uint32_t sent_tokens; /* of the range, in this layer */
};

/* Sends frames: scratch. */
struct rows_sender {
    struct wire_buf buf;
    uint8_t *piece; /* (piece_bytes), owned */
    size_t piece_bytes;
};

/* 0 or -ENOMEM. */
[[nodiscard]] int rows_sender_init(struct rows_sender *s,
                                   const struct engine_kv_layout *layout);
void rows_sender_fini(struct rows_sender *s);

/* Send what is in s->buf. */
void rows_flush(struct rows_sender *s, struct frame_conn *conn);

/* Send one STAGE_ROWS with what there is of [ring->taken, ring->filled) up to
 * the end of its chunk, and take it. */
void rows_send(struct rows_sender *s, struct frame_conn *conn, uint64_t id,
               struct rows_ring *ring);

/* Send one STAGE_KV of the tokens in front of `to_token`; false: all is sent.
 */
bool rows_send_kv(struct rows_sender *s, struct frame_conn *conn, uint64_t id,
                  const struct rows_kv *kv, struct rows_kv_cursor *at,
                  uint32_t to_token);

/* STAGE_ROWS into the ring. 0, or -EBADMSG: malformed, or not what comes next.
 */
[[nodiscard]] int rows_take(struct rows_ring *ring, const uint8_t *payload,
                            size_t len);

/* STAGE_KV into the blocks: the rows of tokens in front of `to_token`.
 * next_token (kv's layers): what comes next in each. As rows_take(). */
[[nodiscard]] int rows_take_kv(const struct rows_kv *kv, uint32_t *next_token,
                               uint32_t to_token, const uint8_t *payload,
                               size_t len);

#endif
