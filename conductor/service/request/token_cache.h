/*
 * Tokens of texts that engines were asked for lately, of one model.
 *
 * Only a whole question is found again. A tokenizer may join what two texts
 * have at their seam, and a chat's template may write a turn otherwise once
 * another follows: the tokens of a beginning say nothing exact.
 *
 * The least recently used leave first; bounded by bytes, all counted, and by
 * TOKEN_CACHE_ENTRIES.
 */
#ifndef CONDUCTOR_SERVICE_REQUEST_TOKEN_CACHE_H
#define CONDUCTOR_SERVICE_REQUEST_TOKEN_CACHE_H

#include <stddef.h>
#include <stdint.h>

#define TOKEN_CACHE_ENTRIES 65536

struct token_cache;

/* Returns it owned and empty, or NULL: out of memory. */
[[nodiscard]] struct token_cache *token_cache_new(size_t max_bytes);

/* NULL is a no-op. */
void token_cache_free(struct token_cache *cache);

/* Forgets all. */
void token_cache_clear(struct token_cache *cache);

/* The tokens (*n_tokens) of a question of n bytes, borrowed until the cache
 * changes; NULL: they are not known. O(n). */
const uint32_t *token_cache_find(struct token_cache *cache, const char *text,
                                 size_t n, size_t *n_tokens);

/* Keeps a copy of a question's tokens, if there is room and memory. */
void token_cache_add(struct token_cache *cache, const char *text, size_t n,
                     const uint32_t *tokens, size_t n_tokens);

#endif
