/* Questions are compared by a 128-bit hash only: a collision would only mislead
 * the guess where blocks are. */
#include "conductor/service/engine_request/token_cache.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct entry {
    TAILQ_ENTRY(entry) by_use;
    LIST_ENTRY(entry) chain;
    XXH128_hash_t key;
    size_t n_tokens;
    uint32_t tokens[]; /* (n_tokens) */
};

LIST_HEAD(entry_chain, entry);
TAILQ_HEAD(entry_list, entry);

struct token_cache {
    struct entry_list by_use; /* most recently used first */
    size_t max_bytes, bytes, n;
    struct entry_chain chains[TOKEN_CACHE_ENTRIES];
};

static size_t size_of(size_t n_tokens)
{
    return sizeof(struct entry) + n_tokens * sizeof(uint32_t);
}

static void drop(struct token_cache *cache, struct entry *e)
{
    TAILQ_REMOVE(&cache->by_use, e, by_use);
    LIST_REMOVE(e, chain);
    cache->bytes -= size_of(e->n_tokens);
    cache->n--;
    free(e);
}

struct token_cache *token_cache_new(size_t max_bytes)
{
    struct token_cache *cache = calloc(1, sizeof(*cache));

    if (!cache)
        return NULL;
    TAILQ_INIT(&cache->by_use);
    cache->max_bytes = max_bytes;
    return cache;
}

void token_cache_clear(struct token_cache *cache)
{
    while (!TAILQ_EMPTY(&cache->by_use))
        drop(cache, TAILQ_FIRST(&cache->by_use));
}

void token_cache_free(struct token_cache *cache)
{
    if (!cache)
        return;
    token_cache_clear(cache);
    free(cache);
}

static struct entry *find(struct token_cache *cache, XXH128_hash_t key)
{
    struct entry *e;

    LIST_FOREACH(e, &cache->chains[key.low64 % TOKEN_CACHE_ENTRIES], chain)
    if (XXH128_isEqual(e->key, key))
        return e;
    return NULL;
}

const uint32_t *token_cache_find(struct token_cache *cache, const char *text,
                                 size_t n, size_t *n_tokens)
{
    struct entry *e = find(cache, XXH3_128bits(text, n));

    if (!e)
        return NULL;
    TAILQ_REMOVE(&cache->by_use, e, by_use);
    TAILQ_INSERT_HEAD(&cache->by_use, e, by_use);
    *n_tokens = e->n_tokens;
    return e->tokens;
}

void token_cache_add(struct token_cache *cache, const char *text, size_t n,
                     const uint32_t *tokens, size_t n_tokens)
{
    XXH128_hash_t key = XXH3_128bits(text, n);
    size_t size = size_of(n_tokens);
    struct entry *e = find(cache, key);

    if (e)
        drop(cache, e);
    if (size > cache->max_bytes)
        return;
    while (cache->bytes + size > cache->max_bytes ||
           cache->n == TOKEN_CACHE_ENTRIES)
        drop(cache, TAILQ_LAST(&cache->by_use, entry_list));
    e = malloc(size);
    if (!e)
        return;
    e->key = key;
    e->n_tokens = n_tokens;
    memcpy(e->tokens, tokens, n_tokens * sizeof(*tokens));
    TAILQ_INSERT_HEAD(&cache->by_use, e, by_use);
    LIST_INSERT_HEAD(&cache->chains[key.low64 % TOKEN_CACHE_ENTRIES], e, chain);
    cache->bytes += size;
    cache->n++;
}
