/* The messages of a pipelined prefill. */
#include "proto/stage.h"

#include "proto/fields.h"

static void msg_member_fields(struct codec *c, struct msg_member *m,
                              uint32_t *from_layer)
{
    codec_str(c, m->host, sizeof(m->host));
    codec_u16(c, &m->port);
    codec_u32(c, &m->to_layer);
    codec_require(c, *m->host && m->to_layer > *from_layer);
    *from_layer = m->to_layer;
}

static void msg_prefill_group_fields(struct codec *c,
                                     struct msg_prefill_group *m)
{
    codec_u32(c, &m->chunk_tokens);
    codec_u32(c, &m->to_layer);
    codec_u8(c, &m->n_members);
    codec_require(c, m->chunk_tokens > 0 &&
                         m->chunk_tokens <= MSG_CHUNK_TOKENS_MAX &&
                         m->to_layer > 0 && m->n_members > 0 &&
                         m->n_members <= MSG_STAGES_MAX);
    uint32_t layer = m->to_layer;
    for (size_t i = 0; i < m->n_members && i < MSG_STAGES_MAX; i++)
        msg_member_fields(c, &m->members[i], &layer);
    msg_prefill_fields(c, &m->prefill);
    codec_require(c, m->prefill.n_sources == 0 &&
                         m->prefill.load_mode == PROTO_LOAD_COMPUTE);
}
MESSAGE(msg_prefill_group, FRAME_PREFILL_GROUP)

static void msg_stage_begin_fields(struct codec *c, struct msg_stage_begin *m)
{
    codec_u32(c, &m->n_tokens);
    codec_u32(c, &m->from_token);
    codec_u32(c, &m->chunk_tokens);
    codec_u32(c, &m->from_layer);
    codec_u32(c, &m->to_layer);
    codec_require(c, m->from_token < m->n_tokens && m->chunk_tokens > 0 &&
                         m->chunk_tokens <= MSG_CHUNK_TOKENS_MAX &&
                         m->from_layer > 0 && m->from_layer < m->to_layer);
}
MESSAGE(msg_stage_begin, FRAME_STAGE_BEGIN)

static void msg_stage_rows_fields(struct codec *c, struct msg_stage_rows *m)
{
    codec_u32(c, &m->from_token);
    codec_u32(c, &m->n_tokens);
    codec_u64(c, &m->checksum);
    codec_array(c, 1, &m->data, &m->n_data);
    codec_require(c, m->n_tokens > 0);
}
MESSAGE(msg_stage_rows, FRAME_STAGE_ROWS)

static void msg_stage_kv_fields(struct codec *c, struct msg_stage_kv *m)
{
    codec_u32(c, &m->layer);
    codec_u32(c, &m->from_token);
    codec_u32(c, &m->n_tokens);
    codec_u64(c, &m->checksum);
    codec_array(c, 1, &m->data, &m->n_data);
    codec_require(c, m->n_tokens > 0);
}
MESSAGE(msg_stage_kv, FRAME_STAGE_KV)

static void msg_stage_done_fields(struct codec *c, struct msg_stage_done *m)
{
    codec_u32(c, &m->to_token);
    codec_u32(c, &m->first_token);
    codec_require(c, m->to_token > 0);
}
MESSAGE(msg_stage_done, FRAME_STAGE_DONE)
