/* Which of a client's requests an engine may get. */
#include <stdlib.h>
#include <string.h>

#include "conductor/front/openai/body/path.h"
#include "tests/unit/suite.h"

/* From memory of its own, so that reading beyond it is seen. */
static enum forward_path of(const char *method, const char *path, size_t n)
{
    char *copy = malloc(n + (n == 0));
    enum forward_path got;

    CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
    memcpy(copy, path, n);
    got = forward_path_of(http_text(method), (struct http_slice){copy, n});
    free(copy);
    return got;
}

/* Paths, ended by NULL, are all of one kind. */
static void expect(const char *method, const char *const *paths,
                   enum forward_path want)
{
    for (; *paths; paths++) {
        enum forward_path got = of(method, *paths, strlen(*paths));

        if (got != want)
            printf("%s %s: %d, not %d\n", method, *paths, got, want);
        CU_ASSERT_EQUAL(got, want);
    }
}

static void test_open(void)
{
    static const char *const any[] = {
        "/v1/responses/resp_1", "/v1/files", "/v1/files/",
        "/v1/new/thing",        "/v1/a%2Fb", "/v1/caf%C3%A9",
        "/v1/a.b..c/...",       "/v1/x;a=b", "/v1/load_lora_adapters",
        "/v1/x/loads",          "/v1/a%23b", NULL};
    static const char *const posts[] = {"/generate", "/tokenize", "/v2/rerank",
                                        "/inference/v1/generate", NULL};
    static const char *const methods[] = {"GET",   "HEAD",   "POST",   "PUT",
                                          "PATCH", "DELETE", "OPTIONS"};

    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        expect(methods[i], any, FORWARD_PATH_OPEN);
    expect("POST", posts, FORWARD_PATH_OPEN);
    expect("GET", posts, FORWARD_PATH_METHOD);
    expect("TRACE", any, FORWARD_PATH_METHOD);
    expect("get", any, FORWARD_PATH_METHOD);
    CU_ASSERT_STRING_EQUAL(forward_path_methods(http_text("/generate")),
                           "POST");
    CU_ASSERT_PTR_NOT_NULL(
        strstr(forward_path_methods(http_text("/v1/x")), "DELETE"));
}

static void test_engines_own(void)
{
    static const char *const other[] = {"",           "/",
                                        "*",          "/v1",
                                        "/v1/",       "/V1/models",
                                        "/%761/x",    "//v1/x",
                                        "/sleep",     "/metrics",
                                        "/admin",     "/generate/",
                                        "/v2/models", "/reset_prefix_cache",
                                        NULL};
    static const char *const closed[] = {"/v1/load_lora_adapter",
                                         "/v1/unload_lora_adapter",
                                         "/v1/loads",
                                         "/v1/Load_LoRA_adapter/",
                                         "/v1/load%5Flora_adapter",
                                         "/v1/load_lora_adapter%2f",
                                         NULL};

    expect("POST", other, FORWARD_PATH_OTHER);
    expect("POST", closed, FORWARD_PATH_CLOSED);
    expect("GET", closed, FORWARD_PATH_CLOSED);
}

static void test_odd(void)
{
    static const char *const odd[] = {"/v1//x",
                                      "/v1/x//",
                                      "/v1/../sleep",
                                      "/v1/%2e%2E/sleep",
                                      "/v1/.",
                                      "/v1/x/..",
                                      "/v1/..%2fsleep",
                                      "/v1/..;/sleep",
                                      "/v1/%252e",
                                      "/v1/50%",
                                      "/v1/a%5cb",
                                      "/v1/a\\b",
                                      "/v1/a%00",
                                      "/v1/a%0d%0ab",
                                      "/v1/%7f",
                                      "/v1/;/x",
                                      "/v1/loads#",
                                      "/v1/x#y",
                                      "/v1/load_lora_adapter#/x",
                                      NULL};

    expect("POST", odd, FORWARD_PATH_ODD);
    CU_ASSERT_EQUAL(of("GET", "/v1/a\0b", 7), FORWARD_PATH_ODD);
}

/* Longer than what is kept of it. */
static void test_long(void)
{
    char path[400] = "/v1/loads";

    for (size_t n = 9; n < 390; n++) {
        CU_ASSERT_EQUAL(of("GET", path, n),
                        n == 9 ? FORWARD_PATH_CLOSED : FORWARD_PATH_OPEN);
        path[n] = 'x';
        memcpy(path + n + 1, "/../", 4);
        CU_ASSERT_EQUAL(of("GET", path, n + 5), FORWARD_PATH_ODD);
    }
}

static void test_read(void)
{
    static const char *const same[] = {"/v1/completions", "/v1/completions/",
                                       "/v1%2fcompletions",
                                       "/v1/%63omplet%69ons", NULL};
    static const char *const odd[] = {
        "/v1//completions", "/v1/completions#x",
        "/v1/0123456789012345678901234567890123456789012345678901234567890",
        NULL};
    char text[FORWARD_PATH_BYTES];

    for (size_t i = 0; same[i]; i++) {
        CU_ASSERT_EQUAL(forward_path_read(http_text(same[i]), text).n, 15);
        CU_ASSERT_EQUAL(memcmp(text, same[0], 15), 0);
    }
    for (size_t i = 0; odd[i]; i++)
        CU_ASSERT_EQUAL(forward_path_read(http_text(odd[i]), text).n, 0);
}

static void test_looks(void)
{
    CU_ASSERT_TRUE(forward_path_looks(http_text("GET"), 0));
    CU_ASSERT_TRUE(forward_path_looks(http_text("DELETE"), 9));
    CU_ASSERT_TRUE(forward_path_looks(http_text("POST"), 0));
    CU_ASSERT_FALSE(forward_path_looks(http_text("POST"), 2));
}

static void expect_about(const char *method, const char *const *paths,
                         enum forward_about want)
{
    for (; *paths; paths++) {
        enum forward_about got =
            forward_path_about(http_text(method), http_text(*paths));

        if (got != want)
            printf("%s %s: %d, not %d\n", method, *paths, got, want);
        CU_ASSERT_EQUAL(got, want);
    }
}

/* What is not known to be about a prompt is about what engines keep. */
static void test_about(void)
{
    static const char *const prompts[] = {"/v1/completions",
                                          "/v1/responses",
                                          "/v1/respo%6eses/",
                                          "/v1/embeddings",
                                          "/v1/messages/count_tokens",
                                          "/score",
                                          "/tokenize",
                                          NULL};
    static const char *const kept[] = {
        "/v1/responses/r", "/v1/responses/r/cancel", "/v1/responses/%72", NULL};
    static const char *const things[] = {"/v1/files/f",
                                         "/v1/files/f/content",
                                         "/v1/%72esponses/r",
                                         "/v1/batch/b/",
                                         "/v1/chat/completions/c",
                                         "/v1/a%2fb",
                                         "/v1/messages/count_tokens",
                                         "/v1/x",
                                         "/v1/messages",
                                         NULL};
    static const char *const lists[] = {
        "/v1/files",      "/v1/files/",           "/v1/responses",
        "/v1/responses/", "/v1/fine_tuning/jobs", NULL};

    expect_about("POST", prompts, FORWARD_ABOUT_PROMPT);
    expect_about("OPTIONS", prompts, FORWARD_ABOUT_PROMPT);
    expect_about("POST", kept, FORWARD_ABOUT_KEPT);
    expect_about("DELETE", kept, FORWARD_ABOUT_KEPT);
    expect_about("GET", things, FORWARD_ABOUT_THING);
    expect_about("PATCH", things, FORWARD_ABOUT_THING);
    expect_about("GET", lists, FORWARD_ABOUT_LIST);
    expect_about("PUT", lists, FORWARD_ABOUT_LIST);
}

static const struct suite_test tests[] = {
    {"what goes on", test_open},
    {"what is the engine's own", test_engines_own},
    {"what could be read as another path", test_odd},
    {"long paths", test_long},
    {"as engines read them", test_read},
    {"what asks no model", test_looks},
    {"what it is about", test_about},
};
SUITE("forward_path", tests)
