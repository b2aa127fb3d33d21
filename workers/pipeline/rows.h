/* Data passed between the stages of a prompt: its chunks, the ring of waiting
 * activations, and KV sent layer by layer. */
#ifndef WORKERS_PIPELINE_ROWS_H
#define WORKERS_PIPELINE_ROWS_H

#include "base/frame_conn.h"
#include "proto/stage.h"
#include "workers/engine/engine.h"

/* Chunks that may be in flight to a stage or wait there. */
#define ROWS_WINDOW_CHUNKS 2u

/* The chunks of a prompt: chunk i holds the tokens from
 * from_token + i x chunk_tokens on, at most chunk_tokens. */
struct chunk_cut {
    uint32_t from_token;
    uint32_t n_tokens; /* of the prompt */
    uint32_t chunk_tokens;
};

/* Returns the index of the chunk of token t >= from_token. */
static inline uint32_t chunk_index(const struct chunk_cut *cut, uint32_t t)
{
    return (t - cut->from_token) / cut->chunk_tokens;
}

/* Returns the end of that chunk. */
static inline uint32_t chunk_end(const struct chunk_cut *cut, uint32_t t)
{
    uint32_t left = cut->n_tokens - t;
    uint32_t room =
        cut->chunk_tokens - (t - cut->from_token) % cut->chunk_tokens;

    return t + (room < left ? room : left);
}

/* Returns whether the chunk of token t is in the window that begins with the
 * chunk of token `done`. */
static inline bool chunk_in_window(const struct chunk_cut *cut, uint32_t t,
                                   uint32_t done)
{
    return t < cut->n_tokens &&
           chunk_index(cut, t) < chunk_index(cut, done) + ROWS_WINDOW_CHUNKS;
}

/* Activations of up to ROWS_WINDOW_CHUNKS chunks. The rows of a chunk are
 * contiguous.
 * Invariant: from_token <= taken <= filled <= n_tokens, and the chunks of
 * [taken, filled) are in the window. */
struct rows_ring {
    const struct chunk_cut *cut; /* borrowed */
    uint8_t *data;               /* owned; NULL = no rows */
    uint32_t row_bytes;
    uint32_t filled; /* end of the tokens written so far */
    uint32_t taken;  /* end of the tokens no longer needed */
};

/* Returns 0 or -ENOMEM. Borrows `cut`. */
[[nodiscard]] int rows_ring_init(struct rows_ring *ring,
                                 const struct chunk_cut *cut,
                                 uint32_t row_bytes);
void rows_ring_fini(struct rows_ring *ring);

/* Returns the row of token t; the rest of its chunk follows. */
void *rows_ring_at(const struct rows_ring *ring, uint32_t t);

/* Returns whether the chunk of token t may be written. */
static inline bool rows_ring_has_room(const struct rows_ring *ring, uint32_t t)
{
    return chunk_in_window(ring->cut, t, ring->taken);
}

/* KV of some layers of a prompt, in borrowed blocks. */
struct rows_kv {
    const struct engine_kv_layout *layout; /* borrowed */
    void *const *blocks;                   /* borrowed */
    uint32_t from_layer, to_layer;
};

/* Progress of sending KV: range by range, layer by layer within a range. */
struct rows_kv_cursor {
    uint32_t from_token, end_token; /* the range; empty = none chosen */
    uint32_t layer;
    uint32_t sent_tokens; /* tokens of the range sent in this layer */
};

/* Scratch memory for sending frames. */
struct rows_sender {
    struct wire_buf buf;
    uint8_t *piece; /* (piece_bytes), owned */
    size_t piece_bytes;
};

/* 0 or -ENOMEM. */
[[nodiscard]] int rows_sender_init(struct rows_sender *s,
                                   const struct engine_kv_layout *layout);
void rows_sender_fini(struct rows_sender *s);

/* Sends s->buf and empties it. */
void rows_flush(struct rows_sender *s, struct frame_conn *conn);

/* Sends one STAGE_ROWS with the rows from ring->taken up to ring->filled or
 * the end of the chunk, and takes them from the ring. */
void rows_send(struct rows_sender *s, struct frame_conn *conn, uint64_t id,
               struct rows_ring *ring);

/* Sends one STAGE_KV of the tokens in front of `to_token`. Returns false if
 * all was sent already. */
bool rows_send_kv(struct rows_sender *s, struct frame_conn *conn, uint64_t id,
                  const struct rows_kv *kv, struct rows_kv_cursor *at,
                  uint32_t to_token);

/* Copies STAGE_ROWS into the ring. Returns 0, or -EBADMSG: malformed, or out
 * of order. */
[[nodiscard]] int rows_take(struct rows_ring *ring, const uint8_t *payload,
                            size_t len);

/* Copies STAGE_KV for tokens in front of `to_token` into the blocks.
 * next_token (layers of kv): next token expected in each. Returns as
 * rows_take(). */
[[nodiscard]] int rows_take_kv(const struct rows_kv *kv, uint32_t *next_token,
                               uint32_t to_token, const uint8_t *payload,
                               size_t len);

#endif
