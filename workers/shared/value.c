/* See value.h. */
#include "workers/shared/value.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAGIC 0x42564b43u /* "CKVB" */
#define CHAIN_AT 48
#define SUMS_AT 80
#define TOKENS_MAX 4096

int shared_chain(const uint8_t *parent, const uint32_t *tokens, uint32_t n,
                 uint8_t out[SHARED_CHAIN_BYTES])
{
    static const uint8_t first[SHARED_CHAIN_BYTES];
    uint32_t in[SHARED_CHAIN_BYTES / 4 + TOKENS_MAX];

    if (n > TOKENS_MAX)
        return -EIO;
    memcpy(in, parent ? parent : first, SHARED_CHAIN_BYTES);
    for (uint32_t i = 0; i < n; i++)
        in[SHARED_CHAIN_BYTES / 4 + i] = htole32(tokens[i]);
    return EVP_Digest(in, SHARED_CHAIN_BYTES + (size_t)n * 4, out, NULL,
                      EVP_sha256(), NULL)
               ? 0
               : -EIO;
}

static void put32(uint8_t *at, uint32_t v)
{
    v = htole32(v);
    memcpy(at, &v, sizeof(v));
}

static void put64(uint8_t *at, uint64_t v)
{
    v = htole64(v);
    memcpy(at, &v, sizeof(v));
}

static uint64_t get64(const uint8_t *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof(v));
    return le64toh(v);
}

size_t shared_head_bytes(const struct shared_shape *shape)
{
    return SUMS_AT + 8 * (size_t)shape->layers + 8;
}

struct shared_head *shared_heads_new(const struct shared_shape *shape,
                                     uint32_t n)
{
    size_t sums = shape->layers * sizeof(uint64_t);
    struct shared_head *heads = calloc(n, sizeof(*heads) + sums);

    for (uint32_t i = 0; heads && i < n; i++)
        heads[i].sums = (uint64_t *)(void *)(heads + n) + i * shape->layers;
    return heads;
}

/* Writes the first 32 bytes, common to all heads of a shape. */
static void put_shape(const struct shared_shape *shape, uint8_t *out)
{
    put32(out, MAGIC);
    put32(out + 4, SHARED_VERSION);
    put32(out + 8, shape->block_tokens);
    put32(out + 12, shape->layers);
    put64(out + 16, shape->fingerprint);
    put64(out + 24, shape->block_bytes);
}

void shared_head_encode(const struct shared_shape *shape,
                        const struct shared_head *head, uint8_t *out)
{
    size_t end = shared_head_bytes(shape) - 8;

    put_shape(shape, out);
    put64(out + 32, head->key);
    put64(out + 40, head->parent_key);
    memcpy(out + CHAIN_AT, head->chain, SHARED_CHAIN_BYTES);
    for (uint32_t i = 0; i < shape->layers; i++)
        put64(out + SUMS_AT + 8 * (size_t)i, head->sums[i]);
    put64(out + end, XXH3_64bits(out, end));
}

int shared_head_decode(const struct shared_shape *shape, const void *bytes,
                       size_t n, struct shared_head *head)
{
    const uint8_t *in = bytes;
    uint8_t begins[32];
    size_t end = shared_head_bytes(shape) - 8;

    put_shape(shape, begins);
    if (n != end + 8 || memcmp(in, begins, sizeof(begins)) != 0 ||
        get64(in + end) != XXH3_64bits(in, end))
        return -EBADMSG;
    head->key = get64(in + 32);
    head->parent_key = get64(in + 40);
    memcpy(head->chain, in + CHAIN_AT, SHARED_CHAIN_BYTES);
    for (uint32_t i = 0; i < shape->layers; i++)
        head->sums[i] = get64(in + SUMS_AT + 8 * (size_t)i);
    return head->key == 0 ? -EBADMSG : 0;
}

void shared_name(const struct shared_shape *shape, const char *what,
                 char out[SHARED_NAME_MAX])
{
    snprintf(out, SHARED_NAME_MAX, "conductor:kv:%u:%016" PRIx64 "-%u:%s",
             SHARED_VERSION, shape->fingerprint, shape->block_tokens, what);
}

void shared_block_name(const struct shared_shape *shape, uint64_t key,
                       char out[SHARED_NAME_MAX])
{
    char what[24];

    snprintf(what, sizeof(what), "b:%016" PRIx64, key);
    shared_name(shape, what, out);
}

void shared_member_encode(uint64_t key, uint64_t parent_key,
                          char out[SHARED_MEMBER_BYTES + 1])
{
    snprintf(out, SHARED_MEMBER_BYTES + 1, "%016" PRIx64 ":%016" PRIx64, key,
             parent_key);
}

/* Reads 16 lower-case hex digits. */
static int read_hex(const char *text, uint64_t *value)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t v = 0;

    for (int i = 0; i < 16; i++) {
        const char *d = text[i] ? strchr(digits, text[i]) : NULL;

        if (!d)
            return -EBADMSG;
        v = v << 4 | (uint64_t)(d - digits);
    }
    *value = v;
    return 0;
}

int shared_member_decode(const char *text, size_t n, uint64_t *key,
                         uint64_t *parent_key)
{
    uint64_t k;
    uint64_t parent;

    if (n != SHARED_MEMBER_BYTES || text[16] != ':' || read_hex(text, &k) ||
        read_hex(text + 17, &parent) || k == 0)
        return -EBADMSG;
    *key = k;
    *parent_key = parent;
    return 0;
}
