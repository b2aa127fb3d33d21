/* What the shared store holds of a block: the bytes, their names, and what is
 * believed of them. Pure, but for the digest, which is libcrypto's.
 *
 * All names begin with conductor:kv:VERSION:FINGERPRINT-TOKENS: so blocks of
 * other models, weights, layouts, sizes or forms never meet:
 *
 *      b:KEY   a hash: field h is the head, field 0, 1 .. the layers' bytes
 *      index   a sorted set: KEY:PARENT by the time of its last use, in us
 *      id      which contents these are: a store that was emptied has another
 *
 * The head, little-endian:
 *
 *       0  magic "CKVB"         4  version
 *       8  block_tokens        12  layers
 *      16  fingerprint         24  block_bytes
 *      32  key                 40  parent key, 0: a first block
 *      48  chain (32)          SHA-256 of the parent's chain and the tokens
 *      80  sums (layers x 8)   XXH3-64 of each layer
 *       -  sum (8)             XXH3-64 of all above
 *
 * A key is a hint: a block is a prompt's if its chain is, which stands for all
 * tokens from the prompt's first one on. So the prompt itself is not there to
 * be read, and a block under a key that collided is never taken. */
#ifndef WORKERS_SHARED_VALUE_H
#define WORKERS_SHARED_VALUE_H

#include <stddef.h>
#include <stdint.h>

#define SHARED_VERSION 1u
#define SHARED_CHAIN_BYTES 32u
#define SHARED_LAYERS_MAX 1024u
#define SHARED_HEAD_MAX (80u + 8u * SHARED_LAYERS_MAX + 8u)
#define SHARED_NAME_MAX 80u     /* of a name in the store, with its NUL */
#define SHARED_MEMBER_BYTES 33u /* of a member of the index, without a NUL */

/* What all blocks of one namespace have in common. */
struct shared_shape {
    uint64_t fingerprint; /* model, seed, element type, layout */
    uint64_t block_bytes; /* layers equal parts */
    uint32_t block_tokens;
    uint32_t layers; /* 1..SHARED_LAYERS_MAX */
};

struct shared_head {
    uint64_t key;
    uint64_t parent_key; /* 0: a first block */
    uint8_t chain[SHARED_CHAIN_BYTES];
    uint64_t *sums; /* (layers), borrowed: decoding writes there */
};

/* n heads, 0, with their sums, in one piece: owned (free), or NULL: out of
 * memory. */
[[nodiscard]] struct shared_head *
shared_heads_new(const struct shared_shape *shape, uint32_t n);

/* The chain of a block of n tokens behind the block with chain `parent`
 * (SHARED_CHAIN_BYTES; NULL: a first block). 0, or -EIO: the library fails. */
[[nodiscard]] int shared_chain(const uint8_t *parent, const uint32_t *tokens,
                               uint32_t n, uint8_t out[SHARED_CHAIN_BYTES]);

/* Bytes of a head. */
size_t shared_head_bytes(const struct shared_shape *shape);

/* Write it to out (shared_head_bytes). */
void shared_head_encode(const struct shared_shape *shape,
                        const struct shared_head *head, uint8_t *out);

/* Read n bytes, which may be anything. 0, or -EBADMSG: no head, or one of
 * another shape; then `head` is undefined, but for the place of its sums. */
[[nodiscard]] int shared_head_decode(const struct shared_shape *shape,
                                     const void *bytes, size_t n,
                                     struct shared_head *head);

/* The names. `what` is "index" or "id". */
void shared_name(const struct shared_shape *shape, const char *what,
                 char out[SHARED_NAME_MAX]);
void shared_block_name(const struct shared_shape *shape, uint64_t key,
                       char out[SHARED_NAME_MAX]);

/* A member of the index. */
void shared_member_encode(uint64_t key, uint64_t parent_key,
                          char out[SHARED_MEMBER_BYTES + 1]);

/* 0 with *key, which is not 0, and *parent_key; or -EBADMSG with both
 * untouched. */
[[nodiscard]] int shared_member_decode(const char *text, size_t n,
                                       uint64_t *key, uint64_t *parent_key);

#endif
