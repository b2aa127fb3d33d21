/* Forms: what is read of bodies that are no JSON. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/openai/form.h"
#include "tests/unit/suite.h"

#define TYPE "multipart/form-data; boundary=B"
#define PART(name, value)                                                    \
    "--B\r\nContent-Disposition: form-data; name=\"" name "\"\r\n\r\n" value \
    "\r\n"

/* From memory of its own, so that reading beyond it is seen. */
static int read_as(const char *type, const char *text, size_t n,
                   struct forward_body *out, struct openai_error *error)
{
    char *body = malloc(n + (n == 0));
    int rc;

    CU_ASSERT_PTR_NOT_NULL_FATAL(body);
    memcpy(body, text, n);
    rc = form_read(type, strlen(type), body, n, out, error);
    free(body);
    return rc;
}

static void expect_model(const char *type, const char *text, const char *model,
                         bool stream)
{
    struct forward_body body;
    struct openai_error error = {0};

    CU_ASSERT_EQUAL(read_as(type, text, strlen(text), &body, &error), 0);
    CU_ASSERT_STRING_EQUAL(error.message, "");
    CU_ASSERT_STRING_EQUAL(body.model, model);
    CU_ASSERT_EQUAL(body.stream, stream);
    CU_ASSERT(!body.kind && !body.words && body.n_words == 0);
}

static void expect_error(const char *type, const char *text, size_t n,
                         const char *message)
{
    struct forward_body body;
    struct openai_error error;

    CU_ASSERT_EQUAL(read_as(type, text, n, &body, &error), -EINVAL);
    CU_ASSERT_EQUAL(error.http_status, 400);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, message));
    CU_ASSERT_STRING_EQUAL(body.model, "");
}

static void test_types(void)
{
    static const struct {
        const char *text;
        enum form_type type;
    } cases[] = {
        {"", FORM_JSON},
        {"application/json", FORM_JSON},
        {"APPLICATION/json ; charset=utf-8", FORM_JSON},
        {"multipart/form-data; boundary=x", FORM_MULTIPART},
        {"Multipart/Form-Data", FORM_MULTIPART},
        {"multipart/mixed; boundary=x", FORM_OTHER},
        {"application/jsonp", FORM_OTHER},
        {"text/plain", FORM_OTHER},
        {";", FORM_OTHER},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CU_ASSERT_EQUAL(form_type_of(cases[i].text, strlen(cases[i].text)),
                        cases[i].type);
}

static void test_model(void)
{
    expect_model(TYPE, PART("model", "m") "--B--\r\n", "m", false);
    expect_model(TYPE, PART("stream", "true") PART("model", "a b") "--B--",
                 "a b", true);
    expect_model(TYPE, PART("models", "m") PART("modelling", "m") "--B--", "",
                 false);
    expect_model(
        "multipart/form-data;charset=x; BOUNDARY = \"B \\\"1\"; c=d",
        "preamble\r\n--B \"1  \r\nX: y\r\ncontent-disposition:form-data"
        " ; x=1; NAME=model\r\n\r\nm\r\n--B \"1--\r\nepilogue",
        "m", false);
    /* Parameters without a value, and an empty one. */
    expect_model(TYPE,
                 "--B\r\nContent-Disposition: form-data;; x; name=\"model\""
                 "\r\n\r\nm\r\n--B--",
                 "m", false);
}

/* A file may hold what looks like a field, but for the delimiter. */
static void test_files(void)
{
    expect_model(
        TYPE,
        "--B\r\nContent-Disposition: form-data; name=\"model\"; "
        "filename=\"long.wav\"\r\n\r\nx\r\n" PART("model", "m") "--B--",
        "m", false);
    expect_model(
        TYPE,
        "--B\r\nContent-Disposition: form-data; name=\"file\"; "
        "filename=\"a\"\r\n\r\nContent-Disposition: form-data; "
        "name=\"model\"\r\n\r\nx\n--B\r\n--" PART("model", "m") "--B--",
        "", false);
    expect_model(TYPE, PART("file", "\r\n\r\n-\r\n--C\r\n--") "--B--", "",
                 false);
}

/* Names and values that are cut short by a NUL are others. */
static void test_nul_in_a_name(void)
{
    static const char text[] = PART("model\0x", "a") PART("model", "m") "--B--";
    struct forward_body body;
    struct openai_error error;

    CU_ASSERT_EQUAL(read_as(TYPE, text, sizeof(text) - 1, &body, &error), 0);
    CU_ASSERT_STRING_EQUAL(body.model, "m");
}

/* What some servers read as JSON, whatever its type. */
static void test_hidden_objects(void)
{
    static const struct {
        const char *text;
        size_t n;
        bool hidden;
    } cases[] = {
        {"", 0, false},
        {" \r\n\t", 4, false},
        {"{", 1, true},
        {" \n\t{}", 5, true},
        {"\xef\xbb\xbf{}", 5, true},
        {"\xff\xfe{\0}\0", 6, true},
        {"\xfe\xff\0{\0}", 6, true},
        {"\0\0\0{", 4, true},
        {"--B\r\n\r\n{}\r\n--B--", 17, false},
        {"x{}", 3, false},
        {"[{}]", 4, false},
        {"\xff\xfb\x90{", 4, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CU_ASSERT_EQUAL(form_hides_object(cases[i].text, cases[i].n),
                        cases[i].hidden);
}

/* A line that only begins as the delimiter does is none. */
static void test_longer_lines(void)
{
    expect_model(TYPE,
                 PART("file",
                      "\r\n--BB\r\n\r\nx\r\n--B-\r\n--B \tB\r\n--B\r\r\n"
                      "-" PART("model", "m")) "--B--",
                 "", false);
    expect_model(TYPE, "--BB\r\n\r\n\r\n" PART("model", "m") "--B--", "m",
                 false);
    expect_model(TYPE,
                 "--B \t\r\nContent-Disposition: form-data; name=model\r\n\r\n"
                 "m\r\n--B\t\r\n\r\n--B--",
                 "m", false);
    expect_model(TYPE, PART("file", "\r\n--BB\r\n\r\nx") PART("model", "m"), "",
                 false);
}

static void test_ends_early(void)
{
    static const char whole[] = PART("model", "m") PART("x", "1") "--B--";

    for (size_t n = 3; n < sizeof(whole); n++) {
        struct forward_body body;
        struct openai_error error;

        CU_ASSERT_EQUAL(read_as(TYPE, whole, n, &body, &error), 0);
        CU_ASSERT(!*body.model || strcmp(body.model, "m") == 0);
    }
    expect_model(TYPE, PART("model", "m") "--B", "m", false);
    expect_model(TYPE, "--B\r\n--B\r\n\r\n--B--", "", false);
    expect_model(TYPE,
                 "--B\r\nContent-Disposition: form-data; name=model\r\n"
                 "\r\n--B--",
                 "", false);
}

static void test_errors(void)
{
    static const char none[] = "x\r\n--C\r\n", nul[] = PART("model", "a\0b");
    static const char twice[] = PART("model", "a") PART("model", "a") "--B--";
    static const char bad[] = PART("model", "a\xff") "--B--";
    static const char longer[] = "--BB\r\n\r\n\r\n--BB--";
    char *text = calloc(1, 600);

    expect_error(TYPE, "", 0, "no part begins");
    expect_error(TYPE, none, sizeof(none) - 1, "no part begins");
    expect_error("multipart/form-data", twice, 10, "needs a boundary");
    expect_error("multipart/form-data; boundary=\"", twice, 10,
                 "needs a boundary");
    expect_error("multipart/form-data; boundary="
                 "12345678901234567890123456789012345"
                 "678901234567890123456789012345678901",
                 twice, 10, "needs a boundary");
    expect_error(TYPE, twice, sizeof(twice) - 1,
                 "model: the form's field must "
                 "come only once");
    expect_error(TYPE, bad, sizeof(bad) - 1, "model: the form's field must be");
    expect_error(TYPE, longer, sizeof(longer) - 1, "no part begins");
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    strcpy(text, "--B\r\nContent-Disposition: form-data; name=model\r\n\r\n");
    memset(text + strlen(text), 'm', 256);
    strcat(text, "\r\n--B--");
    expect_error(TYPE, text, strlen(text), "at most 255 bytes");
    free(text);
    text = malloc(sizeof(nul) + 5);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    memcpy(text, nul, sizeof(nul) - 1);
    memcpy(text + sizeof(nul) - 1, "--B--", 5);
    expect_error(TYPE, text, sizeof(nul) + 4, "must be a text");
    free(text);
}

static const struct suite_test tests[] = {
    {"types of bodies", test_types},
    {"the model", test_model},
    {"files", test_files},
    {"lines that go on behind a delimiter", test_longer_lines},
    {"a NUL in a name", test_nul_in_a_name},
    {"objects that are said to be something else", test_hidden_objects},
    {"forms that end early", test_ends_early},
    {"errors", test_errors},
};
SUITE("form", tests)
