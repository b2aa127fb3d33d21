/* Messages that concern no request: copies, roles, conductors, paths. */
#include "proto/fields.h"
#include "proto/message.h"

static void msg_copy_fields(struct codec *c, struct msg_copy *m)
{
    codec_u64(c, &m->key_seed);
    codec_str(c, m->host, sizeof(m->host));
    codec_u16(c, &m->port);
    codec_u64(c, &m->bytes_per_s);
    codec_u32(c, &m->from_block);
    codec_array(c, 8, &m->keys, &m->n);
    codec_require(c, *m->host && m->bytes_per_s > 0 && m->from_block < m->n);
}
MESSAGE(msg_copy, FRAME_COPY)

static void msg_copied_fields(struct codec *c, struct msg_copied *m)
{
    codec_u32(c, &m->blocks);
}
MESSAGE(msg_copied, FRAME_COPIED)

static void msg_drop_fields(struct codec *c, struct msg_drop *m)
{
    codec_u64(c, &m->key);
    codec_u32(c, &m->n);
    codec_require(c, m->n > 0);
}
MESSAGE(msg_drop, FRAME_DROP)

static void msg_role_fields(struct codec *c, struct msg_role *m)
{
    codec_u8(c, &m->role);
    codec_require(c,
                  m->role >= PROTO_ROLE_PREFILL && m->role <= PROTO_ROLE_BOTH);
}
MESSAGE(msg_role, FRAME_ROLE)

static void msg_conductors_fields(struct codec *c, struct msg_conductors *m)
{
    codec_u8(c, &m->n);
    codec_require(c, m->n > 0 && m->n <= MSG_CONDUCTORS_MAX);
    for (uint8_t i = 0; i < m->n && i < MSG_CONDUCTORS_MAX; i++) {
        codec_str(c, m->at[i].host, sizeof(m->at[i].host));
        codec_u16(c, &m->at[i].port);
        codec_require(c, *m->at[i].host && m->at[i].port > 0);
    }
}
MESSAGE(msg_conductors, FRAME_CONDUCTORS)

static void msg_paths_fields(struct codec *c, struct msg_paths *m)
{
    codec_u8(c, &m->n);
    codec_require(c, m->n <= MSG_PATHS_MAX);
    for (uint8_t i = 0; i < m->n && i < MSG_PATHS_MAX; i++) {
        struct msg_path *path = &m->list[i];

        codec_str(c, path->host, sizeof(path->host));
        codec_u16(c, &path->port);
        codec_str(c, path->transport, sizeof(path->transport));
        codec_u64(c, &path->bytes_per_s);
        codec_require(c, path->bytes_per_s > 0);
    }
}
MESSAGE(msg_paths, FRAME_PATHS)

static void msg_lead_fields(struct codec *c, struct msg_lead *m)
{
    codec_u64(c, &m->token);
    codec_require(c, m->token > 0);
}
MESSAGE(msg_lead, FRAME_LEAD)
