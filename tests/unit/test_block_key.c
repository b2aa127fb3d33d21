/* Block keys: the published formula, chaining, and seeds that keep tenants
 * apart. */
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "conductor/core/index/block_key.h"
#include "tests/unit/suite.h"

enum { N = 1000 };

static void fill(uint32_t *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tokens[i] = (uint32_t)(i * 2654435761u);
}

/* The formula of the header, written out byte by byte. */
static void test_formula(void)
{
    uint32_t tokens[N];
    uint64_t keys[N / 16];

    fill(tokens, N);
    for (uint32_t block = 16; block <= 512; block *= 2) {
        size_t n = block_keys_compute(tokens, N, block, 7, keys);
        uint64_t expect = 0;

        CU_ASSERT_EQUAL(n, N / block);
        for (size_t i = 0; i < n; i++) {
            uint8_t bytes[2048], link[16];

            for (size_t t = 0; t < block; t++)
                for (size_t b = 0; b < 4; b++)
                    bytes[4 * t + b] =
                        (uint8_t)(tokens[i * block + t] >> (8 * b));
            uint64_t local = XXH3_64bits_withSeed(bytes, 4 * block, 7);
            for (size_t b = 0; b < 8; b++) {
                link[b] = (uint8_t)(expect >> (8 * b));
                link[8 + b] = (uint8_t)(local >> (8 * b));
            }
            expect = i == 0 ? local : XXH3_64bits_withSeed(link, 16, 7);
            CU_ASSERT_EQUAL(keys[i], expect);
        }
    }
}

/* A change shows in its own block's key and in every later one. */
static void test_chain(void)
{
    uint32_t tokens[N];
    uint64_t a[N / 64], b[N / 64];

    fill(tokens, N);
    size_t n = block_keys_compute(tokens, N, 64, 7, a);
    tokens[5 * 64 + 63] ^= 1;
    CU_ASSERT_EQUAL(block_keys_compute(tokens, N, 64, 7, b), n);
    for (size_t i = 0; i < n; i++)
        CU_ASSERT_EQUAL(a[i] == b[i], i < 5);
}

/* Partial blocks have no key. */
static void test_partial(void)
{
    uint32_t tokens[N];
    uint64_t key = 42;

    fill(tokens, N);
    CU_ASSERT_EQUAL(block_keys_compute(tokens, 0, 16, 7, &key), 0);
    CU_ASSERT_EQUAL(block_keys_compute(tokens, 15, 16, 7, &key), 0);
    CU_ASSERT_EQUAL(key, 42);
    CU_ASSERT_EQUAL(block_keys_compute(tokens, 31, 16, 7, &key), 1);
    CU_ASSERT_NOT_EQUAL(key, 42);
}

/* Strings don't run into each other; NULL is the empty string. */
static void test_seed(void)
{
    uint64_t seed = block_key_seed("ab", "c", "");

    CU_ASSERT_EQUAL(seed, block_key_seed("ab", "c", NULL));
    CU_ASSERT_NOT_EQUAL(seed, block_key_seed("a", "bc", ""));
    CU_ASSERT_NOT_EQUAL(seed, block_key_seed("ab", "", "c"));
    CU_ASSERT_NOT_EQUAL(seed, block_key_seed("abc", "", ""));
    CU_ASSERT_NOT_EQUAL(block_key_seed("m", "", "tenant 1"),
                        block_key_seed("m", "", "tenant 2"));
}

/* Short texts are their own names; of all others every byte counts. */
static void test_name(void)
{
    char text[600], a[BLOCK_KEY_NAME_BYTES], b[BLOCK_KEY_NAME_BYTES];

    block_key_name(NULL, 0, a);
    CU_ASSERT_STRING_EQUAL(a, "");
    memset(text, 'x', sizeof(text));
    text[BLOCK_KEY_NAME_BYTES - 1] = '\0';
    block_key_name(text, BLOCK_KEY_NAME_BYTES - 1, a);
    CU_ASSERT_STRING_EQUAL(a, text);
    block_key_name(text, BLOCK_KEY_NAME_BYTES, a);
    block_key_name(text, sizeof(text), b);
    CU_ASSERT_STRING_NOT_EQUAL(a, b);
    text[sizeof(text) - 1] = 'y';
    block_key_name(text, sizeof(text), a);
    CU_ASSERT_STRING_NOT_EQUAL(a, b);
    block_key_name("a\0b", 3, a);
    block_key_name("a\0c", 3, b);
    CU_ASSERT_STRING_NOT_EQUAL(a, b);
    CU_ASSERT_STRING_NOT_EQUAL(a, "a");
}

/* The digest covers every token, in blocks or not, at every length at which
 * the hash works differently. */
static void test_prompt_digest(void)
{
    static const size_t lengths[] = {1, 2, 4, 5, 16, 31, 60, 61, 300, N};
    uint32_t tokens[N];
    uint8_t bytes[4 * N];

    fill(tokens, N);
    for (size_t i = 0; i < 4 * N; i++)
        bytes[i] = (uint8_t)(tokens[i / 4] >> (8 * (i % 4)));
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        size_t n = lengths[i];
        uint64_t digest = block_key_prompt_digest(tokens, n, 7);

        CU_ASSERT_EQUAL(digest, XXH3_64bits_withSeed(bytes, 4 * n, 7));
        CU_ASSERT_NOT_EQUAL(digest, block_key_prompt_digest(tokens, n, 8));
        tokens[n - 1] ^= 1;
        CU_ASSERT_NOT_EQUAL(digest, block_key_prompt_digest(tokens, n, 7));
        tokens[n - 1] ^= 1;
    }
}

static const struct suite_test tests[] = {
    {"formula", test_formula}, {"chain", test_chain},
    {"partial", test_partial}, {"seed", test_seed},
    {"names", test_name},      {"digest of a prompt", test_prompt_digest},
};
SUITE("block_key", tests)
