/* The wire: every message survives a round trip, and no truncated, extended
 * or random payload is taken or read past its end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/stage.h"
#include "tests/unit/suite.h"

static const uint32_t tokens[] = {1, 2, 0xfffffffe, 4};
static const uint64_t keys[] = {7, UINT64_MAX - 1, 9};

/* Decoding into the largest message, whichever type it is. */
static int decode_any(uint16_t type, const void *p, size_t len)
{
    union {
        struct msg_hello hello;
        struct msg_challenge challenge;
        struct msg_proof proof;
        struct msg_welcome welcome;
        struct msg_error error;
        struct msg_status status;
        struct msg_shared shared;
        struct msg_prefill prefill;
        struct msg_decode decode;
        struct msg_copy copy;
        struct msg_copied copied;
        struct msg_paths paths;
        struct msg_drop drop;
        struct msg_role role;
        struct msg_conductors conductors;
        struct msg_lead lead;
        struct msg_prefill_started started;
        struct msg_prefill_done prefill_done;
        struct msg_tokens tokens;
        struct msg_done done;
        struct msg_blocks_stored stored;
        struct msg_blocks_removed removed;
        struct msg_inventory_mark mark;
        struct msg_fetch fetch;
        struct msg_fetch_chain fetch_chain;
        struct msg_fetch_end fetch_end;
        struct msg_transports transports;
        struct msg_fetch_want fetch_want;
        struct msg_fetch_grant fetch_grant;
        struct msg_kv_begin kv_begin;
        struct msg_kv_layer kv_layer;
        struct msg_kv_taken kv_taken;
        struct msg_kv_end kv_end;
        struct msg_prefill_group group;
        struct msg_stage_begin stage_begin;
        struct msg_stage_rows stage_rows;
        struct msg_stage_kv stage_kv;
        struct msg_stage_done stage_done;
    } m;
    switch ((enum frame_type)type) {
    case FRAME_HELLO:
        return msg_hello_unpack(p, len, &m.hello);
    case FRAME_CHALLENGE:
        return msg_challenge_unpack(p, len, &m.challenge);
    case FRAME_PROOF:
        return msg_proof_unpack(p, len, &m.proof);
    case FRAME_WELCOME:
        return msg_welcome_unpack(p, len, &m.welcome);
    case FRAME_ERROR:
    case FRAME_FAILED:
    case FRAME_KV_REFUSE:
    case FRAME_STAGE_REFUSE:
        return msg_error_unpack(p, len, &m.error);
    case FRAME_STATUS:
        return msg_status_unpack(p, len, &m.status);
    case FRAME_SHARED:
        return msg_shared_unpack(p, len, &m.shared);
    case FRAME_PREFILL:
        return msg_prefill_unpack(p, len, &m.prefill);
    case FRAME_DECODE:
        return msg_decode_unpack(p, len, &m.decode);
    case FRAME_COPY:
        return msg_copy_unpack(p, len, &m.copy);
    case FRAME_COPIED:
        return msg_copied_unpack(p, len, &m.copied);
    case FRAME_PATHS:
        return msg_paths_unpack(p, len, &m.paths);
    case FRAME_DROP:
        return msg_drop_unpack(p, len, &m.drop);
    case FRAME_ROLE:
        return msg_role_unpack(p, len, &m.role);
    case FRAME_LEAD:
        return msg_lead_unpack(p, len, &m.lead);
    case FRAME_CONDUCTORS:
        return msg_conductors_unpack(p, len, &m.conductors);
    case FRAME_PREFILL_STARTED:
        return msg_prefill_started_unpack(p, len, &m.started);
    case FRAME_PREFILL_DONE:
        return msg_prefill_done_unpack(p, len, &m.prefill_done);
    case FRAME_TOKENS:
        return msg_tokens_unpack(p, len, &m.tokens);
    case FRAME_DONE:
        return msg_done_unpack(p, len, &m.done);
    case FRAME_BLOCKS_STORED:
        return msg_blocks_stored_unpack(p, len, &m.stored);
    case FRAME_BLOCKS_REMOVED:
        return msg_blocks_removed_unpack(p, len, &m.removed);
    case FRAME_INVENTORY_MARK:
        return msg_inventory_mark_unpack(p, len, &m.mark);
    case FRAME_FETCH:
        return msg_fetch_unpack(p, len, &m.fetch);
    case FRAME_FETCH_CHAIN:
        return msg_fetch_chain_unpack(p, len, &m.fetch_chain);
    case FRAME_TRANSPORTS:
        return msg_transports_unpack(p, len, &m.transports);
    case FRAME_FETCH_WANT:
        return msg_fetch_want_unpack(p, len, &m.fetch_want);
    case FRAME_FETCH_GRANT:
        return msg_fetch_grant_unpack(p, len, &m.fetch_grant);
    case FRAME_FETCH_END:
        return msg_fetch_end_unpack(p, len, &m.fetch_end);
    case FRAME_KV_BEGIN:
        return msg_kv_begin_unpack(p, len, &m.kv_begin);
    case FRAME_KV_LAYER:
        return msg_kv_layer_unpack(p, len, &m.kv_layer);
    case FRAME_KV_TAKEN:
        return msg_kv_taken_unpack(p, len, &m.kv_taken);
    case FRAME_KV_END:
        return msg_kv_end_unpack(p, len, &m.kv_end);
    case FRAME_PREFILL_GROUP:
        return msg_prefill_group_unpack(p, len, &m.group);
    case FRAME_STAGE_BEGIN:
        return msg_stage_begin_unpack(p, len, &m.stage_begin);
    case FRAME_STAGE_ROWS:
        return msg_stage_rows_unpack(p, len, &m.stage_rows);
    case FRAME_STAGE_KV:
        return msg_stage_kv_unpack(p, len, &m.stage_kv);
    case FRAME_STAGE_DONE:
        return msg_stage_done_unpack(p, len, &m.stage_done);
    default:
        return -EBADMSG;
    }
}

/* Four bytes behind what is there. */
static void append(struct wire_buf *b, const char *bytes)
{
    uint8_t *at = wire_buf_extend(b, 4);

    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    memcpy(at, bytes, 4);
}

static const void *u8(const void *p)
{
    return p;
}

static struct msg_hello example_hello(void)
{
    struct msg_hello m = {.magic = PROTO_MAGIC,
                          .version_min = PROTO_VERSION,
                          .version_max = PROTO_VERSION,
                          .kind = PROTO_PEER_WORKER,
                          .role = PROTO_ROLE_BOTH,
                          .capabilities = 3,
                          .name = "w0",
                          .engine = "cpu",
                          .model = "tiny",
                          .fingerprint = 0x0123456789abcdef,
                          .block_tokens = 32,
                          .window_tokens = 32768,
                          .vocab = 512,
                          .kv_capacity_blocks = 1000,
                          .kv_bytes_per_token = 4096,
                          .disk_capacity_blocks = 77,
                          .max_batch = 64,
                          .layers = 2,
                          .peer_host = "127.0.0.1",
                          .peer_port = 9999,
                          .nonce = {5, 6}};

    return m;
}

static struct msg_prefill_group example_group(void)
{
    struct msg_prefill_group m = {.chunk_tokens = 512,
                                  .to_layer = 2,
                                  .n_members = 2,
                                  .members = {{"a", 1, 3}, {"b", 2, 4}},
                                  .prefill = {.key_seed = 42,
                                              .max_tokens = 7,
                                              .decode_host = "::1",
                                              .decode_port = 1,
                                              .load_mode = PROTO_LOAD_COMPUTE,
                                              .n_tokens = 4,
                                              .tokens = u8(tokens)}};

    return m;
}

static void encode_transports(struct wire_buf *b)
{
    static const uint64_t sums[] = {5, UINT64_MAX};

    msg_transports_pack(b, 0,
                        &(struct msg_transports){
                            2, {{"tcp", 4, u8("abcd")}, {"none", 0, NULL}}});
    msg_fetch_want_pack(b, 17, &(struct msg_fetch_want){2, 3, 4});
    msg_fetch_grant_pack(
        b, 17, &(struct msg_fetch_grant){2, 3, 4, 0, 1ull << 33, 2, u8(sums)});
}

static void encode_stages(struct wire_buf *b)
{
    struct msg_prefill_group group = example_group();

    msg_prefill_group_pack(b, 19, &group);
    msg_stage_begin_pack(b, 19, &(struct msg_stage_begin){9, 0, 4, 1, 2});
    msg_error_like_pack(b, FRAME_STAGE_REFUSE, 19, PROTO_E_BUSY, "full");
    msg_stage_rows_pack(b, 19,
                        &(struct msg_stage_rows){1, 2, 3, 4, u8("abcd")});
    msg_stage_kv_pack(b, 19, &(struct msg_stage_kv){1, 2, 3, 4, 4, u8("abcd")});
    msg_stage_done_pack(b, 19, &(struct msg_stage_done){9, 66});
}

/* One frame of every message that has a payload. */
static void encode_all(struct wire_buf *b)
{
    struct msg_hello hello = example_hello();

    msg_hello_pack(b, 0, &hello);
    msg_challenge_pack(b, 0, &(struct msg_challenge){{1, 2}});
    msg_proof_pack(b, 0, &(struct msg_proof){{3, 4}});
    msg_welcome_pack(b, 0, &(struct msg_welcome){1, 3, 5, 500, "fifo"});
    msg_error_pack(b, 0, &(struct msg_error){PROTO_E_BUSY, "no"});
    msg_error_like_pack(b, FRAME_FAILED, 11, PROTO_E_PEER, "gone");
    msg_status_pack(b, 0, &(struct msg_status){1, 2, 3, 4, 5, 6, 7});
    msg_shared_pack(b, 0, &(struct msg_shared){1, 2, 3, 4, 5, 6});
    msg_prefill_pack(
        b, 12,
        &(struct msg_prefill){.key_seed = 42,
                              .max_tokens = 7,
                              .cost_us = 8,
                              .due_us = 9,
                              .ready_us = 10,
                              .decode_host = "::1",
                              .decode_port = 1,
                              .load_mode = PROTO_LOAD_BOTH,
                              .n_sources = 2,
                              .sources = {{PROTO_SOURCE_PEER, "::2", 4, 0, 3},
                                          {PROTO_SOURCE_SHARED, "", 0, 2, 5}},
                              .n_tokens = 4,
                              .tokens = u8(tokens)});
    msg_decode_pack(b, 13, &(struct msg_decode){100, 5, 7});
    msg_copy_pack(b, 13,
                  &(struct msg_copy){.key_seed = 42,
                                     .host = "::1",
                                     .port = 1,
                                     .bytes_per_s = 9,
                                     .from_block = 1,
                                     .n = 3,
                                     .keys = u8(keys)});
    msg_copied_pack(b, 13, &(struct msg_copied){2});
    msg_paths_pack(b, 0,
                   &(struct msg_paths){
                       .n = 2,
                       .list = {{"10.0.0.1", 7001, "tcp", 1000000000},
                                {"b", 7002, "shm", 5000000000}},
                   });
    msg_drop_pack(b, 0, &(struct msg_drop){5, 6});
    msg_role_pack(b, 0, &(struct msg_role){2});
    msg_lead_pack(b, 0, &(struct msg_lead){3});
    msg_conductors_pack(b, 0,
                        &(struct msg_conductors){2, {{"a", 1}, {"::1", 2}}});
    msg_prefill_started_pack(b, 14, &(struct msg_prefill_started){1});
    msg_prefill_done_pack(b, 15,
                          &(struct msg_prefill_done){65, 1, 2, 3, 4, 5, 6, 7, 8,
                                                     9, 10, 3, 11, 12});
    msg_tokens_pack(b, (struct msg_token[]){{1, 2, 3}, {4, 5, 6}}, 2);
    msg_done_pack(b, 16, &(struct msg_done){9});
    msg_blocks_stored_pack(b, 0,
                           &(struct msg_blocks_stored){1, 5, 3, u8(keys)});
    msg_blocks_removed_pack(b, 0, &(struct msg_blocks_removed){1, 3, u8(keys)});
    msg_inventory_mark_pack(b, 0, &(struct msg_inventory_mark){1});
    msg_fetch_pack(b, 17, &(struct msg_fetch){3, u8(keys)});
    msg_fetch_chain_pack(b, 17, &(struct msg_fetch_chain){4, u8(tokens)});
    encode_transports(b);
    msg_fetch_end_pack(b, 17, &(struct msg_fetch_end){PROTO_E_BUSY});
    msg_kv_begin_pack(b, 18, &(struct msg_kv_begin){100, 5, 7});
    msg_error_like_pack(b, FRAME_KV_REFUSE, 18, PROTO_E_CAPACITY, "full");
    msg_kv_layer_pack(b, 18,
                      &(struct msg_kv_layer){1, 2, 3, 5, 6, 1, u8("abcdefgh"),
                                             2, u8("0123456789abcdef")});
    msg_kv_taken_pack(b, 18, &(struct msg_kv_taken){5});
    msg_kv_end_pack(b, 18, &(struct msg_kv_end){66});
    encode_stages(b);
}

typedef void (*frame_visit)(const struct frame_header *h, const uint8_t *p);

static void each_frame(frame_visit visit)
{
    struct wire_buf b;
    struct frame_header h;
    unsigned n = 0;

    wire_buf_init(&b, 1 << 20);
    encode_all(&b);
    CU_ASSERT_FALSE_FATAL(b.failed);
    for (size_t at = 0; at < b.len; n++) {
        CU_ASSERT_EQUAL_FATAL(frame_header_decode(b.data + at, 4096, &h), 0);
        CU_ASSERT_FATAL(at + FRAME_HEADER_BYTES + h.length <= b.len);
        visit(&h, b.data + at + FRAME_HEADER_BYTES);
        at += FRAME_HEADER_BYTES + h.length;
    }
    CU_ASSERT_EQUAL(n, 41);
    wire_buf_fini(&b);
}

static void visit_cuts(const struct frame_header *h, const uint8_t *p)
{
    CU_ASSERT_EQUAL(decode_any(h->type, p, h->length), 0);
    CU_ASSERT_STRING_NOT_EQUAL(frame_type_name(h->type), "?");
    for (size_t cut = 0; cut < h->length; cut++) {
        /* A copy of its exact size, so that a sanitizer sees an overrun. */
        uint8_t *exact = malloc(cut ? cut : 1);

        CU_ASSERT_PTR_NOT_NULL_FATAL(exact);
        memcpy(exact, p, cut);
        CU_ASSERT_EQUAL(decode_any(h->type, exact, cut), -EBADMSG);
        free(exact);
    }
    uint8_t *longer = calloc(1, h->length + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(longer);
    memcpy(longer, p, h->length);
    CU_ASSERT_EQUAL(decode_any(h->type, longer, h->length + 1), -EBADMSG);
    free(longer);
}

/* A plan survives; one that names what there is not is refused. */
static void test_sources(void)
{
    struct msg_prefill good = {.load_mode = PROTO_LOAD_LAYERWISE,
                               .n_sources = MSG_SOURCES_MAX};
    struct msg_prefill bad[10], out;
    struct wire_buf b;

    for (uint32_t i = 0; i < MSG_SOURCES_MAX; i++)
        good.sources[i] =
            (struct msg_source){i == 2 ? PROTO_SOURCE_DISK : PROTO_SOURCE_PEER,
                                "h", (uint16_t)i, i, 2 * i};
    good.sources[2].host[0] = '\0';
    for (size_t i = 0; i < 10; i++)
        bad[i] = good;
    bad[0].load_mode = PROTO_LOAD_COUNT;
    bad[1].n_sources = MSG_SOURCES_MAX + 1;
    bad[2].sources[3].kind = 0;
    bad[3].sources[3].kind = 4;
    bad[4].sources[0].host[0] = '\0';
    bad[5].sources[2].host[0] = 'x';
    bad[6].sources[1].from_block = 3;
    bad[7].cost_us = INT64_MAX;
    bad[8].due_us = UINT64_MAX;
    bad[9].ready_us = UINT64_MAX;
    wire_buf_init(&b, 4096);
    msg_prefill_pack(&b, 7, &good);
    CU_ASSERT_EQUAL_FATAL(msg_prefill_unpack(b.data + FRAME_HEADER_BYTES,
                                             b.len - FRAME_HEADER_BYTES, &out),
                          0);
    CU_ASSERT_EQUAL(out.load_mode, PROTO_LOAD_LAYERWISE);
    CU_ASSERT_EQUAL(out.n_sources, MSG_SOURCES_MAX);
    CU_ASSERT_STRING_EQUAL(out.sources[3].host, "h");
    CU_ASSERT_EQUAL(out.sources[2].kind, PROTO_SOURCE_DISK);
    CU_ASSERT_EQUAL(out.sources[3].to_block, 6);
    for (size_t i = 0; i < 10; i++) {
        wire_buf_reset(&b);
        msg_prefill_pack(&b, 7, &bad[i]);
        CU_ASSERT_EQUAL(msg_prefill_unpack(b.data + FRAME_HEADER_BYTES,
                                           b.len - FRAME_HEADER_BYTES, &out),
                        -EBADMSG);
    }
    wire_buf_fini(&b);
}

/* A group that makes no sense is refused. */
static void test_groups(void)
{
    struct msg_prefill_group bad[9], out;
    struct wire_buf b;

    for (size_t i = 0; i < 9; i++)
        bad[i] = example_group();
    bad[1].chunk_tokens = 0;
    bad[2].chunk_tokens = MSG_CHUNK_TOKENS_MAX + 1;
    bad[3].to_layer = 0;
    bad[4].n_members = 0;
    bad[5].n_members = MSG_STAGES_MAX + 1;
    bad[6].members[1].to_layer = 3;
    bad[7].members[0].host[0] = '\0';
    bad[8].prefill.load_mode = PROTO_LOAD_AUTO;
    wire_buf_init(&b, 8192);
    for (size_t i = 0; i < 9; i++) {
        wire_buf_reset(&b);
        msg_prefill_group_pack(&b, 7, &bad[i]);
        CU_ASSERT_EQUAL(msg_prefill_group_unpack(b.data + FRAME_HEADER_BYTES,
                                                 b.len - FRAME_HEADER_BYTES,
                                                 &out),
                        i == 0 ? 0 : -EBADMSG);
    }
    wire_buf_fini(&b);
}

static void test_cut_and_extended(void)
{
    each_frame(visit_cuts);
}

#define WIRE_BUF_TEST(test)                                         \
    SUITE_TEST(test, struct wire_buf, b, wire_buf_init(b, 1 << 20), \
               wire_buf_fini(b))

WIRE_BUF_TEST(test_round_trip)
{
    struct msg_hello in = example_hello(), out;

    msg_hello_pack(b, 0, &in);
    CU_ASSERT_EQUAL(msg_hello_unpack(b->data + FRAME_HEADER_BYTES,
                                     b->len - FRAME_HEADER_BYTES, &out),
                    0);
    CU_ASSERT_EQUAL(memcmp(&in, &out, sizeof(in)), 0);

    struct msg_prefill_done done = {65, 1, 2, 3,  4, 5,  6,
                                    7,  8, 9, 10, 4, 11, 12},
                            done2;
    wire_buf_reset(b);
    msg_prefill_done_pack(b, 77, &done);
    CU_ASSERT_EQUAL(msg_prefill_done_unpack(b->data + FRAME_HEADER_BYTES,
                                            b->len - FRAME_HEADER_BYTES,
                                            &done2),
                    0);
    CU_ASSERT_EQUAL(done2.disk_tokens, 4);
    CU_ASSERT_EQUAL(done2.prefill_us, 8);
    CU_ASSERT_EQUAL(done2.load_us, 9);
    CU_ASSERT_EQUAL(done2.disk_bytes, 10);
    CU_ASSERT_EQUAL(done2.shared_tokens, 11);
    CU_ASSERT_EQUAL(done2.shared_bytes, 12);

    struct msg_decode de;
    wire_buf_reset(b);
    msg_decode_pack(b, 7, &(struct msg_decode){100, 5, UINT64_MAX - 9});
    CU_ASSERT_EQUAL(msg_decode_unpack(b->data + FRAME_HEADER_BYTES,
                                      b->len - FRAME_HEADER_BYTES, &de),
                    0);
    CU_ASSERT_EQUAL(de.prompt_digest, UINT64_MAX - 9);

    struct msg_kv_begin kb;
    wire_buf_reset(b);
    msg_kv_begin_pack(b, 7, &(struct msg_kv_begin){100, 5, UINT64_MAX - 8});
    CU_ASSERT_EQUAL(msg_kv_begin_unpack(b->data + FRAME_HEADER_BYTES,
                                        b->len - FRAME_HEADER_BYTES, &kb),
                    0);
    CU_ASSERT_EQUAL(kb.prompt_digest, UINT64_MAX - 8);

    struct msg_tokens mt;
    wire_buf_reset(b);
    msg_tokens_pack(b, (struct msg_token[]){{1, 2, 3}, {4, 5, 6}}, 2);
    CU_ASSERT_EQUAL(msg_tokens_unpack(b->data + FRAME_HEADER_BYTES,
                                      b->len - FRAME_HEADER_BYTES, &mt),
                    0);
    struct msg_token t = msg_tokens_at(&mt, 1);
    CU_ASSERT_EQUAL(t.request_id, 4);
    CU_ASSERT_EQUAL(t.index, 5);
    CU_ASSERT_EQUAL(t.token, 6);
}

/* A worker of a future version is understood well enough to be refused. */
WIRE_BUF_TEST(test_other_version)
{
    struct msg_hello m = example_hello();

    m.version_min = m.version_max = PROTO_VERSION + 1;
    msg_hello_pack(b, 0, &m);
    /* a field that this version does not know */
    append(b, "\x63\0\0");
    CU_ASSERT_EQUAL(msg_hello_unpack(b->data + FRAME_HEADER_BYTES,
                                     b->len - FRAME_HEADER_BYTES, &m),
                    0);
    CU_ASSERT_EQUAL(m.version_min, PROTO_VERSION + 1);
    CU_ASSERT_EQUAL(m.kind, 0);
    b->data[FRAME_HEADER_BYTES] ^= 1;
    CU_ASSERT_EQUAL(msg_hello_unpack(b->data + FRAME_HEADER_BYTES,
                                     b->len - FRAME_HEADER_BYTES, &m),
                    -EBADMSG);
}

/* A worker that also speaks a newer version, whose HELLO has a field more. */
WIRE_BUF_TEST(test_newer_version)
{
    struct msg_hello m = example_hello(), out;

    m.version_max = PROTO_VERSION + 1;
    msg_hello_pack(b, 0, &m);
    append(b, "\x63\0\0");
    CU_ASSERT_EQUAL(msg_hello_unpack(b->data + FRAME_HEADER_BYTES,
                                     b->len - FRAME_HEADER_BYTES, &out),
                    0);
    CU_ASSERT_EQUAL(proto_version_common(&out), PROTO_VERSION);
    CU_ASSERT_EQUAL(memcmp(&m, &out, sizeof(m)), 0);
}

static void test_header(void)
{
    uint8_t bytes[FRAME_HEADER_BYTES] = {0};
    struct frame_header h;

    bytes[3] = 1; /* 16 MiB */
    bytes[4] = FRAME_STATUS;
    CU_ASSERT_EQUAL(frame_header_decode(bytes, 1 << 20, &h), -EMSGSIZE);
    CU_ASSERT_EQUAL(h.length, 1 << 24);
    CU_ASSERT_EQUAL(frame_header_decode(bytes, 1 << 24, &h), 0);
    bytes[3] = 0xff;
    CU_ASSERT_EQUAL(frame_header_decode(bytes, UINT32_MAX, &h), -EMSGSIZE);
    bytes[3] = 0;
    bytes[6] = 1;
    CU_ASSERT_EQUAL(frame_header_decode(bytes, 1 << 20, &h), -EPROTO);
}

static void test_limits(void)
{
    struct wire_buf b;

    wire_buf_init(&b, 48);
    msg_empty_pack(&b, FRAME_CANCEL, 1);
    CU_ASSERT_FALSE(b.failed);
    CU_ASSERT_EQUAL(b.len, FRAME_HEADER_BYTES);
    msg_decode_pack(&b, 1, &(struct msg_decode){1, 1, 1});
    CU_ASSERT_FALSE(b.failed);
    msg_empty_pack(&b, FRAME_CANCEL, 1);
    CU_ASSERT_TRUE(b.failed);
    CU_ASSERT_TRUE(b.len <= 48);
    wire_buf_fini(&b);

    /* A count that promises more than there is. */
    uint8_t lie[] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff};
    struct msg_blocks_stored m;
    CU_ASSERT_EQUAL(msg_blocks_stored_unpack(lie, sizeof(lie), &m), -EBADMSG);
    CU_ASSERT_EQUAL(m.n, 0);
}

static const struct suite_test tests[] = {
    {"messages survive a round trip", test_round_trip},
    {"cut and extended payloads are refused", test_cut_and_extended},
    {"a prefill's sources", test_sources},
    {"a group's members", test_groups},
    {"another version is recognised", test_other_version},
    {"a newer HELLO is read as far as known", test_newer_version},
    {"header limits", test_header},
    {"buffers are bounded", test_limits},
};
SUITE("proto", tests)
