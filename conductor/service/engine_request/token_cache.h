/*
 * Cache of a model's tokenized texts, as engines answered them lately.
 *
 * Finds whole questions only. A tokenizer may merge tokens where two texts
 * meet, and a chat template may write a turn differently once another follows:
 * tokens of a prefix are not exact.
 *
 * Evicts the least recently used; bounded by bytes and by TOKEN_CACHE_ENTRIES.
 */
#ifndef CONDUCTOR_SERVICE_ENGINE_REQUEST_TOKEN_CACHE_H
#define CONDUCTOR_SERVICE_ENGINE_REQUEST_TOKEN_CACHE_H

#include <stddef.h>
#include <stdint.h>

#define TOKEN_CACHE_ENTRIES 65536

struct token_cache;

/* Returns an empty cache, owned, or NULL: out of memory. */
[[nodiscard]] struct token_cache *token_cache_new(size_t max_bytes);

/* NULL is a no-op. */
void token_cache_free(struct token_cache *cache);

/* Removes all entries. */
void token_cache_clear(struct token_cache *cache);

/* Returns the tokens (*n_tokens) of a question of n bytes, borrowed until the
 * cache changes; NULL = unknown. O(n). */
const uint32_t *token_cache_find(struct token_cache *cache, const char *text,
                                 size_t n, size_t *n_tokens);

/* Copies a question's tokens into the cache; not if they do not fit or memory
 * runs out. */
void token_cache_add(struct token_cache *cache, const char *text, size_t n,
                     const uint32_t *tokens, size_t n_tokens);

#endif
