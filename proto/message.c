/* The fields of every message, in wire order. */
#include "proto/message.h"

#include <stdio.h>
#include <string.h>

#include "proto/codec.h"
#include "proto/fields.h"

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
        [PROTO_E_REFUSED] = "refused",
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

uint16_t proto_version_common(const struct msg_hello *m)
{
    if (m->version_min > PROTO_VERSION || m->version_max < PROTO_VERSION)
        return 0;
    return PROTO_VERSION;
}

void msg_empty_pack(struct wire_buf *buf, uint16_t type, uint64_t request_id)
{
    frame_end(buf, frame_begin(buf, type, request_id));
}

/*
 * Magic and versions come first in every version, and later versions only
 * append, so a newer HELLO is read up to the fields known here. Without a
 * common version only magic and versions are read, for the refusal's message.
 */
static void msg_hello_fields(struct codec *c, struct msg_hello *m)
{
    codec_u32(c, &m->magic);
    codec_u16(c, &m->version_min);
    codec_u16(c, &m->version_max);
    codec_require(c,
                  m->magic == PROTO_MAGIC && m->version_min <= m->version_max);
    if (proto_version_common(m) == 0) {
        codec_skip(c);
        return;
    }
    codec_u8(c, &m->kind);
    codec_u8(c, &m->role);
    codec_u64(c, &m->capabilities);
    codec_str(c, m->name, sizeof(m->name));
    codec_str(c, m->engine, sizeof(m->engine));
    codec_str(c, m->model, sizeof(m->model));
    codec_u64(c, &m->fingerprint);
    codec_u32(c, &m->block_tokens);
    codec_u32(c, &m->window_tokens);
    codec_u32(c, &m->vocab);
    codec_u64(c, &m->kv_capacity_blocks);
    codec_u64(c, &m->kv_bytes_per_token);
    codec_u64(c, &m->disk_capacity_blocks);
    codec_u32(c, &m->max_batch);
    codec_u32(c, &m->layers);
    codec_str(c, m->peer_host, sizeof(m->peer_host));
    codec_u16(c, &m->peer_port);
    codec_bytes(c, m->nonce, sizeof(m->nonce));
    codec_require(c, m->kind >= PROTO_PEER_CONDUCTOR &&
                         m->kind <= PROTO_PEER_WORKER_DATA &&
                         m->role <= PROTO_ROLE_BOTH);
    if (m->version_max > PROTO_VERSION)
        codec_skip(c);
}
MESSAGE(msg_hello, FRAME_HELLO)

static void msg_challenge_fields(struct codec *c, struct msg_challenge *m)
{
    codec_bytes(c, m->nonce, sizeof(m->nonce));
}
MESSAGE(msg_challenge, FRAME_CHALLENGE)

static void msg_proof_fields(struct codec *c, struct msg_proof *m)
{
    codec_bytes(c, m->mac, sizeof(m->mac));
}
MESSAGE(msg_proof, FRAME_PROOF)

static void msg_welcome_fields(struct codec *c, struct msg_welcome *m)
{
    codec_u16(c, &m->version);
    codec_u64(c, &m->capabilities);
    codec_u32(c, &m->instance_id);
    codec_u32(c, &m->heartbeat_ms);
    codec_str(c, m->queue_order, sizeof(m->queue_order));
}
MESSAGE(msg_welcome, FRAME_WELCOME)

static void msg_error_fields(struct codec *c, struct msg_error *m)
{
    codec_u16(c, &m->code);
    codec_str(c, m->text, sizeof(m->text));
}
MESSAGE(msg_error, FRAME_ERROR)

void msg_error_like_pack(struct wire_buf *buf, uint16_t type,
                         uint64_t request_id, uint16_t code, const char *text)
{
    struct codec c = codec_writer(buf);
    struct msg_error m = {.code = code};
    size_t at = frame_begin(buf, type, request_id);

    snprintf(m.text, sizeof(m.text), "%s", text);
    msg_error_fields(&c, &m);
    frame_end(buf, at);
}

static void msg_status_fields(struct codec *c, struct msg_status *m)
{
    codec_u32(c, &m->prefill_queued);
    codec_u32(c, &m->prefill_running);
    codec_u32(c, &m->decode_active);
    codec_u64(c, &m->kv_used_blocks);
    codec_u64(c, &m->kv_pinned_blocks);
    codec_u64(c, &m->disk_used_blocks);
    codec_u64(c, &m->disk_bytes_per_s);
}
MESSAGE(msg_status, FRAME_STATUS)

static void msg_shared_fields(struct codec *c, struct msg_shared *m)
{
    codec_u64(c, &m->id);
    codec_u64(c, &m->bytes_per_s);
    codec_u64(c, &m->put_blocks);
    codec_u64(c, &m->missed_blocks);
    codec_u64(c, &m->failed_puts);
    codec_u64(c, &m->went_away);
}
MESSAGE(msg_shared, FRAME_SHARED)

static void msg_source_fields(struct codec *c, struct msg_source *m)
{
    codec_u8(c, &m->kind);
    codec_str(c, m->host, sizeof(m->host));
    codec_u16(c, &m->port);
    codec_u32(c, &m->from_block);
    codec_u32(c, &m->to_block);
    codec_require(c, m->from_block <= m->to_block &&
                         ((m->kind == PROTO_SOURCE_PEER && *m->host) ||
                          ((m->kind == PROTO_SOURCE_DISK ||
                            m->kind == PROTO_SOURCE_SHARED) &&
                           !*m->host)));
}

void msg_prefill_fields(struct codec *c, struct msg_prefill *m)
{
    codec_u64(c, &m->key_seed);
    codec_u32(c, &m->max_tokens);
    codec_u64(c, &m->cost_us);
    codec_u64(c, &m->due_us);
    codec_u64(c, &m->ready_us);
    codec_require(c, m->cost_us < INT64_MAX / 2 && m->due_us < INT64_MAX / 2 &&
                         m->ready_us < INT64_MAX / 2);
    codec_str(c, m->decode_host, sizeof(m->decode_host));
    codec_u16(c, &m->decode_port);
    codec_u8(c, &m->load_mode);
    codec_u8(c, &m->n_sources);
    codec_require(c, m->load_mode < PROTO_LOAD_COUNT &&
                         m->n_sources <= MSG_SOURCES_MAX);
    for (size_t i = 0; i < m->n_sources && i < MSG_SOURCES_MAX; i++)
        msg_source_fields(c, &m->sources[i]);
    codec_array(c, 4, &m->tokens, &m->n_tokens);
}
MESSAGE(msg_prefill, FRAME_PREFILL)

static void msg_decode_fields(struct codec *c, struct msg_decode *m)
{
    codec_u32(c, &m->n_tokens);
    codec_u32(c, &m->max_tokens);
    codec_u64(c, &m->prompt_digest);
}
MESSAGE(msg_decode, FRAME_DECODE)

static void msg_prefill_started_fields(struct codec *c,
                                       struct msg_prefill_started *m)
{
    codec_u64(c, &m->queue_us);
}
MESSAGE(msg_prefill_started, FRAME_PREFILL_STARTED)

static void msg_prefill_done_fields(struct codec *c, struct msg_prefill_done *m)
{
    codec_u32(c, &m->first_token);
    codec_u32(c, &m->local_tokens);
    codec_u32(c, &m->fetched_tokens);
    codec_u32(c, &m->computed_tokens);
    codec_u32(c, &m->disk_tokens);
    codec_u64(c, &m->queue_us);
    codec_u64(c, &m->fetch_us);
    codec_u64(c, &m->fetch_bytes);
    codec_u64(c, &m->prefill_us);
    codec_u64(c, &m->load_us);
    codec_u64(c, &m->disk_bytes);
    codec_u8(c, &m->load_mode);
    codec_require(c, m->load_mode > PROTO_LOAD_AUTO &&
                         m->load_mode < PROTO_LOAD_COUNT);
    codec_u32(c, &m->shared_tokens);
    codec_u64(c, &m->shared_bytes);
}
MESSAGE(msg_prefill_done, FRAME_PREFILL_DONE)

static void msg_token_fields(struct codec *c, struct msg_token *m)
{
    codec_u64(c, &m->request_id);
    codec_u32(c, &m->index);
    codec_u32(c, &m->token);
}

void msg_tokens_pack(struct wire_buf *buf, const struct msg_token *entries,
                     uint32_t n)
{
    struct codec c = codec_writer(buf);
    size_t at = frame_begin(buf, FRAME_TOKENS, 0);

    codec_u32(&c, &n);
    for (uint32_t i = 0; i < n; i++)
        msg_token_fields(&c, &(struct msg_token){entries[i].request_id,
                                                 entries[i].index,
                                                 entries[i].token});
    frame_end(buf, at);
}

int msg_tokens_unpack(const void *payload, size_t len, struct msg_tokens *m)
{
    struct codec c = codec_reader(payload, len);

    codec_array(&c, MSG_TOKEN_BYTES, &m->entries, &m->n);
    return codec_end(&c);
}

struct msg_token msg_tokens_at(const struct msg_tokens *m, uint32_t i)
{
    struct codec c =
        codec_reader(m->entries + (size_t)i * MSG_TOKEN_BYTES, MSG_TOKEN_BYTES);
    struct msg_token t;

    msg_token_fields(&c, &t);
    return t;
}

static void msg_done_fields(struct codec *c, struct msg_done *m)
{
    codec_u32(c, &m->output_tokens);
}
MESSAGE(msg_done, FRAME_DONE)

static void msg_blocks_stored_fields(struct codec *c,
                                     struct msg_blocks_stored *m)
{
    codec_u8(c, &m->tier);
    codec_u64(c, &m->parent);
    codec_array(c, 8, &m->keys, &m->n);
    codec_require(c, m->tier < PROTO_TIER_COUNT);
}
MESSAGE(msg_blocks_stored, FRAME_BLOCKS_STORED)

static void msg_blocks_removed_fields(struct codec *c,
                                      struct msg_blocks_removed *m)
{
    codec_u8(c, &m->tier);
    codec_array(c, 8, &m->keys, &m->n);
    codec_require(c, m->tier < PROTO_TIER_COUNT);
}
MESSAGE(msg_blocks_removed, FRAME_BLOCKS_REMOVED)

static void msg_inventory_mark_fields(struct codec *c,
                                      struct msg_inventory_mark *m)
{
    codec_u8(c, &m->ends);
    codec_require(c, m->ends <= 1);
}
MESSAGE(msg_inventory_mark, FRAME_INVENTORY_MARK)

static void msg_fetch_fields(struct codec *c, struct msg_fetch *m)
{
    codec_array(c, 8, &m->keys, &m->n);
}
MESSAGE(msg_fetch, FRAME_FETCH)

static void msg_fetch_chain_fields(struct codec *c, struct msg_fetch_chain *m)
{
    codec_array(c, 4, &m->tokens, &m->n_tokens);
}
MESSAGE(msg_fetch_chain, FRAME_FETCH_CHAIN)

static void msg_transports_fields(struct codec *c, struct msg_transports *m)
{
    codec_u8(c, &m->n);
    codec_require(c, m->n <= MSG_TRANSPORTS_MAX);
    for (uint8_t i = 0; i < m->n && i < MSG_TRANSPORTS_MAX; i++) {
        struct msg_transport *t = &m->list[i];

        codec_str(c, t->name, sizeof(t->name));
        codec_array(c, 1, &t->descriptor, &t->n);
        codec_require(c, t->n <= MSG_DESCRIPTOR_MAX);
    }
}
MESSAGE(msg_transports, FRAME_TRANSPORTS)

static void msg_fetch_want_fields(struct codec *c, struct msg_fetch_want *m)
{
    codec_u32(c, &m->block);
    codec_u32(c, &m->from_layer);
    codec_u32(c, &m->n_layers);
    codec_require(c, m->n_layers > 0);
}
MESSAGE(msg_fetch_want, FRAME_FETCH_WANT)

static void msg_fetch_grant_fields(struct codec *c, struct msg_fetch_grant *m)
{
    codec_u32(c, &m->block);
    codec_u32(c, &m->from_layer);
    codec_u64(c, &m->grant_id);
    codec_u32(c, &m->region);
    codec_u64(c, &m->offset);
    codec_array(c, 8, &m->sums, &m->n_layers);
}
MESSAGE(msg_fetch_grant, FRAME_FETCH_GRANT)

static void msg_fetch_end_fields(struct codec *c, struct msg_fetch_end *m)
{
    codec_u16(c, &m->code);
}
MESSAGE(msg_fetch_end, FRAME_FETCH_END)

static void msg_kv_begin_fields(struct codec *c, struct msg_kv_begin *m)
{
    codec_u32(c, &m->n_tokens);
    codec_u32(c, &m->max_tokens);
    codec_u64(c, &m->prompt_digest);
}
MESSAGE(msg_kv_begin, FRAME_KV_BEGIN)

static void msg_kv_layer_fields(struct codec *c, struct msg_kv_layer *m)
{
    codec_u32(c, &m->layer);
    codec_u32(c, &m->from_token);
    codec_u32(c, &m->n_tokens);
    codec_u64(c, &m->grant_id);
    codec_u32(c, &m->region);
    codec_array(c, 8, &m->offsets, &m->n_blocks);
    codec_array(c, 8, &m->sums, &m->n_sums);
}
MESSAGE(msg_kv_layer, FRAME_KV_LAYER)

static void msg_kv_taken_fields(struct codec *c, struct msg_kv_taken *m)
{
    codec_u64(c, &m->grant_id);
}
MESSAGE(msg_kv_taken, FRAME_KV_TAKEN)

static void msg_kv_end_fields(struct codec *c, struct msg_kv_end *m)
{
    codec_u32(c, &m->first_token);
}
MESSAGE(msg_kv_end, FRAME_KV_END)
