/* Encoding and decoding of every message's payload. */
#include "proto/message.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *proto_code_name(uint16_t code)
{
    static const char *const names[] = {
        [PROTO_OK] = "ok",
        [PROTO_E_VERSION] = "version",
        [PROTO_E_BAD_FRAME] = "bad_frame",
        [PROTO_E_INCOMPATIBLE] = "incompatible",
        [PROTO_E_INVALID] = "invalid",
        [PROTO_E_BUSY] = "busy",
        [PROTO_E_CAPACITY] = "capacity",
        [PROTO_E_PEER] = "peer",
        [PROTO_E_CANCELLED] = "cancelled",
        [PROTO_E_INTERNAL] = "internal",
        [PROTO_E_DUPLICATE] = "duplicate",
    };
    return code < sizeof(names) / sizeof(names[0]) ? names[code] : "unknown";
}

const char *proto_role_name(uint8_t role)
{
    static const char *const names[] = {
        [PROTO_ROLE_PREFILL] = "prefill",
        [PROTO_ROLE_DECODE] = "decode",
        [PROTO_ROLE_BOTH] = "both",
    };
    return role >= PROTO_ROLE_PREFILL && role <= PROTO_ROLE_BOTH ? names[role]
                                                                 : "unknown";
}

void msg_empty_pack(struct wire_buf *buf, uint16_t type, uint64_t request_id)
{
    frame_end(buf, frame_begin(buf, type, request_id));
}

void msg_hello_pack(struct wire_buf *buf, uint64_t request_id,
                    const struct msg_hello *m)
{
    size_t at = frame_begin(buf, FRAME_HELLO, request_id);

    wire_put_u32(buf, m->magic);
    wire_put_u16(buf, m->version_min);
    wire_put_u16(buf, m->version_max);
    wire_put_u8(buf, m->kind);
    wire_put_u8(buf, m->role);
    wire_put_u64(buf, m->capabilities);
    wire_put_str(buf, m->name);
    wire_put_str(buf, m->engine);
    wire_put_str(buf, m->model);
    wire_put_u64(buf, m->fingerprint);
    wire_put_u32(buf, m->block_tokens);
    wire_put_u32(buf, m->window_tokens);
    wire_put_u32(buf, m->vocab);
    wire_put_u64(buf, m->kv_capacity_blocks);
    wire_put_u64(buf, m->kv_bytes_per_token);
    wire_put_u64(buf, m->disk_capacity_blocks);
    wire_put_u32(buf, m->max_batch);
    wire_put_u32(buf, m->layers);
    wire_put_str(buf, m->peer_host);
    wire_put_u16(buf, m->peer_port);
    frame_end(buf, at);
}

/*
 * The magic and the versions stand first and are read first: a HELLO of
 * another version decodes as far as its versions, with the rest zero, so that
 * the refusal can name them.
 */
int msg_hello_unpack(const void *payload, size_t len, struct msg_hello *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    memset(m, 0, sizeof(*m));
    m->magic = wire_get_u32(&r);
    m->version_min = wire_get_u16(&r);
    m->version_max = wire_get_u16(&r);
    if (r.failed || m->magic != PROTO_MAGIC || m->version_min > m->version_max)
        return -EBADMSG;
    if (m->version_min > PROTO_VERSION || m->version_max < PROTO_VERSION)
        return 0;
    m->kind = wire_get_u8(&r);
    m->role = wire_get_u8(&r);
    m->capabilities = wire_get_u64(&r);
    wire_get_str(&r, m->name, sizeof(m->name));
    wire_get_str(&r, m->engine, sizeof(m->engine));
    wire_get_str(&r, m->model, sizeof(m->model));
    m->fingerprint = wire_get_u64(&r);
    m->block_tokens = wire_get_u32(&r);
    m->window_tokens = wire_get_u32(&r);
    m->vocab = wire_get_u32(&r);
    m->kv_capacity_blocks = wire_get_u64(&r);
    m->kv_bytes_per_token = wire_get_u64(&r);
    m->disk_capacity_blocks = wire_get_u64(&r);
    m->max_batch = wire_get_u32(&r);
    m->layers = wire_get_u32(&r);
    wire_get_str(&r, m->peer_host, sizeof(m->peer_host));
    m->peer_port = wire_get_u16(&r);
    return wire_end(&r, m->kind >= PROTO_PEER_CONDUCTOR &&
                            m->kind <= PROTO_PEER_WORKER_PEER &&
                            m->role <= PROTO_ROLE_BOTH);
}

void msg_welcome_pack(struct wire_buf *buf, uint64_t request_id,
                      const struct msg_welcome *m)
{
    size_t at = frame_begin(buf, FRAME_WELCOME, request_id);

    wire_put_u16(buf, m->version);
    wire_put_u64(buf, m->capabilities);
    wire_put_u32(buf, m->instance_id);
    wire_put_u32(buf, m->heartbeat_ms);
    frame_end(buf, at);
}

int msg_welcome_unpack(const void *payload, size_t len, struct msg_welcome *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->version = wire_get_u16(&r);
    m->capabilities = wire_get_u64(&r);
    m->instance_id = wire_get_u32(&r);
    m->heartbeat_ms = wire_get_u32(&r);
    return wire_end(&r, true);
}

void msg_error_like_pack(struct wire_buf *buf, uint16_t type,
                         uint64_t request_id, uint16_t code, const char *text)
{
    char cut[MSG_TEXT_MAX];

    snprintf(cut, sizeof(cut), "%s", text);
    size_t at = frame_begin(buf, type, request_id);
    wire_put_u16(buf, code);
    wire_put_str(buf, cut);
    frame_end(buf, at);
}

void msg_error_pack(struct wire_buf *buf, uint64_t request_id,
                    const struct msg_error *m)
{
    msg_error_like_pack(buf, FRAME_ERROR, request_id, m->code, m->text);
}

int msg_error_unpack(const void *payload, size_t len, struct msg_error *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->code = wire_get_u16(&r);
    wire_get_str(&r, m->text, sizeof(m->text));
    return wire_end(&r, true);
}

void msg_status_pack(struct wire_buf *buf, uint64_t request_id,
                     const struct msg_status *m)
{
    size_t at = frame_begin(buf, FRAME_STATUS, request_id);

    wire_put_u32(buf, m->prefill_queued);
    wire_put_u32(buf, m->prefill_running);
    wire_put_u32(buf, m->decode_active);
    wire_put_u64(buf, m->kv_used_blocks);
    wire_put_u64(buf, m->kv_pinned_blocks);
    wire_put_u64(buf, m->disk_used_blocks);
    wire_put_u64(buf, m->disk_bytes_per_s);
    frame_end(buf, at);
}

int msg_status_unpack(const void *payload, size_t len, struct msg_status *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->prefill_queued = wire_get_u32(&r);
    m->prefill_running = wire_get_u32(&r);
    m->decode_active = wire_get_u32(&r);
    m->kv_used_blocks = wire_get_u64(&r);
    m->kv_pinned_blocks = wire_get_u64(&r);
    m->disk_used_blocks = wire_get_u64(&r);
    m->disk_bytes_per_s = wire_get_u64(&r);
    return wire_end(&r, true);
}

static void put_source(struct wire_buf *buf, const struct msg_source *m)
{
    wire_put_u8(buf, m->kind);
    wire_put_str(buf, m->host);
    wire_put_u16(buf, m->port);
    wire_put_u32(buf, m->from_block);
    wire_put_u32(buf, m->to_block);
}

/* Returns whether its values are in range. */
static bool get_source(struct wire_reader *r, struct msg_source *m)
{
    m->kind = wire_get_u8(r);
    wire_get_str(r, m->host, sizeof(m->host));
    m->port = wire_get_u16(r);
    m->from_block = wire_get_u32(r);
    m->to_block = wire_get_u32(r);
    return m->from_block <= m->to_block &&
           ((m->kind == PROTO_SOURCE_PEER && m->host[0] != '\0') ||
            (m->kind == PROTO_SOURCE_DISK && m->host[0] == '\0'));
}

void msg_prefill_pack(struct wire_buf *buf, uint64_t request_id,
                      const struct msg_prefill *m)
{
    size_t at = frame_begin(buf, FRAME_PREFILL, request_id);

    wire_put_u64(buf, m->key_seed);
    wire_put_u32(buf, m->max_tokens);
    wire_put_str(buf, m->decode_host);
    wire_put_u16(buf, m->decode_port);
    wire_put_u8(buf, m->load_mode);
    wire_put_u32(buf, m->split_block);
    wire_put_u8(buf, m->n_sources);
    for (size_t i = 0; i < m->n_sources && i < MSG_SOURCES_MAX; i++)
        put_source(buf, &m->sources[i]);
    wire_put_u32s(buf, (const uint32_t *)(const void *)m->tokens, m->n_tokens);
    frame_end(buf, at);
}

int msg_prefill_unpack(const void *payload, size_t len, struct msg_prefill *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->key_seed = wire_get_u64(&r);
    m->max_tokens = wire_get_u32(&r);
    wire_get_str(&r, m->decode_host, sizeof(m->decode_host));
    m->decode_port = wire_get_u16(&r);
    m->load_mode = wire_get_u8(&r);
    m->split_block = wire_get_u32(&r);
    m->n_sources = wire_get_u8(&r);
    bool in_range =
        m->load_mode < PROTO_LOAD_COUNT && m->n_sources <= MSG_SOURCES_MAX;
    memset(m->sources, 0, sizeof(m->sources));
    for (size_t i = 0; in_range && i < m->n_sources; i++)
        in_range = get_source(&r, &m->sources[i]);
    m->tokens = wire_get_array(&r, 4, &m->n_tokens);
    return wire_end(&r, in_range);
}

void msg_decode_pack(struct wire_buf *buf, uint64_t request_id,
                     const struct msg_decode *m)
{
    size_t at = frame_begin(buf, FRAME_DECODE, request_id);

    wire_put_u32(buf, m->n_tokens);
    wire_put_u32(buf, m->max_tokens);
    wire_put_u64(buf, m->prompt_digest);
    frame_end(buf, at);
}

int msg_decode_unpack(const void *payload, size_t len, struct msg_decode *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->n_tokens = wire_get_u32(&r);
    m->max_tokens = wire_get_u32(&r);
    m->prompt_digest = wire_get_u64(&r);
    return wire_end(&r, true);
}

void msg_prefill_started_pack(struct wire_buf *buf, uint64_t request_id,
                              const struct msg_prefill_started *m)
{
    size_t at = frame_begin(buf, FRAME_PREFILL_STARTED, request_id);

    wire_put_u64(buf, m->queue_us);
    frame_end(buf, at);
}

int msg_prefill_started_unpack(const void *payload, size_t len,
                               struct msg_prefill_started *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->queue_us = wire_get_u64(&r);
    return wire_end(&r, true);
}

void msg_prefill_done_pack(struct wire_buf *buf, uint64_t request_id,
                           const struct msg_prefill_done *m)
{
    size_t at = frame_begin(buf, FRAME_PREFILL_DONE, request_id);

    wire_put_u32(buf, m->first_token);
    wire_put_u32(buf, m->local_tokens);
    wire_put_u32(buf, m->fetched_tokens);
    wire_put_u32(buf, m->computed_tokens);
    wire_put_u32(buf, m->disk_tokens);
    wire_put_u64(buf, m->queue_us);
    wire_put_u64(buf, m->fetch_us);
    wire_put_u64(buf, m->fetch_bytes);
    wire_put_u64(buf, m->prefill_us);
    wire_put_u64(buf, m->load_us);
    wire_put_u64(buf, m->disk_bytes);
    wire_put_u8(buf, m->load_mode);
    frame_end(buf, at);
}

int msg_prefill_done_unpack(const void *payload, size_t len,
                            struct msg_prefill_done *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->first_token = wire_get_u32(&r);
    m->local_tokens = wire_get_u32(&r);
    m->fetched_tokens = wire_get_u32(&r);
    m->computed_tokens = wire_get_u32(&r);
    m->disk_tokens = wire_get_u32(&r);
    m->queue_us = wire_get_u64(&r);
    m->fetch_us = wire_get_u64(&r);
    m->fetch_bytes = wire_get_u64(&r);
    m->prefill_us = wire_get_u64(&r);
    m->load_us = wire_get_u64(&r);
    m->disk_bytes = wire_get_u64(&r);
    m->load_mode = wire_get_u8(&r);
    return wire_end(&r, m->load_mode > PROTO_LOAD_AUTO &&
                            m->load_mode < PROTO_LOAD_COUNT);
}

void msg_tokens_pack(struct wire_buf *buf, const struct msg_token *entries,
                     uint32_t n)
{
    size_t at = frame_begin(buf, FRAME_TOKENS, 0);

    wire_put_u32(buf, n);
    for (uint32_t i = 0; i < n; i++) {
        wire_put_u64(buf, entries[i].request_id);
        wire_put_u32(buf, entries[i].index);
        wire_put_u32(buf, entries[i].token);
    }
    frame_end(buf, at);
}

int msg_tokens_unpack(const void *payload, size_t len, struct msg_tokens *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->entries = wire_get_array(&r, MSG_TOKEN_BYTES, &m->n);
    return wire_end(&r, true);
}

struct msg_token msg_tokens_at(const struct msg_tokens *m, uint32_t i)
{
    const uint8_t *p = m->entries + (size_t)i * MSG_TOKEN_BYTES;
    struct msg_token t = {wire_u64_at(p, 0), wire_u32_at(p, 2),
                          wire_u32_at(p, 3)};

    return t;
}

void msg_done_pack(struct wire_buf *buf, uint64_t request_id,
                   const struct msg_done *m)
{
    size_t at = frame_begin(buf, FRAME_DONE, request_id);

    wire_put_u8(buf, m->finish);
    wire_put_u32(buf, m->output_tokens);
    frame_end(buf, at);
}

int msg_done_unpack(const void *payload, size_t len, struct msg_done *m)
{
    struct wire_reader r;

    wire_reader_init(&r, payload, len);
    m->finish = wire_get_u8(&r);
    m->output_tokens = wire_get_u32(&r);
    return wire_end(&r, m->finish == PROTO_FINISH_LENGTH ||
                            m->finish == PROTO_FINISH_STOP);
}
