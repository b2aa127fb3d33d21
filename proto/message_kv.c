/* Messages about blocks: block events, fetches between workers, KV on its way
 * to the decode worker. */
#include "proto/message.h"

static const uint64_t *native_u64(const uint8_t *p)
{
    return (const uint64_t *)(const void *)p;
}

void msg_blocks_stored_pack(struct wire_buf *buf, uint64_t request_id,
                            const struct msg_blocks_stored *m)
{
    size_t at = frame_begin(buf, FRAME_BLOCKS_STORED, request_id);

    wire_put_u8(buf, m->tier);
    wire_put_u64(buf, m->parent);
    wire_put_u64s(buf, native_u64(m->keys), m->n);
    frame_end(buf, at);
}

int msg_blocks_stored_unpack(const void *payload, size_t len,
                             struct msg_blocks_stored *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->tier = wire_get_u8(&r);
    m->parent = wire_get_u64(&r);
    m->keys = wire_get_array(&r, 8, &m->n);
    return wire_end(&r, m->tier < PROTO_TIER_COUNT);
}

void msg_blocks_removed_pack(struct wire_buf *buf, uint64_t request_id,
                             const struct msg_blocks_removed *m)
{
    size_t at = frame_begin(buf, FRAME_BLOCKS_REMOVED, request_id);

    wire_put_u8(buf, m->tier);
    wire_put_u64s(buf, native_u64(m->keys), m->n);
    frame_end(buf, at);
}

int msg_blocks_removed_unpack(const void *payload, size_t len,
                              struct msg_blocks_removed *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->tier = wire_get_u8(&r);
    m->keys = wire_get_array(&r, 8, &m->n);
    return wire_end(&r, m->tier < PROTO_TIER_COUNT);
}

void msg_fetch_pack(struct wire_buf *buf, uint64_t request_id,
                    const struct msg_fetch *m)
{
    size_t at = frame_begin(buf, FRAME_FETCH, request_id);

    wire_put_u64s(buf, native_u64(m->keys), m->n);
    frame_end(buf, at);
}

int msg_fetch_unpack(const void *payload, size_t len, struct msg_fetch *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->keys = wire_get_array(&r, 8, &m->n);
    return wire_end(&r, true);
}

void msg_fetch_chain_pack(struct wire_buf *buf, uint64_t request_id,
                          const struct msg_fetch_chain *m)
{
    size_t at = frame_begin(buf, FRAME_FETCH_CHAIN, request_id);

    wire_put_u32s(buf, (const uint32_t *)(const void *)m->tokens, m->n_tokens);
    frame_end(buf, at);
}

int msg_fetch_chain_unpack(const void *payload, size_t len,
                           struct msg_fetch_chain *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->tokens = wire_get_array(&r, 4, &m->n_tokens);
    return wire_end(&r, true);
}

void msg_fetch_read_pack(struct wire_buf *buf, uint64_t request_id,
                         const struct msg_fetch_read *m)
{
    size_t at = frame_begin(buf, FRAME_FETCH_READ, request_id);

    wire_put_u32(buf, m->block);
    wire_put_u32(buf, m->from_layer);
    wire_put_u32(buf, m->n_layers);
    frame_end(buf, at);
}

int msg_fetch_read_unpack(const void *payload, size_t len,
                          struct msg_fetch_read *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->block = wire_get_u32(&r);
    m->from_layer = wire_get_u32(&r);
    m->n_layers = wire_get_u32(&r);
    return wire_end(&r, m->n_layers > 0);
}

void msg_fetch_data_pack(struct wire_buf *buf, uint64_t request_id,
                         const struct msg_fetch_data *m)
{
    size_t at = frame_begin(buf, FRAME_FETCH_DATA, request_id);

    wire_put_u32(buf, m->block);
    wire_put_u32(buf, m->from_layer);
    wire_put_u32(buf, m->n_layers);
    wire_put_u64(buf, m->checksum);
    wire_put_u32(buf, m->n_data);
    wire_put_bytes(buf, m->data, m->n_data);
    frame_end(buf, at);
}

int msg_fetch_data_unpack(const void *payload, size_t len,
                          struct msg_fetch_data *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->block = wire_get_u32(&r);
    m->from_layer = wire_get_u32(&r);
    m->n_layers = wire_get_u32(&r);
    m->checksum = wire_get_u64(&r);
    m->data = wire_get_array(&r, 1, &m->n_data);
    return wire_end(&r, m->n_layers > 0);
}

void msg_fetch_end_pack(struct wire_buf *buf, uint64_t request_id,
                        const struct msg_fetch_end *m)
{
    size_t at = frame_begin(buf, FRAME_FETCH_END, request_id);

    wire_put_u16(buf, m->code);
    frame_end(buf, at);
}

int msg_fetch_end_unpack(const void *payload, size_t len,
                         struct msg_fetch_end *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->code = wire_get_u16(&r);
    return wire_end(&r, true);
}

void msg_kv_begin_pack(struct wire_buf *buf, uint64_t request_id,
                       const struct msg_kv_begin *m)
{
    size_t at = frame_begin(buf, FRAME_KV_BEGIN, request_id);

    wire_put_u32(buf, m->n_tokens);
    wire_put_u32(buf, m->max_tokens);
    wire_put_u64(buf, m->prompt_digest);
    frame_end(buf, at);
}

int msg_kv_begin_unpack(const void *payload, size_t len, struct msg_kv_begin *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->n_tokens = wire_get_u32(&r);
    m->max_tokens = wire_get_u32(&r);
    m->prompt_digest = wire_get_u64(&r);
    return wire_end(&r, true);
}

void msg_kv_layer_pack(struct wire_buf *buf, uint64_t request_id,
                       const struct msg_kv_layer *m)
{
    size_t at = frame_begin(buf, FRAME_KV_LAYER, request_id);

    wire_put_u32(buf, m->layer);
    wire_put_u32(buf, m->from_token);
    wire_put_u32(buf, m->n_tokens);
    wire_put_u32(buf, m->n_data);
    if (m->data)
        wire_put_bytes(buf, m->data, m->n_data);
    frame_end(buf, at);
    if (m->data || buf->failed)
        return;
    /* The bytes follow from elsewhere: count them in the header. */
    uint64_t length = (uint64_t)wire_u32_at(buf->data + at, 0) + m->n_data;
    if (length > FRAME_PAYLOAD_MAX_BYTES) {
        buf->failed = true;
        return;
    }
    for (size_t i = 0; i < 4; i++)
        buf->data[at + i] = (uint8_t)(length >> (8 * i));
}

int msg_kv_layer_unpack(const void *payload, size_t len, struct msg_kv_layer *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->layer = wire_get_u32(&r);
    m->from_token = wire_get_u32(&r);
    m->n_tokens = wire_get_u32(&r);
    m->data = wire_get_array(&r, 1, &m->n_data);
    return wire_end(&r, true);
}

void msg_kv_end_pack(struct wire_buf *buf, uint64_t request_id,
                     const struct msg_kv_end *m)
{
    size_t at = frame_begin(buf, FRAME_KV_END, request_id);

    wire_put_u32(buf, m->first_token);
    frame_end(buf, at);
}

int msg_kv_end_unpack(const void *payload, size_t len, struct msg_kv_end *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->first_token = wire_get_u32(&r);
    return wire_end(&r, true);
}
