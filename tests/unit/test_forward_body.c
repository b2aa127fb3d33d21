/* What is read of a body that goes on as it is; and URLs of engines. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/block_key.h"
#include "conductor/front/openai/body/body.h"
#include "conductor/http/url.h"
#include "conductor/link/upstream/tokens.h"
#include "tests/unit/suite.h"

static const struct forward_rules no_rules;

/* The kind of bodies like this one. */
static const struct forward_kind *kind_of(const char *text)
{
    static const char chat[] = "/v1/chat/completions";
    static const char other[] = "/v1/completions";

    return strstr(text, "\"messages\"") ? forward_kind_of(http_text(chat))
                                        : forward_kind_of(http_text(other));
}

static struct forward_body read_ok(const char *text)
{
    struct forward_body b;
    struct openai_error e;

    CU_ASSERT_EQUAL_FATAL(
        forward_body_read(kind_of(text), text, strlen(text), &no_rules, &b, &e),
        0);
    return b;
}

static void test_ids(void)
{
    struct forward_body b = read_ok(
        " {\"max_tokens\": 12, \"model\":\"a\\u0062\", \"prompt\": [5, 6,\n7],"
        "\"stream\" : true , \"x\":{\"model\":3}}");

    CU_ASSERT_STRING_EQUAL(b.model, "ab");
    CU_ASSERT_TRUE(b.stream && b.ids);
    CU_ASSERT_EQUAL(b.max_tokens, 12);
    CU_ASSERT_EQUAL_FATAL(b.n_words, 3);
    CU_ASSERT(b.words[0] == 5 && b.words[2] == 7);
    CU_ASSERT_STRING_EQUAL(b.salt, "");
    forward_body_fini(&b);
    b = read_ok("{\"tools\":[],\"cache_salt\":\"a\\\"b\",\"prompt\":[1]}");
    CU_ASSERT_STRING_EQUAL(b.salt, "a\"b");
    forward_body_fini(&b);
    b = read_ok("{\"prompt\":[[1,2],[3]]}");
    CU_ASSERT(b.ids && b.n_words == 2 && b.several);
    forward_body_fini(&b);
    b = read_ok("{\"prompt\":[ [1,2] ]}");
    CU_ASSERT(b.ids && b.n_words == 2 && !b.several);
    forward_body_fini(&b);
}

/* Only a question where to send a request has them. */
static void test_hashes(void)
{
    static const char text[] =
        "{\"prompt\":\"x\",\"block_hashes\":[-1, 18446744073709551615,7],"
        "\"prompt_tokens\":50,\"block_size\":16}";
    static const char schedule[] = FORWARD_SCHEDULE_PATH;
    struct forward_body b = read_ok(text);
    struct openai_error e;

    CU_ASSERT_PTR_NULL(b.hashes);
    forward_body_fini(&b);
    CU_ASSERT_EQUAL_FATAL(
        forward_body_read(forward_kind_of(http_text(schedule)), text,
                          sizeof(text) - 1, &no_rules, &b, &e),
        0);
    CU_ASSERT_EQUAL_FATAL(b.n_hashes, 3);
    CU_ASSERT(b.hashes[0] == UINT64_MAX && b.hashes[1] == UINT64_MAX &&
              b.hashes[2] == 7);
    CU_ASSERT(b.prompt_tokens == 50 && b.block_tokens == 16);
    forward_body_fini(&b);
}

static int read_question(const char *text, struct forward_body *b,
                         struct openai_error *e)
{
    static const char path[] = FORWARD_SCHEDULE_PATH;

    return forward_body_read(forward_kind_of(http_text(path)), text,
                             strlen(text), &no_rules, b, e);
}

/* What a gateway adds to its client's body may stand at any place in it. */
static void test_schedules(void)
{
    static const struct {
        const char *text;
        size_t n_words;
        bool ids;
    } good[] = {
        {"{\"prompt\":\"abcdef\",\"token_ids\":[1,2,3]}", 3, true},
        {"{\"token_ids\":[1,2,3],\"prompt\":\"abcdef\"}", 3, true},
        {"{\"prompt\":null,\"token_ids\":[1]}", 1, true},
        {"{\"token_ids\":null,\"prompt\":\"abcdef\"}", 2, false},
        {"{\"prompt\":\"abcdef\",\"prompt\":\"abcdefghijkl\"}", 2, false},
        {"{\"text\":\"abcdef\"}", 2, false},
        {"{\"text\":[\"abcdefghi\",\"j\"]}", 4, false},
        {"{\"text\":{\"format\":1}}", 0, false},
        {"{\"prompt\":null}", 0, false},
    };
    static const struct {
        const char *text, *param, *message;
    } bad[] = {
        {"{\"token_ids\":\"x\"}", "token_ids",
         "token_ids: \"x\": must be an array of token ids from 0 to "
         "4294967295"},
        {"{\"prompt\":\"x\",\"token_ids\":[1,-2]}", "token_ids",
         "token_ids: [1: must be an array of token ids from 0 to "
         "4294967295"},
        {"{\"token_ids\":[]}", "token_ids",
         "token_ids: [: must be an array of token ids from 0 to 4294967295"},
        {"{\"prompt_tokens\":\"5\"}", "prompt_tokens",
         "prompt_tokens: \"5\": must be a whole number from 1 to 4294967294"},
        {"{\"prompt_tokens\":-1}", "prompt_tokens",
         "prompt_tokens: -1: must be a whole number from 1 to 4294967294"},
        {"{\"prompt_tokens\":99999999999999999999}", "prompt_tokens",
         "prompt_tokens: 99999999999999999999: must be a whole number from 1 "
         "to 4294967294"},
        {"{\"block_size\":4294967312}", "block_size",
         "block_size: 4294967312: must be a whole number from 1 to 4294967294"},
        {"{\"block_size\":0}", "block_size",
         "block_size: 0: must be a whole number from 1 to 4294967294"},
    };
    struct forward_body b;
    struct openai_error e;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        CU_ASSERT_EQUAL_FATAL(read_question(good[i].text, &b, &e), 0);
        CU_ASSERT_EQUAL(b.n_words, good[i].n_words);
        CU_ASSERT_EQUAL(b.ids, good[i].ids);
        forward_body_fini(&b);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CU_ASSERT_EQUAL_FATAL(read_question(bad[i].text, &b, &e), -EINVAL);
        CU_ASSERT_STRING_EQUAL(e.param, bad[i].param);
        CU_ASSERT_STRING_EQUAL(e.message, bad[i].message);
    }
    b = read_ok("{\"prompt\":[1],\"token_ids\":5,\"prompt_tokens\":\"x\"}");
    CU_ASSERT_EQUAL(b.n_words, 1);
    forward_body_fini(&b);
}

/* The first n words of two bodies are equal. */
static size_t common(const struct forward_body *a, const struct forward_body *b)
{
    size_t n = 0;

    while (n < a->n_words && n < b->n_words && a->words[n] == b->words[n])
        n++;
    return n;
}

static void test_chats_share_their_beginning(void)
{
    struct forward_body a =
        read_ok("{\"messages\":[{\"role\":\"user\",\"content\":\"What is a KV "
                "cache?\"}],\"model\":\"m\"}");
    struct forward_body b = read_ok(
        "{\"model\":\"m\",\"temperature\":0.5,\"messages\":[{\"role\":\"user\","
        "\"content\":\"What is a KV cache?\"},{\"role\":\"assistant\","
        "\"content\":null,\"tool_calls\":[]}]}");

    CU_ASSERT(!a.ids && a.n_words > 10);
    CU_ASSERT(common(&a, &b) + 1 >= a.n_words);
    CU_ASSERT_STRING_EQUAL(a.salt, b.salt);
    CU_ASSERT_STRING_NOT_EQUAL(a.salt, "");
    forward_body_fini(&b);
    b = read_ok("{\"tools\":[1],\"messages\":[{\"role\":\"user\"}]}");
    CU_ASSERT_STRING_NOT_EQUAL(a.salt, b.salt);
    forward_body_fini(&b);
    forward_body_fini(&a);
}

static struct forward_body read_at(const char *path, const char *text)
{
    struct forward_body b;
    struct openai_error e;

    CU_ASSERT_EQUAL_FATAL(forward_body_read(forward_kind_of(http_text(path)),
                                            text, strlen(text), &no_rules, &b,
                                            &e),
                          0);
    return b;
}

static void check_question(const char *path, const char *body,
                           const char *question)
{
    struct forward_body b = read_at(path, body);
    size_t n = 0;
    char *text = forward_tokenize_body(&b, &n);

    if (!question) {
        CU_ASSERT_PTR_NULL(text);
    } else {
        CU_ASSERT_EQUAL(n, strlen(question));
        CU_ASSERT(text && strncmp(text, question, n) == 0);
    }
    free(text);
    forward_body_fini(&b);
}

static void test_questions(void)
{
    static const char text[] = "/v1/completions",
                      chat[] = "/v1/chat/completions", generate[] = "/generate";

    check_question(text,
                   "{\"tools\":[],\"prompt\": \"a\\\"b\" ,\"n\":2,"
                   "\"add_special_tokens\":false,\"model\":\"m\"}",
                   "{\"model\":\"m\",\"prompt\":\"a\\\"b\","
                   "\"add_special_tokens\":false}");
    check_question(
        chat, "{\"messages\": [{\"role\":1}],\"tools\":[{}],\"prompt\":\"\"}",
        "{\"messages\":[{\"role\":1}],\"tools\":[{}]}");
    check_question(generate, "{\"text\":\"a\",\"prompt\":\"b\"}",
                   "{\"prompt\":\"a\"}");
    check_question(generate, "{\"text\":[\"a\"]}", NULL);
    check_question(text, "{\"prompt\":[1,2]}", NULL);
    check_question(text, "{\"prompt\":[\"a\"]}", NULL);
    check_question(chat, "{\"prompt\":\"a\"}", NULL);
    check_question(text, "{}", NULL);
    check_question("/v1/responses", "{\"input\":\"a\"}", NULL);
    check_question("/v1/embeddings", "{\"prompt\":\"a\"}", NULL);
}

/* What a prompt is, by path: its words, or none. */
static void test_kinds(void)
{
    static const struct {
        const char *path, *body;
        size_t n_words;
        bool ids;
        uint32_t max_tokens;
    } cases[] = {
        {"/generate",
         "{\"input_ids\":[7,8,9],\"sampling_params\":"
         "{\"temperature\":0,\"max_new_tokens\":5 }}",
         3, true, 5},
        {"/generate", "{\"input_ids\":[[7,8],[9]],\"text\":\"abcd\"}", 2, true,
         0},
        {"/generate", "{\"text\":\"123456\",\"sampling_params\":null}", 2,
         false, 0},
        {"/generate", "{\"prompt\":\"123456\"}", 0, false, 0},
        {"/inference/v1/generate", "{\"token_ids\":[7,8]}", 2, true, 0},
        {"/v1/responses", "{\"input\":\"123456\",\"max_output_tokens\":9}", 2,
         false, 9},
        {"/v1/responses", "{\"input\":[{\"role\":\"user\"}]}", 4, false, 0},
        {"/v1/messages", "{\"messages\":[{}],\"system\":\"x\"}", 1, false, 0},
        {"/v1/embeddings", "{\"input\":[7,8,9]}", 0, false, 0},
        {"/v1/completions", "{\"input\":[7],\"messages\":[8]}", 0, false, 0},
        {"/v1/chat/completions", "{\"prompt\":[7]}", 0, false, 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct forward_body b = read_at(cases[i].path, cases[i].body);

        CU_ASSERT_EQUAL(b.n_words, cases[i].n_words);
        CU_ASSERT_EQUAL(b.ids, cases[i].ids);
        CU_ASSERT_EQUAL(b.max_tokens, cases[i].max_tokens);
        forward_body_fini(&b);
    }
}

static void test_priorities(void)
{
    static const struct {
        const char *body;
        int32_t priority;
    } cases[] = {
        {"{\"priority\":7}", 7},
        {"{\"priority\": -12 }", -12},
        {"{\"priority\":-4000000000}", -INT32_MAX},
        {"{\"priority\":4000000000}", INT32_MAX},
        {"{\"priority\":123456789012345678901234}", INT32_MAX},
        {"{\"priority\":\"7\"}", 0},
        {"{\"priority\":1.5}", 0},
        {"{\"prompt\":[1]}", 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct forward_body b = read_at("/v1/completions", cases[i].body);

        CU_ASSERT_EQUAL(b.priority, cases[i].priority);
        forward_body_fini(&b);
    }
}

/* Instructions, and SGLang's two salts, are part of what blocks are known by.
 */
static void test_other_salts(void)
{
    struct forward_body a = read_at("/v1/responses", "{\"input\":\"x\"}");
    struct forward_body b = read_at(
        "/v1/responses", "{\"input\":\"x\",\"instructions\":\"Be kind.\"}");

    CU_ASSERT_STRING_NOT_EQUAL(a.salt, b.salt);
    forward_body_fini(&a);
    forward_body_fini(&b);
    a = read_at("/generate", "{\"extra_key\":\"b\",\"cache_salt\":\"a\","
                             "\"input_ids\":[1]}");
    CU_ASSERT_STRING_EQUAL(a.salt, "ab");
    forward_body_fini(&a);
}

static void test_tokens(void)
{
    static const char *const refused[] = {
        "",
        "[1]",
        "{}",
        "{\"tokens\":null}",
        "{\"tokens\":[1,\"a\"]}",
        "{\"tokens\":[1,2",
        "{\"tokens\":[-1]}",
    };
    static const char good[] = "{\"count\":2,\"tokens\":[7, 8],\"tokens\":[1],"
                               "\"token_strs\":[\"a\"]}";
    uint32_t *tokens = NULL;
    size_t n;

    CU_ASSERT_EQUAL_FATAL(
        openai_tokens_read(good, sizeof(good) - 1, &tokens, &n), 0);
    CU_ASSERT(n == 2 && tokens[0] == 7 && tokens[1] == 8);
    free(tokens);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        CU_ASSERT_EQUAL(
            openai_tokens_read(refused[i], strlen(refused[i]), &tokens, &n),
            -EINVAL);
}

static void check_written(const char *body, const struct forward_rules *rules,
                          const char *expected)
{
    struct openai_error e;
    struct forward_body b;
    struct text_buf out;

    text_buf_init(&out, SIZE_MAX);
    CU_ASSERT_EQUAL_FATAL(
        forward_body_read(kind_of(body), body, strlen(body), rules, &b, &e), 0);
    CU_ASSERT_EQUAL(forward_body_changes(&b, rules),
                    strcmp(body, expected) != 0);
    forward_body_write(&b, body, strlen(body), rules, &out);
    text_buf_add(&out, "", 1);
    CU_ASSERT_STRING_EQUAL(out.data, expected);
    text_buf_fini(&out);
    forward_body_fini(&b);
}

static void test_cuts(void)
{
    static const char *const cases[][2] = {
        {"{}", "{}"},
        {"{ \"a\" : 1.50 ,\n\"b\":\"\\u00e9\" }",
         "{ \"a\" : 1.50 ,\n\"b\":\"\\u00e9\" }"},
        {"{\"kv_transfer_params\":{\"x\":[1]}}", "{}"},
        {"{\"kv_transfer_params\":1,\"kv_transfer_params\":2}", "{}"},
        {"{ \"kv\\u005ftransfer_params\" : null , \"a\":1 }", "{ \"a\":1 }"},
        {"{\"a\":1,\"kv_transfer_params\":{},\"b\":[2]}",
         "{\"a\":1,\"b\":[2]}"},
        {"{\"a\":1, \"kv_transfer_params\":{} }", "{\"a\":1}"},
        {"{\"kv_transfer_params\":1,\"a\":1,\"kv_transfer_params\":2,"
         "\"kv_transfer_params\":\"}\",\"b\":2,\"kv_transfer_params\":3}",
         "{\"a\":1,\"b\":2}"},
        /* Only at the top level, and nothing that only looks like it. */
        {"{\"a\":{\"kv_transfer_params\":1},\"kv_transfer_params2\":1,"
         "\"b\":\",\\\"kv_transfer_params\\\":1\"}",
         "{\"a\":{\"kv_transfer_params\":1},\"kv_transfer_params2\":1,"
         "\"b\":\",\\\"kv_transfer_params\\\":1\"}"},
        {"{\"prompt\":[1,2] ,\"kv_transfer_params\":1}", "{\"prompt\":[1,2]}"},
        /* All else that steers engines, however it is spelled, and again. */
        {"{\"bootstrap_host\":\"x\",\"bootstrap_port\":1,"
         "\"bootstrap_room\":2,\"bootstrap_\\u0068ost\":\"y\","
         "\"a\":{\"bootstrap_room\":1},\"data_parallel_rank\":1,"
         "\"routed_dp_rank\":1,\"bootstrap_host\":[],"
         "\"disagg_prefill_dp_rank\":1,\"ec_transfer_params\":{}}",
         "{\"a\":{\"bootstrap_room\":1}}"},
        {"{\"request_id\":\"x\",\"rid\":\"y\",\"dp_rank\":1}",
         "{\"request_id\":\"x\",\"rid\":\"y\",\"dp_rank\":1}"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_written(cases[i][0], &no_rules, cases[i][1]);
    /* What would name a response of another tenant's. */
    check_written("{\"rid\":1,\"a\":2,\"request_id\":\"x\"}",
                  &(struct forward_rules){.keyed = true}, "{\"a\":2}");
}

static void check_refused(const char *body, const char *param)
{
    struct openai_error e = {0};
    struct forward_body b;

    if (forward_body_read(kind_of(body), body, strlen(body), &no_rules, &b,
                          &e) != -EINVAL)
        CU_FAIL("it passes");
    if (strcmp(e.param, param) != 0) {
        printf("%s: '%s', not '%s'\n", body, e.param, param);
        CU_FAIL("another one is refused");
    }
    CU_ASSERT_EQUAL(e.http_status, 400);
    forward_body_fini(&b);
}

static void check_taken(const char *text)
{
    struct forward_body b = read_ok(text);

    forward_body_fini(&b);
}

/* Nothing is taken out below the top, where engines look for it, too. */
static void test_steered_below(void)
{
    static const char *const cases[][2] = {
        {"{\"vllm_xargs\":{\"kv_transfer_params\":1}}", "kv_transfer_params"},
        {"{\"sampling_params\":{\"extra_args\":{\"a\":[{"
         "\"kv_tr\\u0061nsfer_params\":{}}]}}}",
         "kv_transfer_params"},
        {"{\"sampling_params\":[{\"bootstrap_host\":\"x\"}]}",
         "bootstrap_host"},
        {"{\"sampling_params\":{\"data_parallel_rank\":1}}",
         "data_parallel_rank"},
        {"{\"nvext\":{\"a\":1,\"backend_instance_id\":7}}",
         "backend_instance_id"},
        {"{\"nv\\u0065xt\":{\"token_data\":[1]}}", "token_data"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_refused(cases[i][0], cases[i][1]);
    check_taken("{\"messages\":[{\"content\":{\"bootstrap_host\":1}}],"
                "\"tools\":[{\"nvext\":{\"dp_rank\":1}}],"
                "\"nvext\":{\"annotations\":[]}}");
}

/* What a body refers to, where that may be another tenant's. */
static void test_references(void)
{
    static const char *const cases[][2] = {
        {"{\"conversation\":\"conv_1\"}", "conversation"},
        {"{\"conversation\":{\"id\":\"conv_1\"}}", "conversation"},
        {"{\"conversation\":null,\"file_ids\":[],\"file_id\":null}", NULL},
        {"{\"prompt\":{\"id\":\"pmpt_1\",\"version\":\"2\"}}", "prompt"},
        {"{\"prompt\":\"text\"}", NULL},
        {"{\"input_file_id\":\"file-1\"}", "input_file_id"},
        {"{\"input\":[{\"content\":[{\"type\":\"input_file\","
         "\"file\\u005fid\":\"file-1\"}]}]}",
         "file_id"},
        {"{\"messages\":[{\"content\":[{\"file\":{\"file_id\":\"f\"}}]}]}",
         "file_id"},
        {"{\"messages\":[{\"audio\":{ \"id\" : \"audio_1\" }}]}", "id"},
        {"{\"input\":[{\"id\":\"msg_1\"}]}", "id"},
        {"{\"input\":[{\"id\":\"msg_1\",\"content\":\"x\"}]}", NULL},
        {"{\"input\":[{\"id\":\"m\",\"type\":\"item_reference\"}]}",
         "item_reference"},
        {"{\"input\":[{\"id\":\"m\",\"type\":\"item\\u005freference\"}]}",
         "item_reference"},
        {"{\"input\":[{\"id\":\"m\",\"type\":null}]}", "id"},
        {"{\"input\":[{\"id\":\"m\",\"x\":{\"type\":\"message\"}}]}", "id"},
        {"{\"input\":[{\"x\":[{\"type\":\"message\"}],\"id\":\"m\","
         "\"content\":null}]}",
         "id"},
        {"{\"input\":[{\"type\":\"message\",\"content\":[{\"type\":\"t\"}],"
         "\"id\":\"m\"},{\"id\":\"c\",\"type\":\"function_call\"}]}",
         NULL},
        {"{\"messages\":[{\"audio\":{\"id\":\"a\",\"x\":0}}]}", "id"},
        {"{\"input\":[{\"content\":\"x\"}],\"sampling_params\":{\"id\":\"m\","
         "\"type\":\"x\"},\"tools\":[{\"x\":1},{\"id\":\"m\"}]}",
         "id"},
        {"{\"tools\":[{\"type\":\"file_search\","
         "\"vector_store_ids\":[ \"vs_1\"]}]}",
         "vector_store_ids"},
        {"{\"tools\":[{\"type\":\"file_search\","
         "\"vector_store_ids\":[null,\"vs_1\"]}]}",
         "vector_store_ids"},
        {"{\"tools\":[{\"container\":{\"file_ids\":[\"f\"]}}]}", "file_ids"},
        {"{\"tools\":[{\"container\":\"cntr_1\"}]}", "container"},
        /* A schema, and a client's own data. */
        {"{\"tools\":[{\"function\":{\"parameters\":{\"properties\":{"
         "\"file_id\":{\"type\":\"string\"}},\"default\":{\"file_id\":\"x\"}}}"
         "}],\"metadata\":{\"file_id\":\"x\",\"conversation\":\"y\"}}",
         NULL},
        {"{\"tools\":[{\"parameters\":{\"file_id\":\"x\"},\"file_id\":\"y\"}]}",
         "file_id"},
    };
    const struct forward_rules keyed = {.keyed = true};
    struct forward_body b;
    struct openai_error e;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *text = cases[i][0], *want = cases[i][1];

        CU_ASSERT_EQUAL_FATAL(forward_body_read(kind_of(text), text,
                                                strlen(text), &keyed, &b, &e),
                              0);
        if (!b.refers != !want || (want && strcmp(b.refers, want) != 0)) {
            printf("%s: %s\n", text, b.refers ? b.refers : "none");
            CU_FAIL("another reference");
        }
        forward_body_fini(&b);
        b = read_ok(text);
        CU_ASSERT_PTR_NULL(b.refers);
        forward_body_fini(&b);
    }
    /* Of two ids engines may take either. */
    static const char twice[] = "{\"previous_response_id\":\"resp_1\","
                                "\"previous_response\\u005fid\":\"resp_2\"}";

    CU_ASSERT_EQUAL(
        forward_body_read(NULL, twice, sizeof(twice) - 1, &keyed, &b, &e),
        -EINVAL);
    CU_ASSERT_STRING_EQUAL(e.param, "previous_response_id");
    check_taken(twice);
}

/* What one parser takes, and another refuses or reads as something else. */
static void test_strict(void)
{
    static const char *const refused[] = {
        "{\"a\":NaN}",
        "{\"a\":[Infinity]}",
        "{\"a\":{\"b\":-Infinity}}",
        "{\"a\":nan}",
        "{\"a\":1e999}",
        "{\"prompt\":[[1],[-1e400]]}",
        "{\"a\":01}",
        "{\"a\":+1}",
        "{\"a\":.5}",
        "{\"a\":1.}",
        "{\"a\":-}",
        "{\"a\":1e}",
        "{\"a\":0x1}",
        "{\"a\":'x'}",
        "{\"a\":tru}",
        "{\"a\":[1,]}",
        "{\"a\":[,1]}",
        "{\"a\":{\"b\":1,}}",
        "{\"a\":{\"b\"}}",
        "{\"a\":[1}}",
        "{\"a\":{]}",
        "{\"a\":[1 2]}",
        "{\"a\":\"\x80\"}",
        "{\"a\":\"\xc0\xaf\"}",
        "{\"a\":\"\xed\xa0\x80\"}",
        "{\"prompt\":\"ok \xff\"}",
        "{\"messages\":[{\"content\":\"\xf5\"}]}",
        "{\"a\":{\"\xff\":1}}",
        "{\"\xff\":1}",
        "{\"a\":\"x\ny\"}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":\"\\u12\"}",
        "\xef\xbb\xbf{\"a\":1}",
        "{\"prompt\":[01,2]}",
        "{\"prompt\":[1,2",
        "{\"kv_transfer_params\":NaN}",
        "{\"sampling_params\":{\"a\":NaN}}",
    };

    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        check_refused(refused[i], "");
    /* A NUL is no white space. */
    static const char nul[] = "{\"prompt\":[\0"
                              "1,2]}";
    struct forward_body b;
    struct openai_error e;

    CU_ASSERT_EQUAL(forward_body_read(kind_of("x"), nul, sizeof(nul) - 1,
                                      &no_rules, &b, &e),
                    -EINVAL);
    forward_body_fini(&b);
    check_taken(
        "{\"a\":[],\"b\":{},\"c\":[ [ ] , { } , -0.5E+3 , 0 , 1e-999 , true ,"
        " false , null , {\"d\" : \"\\ud800 \\\"\\/\\b\\u00E9\xc3\xa9\"} ] ,"
        "\"prompt\":[[1,2],[3 , 4]]}");
}

static void test_rules(void)
{
    const struct forward_rules both = {"t\"1", "-5", 0, false},
                               none = {"", "", 0, false};
    static const char body[] = "{\"cache_salt\":\"mine\",\"prompt\":[1], "
                               "\"pri\\u006frity\" : 9}";
    struct openai_error e;
    struct forward_body b;

    check_written("{}", &both, "{\"cache_salt\":\"t\\\"1\",\"priority\":-5}");
    check_written("{\"priority\":1}", &both,
                  "{\"cache_salt\":\"t\\\"1\",\"priority\":-5}");
    check_written(body, &both,
                  "{\"cache_salt\":\"t\\\"1\",\"priority\":-5,\"prompt\":[1]}");
    check_written(body, &none, "{\"prompt\":[1]}");
    check_written("{\"extra_key\":\"x\",\"prompt\":[1]}", &both,
                  "{\"cache_salt\":\"t\\\"1\",\"priority\":-5,\"prompt\":[1]}");
    check_written("{\"extra_key\":\"x\",\"prompt\":[1]}", &no_rules,
                  "{\"extra_key\":\"x\",\"prompt\":[1]}");
    check_written(" {\"a\":1}", &(struct forward_rules){.priority = "0"},
                  "{\"priority\":0,\"a\":1}");
    /* Blocks are known by the salt that is set. */
    CU_ASSERT_EQUAL_FATAL(
        forward_body_read(kind_of(body), body, sizeof(body) - 1, &both, &b, &e),
        0);
    CU_ASSERT_STRING_EQUAL(b.salt, "t\"1");
    forward_body_fini(&b);
    CU_ASSERT_EQUAL_FATAL(
        forward_body_read(kind_of(body), body, sizeof(body) - 1, &none, &b, &e),
        0);
    CU_ASSERT_STRING_EQUAL(b.salt, "");
    forward_body_fini(&b);
}

/* SGLang's /generate knows no cache_salt. */
static void test_rules_of_generate(void)
{
    static const char path[] = "/generate",
                      body[] = "{\"extra_key\":\"b\",\"input_ids\":[1]}";
    const struct forward_rules rules = {.cache_salt = "a"};
    struct openai_error e;
    struct forward_body b;
    struct text_buf out;

    CU_ASSERT_EQUAL_FATAL(forward_body_read(forward_kind_of(http_text(path)),
                                            body, sizeof(body) - 1, &rules, &b,
                                            &e),
                          0);
    CU_ASSERT_STRING_EQUAL(b.salt, "a");
    text_buf_init(&out, 1024);
    forward_body_write(&b, body, sizeof(body) - 1, &rules, &out);
    text_buf_add(&out, "", 1);
    CU_ASSERT_STRING_EQUAL(out.data, "{\"extra_key\":\"a\",\"input_ids\":[1]}");
    text_buf_fini(&out);
    forward_body_fini(&b);
}

/* A bounded number of places is cut out. */
static void test_many_cuts(void)
{
    char body[1024] = "{\"a\":0";
    struct openai_error e;
    struct forward_body b;

    for (int i = 0; i <= FORWARD_CUTS; i++) {
        strcat(body, ",\"kv_transfer_params\":1,\"b\":1");
        strcat(body, "}");
        CU_ASSERT_EQUAL(forward_body_read(kind_of(body), body, strlen(body),
                                          &no_rules, &b, &e),
                        i < FORWARD_CUTS ? 0 : -EINVAL);
        forward_body_fini(&b);
        body[strlen(body) - 1] = '\0';
    }
    CU_ASSERT_PTR_NOT_NULL(strstr(e.message, "more than 16 times"));
}

/* Prompts behind different salts never match, whatever the salt is. */
static void test_salts(void)
{
    static const char *const salts[] = {
        "", "\"cache_salt\":\"a\",", "\"cache_salt\":\"b\",",
        "\"cache_salt\":\"\\u0000\",", "\"cache_salt\":7,"};
    static const char *const prompts[] = {
        "\"prompt\":[1,2]", "\"prompt\":\"x\"", "\"messages\":[]"};
    struct forward_body all[5], longest;
    char body[512];

    for (size_t p = 0; p < 3; p++) {
        for (size_t i = 0; i < 5; i++) {
            snprintf(body, sizeof(body), "{%s%s}", salts[i], prompts[p]);
            all[i] = read_ok(body);
            for (size_t k = 0; k < i; k++)
                CU_ASSERT_STRING_NOT_EQUAL(all[k].salt, all[i].salt);
        }
        for (size_t i = 0; i < 5; i++)
            forward_body_fini(&all[i]);
    }
    snprintf(body, sizeof(body), "{\"cache_salt\":\"%0300d\",\"prompt\":[1]}",
             1);
    longest = read_ok(body);
    CU_ASSERT_STRING_NOT_EQUAL(longest.salt, "");
    forward_body_fini(&longest);
}

/* The name of blocks' salt in this body, and in an event with this salt. */
static void check_name(const char *body, const char *salt, size_t n)
{
    struct forward_body b = read_ok(body);
    char name[BLOCK_KEY_NAME_BYTES];

    block_key_name(salt, n, name);
    CU_ASSERT_STRING_EQUAL(b.salt, name);
    forward_body_fini(&b);
}

static void test_salts_of_events(void)
{
    static char salt[600], body[2000];
    struct forward_body b;
    char name[BLOCK_KEY_NAME_BYTES];

    memset(salt, 's', sizeof(salt) - 1);
    check_name("{\"prompt\":[1],\"cache_salt\":\"a\\u0000b\"}", "a\0b", 3);
    snprintf(body, sizeof(body), "{\"prompt\":[1],\"cache_salt\":\"%.255s\"}",
             salt);
    check_name(body, salt, 255);
    snprintf(body, sizeof(body),
             "{\"prompt\":[1],\"cache_salt\":\"\\u0073%s\"}", salt + 1);
    check_name(body, salt, sizeof(salt) - 1);
    snprintf(body, sizeof(body),
             "{\"extra_key\":\"%s\",\"prompt\":[1],\"cache_salt\":\"%.99s\"}",
             salt + 99, salt);
    check_name(body, salt, sizeof(salt) - 1);
    snprintf(body, sizeof(body), "{\"prompt\":[1],\"lora_path\":\"%s\"}", salt);
    b = read_ok(body);
    block_key_name(salt, sizeof(salt) - 1, name);
    CU_ASSERT_STRING_EQUAL(b.adapter, name);
    forward_body_fini(&b);
}

static void test_whatever(void)
{
    static const char *const fine[] = {
        "{}",
        "{\"prompt\":null,\"max_tokens\":-1,\"stream\":1}",
        "{\"prompt\":[\"a\",[1]],\"max_tokens\":99999999999}",
        "{\"prompt\":[],\"messages\":{}}",
        "{\"input\":{\"x\":[[[]]]},\"model\":\"\"}",
        "{\"model\":\"a\",\"model\" : null }",
    };
    static const char *const refused[] = {
        "{\"model\":\"m\"}{\"model\":\"m\"}",
        "{\"model\":\"m\"} x",
        "",
        "[]",
        "{",
        "{\"model\":5}",
        "{\"model\":\"x",
        "{\"a\" 1}",
        "{\"model\":\"\\u0000\"}",
    };
    struct forward_body b;
    struct openai_error e;

    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++) {
        b = read_ok(fine[i]);
        CU_ASSERT_STRING_EQUAL(b.model, "");
        forward_body_fini(&b);
    }
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        CU_ASSERT_EQUAL(forward_body_read(kind_of(refused[i]), refused[i],
                                          strlen(refused[i]), &no_rules, &b,
                                          &e),
                        -EINVAL);
        CU_ASSERT_EQUAL(e.http_status, 400);
        CU_ASSERT_PTR_NULL(b.words);
    }
}

static void test_urls(void)
{
    static const char *const refused[] = {
        "h:1",         "ftp://h",        "http://",    "http://:1",
        "http://h:0",  "http://h:65536", "http://u@h", "http://h/?q",
        "http://h/#f", "http://h /",     "http://h:",
    };
    struct engine_url u;

    CU_ASSERT_PTR_NULL(engine_url_parse("http://127.0.0.1:8000", &u));
    CU_ASSERT_STRING_EQUAL(u.at.host, "127.0.0.1");
    CU_ASSERT(u.at.port == 8000 && !u.tls && !*u.prefix);
    CU_ASSERT_STRING_EQUAL(u.authority, "127.0.0.1:8000");
    CU_ASSERT_PTR_NULL(engine_url_parse("https://vllm.svc/v2//", &u));
    CU_ASSERT(u.at.port == 443 && u.tls);
    CU_ASSERT_STRING_EQUAL(u.prefix, "/v2");
    CU_ASSERT_STRING_EQUAL(u.authority, "vllm.svc");
    CU_ASSERT_PTR_NULL(engine_url_parse("http://h/v1/", &u));
    CU_ASSERT_STRING_EQUAL(u.prefix, "");
    CU_ASSERT_PTR_NULL(engine_url_parse("http://h/v2//v1", &u));
    CU_ASSERT_STRING_EQUAL(u.prefix, "/v2");
    CU_ASSERT_PTR_NULL(engine_url_parse("http://[::1]/", &u));
    CU_ASSERT_STRING_EQUAL(u.at.host, "::1");
    CU_ASSERT_EQUAL(u.at.port, 80);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        CU_ASSERT_PTR_NOT_NULL(engine_url_parse(refused[i], &u));
}

/* n members in front of those of `sampling_params`, also n. */
static int read_members(int n, char *text, size_t size)
{
    struct forward_body b;
    struct openai_error e;
    size_t at = (size_t)snprintf(text, size, "{\"sampling_params\":{");

    for (int i = 0; i < 2 * n; i++)
        at += (size_t)snprintf(text + at, size - at, "%s\"m\":1",
                               i == n  ? "},"
                               : i > 0 ? ","
                                       : "");
    snprintf(text + at, size - at, "}");
    int rc =
        forward_body_read(kind_of(text), text, strlen(text), &no_rules, &b, &e);
    if (rc == 0)
        forward_body_fini(&b);
    else
        CU_ASSERT_PTR_NOT_NULL(strstr(e.message, "1024 members"));
    return rc;
}

/* Each member takes time of the loop, and no request has so many. */
static void test_members(void)
{
    static char text[20000];

    CU_ASSERT_EQUAL(read_members(511, text, sizeof(text)), 0);
    CU_ASSERT_EQUAL(read_members(512, text, sizeof(text)), -EINVAL);
    CU_ASSERT_EQUAL(read_members(1000, text, sizeof(text)), -EINVAL);
}

/* A prompt that is far over all windows is not read to its end, which is no
 * JSON here. */
static void test_long_prompts(void)
{
    static const struct {
        const char *head, *unit;
        int rc;
    } cases[] = {{"{\"prompt\":\"", "xxxxxxxx", -EINVAL},
                 {"{\"prompt\":[", "1234567,", -EINVAL},
                 {"{\"prompt\":[[", "1234567,", -EINVAL},
                 {"{\"model\":\"m\",\"prompt\":\"", "xxxxxxxx", -EINVAL},
                 {"{\"suffix\":\"x\",\"prompt\":[\"", "xxxxxxxx", 0},
                 {"{\"messages\":\"", "xxxxxxxx", -EINVAL}};
    static const char ends[][8] = {"\"}", "1]}", "1]]}", "\"}", "\"]}", "\"}"};
    const size_t units = (40000 * 32 / 8) + 10;
    struct forward_rules rules = {.window_tokens = 40000};
    struct openai_error e;
    struct forward_body b;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = malloc(units * 8 + 100);
        size_t n = strlen(cases[i].head);

        CU_ASSERT_PTR_NOT_NULL_FATAL(text);
        memcpy(text, cases[i].head, n);
        for (size_t k = 0; k < units; k++, n += 8)
            memcpy(text + n, cases[i].unit, 8);
        strcpy(text + n, ends[i]);
        n += strlen(ends[i]);
        rules.window_tokens = 40000;
        CU_ASSERT_EQUAL(
            forward_body_read(kind_of(text), text, n, &rules, &b, &e),
            cases[i].rc);
        if (cases[i].rc)
            CU_ASSERT_PTR_NOT_NULL(
                strstr(e.message, ": longer than 1280000 bytes: must fit"));
        forward_body_fini(&b);
        rules.window_tokens = i % 2 ? 0 : 50000;
        CU_ASSERT_EQUAL(
            forward_body_read(kind_of(text), text, n, &rules, &b, &e), 0);
        forward_body_fini(&b);
        free(text);
    }
}

static const struct suite_test tests[] = {
    {"token ids", test_ids},
    {"chats share their beginning", test_chats_share_their_beginning},
    {"what is taken out", test_cuts},
    {"what only Conductor says, below the top", test_steered_below},
    {"references", test_references},
    {"JSON alone", test_strict},
    {"what is set", test_rules},
    {"what is set for /generate", test_rules_of_generate},
    {"taken out at many places", test_many_cuts},
    {"salts", test_salts},
    {"salts of events", test_salts_of_events},
    {"whatever else", test_whatever},
    {"questions for tokens", test_questions},
    {"prompts by path", test_kinds},
    {"priorities", test_priorities},
    {"other salts", test_other_salts},
    {"answers with tokens", test_tokens},
    {"urls", test_urls},
    {"hashes of blocks", test_hashes},
    {"questions where to send a request", test_schedules},
    {"many members", test_members},
    {"long prompts", test_long_prompts},
};
SUITE("forward_body", tests)
