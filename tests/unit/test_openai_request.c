/* Request bodies: what is accepted, and what is refused by which words. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/openai/request.h"
#include "tests/unit/suite.h"

static const struct openai_model model = {"tiny", 512, 100};
static const struct openai_limits limits = {4, 16, 4096, 0};

static int parse(enum openai_kind kind, const char *body,
                 struct openai_request *out, struct openai_error *error)
{
    return openai_request_parse(kind, body, strlen(body), &model, &limits, out,
                                error);
}

static void test_prompts(void)
{
    struct openai_request r;
    struct openai_error e;

    CU_ASSERT_EQUAL(parse(OPENAI_COMPLETION,
                          "{\"prompt\":[\"ab\",\"\\u00e9\"],\"stream\":true,"
                          "\"stream_options\":{\"include_usage\":true},"
                          "\"cache_salt\":\"me\"}",
                          &r, &e),
                    0);
    CU_ASSERT_EQUAL(r.n_prompts, 2);
    CU_ASSERT_EQUAL(r.offsets[1], 2);
    CU_ASSERT_EQUAL(r.offsets[2], 4);
    CU_ASSERT_EQUAL(r.tokens[0], 'a');
    CU_ASSERT_EQUAL(r.tokens[2], 0xc3);
    CU_ASSERT_EQUAL(r.max_tokens, 16);
    CU_ASSERT_TRUE(r.stream);
    CU_ASSERT_TRUE(r.include_usage);
    CU_ASSERT_STRING_EQUAL(r.salt, "me");
    openai_request_fini(&r);
    CU_ASSERT_EQUAL(
        parse(OPENAI_COMPLETION,
              "{\"prompt\":\"a\",\"stream\":true,\"stream_options\":"
              "{\"continuous_usage_stats\":true,\"include_usage\":true}}",
              &r, &e),
        0);
    CU_ASSERT_TRUE(r.usage_each);
    openai_request_fini(&r);
    CU_ASSERT_EQUAL(parse(OPENAI_COMPLETION,
                          "{\"prompt\":[[1,2],[511]],\"max_tokens\":98}", &r,
                          &e),
                    0);
    CU_ASSERT_EQUAL(r.n_prompts, 2);
    CU_ASSERT_EQUAL(r.tokens[2], 511);
    CU_ASSERT_EQUAL(r.max_tokens, 98);
    CU_ASSERT_FALSE(r.stream);
    CU_ASSERT_PTR_NULL(r.salt);
    openai_request_fini(&r);
}

/* The default is cut to the room there is; a wish isn't. */
static void test_default_max_tokens(void)
{
    char body[400];
    struct openai_request r;
    struct openai_error e;

    snprintf(body, sizeof(body), "{\"prompt\":\"%095d\"}", 0);
    CU_ASSERT_EQUAL(parse(OPENAI_COMPLETION, body, &r, &e), 0);
    CU_ASSERT_EQUAL(r.max_tokens, 5);
    openai_request_fini(&r);
    snprintf(body, sizeof(body), "{\"prompt\":\"%0100d\"}", 0);
    CU_ASSERT_EQUAL(parse(OPENAI_COMPLETION, body, &r, &e), -EINVAL);
    CU_ASSERT_STRING_EQUAL(e.code, "context_length_exceeded");
    CU_ASSERT_STRING_EQUAL(e.param, "prompt");
    CU_ASSERT_EQUAL(
        parse(OPENAI_CHAT,
              "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}", &r, &e),
        0);
    CU_ASSERT_EQUAL(r.max_tokens, 100 - r.offsets[1]);
    openai_request_fini(&r);
}

static bool prompt_is(const struct openai_request *r, const char *text)
{
    if (r->offsets[1] != strlen(text))
        return false;
    for (size_t i = 0; text[i]; i++)
        if (r->tokens[i] != (unsigned char)text[i])
            return false;
    return true;
}

static void test_chat(void)
{
    struct openai_request r;
    struct openai_error e;

    CU_ASSERT_EQUAL(
        parse(OPENAI_CHAT,
              "{\"max_completion_tokens\":3,\"messages\":["
              "{\"role\":\"system\",\"content\":\"S\"},"
              "{\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
              "{\"text\":\"b\",\"type\":\"text\"}],\"role\":\"user\"}]}",
              &r, &e),
        0);
    CU_ASSERT(prompt_is(&r, "<|system|>\nS\n<|user|>\nab\n<|assistant|>\n"));
    CU_ASSERT_EQUAL(r.max_tokens, 3);
    CU_ASSERT_EQUAL(r.n_prompts, 1);
    openai_request_fini(&r);
    /* As an agent sends back what it has done. */
    CU_ASSERT_EQUAL(
        parse(OPENAI_CHAT,
              "{\"messages\":[{\"role\":\"user\",\"name\":\"bob\",\"content\":"
              "\"U\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\","
              "\"content\":\"\\n\"}]},{\"role\":\"tool\",\"content\":\"5\","
              "\"tool_call_id\":\"1\"}]}",
              &r, &e),
        0);
    CU_ASSERT(prompt_is(&r, "<|user|>\nU\n<|assistant|>\n"
                            "[{\"id\":\"1\",\"content\":\"\\n\"}]\n"
                            "<|tool|>\n5\n<|assistant|>\n"));
    openai_request_fini(&r);
    /* What an assistant had nothing to say to. */
    CU_ASSERT_EQUAL(
        parse(OPENAI_CHAT,
              "{\"messages\":[{\"role\":\"user\",\"content\":\"U\"},"
              "{\"role\":\"assistant\",\"content\":null},"
              "{\"role\":\"user\",\"content\":\"V\"}]}",
              &r, &e),
        0);
    CU_ASSERT(prompt_is(&r, "<|user|>\nU\n<|assistant|>\n\n<|user|>\nV\n"
                            "<|assistant|>\n"));
    openai_request_fini(&r);
}

/* All that says nothing, at once. */
static void test_neutral(void)
{
    struct openai_request r;
    struct openai_error e;

    CU_ASSERT_EQUAL(
        parse(OPENAI_COMPLETION,
              "{\"model\":\"tiny\",\"prompt\":\"a\",\"temperature\":0.0,"
              "\"top_p\":1,\"n\":1,\"best_of\":1,\"frequency_penalty\":0,"
              "\"presence_penalty\":-0.0,\"echo\":false,\"logprobs\":null,"
              "\"stop\":[],\"suffix\":null,\"logit_bias\":{},\"seed\":7,"
              "\"user\":\"u\",\"metadata\":{\"a\":\"b\"},\"stream\":null,"
              "\"max_tokens\":null,\"stream_options\":null,"
              "\"ignore_eos\":true,\"repetition_penalty\":1.0,\"top_k\":-1,"
              "\"min_p\":0,\"min_tokens\":4,\"skip_special_tokens\":false,"
              "\"priority\":-3,\"stop_token_ids\":[],\"prompt_logprobs\":0}",
              &r, &e),
        0);
    openai_request_fini(&r);
    CU_ASSERT_EQUAL(
        parse(OPENAI_COMPLETION, "{\"model\":\"\",\"prompt\":\"a\"}", &r, &e),
        0);
    openai_request_fini(&r);
    CU_ASSERT_EQUAL(
        parse(OPENAI_CHAT,
              "{\"messages\":[{\"role\":\"user\",\"content\":\"a\","
              "\"name\":null}],\"logprobs\":false,\"tools\":[],"
              "\"tool_choice\":\"none\",\"response_format\":"
              "{\"type\":\"text\"},\"max_tokens\":5,"
              "\"max_completion_tokens\":5,\"modalities\":[\"text\"],"
              "\"store\":false,\"chat_template_kwargs\":{\"thinking\":true},"
              "\"add_generation_prompt\":true,\"top_k\":1,"
              "\"request_id\":\"x\"}",
              &r, &e),
        0);
    openai_request_fini(&r);
}

struct refusal {
    enum openai_kind kind;
    int status;
    const char *body, *code, *param, *message;
};

static const struct refusal refusals[] = {
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\"", "invalid_json", "",
     "expected ',' or '}'"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"n\":tru}", "invalid_json", "",
     "invalid token"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"prompt\":\"b\"}",
     "invalid_json", "", "duplicate object key"},
    {OPENAI_COMPLETION, 400, "{}", "missing_parameter", "prompt",
     "prompt: missing: must"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":null}", "missing_parameter", "prompt",
     "prompt: null: must"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":7}", "invalid_value", "prompt",
     "must be a text"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"\"}", "invalid_value", "prompt",
     "prompt: must not be empty"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":[[1],[]]}", "invalid_value", "prompt",
     "prompt[1]: must not be empty"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":[1,512]}", "invalid_value", "prompt",
     "prompt[1]: 512: must be a token id of model \"tiny\", from 0 to 511"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":[[1],[2,3],[4,4294967295]]}",
     "invalid_value", "prompt", "prompt[2][1]: 4294967295: must"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":[[1],[1],[1],[1],[1]]}",
     "invalid_value", "prompt", "prompt: must hold at most 4"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"max_tokens\":0}",
     "invalid_value", "max_tokens", "max_tokens: 0: must"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"max_tokens\":-1}",
     "invalid_value", "max_tokens", "max_tokens: -1: must"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"max_tokens\":1.5}",
     "invalid_value", "max_tokens", "max_tokens: 1.5: must"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"max_tokens\":\"9\"}",
     "invalid_value", "max_tokens", "max_tokens: \"9\": must"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"max_tokens\":100}",
     "context_length_exceeded", "max_tokens",
     "max_tokens: 100 tokens: the window of model \"tiny\" has 100 tokens, the "
     "prompt 1, and max_tokens is 100"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"max_tokens\":99999999999999}",
     "context_length_exceeded", "max_tokens", "4294967295"},
    {OPENAI_CHAT, 400,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}],"
     "\"max_completion_tokens\":99}",
     "context_length_exceeded", "max_completion_tokens", "is 99"},
    {OPENAI_COMPLETION, 404, "{\"prompt\":\"a\",\"model\":\"gpt-9\"}",
     "model_not_found", "model",
     "model: \"gpt-9\": does not exist; this server has \"tiny\""},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"model\":7}", "invalid_value",
     "model", "model: 7: must be"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"temperature\":0.7}",
     "unsupported_parameter", "temperature",
     "temperature: 0.7: not supported by model \"tiny\": it "
     "decodes greedily; leave it out or set it to 0"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"stop\":[\"x\"]}",
     "unsupported_parameter", "stop", "stop: [\"x\"]: not"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"n\":2}",
     "unsupported_parameter", "n", "n: 2: not"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"logprobs\":1}",
     "unsupported_parameter", "logprobs", "logprobs: 1: not"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"seed\":\"x\"}",
     "invalid_value", "seed", "seed: \"x\": must be an integer"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"bogus\":1}",
     "unknown_parameter", "bogus", "bogus: 1: unknown parameter"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"messages\":[]}",
     "unknown_parameter", "messages", "messages: []: unknown parameter"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"stream\":1}", "invalid_value",
     "stream", "true or false"},
    {OPENAI_COMPLETION, 400,
     "{\"prompt\":\"a\",\"stream_options\":{\"include_usage\":true}}",
     "invalid_value", "stream_options", "stream isn't true"},
    {OPENAI_COMPLETION, 400,
     "{\"prompt\":\"a\",\"stream\":true,\"stream_options\":{\"x\":1}}",
     "unknown_parameter", "stream_options", "stream_options.x"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"cache_salt\":\"\"}",
     "invalid_value", "cache_salt", "1 to 256 bytes"},
    {OPENAI_CHAT, 400, "{}", "missing_parameter", "messages",
     "messages: missing: must"},
    {OPENAI_CHAT, 400, "{\"messages\":[]}", "invalid_value", "messages",
     "messages: []: must not be empty"},
    {OPENAI_CHAT, 400, "{\"messages\":7}", "invalid_value", "messages",
     "must be an array"},
    {OPENAI_CHAT, 400, "{\"messages\":[7]}", "invalid_value", "messages",
     "messages[0]: 7: must be an object"},
    {OPENAI_CHAT, 400, "{\"messages\":[{\"content\":\"a\"}]}", "invalid_value",
     "messages", "messages[0].role: missing: must be system"},
    {OPENAI_CHAT, 400, "{\"messages\":[{\"role\":\"root\",\"content\":\"a\"}]}",
     "invalid_value", "messages", "messages[0].role: \"root\": must"},
    {OPENAI_CHAT, 400, "{\"messages\":[{\"role\":\"user\"}]}", "invalid_value",
     "messages", "messages[0].content: missing: must be"},
    {OPENAI_CHAT, 400, "{\"messages\":[{\"role\":\"user\",\"content\":true}]}",
     "invalid_value", "messages", "messages[0].content: true: must be"},
    {OPENAI_CHAT, 400,
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
     "\"image_url\",\"image_url\":{}}]}]}",
     "invalid_value", "messages",
     "messages[0].content[0].type: \"image_url\": must"},
    {OPENAI_CHAT, 400,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"name\":1}]}",
     "invalid_value", "messages", "messages[0].name: 1: not supported"},
    {OPENAI_CHAT, 400,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"tool_calls\":[{}]}"
     "]}",
     "invalid_value", "messages",
     "messages[0].tool_calls: [{}]: not supported"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"top_k\":5}",
     "unsupported_parameter", "top_k", "set it to -1"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"repetition_penalty\":1.1}",
     "unsupported_parameter", "repetition_penalty", "set it to 1"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"min_tokens\":-1}",
     "invalid_value", "min_tokens",
     "min_tokens: -1: must be a whole number of "
     "at least 0"},
    {OPENAI_COMPLETION, 400, "{\"prompt\":\"a\",\"kv_transfer_params\":{}}",
     "unknown_parameter", "kv_transfer_params", "unknown parameter"},
    {OPENAI_CHAT, 400,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
     "\"continue_final_message\":true}",
     "unsupported_parameter", "continue_final_message", "set it to false"},
    {OPENAI_COMPLETION, 400,
     "{\"prompt\":\"a\",\"stream\":true,\"stream_options\":"
     "{\"continuous_usage_stats\":1}}",
     "invalid_value", "stream_options.continuous_usage_stats", "true or false"},
    {OPENAI_CHAT, 400,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
     "\"tools\":[{}]}",
     "unsupported_parameter", "tools", "it calls no tools"},
    {OPENAI_CHAT, 400,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
     "\"max_tokens\":1,\"max_completion_tokens\":2}",
     "invalid_value", "max_completion_tokens", "the same as"},
};

static void test_refusals(void)
{
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const struct refusal *want = &refusals[i];
        struct openai_error e = {0};
        struct openai_request r;
        int rc = parse(want->kind, want->body, &r, &e);

        if (rc != -EINVAL || e.http_status != want->status ||
            strcmp(e.code, want->code) != 0 ||
            strcmp(e.param, want->param) != 0 ||
            !strstr(e.message, want->message)) {
            printf("\n  %s\n  -> %d %s %s: %s", want->body, e.http_status,
                   e.code, e.param, e.message);
            CU_FAIL("another refusal");
        }
        openai_request_fini(&r);
    }
}

/* What fills the body beside the prompt is named, wherever it stands. */
static void test_too_much_beside_the_prompt(void)
{
    static const struct {
        enum openai_kind kind;
        const char *format, *param;
    } cases[] = {
        {OPENAI_COMPLETION, "{\"model\":\"%05000d\",\"prompt\":\"a\"}",
         "model"},
        {OPENAI_COMPLETION, "{\"prompt\":\"a\",\"user\":\"%05000d\"}", "user"},
        {OPENAI_COMPLETION, "{\"model\":\"%05000d\"}", "model"},
        {OPENAI_CHAT,
         "{\"model\":\"%05000d\",\"messages\":[{\"role\":\"user\","
         "\"content\":\"a\"}]}",
         "model"},
        {OPENAI_CHAT,
         "{\"messages\":[{\"role\":\"%05000d\",\"content\":\"a\"}]}",
         "messages"},
    };
    char body[6000];
    struct openai_request r;
    struct openai_error e;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(body, sizeof(body), cases[i].format, 0);
        CU_ASSERT_EQUAL(parse(cases[i].kind, body, &r, &e), -EINVAL);
        CU_ASSERT_STRING_EQUAL(e.param, cases[i].param);
        CU_ASSERT_STRING_EQUAL(e.code, "invalid_value");
    }
}

static const struct suite_test tests[] = {
    {"prompts", test_prompts},
    {"default max_tokens", test_default_max_tokens},
    {"chat", test_chat},
    {"neutral parameters", test_neutral},
    {"refusals", test_refusals},
    {"too much beside the prompt", test_too_much_beside_the_prompt},
};
SUITE("openai_request", tests)
