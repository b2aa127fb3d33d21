/*
 * Block keys: a name for a block of a prompt that covers the block and
 * everything before it, so that equal keys mean equal prefixes.
 *
 *   local[i] = XXH3-64(tokens of block i as little-endian u32, seed)
 *   key[0]   = local[0]
 *   key[i]   = XXH3-64(LE64(key[i-1]) || LE64(local[i]), seed)
 *
 * This is the two-step hashing of the KV-indexer standard. The long hashes
 * do not depend on each other, only the 16-byte steps do.
 */
#ifndef CONDUCTOR_CORE_INDEX_BLOCK_KEY_H
#define CONDUCTOR_CORE_INDEX_BLOCK_KEY_H

#include <stddef.h>
#include <stdint.h>

#define BLOCK_TOKENS_MIN 16u
#define BLOCK_TOKENS_MAX 512u
#define BLOCK_KEY_NAME_BYTES 256

/*
 * Returns the seed of all keys of one model, adapter and tenant. Each string is
 * hashed behind its length, so ("ab", "c") and ("a", "bc") differ: two
 * tenants never share a key, and none can probe another tenant's cache.
 *   model, adapter, salt  NUL-terminated, borrowed; NULL means "".
 * Equal strings give an equal seed on every machine.
 */
uint64_t block_key_seed(const char *model, const char *adapter,
                        const char *salt);

/*
 * Turns an adapter or a salt of n arbitrary bytes into a string for
 * block_key_seed(): a copy if the bytes fit and have no NUL, else their digest.
 *   name  written.
 */
void block_key_name(const char *bytes, size_t n,
                    char name[BLOCK_KEY_NAME_BYTES]);

/*
 * Computes the keys of all full blocks of a prompt; a partial last block has
 * no key.
 *   tokens        (n_tokens), borrowed.
 *   block_tokens  tokens in a block, at least 1.
 *   seed          from block_key_seed().
 *   keys          (n_tokens / block_tokens), written.
 * Returns the number of keys written. Cost: one pass over the tokens.
 */
size_t block_keys_compute(const uint32_t *tokens, size_t n_tokens,
                          uint32_t block_tokens, uint64_t seed, uint64_t *keys);

/*
 * Computes the keys of the full blocks of tokens that follow a block whose key
 * is known.
 *   parent_key  key of the block before tokens[0]; 0 = the prompt's beginning.
 *   tokens, block_tokens, seed, keys  as above.
 */
void block_keys_continue(uint64_t parent_key, const uint32_t *tokens,
                         size_t n_tokens, uint32_t block_tokens, uint64_t seed,
                         uint64_t *keys);

/*
 * Returns the key of a block with content beyond its tokens (an image). The
 * blocks behind it are chained to this key.
 *   key    the block's key by its tokens alone.
 *   extra  digest of the other content.
 */
uint64_t block_key_with(uint64_t key, uint64_t extra, uint64_t seed);

/*
 * Returns a digest of a whole prompt, its partial last block included: XXH3-64
 * over all tokens as little-endian u32, seeded. It tells prompts apart without
 * their keys.
 *   tokens    (n_tokens), borrowed.
 *   seed      from block_key_seed().
 * Cost: one pass over the tokens.
 */
uint64_t block_key_prompt_digest(const uint32_t *tokens, size_t n_tokens,
                                 uint64_t seed);

#endif
