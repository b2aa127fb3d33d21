/* The event parser and what a streamed answer does to a record. */
#include <CUnit/CUnit.h>
#include <errno.h>
#include <event2/buffer.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "tools/replay/live/answer.h"
#include "tools/replay/live/http_request.h"
#include "tools/replay/live/loop.h"

struct seen {
    char text[256]; /* the events, each in brackets */
};

static void on_event(void *arg, const char *data, size_t bytes)
{
    struct seen *seen = arg;
    size_t n = strlen(seen->text);

    CU_ASSERT_EQUAL(strlen(data), bytes);
    snprintf(seen->text + n, sizeof seen->text - n, "[%s]", data);
}

/* The same events, wherever the stream is cut in two. */
static void test_sse(void)
{
    const char *stream = "data: one\n\n: note\nid: 4\ndata:two\r\ndata:  2\r\n"
                         "\r\ndata\n\n\n\ndatas: no\n\ndata: {}\r\rdata: lost";
    size_t n = strlen(stream);

    for (size_t cut = 0; cut <= n; cut++) {
        struct sse_parser p = {0};
        struct seen seen = {0};

        CU_ASSERT_EQUAL(sse_feed(&p, stream, cut, on_event, &seen), 0);
        CU_ASSERT_EQUAL(sse_feed(&p, stream + cut, n - cut, on_event, &seen),
                        0);
        CU_ASSERT_STRING_EQUAL(seen.text, "[one][two\n 2][][{}]");
        sse_fini(&p);
    }
}

static void test_sse_bound(void)
{
    struct sse_parser p = {0};
    struct seen seen = {0};
    char line[1000];

    memset(line, 'x', sizeof line);
    int rc = 0;
    size_t fed = 0;
    while (rc == 0 && fed < 2 * SSE_EVENT_BYTES_MAX) {
        rc = sse_feed(&p, line, sizeof line, on_event, &seen);
        fed += sizeof line;
    }
    CU_ASSERT_EQUAL(rc, -EMSGSIZE);
    sse_fini(&p);
}

static struct replay_record fresh(void)
{
    return (struct replay_record){.first_token_us = -1,
                                  .end_us = -1,
                                  .tbt_us = -1,
                                  .predicted_ttft_us = -1,
                                  .queue_us = -1,
                                  .prefill_us = -1,
                                  .input_tokens = 64};
}

static void feed(struct replay_answer *a, int status, const char *text,
                 int64_t now_us)
{
    replay_answer_feed(a, status, text, strlen(text), now_us);
}

#define TOKEN \
    "data: {\"choices\":[{\"text\":\"x\",\"finish_reason\":null}]}\n\n"

static void test_answer(void)
{
    struct replay_record r = fresh();
    struct replay_answer a;

    replay_answer_init(&a, &r);
    feed(&a, 200, TOKEN, 1000);
    feed(&a, 200, TOKEN, 1500);
    feed(&a, 200,
         "data: {\"choices\":[{\"text\":\"y\",\"finish_reason\":\"length\"}]}"
         "\n\n",
         3500);
    /* Only says why it ended: no token. */
    feed(&a, 200,
         "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}"
         "\n\n",
         9000);
    CU_ASSERT_EQUAL(r.generated_tokens, 3);
    feed(&a, 200,
         "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":64,"
         "\"completion_tokens\":3,\"prompt_tokens_details\":{"
         "\"cached_tokens\":48}},\"conductor\":{\"request_id\":\"q1\","
         "\"prefill\":\"p0\",\"decode\":\"d0\",\"predicted_ttft_ms\":1.5,"
         "\"local_tokens\":16,\"fetched_tokens\":32,\"computed_tokens\":16,"
         "\"queue_ms\":0.25,\"prefill_ms\":2,\"retries\":1}}\n\n"
         "data: [DONE]\n\n",
         9000);
    replay_answer_finish(&a, 200, NULL, 9500);
    CU_ASSERT_EQUAL(r.outcome, REPLAY_COMPLETED);
    CU_ASSERT_EQUAL(r.first_token_us, 1000);
    CU_ASSERT_EQUAL(r.tbt_us, 2000);
    CU_ASSERT_EQUAL(r.end_us, 9500);
    CU_ASSERT_EQUAL(r.prompt_tokens, 64);
    CU_ASSERT_EQUAL(r.reused_tokens, 48);
    CU_ASSERT(r.tells_reused);
    CU_ASSERT_EQUAL(r.local_tokens, 16);
    CU_ASSERT_EQUAL(r.fetched_tokens, 32);
    CU_ASSERT_EQUAL(r.computed_tokens, 16);
    CU_ASSERT_EQUAL(r.predicted_ttft_us, 1500);
    CU_ASSERT_EQUAL(r.queue_us, 250);
    CU_ASSERT_EQUAL(r.prefill_us, 2000);
    CU_ASSERT_EQUAL(r.retries, 1);
    CU_ASSERT_STRING_EQUAL(r.prefill, "p0");
}

/* Tokens without a text: a NUL; and one that ends the answer, known by the
 * usage alone. */
static void test_tokens_without_text(void)
{
    static const char *const ends[] = {
        "data: {\"choices\":[{\"text\":\"\\u0000\","
        "\"finish_reason\":null}]}\n\n",
        "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}],"
        "\"usage\":{\"prompt_tokens\":64,\"completion_tokens\":1}}\n\n"};

    for (size_t i = 0; i < 2; i++) {
        struct replay_record r = fresh();
        struct replay_answer a;

        replay_answer_init(&a, &r);
        feed(&a, 200, ends[i], 700);
        feed(&a, 200, "data: [DONE]\n\n", 800);
        replay_answer_finish(&a, 200, NULL, 900);
        CU_ASSERT_EQUAL(r.outcome, REPLAY_COMPLETED);
        CU_ASSERT_EQUAL(r.first_token_us, 700);
        CU_ASSERT_EQUAL(r.generated_tokens, 1);
        CU_ASSERT_FALSE(r.tells_reused);
    }
}

/* Each way to end badly: what came, with which status, and what is said. */
static void test_bad_answers(void)
{
    static const struct {
        int status;
        const char *text, *how;
        enum replay_outcome outcome;
        const char *reason, *message;
    } cases[] = {
        {429, "{\"error\":{\"message\":\"no\",\"code\":\"slo_miss\"}}", NULL,
         REPLAY_REJECTED, "http 429 slo_miss", "no"},
        {429, "", NULL, REPLAY_REJECTED, "http 429", ""},
        {500, "\xc3\xa4\n\x1b[1m", NULL, REPLAY_FAILED, "http 500", "????[1m"},
        {500, "<html>", NULL, REPLAY_FAILED, "http 500", "<html>"},
        {400, "{\"error\":{\"message\":\"m\",\"type\":\"invalid\"}}", NULL,
         REPLAY_FAILED, "http 400 invalid", "m"},
        {0, "", "timeout", REPLAY_FAILED, "timeout", ""},
        {200, TOKEN, "connection closed", REPLAY_FAILED, "connection closed",
         ""},
        {200, TOKEN, NULL, REPLAY_FAILED, "stream ended early", ""},
        {200, "data: [DONE]\n\n", NULL, REPLAY_FAILED, "no token", ""},
        {200, "data: {nonsense\n\n", NULL, REPLAY_FAILED, "bad event",
         "{nonsense"},
        {200, "data: [1]\n\n", NULL, REPLAY_FAILED, "bad event", "[1]"},
        {200,
         TOKEN "data: {\"error\":{\"message\":\"gone\",\"code\":\"lost\"}}\n\n"
               "data: [DONE]\n\n",
         NULL, REPLAY_FAILED, "error event lost", "gone"},
        /* Without usage the answer counts with what was asked. */
        {200, TOKEN "data: [DONE]\n\n", NULL, REPLAY_COMPLETED, "", ""},
        /* Wrong types in an answer are as good as absent. */
        {200,
         TOKEN "data: {\"choices\":7,\"usage\":{\"prompt_tokens\":\"x\","
               "\"prompt_tokens_details\":[]},\"conductor\":{\"retries\":-1,"
               "\"queue_ms\":\"1\",\"prefill\":3}}\n\ndata: [DONE]\n\n",
         NULL, REPLAY_COMPLETED, "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct replay_record r = fresh();
        struct replay_answer a;

        replay_answer_init(&a, &r);
        feed(&a, cases[i].status, cases[i].text, 5);
        replay_answer_finish(&a, cases[i].status, cases[i].how, 9);
        if (r.outcome != cases[i].outcome ||
            strcmp(r.reason, cases[i].reason) != 0 ||
            strcmp(r.message, cases[i].message) != 0) {
            printf("\n    case %zu: '%s' '%s'", i, r.reason, r.message);
            CU_FAIL("not as expected");
        }
    }
}

/* An error page of any length is kept up to its bound. */
static void test_long_error(void)
{
    struct replay_record r = fresh();
    struct replay_answer a;
    char text[1000];

    replay_answer_init(&a, &r);
    memset(text, 'e', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < 100; i++)
        feed(&a, 500, text, i);
    replay_answer_finish(&a, 500, NULL, 100);
    CU_ASSERT_EQUAL(strlen(r.message), sizeof r.message - 1);
}

static void test_body(void)
{
    uint64_t ids[] = {3, 4};
    struct trace_request q = {.input_tokens = 3,
                              .output_tokens = 0,
                              .block_count = 2,
                              .hash_ids = ids};
    struct trace_token_options o = {.block_tokens = 2, .vocab_tokens = 1};
    struct evbuffer *body = replay_body_new(&q, "a\"b", &o);

    CU_ASSERT_PTR_NOT_NULL_FATAL(body);
    CU_ASSERT_EQUAL(evbuffer_add(body, "", 1), 0);
    CU_ASSERT_STRING_EQUAL((char *)evbuffer_pullup(body, -1),
                           "{\"model\":\"a\\\"b\",\"max_tokens\":1,"
                           "\"stream\":true,\"stream_options\":{"
                           "\"include_usage\":true},\"prompt\":[0,0,0]}");
    evbuffer_free(body);

    /* Long prompts are written in pieces: all of them arrive. */
    q.input_tokens = 100000;
    o.block_tokens = 50000;
    o.vocab_tokens = UINT32_MAX;
    body = replay_body_new(&q, "m", &o);
    CU_ASSERT_PTR_NOT_NULL_FATAL(body);
    json_t *json = json_loadb((char *)evbuffer_pullup(body, -1),
                              evbuffer_get_length(body), 0, NULL);
    uint32_t *tokens = malloc(100000 * sizeof tokens[0]);
    const json_t *prompt = json_object_get(json, "prompt");
    CU_ASSERT_PTR_NOT_NULL_FATAL(tokens);
    CU_ASSERT_EQUAL_FATAL(json_array_size(prompt), 100000);
    trace_tokens(&q, &o, tokens);
    int wrong = 0;
    for (size_t i = 0; i < 100000; i++) {
        wrong += json_integer_value(json_array_get(prompt, i)) !=
                 (json_int_t)tokens[i];
    }
    CU_ASSERT_EQUAL(wrong, 0);
    free(tokens);
    json_decref(json);
    evbuffer_free(body);
}

static void test_server(void)
{
    struct replay_server s;

    CU_ASSERT_EQUAL(replay_server_parse("http://127.0.0.1:8080", &s), 0);
    CU_ASSERT_STRING_EQUAL(s.host, "127.0.0.1");
    CU_ASSERT_EQUAL(s.port, 8080);
    CU_ASSERT_STRING_EQUAL(s.path, "");
    CU_ASSERT_EQUAL(replay_server_parse("http://host/v1", &s), 0);
    CU_ASSERT_STRING_EQUAL(s.path, "");
    CU_ASSERT_EQUAL(replay_server_parse("http://host/a/v1//", &s), 0);
    CU_ASSERT_STRING_EQUAL(s.path, "/a");
    CU_ASSERT_EQUAL(replay_server_parse("http://host/av1", &s), 0);
    CU_ASSERT_STRING_EQUAL(s.path, "/av1");
    CU_ASSERT_EQUAL(replay_server_parse("http://host/a/b//", &s), 0);
    CU_ASSERT_EQUAL(s.port, 80);
    CU_ASSERT_STRING_EQUAL(s.path, "/a/b");
    CU_ASSERT_EQUAL(replay_server_parse("https://a", &s), 0);
    CU_ASSERT_EQUAL(s.port, 443);
    CU_ASSERT_EQUAL(replay_server_parse("https://[::1]:8443", &s), 0);
    CU_ASSERT_STRING_EQUAL(s.host, "::1");
    CU_ASSERT_EQUAL(s.port, 8443);
    static const char *const bad[] = {"",
                                      "host:80",
                                      "ftp://a",
                                      "http://",
                                      "http://a?b=1",
                                      "http://a:x",
                                      "http://a/v1/completions",
                                      "http://a/v1/chat/completions"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CU_ASSERT_EQUAL(replay_server_parse(bad[i], &s), -EINVAL);
}

static const struct suite_test tests[] = {
    {"events, cut anywhere", test_sse},
    {"event bound", test_sse_bound},
    {"answer", test_answer},
    {"tokens without text", test_tokens_without_text},
    {"bad answers", test_bad_answers},
    {"long error page", test_long_error},
    {"body", test_body},
    {"server", test_server},
};
SUITE("replay_answer", tests)
