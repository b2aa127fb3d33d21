/* Computes block keys, as block_key.h defines them. */
#include "conductor/core/index/block_key.h"

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Hashes LE64(length) || bytes: the length keeps the strings apart. */
static void seed_add(XXH3_state_t *state, const char *text)
{
    size_t n = !text ? 0 : strlen(text);
    uint64_t length = htole64(n);

    (void)XXH3_64bits_update(state, &length, sizeof(length));
    if (n > 0)
        (void)XXH3_64bits_update(state, text, n);
}

uint64_t block_key_seed(const char *model, const char *adapter,
                        const char *salt)
{
    XXH3_state_t state;

    XXH3_INITSTATE(&state);
    (void)XXH3_64bits_reset(&state);
    seed_add(&state, model);
    seed_add(&state, adapter);
    seed_add(&state, salt);
    return XXH3_64bits_digest(&state);
}

void block_key_name(const char *bytes, size_t n,
                    char name[BLOCK_KEY_NAME_BYTES])
{
    if (n >= BLOCK_KEY_NAME_BYTES || (n > 0 && memchr(bytes, '\0', n))) {
        uint64_t digest = XXH3_64bits(bytes, n);

        *name++ = '#';
        for (int shift = 60; shift >= 0; shift -= 4)
            *name++ = "0123456789abcdef"[digest >> shift & 15];
        *name = '\0';
        return;
    }
    if (n > 0)
        memcpy(name, bytes, n);
    name[n] = '\0';
}

/* XXH3-64 with a seed, as withSeed computes it. For inputs this long, withSeed
 * makes a secret from the seed; here it is made once for all blocks. */
static uint64_t block_hash(const uint32_t *tokens, size_t n,
                           const uint8_t *secret, uint64_t seed)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return XXH3_64bits_withSecretandSeed(tokens, n * sizeof(*tokens), secret,
                                         XXH3_SECRET_DEFAULT_SIZE, seed);
#else
    uint8_t bytes[4 * BLOCK_TOKENS_MAX];
    XXH3_state_t state;

    (void)secret;
    XXH3_INITSTATE(&state);
    (void)XXH3_64bits_reset_withSeed(&state, seed);
    for (size_t at = 0; at < n; at += BLOCK_TOKENS_MAX) {
        size_t part = n - at < BLOCK_TOKENS_MAX ? n - at : BLOCK_TOKENS_MAX;

        for (size_t i = 0; i < part; i++)
            for (uint32_t b = 0; b < 4; b++)
                bytes[4 * i + b] = (uint8_t)(tokens[at + i] >> (8 * b));
        (void)XXH3_64bits_update(&state, bytes, 4 * part);
    }
    return XXH3_64bits_digest(&state);
#endif
}

static uint64_t hash_pair(uint64_t first, uint64_t second, uint64_t seed)
{
    uint64_t pair[2] = {htole64(first), htole64(second)};

    return XXH3_64bits_withSeed(pair, sizeof(pair), seed);
}

void block_keys_continue(uint64_t parent_key, const uint32_t *tokens,
                         size_t n_tokens, uint32_t block_tokens, uint64_t seed,
                         uint64_t *keys)
{
    size_t n = n_tokens / block_tokens;
    uint64_t key = parent_key;
    uint8_t secret[XXH3_SECRET_DEFAULT_SIZE];

    XXH3_generateSecret_fromSeed(secret, seed);
    for (size_t i = 0; i < n; i++) {
        uint64_t local =
            block_hash(tokens + i * block_tokens, block_tokens, secret, seed);

        key = key == 0 && i == 0 ? local : hash_pair(key, local, seed);
        keys[i] = key;
    }
}

size_t block_keys_compute(const uint32_t *tokens, size_t n_tokens,
                          uint32_t block_tokens, uint64_t seed, uint64_t *keys)
{
    block_keys_continue(0, tokens, n_tokens, block_tokens, seed, keys);
    return n_tokens / block_tokens;
}

uint64_t block_key_with(uint64_t key, uint64_t extra, uint64_t seed)
{
    return hash_pair(key, extra, seed);
}

uint64_t block_key_prompt_digest(const uint32_t *tokens, size_t n_tokens,
                                 uint64_t seed)
{
    uint8_t secret[XXH3_SECRET_DEFAULT_SIZE];

    XXH3_generateSecret_fromSeed(secret, seed);
    return block_hash(tokens, n_tokens, secret, seed);
}
