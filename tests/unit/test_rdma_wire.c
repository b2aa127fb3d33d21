/* What two sides of the transport rdma tell each other. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "workers/transfer/engine/rdma/wire.h"

static struct wire_descriptor sample(uint32_t n_regions, uint32_t n_rails)
{
    struct wire_descriptor d = {
        .port = 4791, .n_regions = n_regions, .n_rails = n_rails};

    memset(d.token, 7, sizeof(d.token));
    for (uint32_t i = 0; i < n_regions; i++) {
        d.regions[i].address = 0x7f0000000000 + ((uint64_t)i << 40);
        d.regions[i].bytes = 1ull << 38;
    }
    for (uint32_t i = 0; i < n_rails; i++) {
        memset(d.rails[i].gid, (int)i + 1, 16);
        d.rails[i].mtu = (uint8_t)(1 + i % 5);
        d.rails[i].rail_class = (uint8_t)(i % 2);
        d.rails[i].up = i % 3 != 0;
        d.rails[i].rate_mb_s = 50000 + i;
        for (uint32_t k = 0; k < n_regions; k++)
            d.rails[i].keys[k] = 0xff000000 + 16 * i + k;
    }
    return d;
}

static void test_descriptor(void)
{
    uint8_t bytes[TRANSPORT_DESCRIPTOR_MAX];
    struct wire_descriptor d = sample(2, 8), got;
    size_t n = wire_descriptor_encode(&d, bytes);

    CU_ASSERT_EQUAL(n, 24 + 2 * 16 + 8 * 36);
    CU_ASSERT_EQUAL_FATAL(wire_descriptor_decode(bytes, n, &got), 0);
    CU_ASSERT_EQUAL(memcmp(&d, &got, sizeof(d)), 0);
    for (size_t less = 0; less < n; less++)
        CU_ASSERT_EQUAL(wire_descriptor_decode(bytes, less, &got), -EBADMSG);
}

/* As many rails as there is room for. */
static void test_many_rails(void)
{
    uint8_t bytes[TRANSPORT_DESCRIPTOR_MAX];
    struct wire_descriptor d = sample(8, 16), got;
    size_t n = wire_descriptor_encode(&d, bytes);

    CU_ASSERT(n <= sizeof(bytes));
    CU_ASSERT_EQUAL_FATAL(wire_descriptor_decode(bytes, n, &got), 0);
    CU_ASSERT_EQUAL(got.n_rails, 14);
    CU_ASSERT_EQUAL(memcmp(d.rails, got.rails, 14 * sizeof(d.rails[0])), 0);
}

/* Each byte in which a descriptor says what cannot be. */
static void test_bad_descriptor(void)
{
    static const struct {
        size_t at;
        uint8_t value;
    } bad[] = {
        {0, 0},   {7, 0},    {7, 3},       {7, 17},      {6, 2},
        {6, 200}, {32, 255}, {40 + 18, 0}, {40 + 18, 6}, {40 + 24, 2},
    };
    uint8_t bytes[TRANSPORT_DESCRIPTOR_MAX];
    struct wire_descriptor d = sample(1, 2), got;

    d.regions[0].address = UINT64_MAX - (1ull << 38) - 100;
    size_t n = wire_descriptor_encode(&d, bytes);
    CU_ASSERT_EQUAL(wire_descriptor_decode(bytes, n, &got), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint8_t was = bytes[bad[i].at];

        bytes[bad[i].at] = bad[i].value;
        CU_ASSERT_EQUAL(wire_descriptor_decode(bytes, n, &got), -EBADMSG);
        bytes[bad[i].at] = was;
    }
    bytes[4] = bytes[5] = 0;
    CU_ASSERT_EQUAL(wire_descriptor_decode(bytes, n, &got), -EBADMSG);
}

static void test_message(void)
{
    struct wire_message m = {.type = WIRE_PAIRED,
                             .rail = 3,
                             .peer_rail = 15,
                             .mtu = 5,
                             .reads = 16,
                             .lid = 513,
                             .qpn = 0xfffffe,
                             .psn = 0x123456,
                             .id = 1ull << 60},
                        got;
    uint8_t bytes[WIRE_MESSAGE_BYTES];

    memset(m.data, 9, sizeof(m.data));
    wire_message_encode(&m, bytes);
    CU_ASSERT_EQUAL_FATAL(wire_message_decode(bytes, &got), 0);
    CU_ASSERT_EQUAL(memcmp(&m, &got, sizeof(m)), 0);
    m = (struct wire_message){.type = WIRE_PAIRED, .rc = -ENOBUFS};
    wire_message_encode(&m, bytes);
    CU_ASSERT_EQUAL(wire_message_decode(bytes, &got), 0);
    CU_ASSERT_EQUAL(got.rc, -ENOBUFS);
}

static int decode(struct wire_message m)
{
    uint8_t bytes[WIRE_MESSAGE_BYTES];
    struct wire_message got;

    wire_message_encode(&m, bytes);
    return wire_message_decode(bytes, &got);
}

static void test_bad_message(void)
{
    struct wire_message pair = {.type = WIRE_PAIR, .mtu = 3};
    uint8_t bytes[WIRE_MESSAGE_BYTES];
    struct wire_message got, m;

    CU_ASSERT_EQUAL(decode(pair), 0);
    CU_ASSERT_EQUAL(decode((struct wire_message){.type = 0}), -EBADMSG);
    CU_ASSERT_EQUAL(decode((struct wire_message){.type = WIRE_TYPES}),
                    -EBADMSG);
    m = pair;
    m.rail = SPREAD_RAILS_MAX;
    CU_ASSERT_EQUAL(decode(m), -EBADMSG);
    m = pair;
    m.peer_rail = SPREAD_RAILS_MAX;
    CU_ASSERT_EQUAL(decode(m), -EBADMSG);
    m = pair;
    m.mtu = 6;
    CU_ASSERT_EQUAL(decode(m), -EBADMSG);
    m = pair;
    m.qpn = 1u << 24;
    CU_ASSERT_EQUAL(decode(m), -EBADMSG);
    m = pair;
    m.psn = 1u << 24;
    CU_ASSERT_EQUAL(decode(m), -EBADMSG);
    m = (struct wire_message){.type = WIRE_PAIRED, .rc = 1, .mtu = 3};
    CU_ASSERT_EQUAL(decode(m), -EBADMSG);
    m = (struct wire_message){.type = WIRE_RAIL, .rc = 2};
    CU_ASSERT_EQUAL(decode(m), -EBADMSG);
    for (size_t at = 5; at < 24; at += 15) { /* 5 and 20 are 0 */
        wire_message_encode(&pair, bytes);
        bytes[at] = 1;
        CU_ASSERT_EQUAL(wire_message_decode(bytes, &got), -EBADMSG);
    }
}

static const struct suite_test tests[] = {
    {"descriptor", test_descriptor},
    {"more rails than there is room for", test_many_rails},
    {"bad descriptors", test_bad_descriptor},
    {"message", test_message},
    {"bad messages", test_bad_message},
};
SUITE("rdma_wire", tests)
