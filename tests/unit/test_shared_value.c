/* What the shared store holds of a block. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "workers/shared/value.h"

static const struct shared_shape shape = {.fingerprint = 0xfeed,
                                          .block_bytes = 4096,
                                          .block_tokens = 16,
                                          .layers = 4};

static struct shared_head example(void)
{
    static uint64_t sums[] = {10, 11, 12, 13, 14};

    return (struct shared_head){
        .key = 0xa1, .parent_key = 0xb2, .chain = {1, 2, 3}, .sums = sums};
}

static void heads(void)
{
    struct shared_head in = example();
    uint64_t sums[5];
    struct shared_head out = {.sums = sums};
    uint8_t bytes[SHARED_HEAD_MAX];
    size_t n = shared_head_bytes(&shape);
    struct shared_head *more = shared_heads_new(&shape, 2);

    CU_ASSERT_PTR_NOT_NULL_FATAL(more);
    CU_ASSERT_EQUAL((char *)(more[1].sums + 4) - (char *)more,
                    2 * (sizeof(*more) + 4 * 8));
    free(more);
    CU_ASSERT_EQUAL(n, 80 + 4 * 8 + 8);
    shared_head_encode(&shape, &in, bytes);
    CU_ASSERT_EQUAL(memcmp(bytes, "CKVB\1\0\0\0\x10\0\0\0\4\0\0\0\xed\xfe", 18),
                    0);
    CU_ASSERT_EQUAL_FATAL(shared_head_decode(&shape, bytes, n, &out), 0);
    CU_ASSERT(out.key == in.key && out.parent_key == in.parent_key);
    CU_ASSERT_EQUAL(memcmp(out.chain, in.chain, sizeof(in.chain)), 0);
    CU_ASSERT_EQUAL(memcmp(out.sums, in.sums, 4 * 8), 0);
}

/* Cut anywhere, or with any bit flipped, it is none. */
static void damaged_heads(void)
{
    struct shared_head in = example();
    uint64_t sums[5];
    struct shared_head out = {.sums = sums};
    uint8_t bytes[SHARED_HEAD_MAX];
    size_t n = shared_head_bytes(&shape);

    shared_head_encode(&shape, &in, bytes);
    for (size_t cut = 0; cut < n; cut++)
        CU_ASSERT_EQUAL(shared_head_decode(&shape, bytes, cut, &out), -EBADMSG);
    for (size_t bit = 0; bit < n * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CU_ASSERT_EQUAL(shared_head_decode(&shape, bytes, n, &out), -EBADMSG);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

/* A whole head of another model, size of block or form is none either. */
static void other_shapes(void)
{
    struct shared_shape others[] = {shape, shape, shape, shape};
    struct shared_head in = example();
    uint64_t sums[5];
    struct shared_head out = {.sums = sums};
    uint8_t bytes[SHARED_HEAD_MAX];
    char mine[SHARED_NAME_MAX];
    char theirs[SHARED_NAME_MAX];

    others[0].fingerprint++;
    others[1].block_tokens++;
    others[2].block_bytes++;
    others[3].layers++;
    for (size_t i = 0; i < 4; i++) {
        shared_head_encode(&others[i], &in, bytes);
        CU_ASSERT_EQUAL(shared_head_decode(&shape, bytes,
                                           shared_head_bytes(&others[i]), &out),
                        -EBADMSG);
    }
    shared_block_name(&shape, 0xa1, mine);
    CU_ASSERT_STRING_EQUAL(
        mine, "conductor:kv:1:000000000000feed-16:b:00000000000000a1");
    for (size_t i = 0; i < 2; i++) {
        shared_block_name(&others[i], 0xa1, theirs);
        CU_ASSERT_STRING_NOT_EQUAL(mine, theirs);
    }
    in.key = 0; /* stands for none */
    shared_head_encode(&shape, &in, bytes);
    CU_ASSERT_EQUAL(
        shared_head_decode(&shape, bytes, shared_head_bytes(&shape), &out),
        -EBADMSG);
}

/* A chain stands for all tokens from the first one on. */
static void chains(void)
{
    uint32_t tokens[32];
    uint8_t a[SHARED_CHAIN_BYTES];
    uint8_t b[SHARED_CHAIN_BYTES];
    uint8_t again[SHARED_CHAIN_BYTES];
    uint8_t other[SHARED_CHAIN_BYTES];

    for (uint32_t i = 0; i < 32; i++)
        tokens[i] = i;
    CU_ASSERT_EQUAL(shared_chain(NULL, tokens, 16, a), 0);
    CU_ASSERT_EQUAL(shared_chain(a, tokens + 16, 16, b), 0);
    CU_ASSERT_EQUAL(shared_chain(NULL, tokens + 16, 16, again), 0);
    CU_ASSERT_NOT_EQUAL(memcmp(b, again, sizeof(b)), 0);
    tokens[3] = 99; /* of the first block; the second has the same tokens */
    CU_ASSERT_EQUAL(shared_chain(NULL, tokens, 16, other), 0);
    CU_ASSERT_EQUAL(shared_chain(other, tokens + 16, 16, again), 0);
    CU_ASSERT_NOT_EQUAL(memcmp(b, again, sizeof(b)), 0);
}

static void members(void)
{
    char text[SHARED_MEMBER_BYTES + 1];
    uint64_t key = 5;
    uint64_t parent = 6;

    shared_member_encode(0xa1, UINT64_MAX, text);
    CU_ASSERT_STRING_EQUAL(text, "00000000000000a1:ffffffffffffffff");
    CU_ASSERT_EQUAL(shared_member_decode(text, 33, &key, &parent), 0);
    CU_ASSERT(key == 0xa1 && parent == UINT64_MAX);
    key = 5;
    CU_ASSERT_EQUAL(shared_member_decode(text, 32, &key, &parent), -EBADMSG);
    text[20] = 'F';
    CU_ASSERT_EQUAL(shared_member_decode(text, 33, &key, &parent), -EBADMSG);
    shared_member_encode(0, 1, text);
    CU_ASSERT_EQUAL(shared_member_decode(text, 33, &key, &parent), -EBADMSG);
    CU_ASSERT_EQUAL(key, 5);
}

static const struct suite_test tests[] = {
    {"a head comes out as it went in", heads},
    {"a damaged head is none", damaged_heads},
    {"nor is one of another shape", other_shapes},
    {"a chain stands for the whole prompt", chains},
    {"members of the index", members},
};
SUITE("shared_value", tests)
