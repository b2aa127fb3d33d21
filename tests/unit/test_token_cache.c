/* Tokens of whole texts, bounded, the least recently used out first. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/service/engine_request/token_cache.h"
#include "tests/unit/suite.h"

static bool has(struct token_cache *c, const char *text, uint32_t first)
{
    size_t n = 0;
    const uint32_t *tokens = token_cache_find(c, text, strlen(text), &n);

    return tokens && n > 0 && tokens[0] == first;
}

static void add(struct token_cache *c, const char *text, uint32_t first,
                size_t n)
{
    uint32_t *tokens = calloc(n, sizeof(*tokens));

    CU_ASSERT_PTR_NOT_NULL_FATAL(tokens);
    tokens[0] = first;
    token_cache_add(c, text, strlen(text), tokens, n);
    free(tokens);
}

static void test_whole_texts(void)
{
    struct token_cache *c = token_cache_new(1 << 20);

    CU_ASSERT_PTR_NOT_NULL_FATAL(c);
    CU_ASSERT_FALSE(has(c, "a text", 7));
    add(c, "a text", 7, 3);
    CU_ASSERT_TRUE(has(c, "a text", 7));
    CU_ASSERT_FALSE(has(c, "a text and more", 7));
    CU_ASSERT_FALSE(has(c, "a tex", 7));
    add(c, "a text", 8, 5);
    CU_ASSERT_TRUE(has(c, "a text", 8));
    token_cache_clear(c);
    CU_ASSERT_FALSE(has(c, "a text", 8));
    token_cache_free(c);
    token_cache_free(NULL);
}

static void test_bound_by_bytes(void)
{
    enum { BYTES = 10000, N = 50, TOKENS = 100 };
    struct token_cache *c = token_cache_new(BYTES);
    size_t n_held = 0;
    char text[32];

    CU_ASSERT_PTR_NOT_NULL_FATAL(c);
    for (uint32_t i = 0; i < N; i++) {
        snprintf(text, sizeof(text), "text %u", i);
        add(c, text, i, TOKENS);
        CU_ASSERT_TRUE(has(c, "text 0", 0)); /* used again and again */
    }
    for (uint32_t i = 0; i < N; i++) {
        snprintf(text, sizeof(text), "text %u", i);
        n_held += has(c, text, i);
    }
    CU_ASSERT(n_held * TOKENS * sizeof(uint32_t) <= BYTES);
    CU_ASSERT(n_held > N / 4);
    CU_ASSERT_FALSE(has(c, "text 1", 1));
    CU_ASSERT_TRUE(has(c, "text 49", 49));
    add(c, "too long", 1, 3000);
    CU_ASSERT_FALSE(has(c, "too long", 1));
    CU_ASSERT_TRUE(has(c, "text 49", 49));
    token_cache_free(c);
}

static void test_bound_by_number(void)
{
    struct token_cache *c = token_cache_new(SIZE_MAX);
    char text[32];

    CU_ASSERT_PTR_NOT_NULL_FATAL(c);
    for (uint32_t i = 0; i <= TOKEN_CACHE_ENTRIES; i++) {
        snprintf(text, sizeof(text), "%u", i);
        add(c, text, i, 1);
    }
    CU_ASSERT_FALSE(has(c, "0", 0));
    CU_ASSERT_TRUE(has(c, "1", 1));
    token_cache_free(c);
}

static const struct suite_test tests[] = {
    {"whole texts", test_whole_texts},
    {"a bound by bytes", test_bound_by_bytes},
    {"a bound by number", test_bound_by_number},
};
SUITE("token_cache", tests)
