/* Activations and KV between stages. Every bound and checksum is checked
 * before a byte is copied. */
#include "workers/pipeline/rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#ifdef CONDUCTOR_XXH_DISPATCH
#include <xxh_x86dispatch.h> /* redefines XXH3_64bits() */
#else
#include <xxhash.h>
#endif

/* Most data of one frame, unless a single row is larger. */
#define PIECE_BYTES ((size_t)1 << 20)

int rows_ring_init(struct rows_ring *ring, const struct chunk_cut *cut,
                   uint32_t row_bytes)
{
    ring->cut = cut;
    ring->row_bytes = row_bytes;
    ring->filled = ring->taken = cut->from_token;
    ring->data =
        calloc((size_t)ROWS_WINDOW_CHUNKS * cut->chunk_tokens, row_bytes);
    return ring->data ? 0 : -ENOMEM;
}

void rows_ring_fini(struct rows_ring *ring)
{
    free(ring->data);
    ring->data = NULL;
}

void *rows_ring_at(const struct rows_ring *ring, uint32_t t)
{
    const struct chunk_cut *cut = ring->cut;
    size_t slot = chunk_index(cut, t) % ROWS_WINDOW_CHUNKS;
    size_t row =
        slot * cut->chunk_tokens + (t - cut->from_token) % cut->chunk_tokens;

    return ring->data + row * ring->row_bytes;
}

int rows_sender_init(struct rows_sender *s,
                     const struct engine_kv_layout *layout)
{
    s->piece_bytes = PIECE_BYTES;
    if (s->piece_bytes < 2 * (size_t)layout->kv_row_bytes)
        s->piece_bytes = 2 * (size_t)layout->kv_row_bytes;
    if (s->piece_bytes < layout->activation_bytes)
        s->piece_bytes = layout->activation_bytes;
    wire_buf_init(&s->buf, s->piece_bytes + 8192);
    s->piece = malloc(s->piece_bytes);
    return s->piece ? 0 : -ENOMEM;
}

void rows_sender_fini(struct rows_sender *s)
{
    wire_buf_fini(&s->buf);
    free(s->piece);
    s->piece = NULL;
}

void rows_flush(struct rows_sender *s, struct frame_conn *conn)
{
    frame_conn_send(conn, &s->buf);
    wire_buf_reset(&s->buf);
}

static uint32_t at_most(uint32_t n, size_t most)
{
    return n < most ? n : (uint32_t)most;
}

void rows_send(struct rows_sender *s, struct frame_conn *conn, uint64_t id,
               struct rows_ring *ring)
{
    uint32_t from = ring->taken;
    uint32_t end = chunk_end(ring->cut, from);
    uint32_t n = at_most((end < ring->filled ? end : ring->filled) - from,
                         s->piece_bytes / ring->row_bytes);
    const void *data = rows_ring_at(ring, from);
    uint32_t bytes = n * ring->row_bytes;
    struct msg_stage_rows m = {.from_token = from,
                               .n_tokens = n,
                               .checksum = XXH3_64bits(data, bytes),
                               .n_data = bytes,
                               .data = data};

    msg_stage_rows_pack(&s->buf, id, &m);
    rows_flush(s, conn);
    ring->taken += n;
}

/* Copies the K or V rows of tokens [from, from + n) of a layer from their
 * blocks to contiguous memory `out`; with out NULL, from `in` to the blocks. */
static void copy_rows(const struct rows_kv *kv, uint32_t layer,
                      enum engine_which which, uint32_t from, uint32_t n,
                      uint8_t *out, const uint8_t *in)
{
    const struct engine_kv_layout *l = kv->layout;

    while (n > 0) {
        uint32_t slot = from % l->block_tokens;
        uint32_t k = at_most(n, l->block_tokens - slot);
        size_t bytes = (size_t)k * l->kv_row_bytes;
        void *block = kv->blocks[from / l->block_tokens];
        void *at = engine_kv_row(l, block, layer, which, slot);

        if (out) {
            memcpy(out, at, bytes);
            out += bytes;
        } else {
            memcpy(at, in, bytes);
            in += bytes;
        }
        from += k;
        n -= k;
    }
}

/* Advances to the next layer, or to the end of the range. */
static void step_on(const struct rows_kv *kv, struct rows_kv_cursor *at)
{
    if (at->from_token + at->sent_tokens < at->end_token)
        return;
    at->sent_tokens = 0;
    at->layer++;
    if (at->layer == kv->to_layer)
        at->from_token = at->end_token;
}

bool rows_send_kv(struct rows_sender *s, struct frame_conn *conn, uint64_t id,
                  const struct rows_kv *kv, struct rows_kv_cursor *at,
                  uint32_t to_token)
{
    uint32_t row_bytes = kv->layout->kv_row_bytes;

    if (at->from_token >= at->end_token) {
        if (at->from_token >= to_token)
            return false;
        at->end_token = to_token;
        at->layer = kv->from_layer;
        at->sent_tokens = 0;
    }
    uint32_t from = at->from_token + at->sent_tokens;
    uint32_t n = at_most(at->end_token - from, s->piece_bytes / 2 / row_bytes);
    uint32_t bytes = 2 * n * row_bytes;
    copy_rows(kv, at->layer, ENGINE_K, from, n, s->piece, NULL);
    copy_rows(kv, at->layer, ENGINE_V, from, n, s->piece + bytes / 2, NULL);
    struct msg_stage_kv m = {.layer = at->layer,
                             .from_token = from,
                             .n_tokens = n,
                             .checksum = XXH3_64bits(s->piece, bytes),
                             .n_data = bytes,
                             .data = s->piece};
    msg_stage_kv_pack(&s->buf, id, &m);
    rows_flush(s, conn);
    at->sent_tokens += n;
    step_on(kv, at);
    return true;
}

int rows_take(struct rows_ring *ring, const uint8_t *payload, size_t len)
{
    struct msg_stage_rows m;

    if (msg_stage_rows_unpack(payload, len, &m) || !ring->data ||
        m.from_token != ring->filled ||
        !rows_ring_has_room(ring, m.from_token) ||
        m.n_tokens > chunk_end(ring->cut, m.from_token) - m.from_token ||
        m.n_data != (uint64_t)m.n_tokens * ring->row_bytes ||
        XXH3_64bits(m.data, m.n_data) != m.checksum)
        return -EBADMSG;
    memcpy(rows_ring_at(ring, m.from_token), m.data, m.n_data);
    ring->filled += m.n_tokens;
    return 0;
}

int rows_take_kv(const struct rows_kv *kv, uint32_t *next_token,
                 uint32_t to_token, const uint8_t *payload, size_t len)
{
    struct msg_stage_kv m;

    if (msg_stage_kv_unpack(payload, len, &m) || m.layer < kv->from_layer ||
        m.layer >= kv->to_layer)
        return -EBADMSG;
    uint32_t *next = &next_token[m.layer - kv->from_layer];
    if (m.from_token != *next || m.from_token > to_token ||
        m.n_tokens > to_token - m.from_token ||
        m.n_data != 2 * (uint64_t)m.n_tokens * kv->layout->kv_row_bytes ||
        XXH3_64bits(m.data, m.n_data) != m.checksum)
        return -EBADMSG;
    copy_rows(kv, m.layer, ENGINE_K, m.from_token, m.n_tokens, NULL, m.data);
    copy_rows(kv, m.layer, ENGINE_V, m.from_token, m.n_tokens, NULL,
              m.data + m.n_data / 2);
    *next += m.n_tokens;
    return 0;
}
