/* How a block is stored in the shared store: names, encoding, and checks.
 * Pure, but for libcrypto's digest.
 *
 * All names begin with conductor:kv:VERSION:FINGERPRINT-TOKENS: so that blocks
 * of different models, weights, layouts, sizes or versions never mix:
 *
 *      b:KEY   a hash: field h is the head, field 0, 1 .. the layers' bytes
 *      index   a sorted set: KEY:PARENT by the time of its last use, in us
 *      id      contents id; an emptied store gets a new one
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
 * A key is only a hint: a block belongs to a prompt if its chain does, which
 * covers all tokens from the prompt's first one on. So the store holds no
 * prompt text, and a block whose key collides is never used. */
#ifndef WORKERS_SHARED_VALUE_H
#define WORKERS_SHARED_VALUE_H

#include <stddef.h>
#include <stdint.h>

#define SHARED_VERSION 1u
#define SHARED_CHAIN_BYTES 32u
#define SHARED_LAYERS_MAX 1024u
#define SHARED_HEAD_MAX (80u + 8u * SHARED_LAYERS_MAX + 8u)
#define SHARED_NAME_MAX 80u     /* bytes of a name in the store, with its NUL */
#define SHARED_MEMBER_BYTES 33u /* bytes of an index member, without a NUL */

/* The properties that all blocks of one namespace share. */
struct shared_shape {
    uint64_t fingerprint; /* model, seed, element type, layout */
    uint64_t block_bytes; /* `layers` equal parts */
    uint32_t block_tokens;
    uint32_t layers; /* 1..SHARED_LAYERS_MAX */
};

struct shared_head {
    uint64_t key;
    uint64_t parent_key; /* 0 = a first block */
    uint8_t chain[SHARED_CHAIN_BYTES];
    uint64_t *sums; /* (layers), borrowed; shared_head_decode() writes it */
};

/* Returns n zeroed heads with their checksums in one allocation, owned
 * (free()), or NULL: out of memory. */
[[nodiscard]] struct shared_head *
shared_heads_new(const struct shared_shape *shape, uint32_t n);

/* Computes the chain of a block of n tokens behind the block with chain
 * `parent` (SHARED_CHAIN_BYTES; NULL = a first block). Returns 0, or -EIO: n is
 * too large, or libcrypto failed. */
[[nodiscard]] int shared_chain(const uint8_t *parent, const uint32_t *tokens,
                               uint32_t n, uint8_t out[SHARED_CHAIN_BYTES]);

/* Bytes of an encoded head. */
size_t shared_head_bytes(const struct shared_shape *shape);

/* Encodes `head` to out (shared_head_bytes()). */
void shared_head_encode(const struct shared_shape *shape,
                        const struct shared_head *head, uint8_t *out);

/* Decodes n untrusted bytes. Returns 0, or -EBADMSG: no head, or a head of
 * another shape; `head` is then undefined, but head->sums still points to its
 * array. */
[[nodiscard]] int shared_head_decode(const struct shared_shape *shape,
                                     const void *bytes, size_t n,
                                     struct shared_head *head);

/* Write a name in the store. `what` is "index" or "id". */
void shared_name(const struct shared_shape *shape, const char *what,
                 char out[SHARED_NAME_MAX]);
void shared_block_name(const struct shared_shape *shape, uint64_t key,
                       char out[SHARED_NAME_MAX]);

/* Writes a member of the index. */
void shared_member_encode(uint64_t key, uint64_t parent_key,
                          char out[SHARED_MEMBER_BYTES + 1]);

/* Reads a member. Returns 0 with *key, never 0, and *parent_key; or -EBADMSG
 * with both untouched. */
[[nodiscard]] int shared_member_decode(const char *text, size_t n,
                                       uint64_t *key, uint64_t *parent_key);

#endif
