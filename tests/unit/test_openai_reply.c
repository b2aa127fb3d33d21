/* Answers: each part is JSON with the right members in the right places. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/openai/reply.h"
#include "tests/unit/suite.h"

static const struct openai_reply_head chat = {OPENAI_CHAT, "r\"1", "tiny",
                                              99,          true,   false};
static const struct openai_reply_head plain = {
    OPENAI_COMPLETION, "r2", "tiny", 99, false, false};

static const struct openai_outcome two[2] = {
    {.text = "a\"\n",
     .text_bytes = 3,
     .prompt_tokens = 10,
     .request_id = "r-1",
     .prefill = "p0",
     .decode = "d0",
     .predicted_ttft_us = 1234,
     .output_tokens = 3,
     .result = {.local_tokens = 4,
                .fetched_tokens = 2,
                .disk_tokens = 1,
                .computed_tokens = 3,
                .retries = 1,
                .queue_us = 5,
                .prefill_us = 6000}},
    {.text = "",
     .prompt_tokens = 7,
     .request_id = "r-2",
     .prefill = "p1",
     .output_tokens = 1,
     .result = {.computed_tokens = 7}},
};

/* Look a value up by a path such as "choices.0.text". */
static const json_t *at(const json_t *v, const char *path)
{
    char copy[100], *save = NULL;

    snprintf(copy, sizeof(copy), "%s", path);
    for (char *k = strtok_r(copy, ".", &save); k;
         k = strtok_r(NULL, ".", &save))
        v = json_is_array(v) ? json_array_get(v, strtoul(k, NULL, 10))
                             : json_object_get(v, k);
    return v;
}

static bool text_is(const json_t *v, const char *path, const char *want)
{
    const char *text = json_string_value(at(v, path));

    return text && strcmp(text, want) == 0;
}

static bool int_is(const json_t *v, const char *path, json_int_t want)
{
    return json_is_integer(at(v, path)) &&
           json_integer_value(at(v, path)) == want;
}

/* The JSON in `b`, behind "data: " and before the empty line of an event. */
static json_t *take(struct text_buf *b, bool event)
{
    size_t skip = event ? 6 : 0, tail = event ? 2 : 0;
    json_t *v;

    CU_ASSERT_EQUAL_FATAL(b->error, 0);
    if (event) {
        CU_ASSERT_FATAL(b->len > 8 && memcmp(b->data, "data: ", 6) == 0);
        CU_ASSERT(memcmp(b->data + b->len - 2, "\n\n", 2) == 0);
    }
    v = json_loadb(b->data + skip, b->len - skip - tail, 0, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(v);
    text_buf_clear(b);
    return v;
}

#define TEXT_BUF_TEST(test, ...)                                        \
    SUITE_TEST(test, struct text_buf, b, text_buf_init(b, __VA_ARGS__), \
               text_buf_fini(b))

TEXT_BUF_TEST(test_whole, 1 << 16)
{
    json_t *v;

    openai_reply_write(&plain, two, 2, b);
    v = take(b, false);
    CU_ASSERT(text_is(v, "id", "cmpl-r2"));
    CU_ASSERT(text_is(v, "object", "text_completion"));
    CU_ASSERT(text_is(v, "choices.0.text", "a\"\n"));
    CU_ASSERT(text_is(v, "choices.1.text", ""));
    CU_ASSERT(int_is(v, "choices.1.index", 1));
    CU_ASSERT(text_is(v, "choices.0.finish_reason", "length"));
    CU_ASSERT(int_is(v, "usage.prompt_tokens", 17));
    CU_ASSERT(int_is(v, "usage.completion_tokens", 4));
    CU_ASSERT(int_is(v, "usage.total_tokens", 21));
    CU_ASSERT(int_is(v, "usage.prompt_tokens_details.cached_tokens", 7));
    CU_ASSERT(text_is(v, "conductor.requests.1.prefill", "p1"));
    CU_ASSERT(json_is_null(at(v, "conductor.requests.1.decode")));
    json_decref(v);

    openai_reply_write(&chat, two, 1, b);
    v = take(b, false);
    CU_ASSERT(text_is(v, "id", "chatcmpl-r\"1"));
    CU_ASSERT(text_is(v, "object", "chat.completion"));
    CU_ASSERT(text_is(v, "choices.0.message.content", "a\"\n"));
    CU_ASSERT(text_is(v, "choices.0.message.role", "assistant"));
    CU_ASSERT(text_is(v, "conductor.decode", "d0"));
    CU_ASSERT_DOUBLE_EQUAL(
        json_number_value(at(v, "conductor.predicted_ttft_ms")), 1.234, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(json_number_value(at(v, "conductor.prefill_ms")),
                           6.0, 1e-9);
    CU_ASSERT(int_is(v, "conductor.local_tokens", 4));
    CU_ASSERT(int_is(v, "conductor.fetched_tokens", 2));
    CU_ASSERT(int_is(v, "conductor.disk_tokens", 1));
    CU_ASSERT(int_is(v, "conductor.computed_tokens", 3));
    CU_ASSERT(int_is(v, "conductor.retries", 1));
    json_decref(v);
}

TEXT_BUF_TEST(test_chunks, 1 << 16)
{
    json_t *v;

    openai_chunk_start(&plain, 0, two, b);
    CU_ASSERT_EQUAL(b->len, 0);
    openai_chunk_text(&plain, 3, two, "x", 1, b);
    v = take(b, true);
    CU_ASSERT(text_is(v, "choices.0.text", "x"));
    CU_ASSERT(int_is(v, "choices.0.index", 3));
    CU_ASSERT(json_is_null(at(v, "choices.0.finish_reason")));
    CU_ASSERT_PTR_NULL(at(v, "usage"));
    json_decref(v);
    openai_chunk_start(&chat, 0, two, b);
    v = take(b, true);
    CU_ASSERT(text_is(v, "object", "chat.completion.chunk"));
    CU_ASSERT(text_is(v, "choices.0.delta.role", "assistant"));
    CU_ASSERT(json_is_null(at(v, "usage")));
    json_decref(v);
    openai_chunk_text(&chat, 0, two, "x", 1, b);
    v = take(b, true);
    CU_ASSERT(text_is(v, "choices.0.delta.content", "x"));
    json_decref(v);
    openai_chunk_finish(&chat, 0, two, b);
    v = take(b, true);
    CU_ASSERT_EQUAL(json_object_size(at(v, "choices.0.delta")), 0);
    CU_ASSERT(text_is(v, "choices.0.finish_reason", "length"));
    json_decref(v);
    struct openai_reply_head each = chat;

    each.usage_each = true;
    openai_chunk_text(&each, 0, two, "x", 1, b);
    v = take(b, true);
    CU_ASSERT(int_is(v, "usage.prompt_tokens", 10));
    CU_ASSERT(int_is(v, "usage.completion_tokens", 3));
    CU_ASSERT_PTR_NULL(at(v, "usage.prompt_tokens_details"));
    json_decref(v);
    openai_chunk_usage(&chat, two, 1, b);
    v = take(b, true);
    CU_ASSERT_EQUAL(json_array_size(at(v, "choices")), 0);
    CU_ASSERT(int_is(v, "usage.prompt_tokens", 10));
    CU_ASSERT(text_is(v, "conductor.request_id", "r-1"));
    json_decref(v);
    openai_chunk_done(b);
    CU_ASSERT(b->len == 14 && memcmp(b->data, "data: [DONE]\n\n", 14) == 0);
}

TEXT_BUF_TEST(test_errors, 1 << 16)
{
    struct openai_error error;
    json_t *v;

    /* A message cut off inside a character must still be JSON. */
    openai_error_set(&error, 400, "", "p", "%s\xff\x01\xe2\x82", "é");
    openai_error_write(&error, b);
    v = take(b, false);
    CU_ASSERT(text_is(v, "error.message",
                      "é\xef\xbf\xbd\x01\xef\xbf\xbd"
                      "\xef\xbf\xbd"));
    CU_ASSERT(text_is(v, "error.type", "invalid_request_error"));
    CU_ASSERT(text_is(v, "error.param", "p"));
    CU_ASSERT(json_is_null(at(v, "error.code")));
    json_decref(v);
    openai_error_set(&error, 503, "gone", NULL, "x");
    openai_chunk_error(&error, b);
    v = take(b, true);
    CU_ASSERT(text_is(v, "error.type", "server_error"));
    CU_ASSERT(json_is_null(at(v, "error.param")));
    json_decref(v);
}

static void test_token_text(void)
{
    char text[4];

    CU_ASSERT_EQUAL(openai_token_text('~', text), 1);
    CU_ASSERT_EQUAL(text[0], '~');
    CU_ASSERT_EQUAL(openai_token_text(200, text), 3);
    CU_ASSERT(memcmp(text, "\xef\xbf\xbd", 3) == 0);
}

TEXT_BUF_TEST(test_bound, 10)
{
    text_buf_puts(b, "0123456789");
    CU_ASSERT_EQUAL(b->error, 0);
    text_buf_puts(b, "x");
    CU_ASSERT_NOT_EQUAL(b->error, 0);
    CU_ASSERT_EQUAL(b->len, 10);
}

TEXT_BUF_TEST(test_models, 1 << 16)
{
    struct openai_model_card card = {.name = "tiny",
                                     .created_s = 5,
                                     .vocab = 512,
                                     .window_tokens = 1000,
                                     .block_tokens = 256,
                                     .policy = "plan",
                                     .engines = 2};
    json_t *v;

    openai_model_write(&card, b);
    v = take(b, false);
    CU_ASSERT(text_is(v, "id", "tiny"));
    CU_ASSERT(int_is(v, "conductor.engines", 2));
    CU_ASSERT(int_is(v, "max_model_len", 1000));
    CU_ASSERT(text_is(v, "conductor.policy", "plan"));
    CU_ASSERT(int_is(v, "conductor.vocab", 512));
    CU_ASSERT(int_is(v, "conductor.window_tokens", 1000));
    CU_ASSERT(int_is(v, "conductor.block_tokens", 256));
    json_decref(v);
    card.vocab = card.window_tokens = 0;
    openai_model_write(&card, b);
    v = take(b, false);
    CU_ASSERT(json_is_null(json_object_get(v, "max_model_len")));
    CU_ASSERT(json_is_null(
        json_object_get(json_object_get(v, "conductor"), "vocab")));
    json_decref(v);
}

static const struct suite_test tests[] = {
    {"whole answers", test_whole}, {"chunks", test_chunks},
    {"errors", test_errors},       {"token text", test_token_text},
    {"bound", test_bound},         {"models", test_models},
};
SUITE("openai_reply", tests)
