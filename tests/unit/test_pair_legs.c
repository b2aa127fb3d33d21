/* What the engines of a pair are sent for a body, what the prefill leg's reply
 * says, and its cached tokens in the answer. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "conductor/connector/pair.h"
#include "tests/unit/suite.h"

static void is(struct text_buf *out, const char *want)
{
    text_buf_add(out, "", 1);
    CU_ASSERT_EQUAL_FATAL(out->error, 0);
    CU_ASSERT_STRING_EQUAL(out->data, want);
    text_buf_fini(out);
    text_buf_init(out, 1 << 20);
}

static struct pair_ask ask_of(const char *body)
{
    return (struct pair_ask){.body = body, .n = strlen(body)};
}

#define NIXL_ASKS                                            \
    "{\"kv_transfer_params\":{\"do_remote_decode\":true,"    \
    "\"do_remote_prefill\":false,\"remote_engine_id\":null," \
    "\"remote_block_ids\":null,\"remote_host\":null,"        \
    "\"remote_port\":null},\"stream\":false,\"max_tokens\":1"

#define TEXT_BUF_TEST(test)                                             \
    SUITE_TEST(test, struct text_buf, out, text_buf_init(out, 1 << 20), \
               text_buf_fini(out))

TEXT_BUF_TEST(test_nixl)
{
    static const char body[] =
        " { \"prompt\" : [1, 2,3],\"stream\":true , \"stream_options\":{},"
        "\"max_tokens\":100,\"min_t\\u006fkens\":7, "
        "\"seed\":18446744073709551615,"
        "\"x\":{\"max_tokens\":5}}\n";
    struct pair_ask ask = ask_of(body);
    struct pair_reply reply = {.params = "{\"a\": 1}", .n_params = 8};

    CU_ASSERT_EQUAL(pair_nixl.prefill(&ask, out), 0);
    is(out,
       NIXL_ASKS ",\"min_tokens\":1,\"prompt\" : [1, 2,3],"
                 "\"seed\":18446744073709551615,\"x\":{\"max_tokens\":5}}");
    CU_ASSERT_EQUAL(pair_nixl.decode(&ask, &reply, out), 0);
    is(out, "{\"kv_transfer_params\":{\"a\": 1},\"prompt\" : [1, 2,3],"
            "\"stream\":true,\"stream_options\":{},\"max_tokens\":100,"
            "\"min_t\\u006fkens\":7,\"seed\":18446744073709551615,"
            "\"x\":{\"max_tokens\":5}}");
    ask = ask_of("{\"max_completion_tokens\":3}");
    CU_ASSERT_EQUAL(pair_nixl.prefill(&ask, out), 0);
    is(out, NIXL_ASKS ",\"max_completion_tokens\":1}");
    ask = ask_of("{}");
    CU_ASSERT_EQUAL(pair_nixl.prefill(&ask, out), 0);
    is(out, NIXL_ASKS "}");
    /* A leg's own parameters are replaced: so its KV is released. */
    ask = ask_of("{\"kv_transfer_params\":{\"do\":1},\"max_tokens\":1}");
    CU_ASSERT_EQUAL(pair_nixl.decode(&ask, &reply, out), 0);
    is(out, "{\"kv_transfer_params\":{\"a\": 1},\"max_tokens\":1}");
}

/* One room for both; the client's own does not count. */
static void test_sglang(void)
{
    struct pair_ask ask = ask_of(
        "{\"text\":[\"a\"],\"bootstrap_room\":[7,8],\"bootstrap_host\":\"h\","
        "\"bootstrap_port\":[1],\"bootstrap_pair_key\":0,\"n\":2}");
    struct text_buf out;

    ask.host = "10.0.0.1";
    ask.port = 9000;
    ask.room = UINT64_MAX;
    text_buf_init(&out, 1 << 20);
    CU_ASSERT_EQUAL(pair_sglang.prefill(&ask, &out), 0);
    is(&out, "{\"bootstrap_host\":\"10.0.0.1\",\"bootstrap_port\":9000,"
             "\"bootstrap_room\":9223372036854710272,\"text\":[\"a\"],"
             "\"n\":2}");
    CU_ASSERT_PTR_NULL(pair_sglang.decode);
    CU_ASSERT_FALSE(pair_sglang.alone);
    CU_ASSERT_EQUAL(pair_apart(true) >> PAIR_CONNECTORS << PAIR_CONNECTORS | 1,
                    pair_apart(true));
    CU_ASSERT_EQUAL(pair_apart(false) & ~pair_apart(true),
                    1u << PAIR_NIXL | 1u << PAIR_SHARED_STORAGE |
                        1u << PAIR_OFFLOADING | 1u << PAIR_MOONCAKE);
    text_buf_fini(&out);
}

/* An id that both legs name; the reply says nothing. */
static void test_offloading(void)
{
    struct pair_ask ask = ask_of("{\"prompt\":\"a\",\"kv_transfer_params\":{"
                                 "\"remote_prefiller\":{}},\"max_tokens\":9}");
    struct text_buf out;

    ask.host = "10.0.0.1";
    ask.port = 5710;
    ask.rank = 3;
    ask.room = 0xabc;
    text_buf_init(&out, 1 << 20);
    CU_ASSERT_EQUAL(pair_offloading.prefill(&ask, &out), 0);
    is(&out, "{\"kv_transfer_params\":{\"remote_decoder\":{"
             "\"kv_request_id\":\"0000000000000abc\"}},\"stream\":false,"
             "\"max_tokens\":1,\"prompt\":\"a\"}");
    CU_ASSERT_EQUAL(pair_offloading.decode(&ask, NULL, &out), 0);
    is(&out, "{\"kv_transfer_params\":{\"remote_prefiller\":{"
             "\"kv_request_id\":\"0000000000000abc\",\"remote_host\":"
             "\"10.0.0.1\",\"remote_port\":5713}},\"prompt\":\"a\","
             "\"max_tokens\":9}");
    text_buf_fini(&out);
}

/* A transfer that both legs name; a prefill leg that ends by its length. */
static void test_mooncake(void)
{
    struct pair_ask ask =
        ask_of("{\"prompt\":\"a\",\"stop\":[\"b\"],\"ignore_eos\":false,"
               "\"stop_token_ids\":[1],\"kv_transfer_params\":{},\"seed\":3}");
    struct text_buf out;

    ask.host = "::1";
    ask.port = 8998;
    ask.room = 0xabc;
    ask.id = "i\"d";
    text_buf_init(&out, 1 << 20);
    CU_ASSERT_EQUAL(pair_mooncake.prefill(&ask, &out), 0);
    is(&out, "{\"kv_transfer_params\":{\"do_remote_decode\":true,"
             "\"do_remote_prefill\":false,\"transfer_id\":"
             "\"0000000000000abc\"},\"ignore_eos\":true,\"stream\":false,"
             "\"max_tokens\":1,\"prompt\":\"a\",\"seed\":3}");
    CU_ASSERT_EQUAL(pair_mooncake.decode(&ask, NULL, &out), 0);
    is(&out, "{\"kv_transfer_params\":{\"do_remote_decode\":false,"
             "\"do_remote_prefill\":true,\"transfer_id\":"
             "\"0000000000000abc\",\"remote_bootstrap_addr\":"
             "\"http://[::1]:8998\",\"remote_engine_id\":\"i\\\"d\"},"
             "\"prompt\":\"a\",\"stop\":[\"b\"],\"ignore_eos\":false,"
             "\"stop_token_ids\":[1],\"seed\":3}");
    text_buf_fini(&out);
}

TEXT_BUF_TEST(test_shared_storage)
{
    struct pair_ask ask = ask_of("{\"prompt\":\"a\",\"max_tokens\":9}");

    CU_ASSERT_EQUAL(pair_shared_storage.prefill(&ask, out), 0);
    is(out, "{\"stream\":false,\"max_tokens\":1,\"prompt\":\"a\"}");
    CU_ASSERT_PTR_NULL(pair_shared_storage.decode);
}

TEXT_BUF_TEST(test_no_bodies)
{
    static const char *const bad[] = {"",        "[]",       "{",
                                      "{\"a\"}", "{\"a\":1", "nothing"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct pair_ask ask = ask_of(bad[i]);
        struct pair_reply reply;

        CU_ASSERT_EQUAL(pair_nixl.prefill(&ask, out), -EINVAL);
        CU_ASSERT_EQUAL(pair_reply_read(bad[i], strlen(bad[i]), &reply),
                        -EINVAL);
    }
}

static void test_reply(void)
{
    static const char *const wrong[] = {
        "{\"kv_transfer_params\":7}", "{\"kv_transfer_params\":[]}",
        "{\"kv_transfer_params\":\"null\"}", "{\"kv_transfer_params\":nul}"};
    static const char real[] =
        "{\"id\":\"cmpl-rid-3\",\"choices\":[{\"index\":0,\"text\":"
        "\"\\\"cached_tokens\\\": 7\"}],\"usage\":{\"prompt_tokens\":10,"
        "\"prompt_tokens_details\":{\"cached_tokens\":192,"
        "\"created_cache_tokens\":null},\"completion_tokens_details\":null},"
        "\"kv_transfer_params\":{\"remote_block_ids\":[[16]], \"x\" : \"}\"},"
        "\"metrics\":null}";
    static const char none[] = "{\"kv_transfer_params\":null ,\"usage\":null}";
    static const char params[] = "{\"remote_block_ids\":[[16]], \"x\" : \"}\"}";
    static const char *const odd[] = {
        "12345678901", "10000000000000000000", "12.5", "1e3", "-5", "\"7\""};
    struct pair_reply reply;

    CU_ASSERT_EQUAL_FATAL(pair_reply_read(real, sizeof(real) - 1, &reply), 0);
    CU_ASSERT_EQUAL(reply.cached_tokens, 192);
    CU_ASSERT_EQUAL(reply.prompt_tokens, 10);
    CU_ASSERT_PTR_NOT_NULL_FATAL(reply.params);
    CU_ASSERT_EQUAL_FATAL(reply.n_params, sizeof(params) - 1);
    CU_ASSERT_EQUAL(memcmp(reply.params, params, sizeof(params) - 1), 0);
    CU_ASSERT_EQUAL(pair_reply_read(none, sizeof(none) - 1, &reply), 0);
    CU_ASSERT_PTR_NULL(reply.params);
    CU_ASSERT_EQUAL(reply.cached_tokens, -1);
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        char text[128];
        int n = snprintf(text, sizeof(text),
                         "{\"usage\":{\"prompt_tokens\":%s,"
                         "\"prompt_tokens_details\":{"
                         "\"cached_tokens\":%s}}}",
                         odd[i], odd[i]);

        CU_ASSERT_EQUAL(pair_reply_read(text, (size_t)n, &reply), 0);
        CU_ASSERT_EQUAL(reply.cached_tokens, -1);
        CU_ASSERT_EQUAL(reply.prompt_tokens, -1);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CU_ASSERT_EQUAL(pair_reply_read(wrong[i], strlen(wrong[i]), &reply),
                        -EINVAL);
}

/* However an answer is cut. */
TEXT_BUF_TEST(test_usage)
{
    static const char answer[] =
        "data: {\"text\":\"a \\\"cached_tokens\\\":5, \\\\\"}\n\n"
        "data: {\"x\\\"cached_tokens\":9,\"details\":{\"cached_tokens\":0,"
        "\"other\":1}}\n\ndata: {\"cached_tokens\": 12345}\n\n"
        "{\"cached_tokens\":null,\"cached_tokens\":-3,\"cached_tokens\":77";
    static const char want[] =
        "data: {\"text\":\"a \\\"cached_tokens\\\":5, \\\\\"}\n\n"
        "data: {\"x\\\"cached_tokens\":9,\"details\":{\"cached_tokens\":64,"
        "\"other\":1}}\n\ndata: {\"cached_tokens\": 64}\n\n"
        "{\"cached_tokens\":null,\"cached_tokens\":-3,\"cached_tokens\":77";
    size_t n = sizeof(answer) - 1;

    for (size_t a = 0; a <= n; a++)
        for (size_t b = a; b <= n; b += 7) {
            struct pair_usage u = {.cached_tokens = 64};

            pair_usage_write(&u, answer, a, false, out);
            pair_usage_write(&u, answer + a, b - a, false, out);
            pair_usage_write(&u, answer + b, n - b, true, out);
            is(out, want);
        }
    struct pair_usage each = {.cached_tokens = 64};
    for (size_t i = 0; i < n; i++)
        pair_usage_write(&each, answer + i, 1, i + 1 == n, out);
    is(out, want);
    struct pair_usage as_is = {.cached_tokens = -1};
    pair_usage_write(&as_is, answer, n, true, out);
    is(out, answer);
    /* What ends an event is held by nothing. */
    struct pair_usage u = {.cached_tokens = 64};
    pair_usage_write(&u, "data: {}\n\n", 10, false, out);
    is(out, "data: {}\n\n");
}

static void test_table(void)
{
    static const struct {
        const char *name;
        const struct pair_protocol *protocol;
    } all[PAIR_CONNECTORS] = {{"none", NULL},
                              {"nixl", &pair_nixl},
                              {"shared_storage", &pair_shared_storage},
                              {"sglang", &pair_sglang},
                              {"offloading", &pair_offloading},
                              {"mooncake", &pair_mooncake}};

    for (unsigned i = 0; i < PAIR_CONNECTORS; i++) {
        CU_ASSERT_STRING_EQUAL(pair_connector_names[i], all[i].name);
        CU_ASSERT_PTR_EQUAL(pair_protocol((enum pair_connector)i),
                            all[i].protocol);
    }
    CU_ASSERT_PTR_NULL(pair_connector_names[PAIR_CONNECTORS]);
}

static const struct suite_test tests[] = {
    {"nixl", test_nixl},         {"shared storage", test_shared_storage},
    {"sglang", test_sglang},     {"offloading", test_offloading},
    {"mooncake", test_mooncake}, {"no bodies", test_no_bodies},
    {"reply", test_reply},       {"usage", test_usage},
    {"table", test_table},
};
SUITE("pair legs", tests)
