/* Feeds a stream of bytes to the frame reader and every decoder. */
#include <stdlib.h>
#include <string.h>

#include "proto/stage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum_views(const uint8_t *p, uint32_t n, size_t elem_bytes)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < (size_t)n * elem_bytes; i++)
        sum += p[i];
    return sum;
}

static uint64_t sum_sources(const struct msg_prefill *m)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < m->n_sources; i++)
        sum += strlen(m->sources[i].host) + m->sources[i].to_block;
    return sum;
}

static uint64_t sum_members(const struct msg_prefill_group *m)
{
    uint64_t sum = sum_views(m->prefill.tokens, m->prefill.n_tokens, 4);

    for (size_t i = 0; i < m->n_members; i++)
        sum += strlen(m->members[i].host) + m->members[i].to_layer;
    return sum;
}

static uint64_t decode_stages(uint16_t type, const uint8_t *p, size_t len)
{
    struct msg_prefill_group group;
    struct msg_stage_begin begin;
    struct msg_stage_rows rows;
    struct msg_stage_kv kv;
    struct msg_stage_done done;

    if (type == FRAME_PREFILL_GROUP &&
        !msg_prefill_group_unpack(p, len, &group))
        return sum_members(&group);
    if (type == FRAME_STAGE_BEGIN && !msg_stage_begin_unpack(p, len, &begin))
        return begin.n_tokens;
    if (type == FRAME_STAGE_ROWS && !msg_stage_rows_unpack(p, len, &rows))
        return sum_views(rows.data, rows.n_data, 1);
    if (type == FRAME_STAGE_KV && !msg_stage_kv_unpack(p, len, &kv))
        return sum_views(kv.data, kv.n_data, 1);
    if (type == FRAME_STAGE_DONE && !msg_stage_done_unpack(p, len, &done))
        return done.first_token;
    return 0;
}

static uint64_t decode_transports(uint16_t type, const uint8_t *p, size_t len)
{
    struct msg_transports transports;
    struct msg_fetch_want want;
    struct msg_fetch_grant grant;
    uint64_t sum = 0;

    if (type == FRAME_TRANSPORTS && !msg_transports_unpack(p, len, &transports))
        for (uint8_t i = 0; i < transports.n; i++)
            sum += strlen(transports.list[i].name) +
                   sum_views(transports.list[i].descriptor,
                             transports.list[i].n, 1);
    if (type == FRAME_FETCH_WANT && !msg_fetch_want_unpack(p, len, &want))
        sum += want.n_layers;
    if (type == FRAME_FETCH_GRANT && !msg_fetch_grant_unpack(p, len, &grant))
        sum += sum_views(grant.sums, grant.n_layers, 8);
    return sum;
}

static uint64_t decode_more(uint16_t type, const uint8_t *p, size_t len)
{
    struct msg_fetch fetch;
    struct msg_fetch_chain chain;
    struct msg_kv_layer layer;
    struct msg_tokens tokens;
    struct msg_prefill prefill;
    struct msg_copy copy;
    struct msg_copied copied;
    struct msg_paths paths;
    struct msg_drop drop;
    struct msg_role role;
    struct msg_shared shared;
    struct msg_conductors conductors;
    struct msg_lead lead;

    if (type == FRAME_COPY && !msg_copy_unpack(p, len, &copy))
        return sum_views(copy.keys, copy.n, 8) + strlen(copy.host);
    if (type == FRAME_PATHS && !msg_paths_unpack(p, len, &paths))
        return paths.n ? paths.list[paths.n - 1].port : 0;
    if (type == FRAME_COPIED && !msg_copied_unpack(p, len, &copied))
        return copied.blocks;
    if (type == FRAME_DROP && !msg_drop_unpack(p, len, &drop))
        return drop.key + drop.n;
    if (type == FRAME_ROLE && !msg_role_unpack(p, len, &role))
        return role.role;
    if (type == FRAME_SHARED && !msg_shared_unpack(p, len, &shared))
        return shared.id + shared.bytes_per_s;
    if (type == FRAME_LEAD && !msg_lead_unpack(p, len, &lead))
        return lead.token;
    if (type == FRAME_CONDUCTORS && !msg_conductors_unpack(p, len, &conductors))
        return strlen(conductors.at[conductors.n - 1].host);
    if (type == FRAME_FETCH && !msg_fetch_unpack(p, len, &fetch))
        return sum_views(fetch.keys, fetch.n, 8);
    if (type == FRAME_FETCH_CHAIN && !msg_fetch_chain_unpack(p, len, &chain))
        return sum_views(chain.tokens, chain.n_tokens, 4);
    if (type == FRAME_KV_LAYER && !msg_kv_layer_unpack(p, len, &layer))
        return sum_views(layer.offsets, layer.n_blocks, 8) +
               sum_views(layer.sums, layer.n_sums, 8);
    if (type == FRAME_TOKENS && !msg_tokens_unpack(p, len, &tokens))
        return tokens.n ? msg_tokens_at(&tokens, tokens.n - 1).token : 0;
    if (type == FRAME_PREFILL && !msg_prefill_unpack(p, len, &prefill))
        return sum_views(prefill.tokens, prefill.n_tokens, 4) +
               strlen(prefill.decode_host) + sum_sources(&prefill);
    return decode_stages(type, p, len) + decode_transports(type, p, len);
}

static uint64_t decode(uint16_t type, const uint8_t *p, size_t len)
{
    struct msg_hello hello;
    struct msg_error error;
    struct msg_blocks_stored stored;
    struct msg_blocks_removed removed;
    struct msg_inventory_mark mark;

    if (type == FRAME_HELLO && !msg_hello_unpack(p, len, &hello))
        return strlen(hello.name) + strlen(hello.peer_host);
    if (type == FRAME_ERROR && !msg_error_unpack(p, len, &error))
        return strlen(error.text);
    if (type == FRAME_BLOCKS_STORED &&
        !msg_blocks_stored_unpack(p, len, &stored))
        return sum_views(stored.keys, stored.n, 8);
    if (type == FRAME_BLOCKS_REMOVED &&
        !msg_blocks_removed_unpack(p, len, &removed))
        return sum_views(removed.keys, removed.n, 8);
    if (type == FRAME_INVENTORY_MARK &&
        !msg_inventory_mark_unpack(p, len, &mark))
        return mark.ends;
    return decode_more(type, p, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct frame_header h;
    volatile uint64_t sink = 0;

    while (size >= FRAME_HEADER_BYTES) {
        if (frame_header_decode(data, 1 << 20, &h))
            return 0;
        data += FRAME_HEADER_BYTES;
        size -= FRAME_HEADER_BYTES;
        size_t n = h.length < size ? h.length : size;
        sink += decode(h.type, data, n);
        data += n;
        size -= n;
    }
    (void)sink;
    return 0;
}
