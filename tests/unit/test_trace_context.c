/* traceparent as clients send it, and what receivers of spans answer. */
#include <stdlib.h>
#include <string.h>

#include "conductor/service/spans/context.h"
#include "tests/unit/suite.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"

static bool parse(const char *text, struct trace_context *c)
{
    return trace_context_parse(text, strlen(text), c);
}

static void test_good(void)
{
    struct trace_context c;
    char text[TRACEPARENT_BYTES];

    CU_ASSERT_TRUE_FATAL(parse("00-" TRACE "-" SPAN "-01", &c));
    CU_ASSERT_STRING_EQUAL(c.trace, TRACE);
    CU_ASSERT_STRING_EQUAL(c.span, SPAN);
    CU_ASSERT_TRUE(c.sampled);
    trace_context_write(&c, text);
    CU_ASSERT_STRING_EQUAL(text, "00-" TRACE "-" SPAN "-01");
    CU_ASSERT_TRUE_FATAL(parse("00-" TRACE "-" SPAN "-fe", &c));
    CU_ASSERT_FALSE(c.sampled);
    CU_ASSERT_TRUE(parse("01-" TRACE "-" SPAN "-01", &c));
    CU_ASSERT_TRUE(parse("fe-" TRACE "-" SPAN "-03-more", &c));
    CU_ASSERT_TRUE(c.sampled);
}

static void test_bad(void)
{
    static const char *const bad[] = {
        "",
        "00",
        "00-" TRACE "-" SPAN,
        "00-" TRACE "-" SPAN "-",
        "00-" TRACE "-" SPAN "-0",
        "00-" TRACE "-" SPAN "-01-more",
        "01-" TRACE "-" SPAN "-01more",
        "ff-" TRACE "-" SPAN "-01",
        "0x-" TRACE "-" SPAN "-01",
        "00_" TRACE "-" SPAN "-01",
        "00-" TRACE "-" SPAN "_01",
        "00-" TRACE "-" SPAN "-0g",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
        "00-" TRACE "-00F067AA0BA902B7-01",
        "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" TRACE "-0000000000000000-01",
    };
    struct trace_context c = {.trace = "x"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        CU_ASSERT_FALSE(parse(bad[i], &c));
    CU_ASSERT_FALSE(trace_context_parse("00-" TRACE "\0" SPAN "-01",
                                        TRACEPARENT_BYTES - 1, &c));
    CU_ASSERT_STRING_EQUAL(c.trace, "x");
}

static uint64_t rejected(const char *answer, char why[256])
{
    return otlp_rejected(answer, strlen(answer), why);
}

static void test_answers(void)
{
    char why[256];

    CU_ASSERT_EQUAL(rejected("", why), 0);
    CU_ASSERT_STRING_EQUAL(why, "");
    CU_ASSERT_EQUAL(rejected("{}", why), 0);
    CU_ASSERT_EQUAL(rejected("[1", why), 0);
    CU_ASSERT_EQUAL(rejected("{\"partialSuccess\":5}", why), 0);
    CU_ASSERT_EQUAL(rejected("{\"partialSuccess\":{\"rejectedSpans\":\"7\","
                             "\"errorMessage\":\"too old\"}}",
                             why),
                    7);
    CU_ASSERT_STRING_EQUAL(why, "too old");
    CU_ASSERT_EQUAL(rejected("{\"partialSuccess\":{\"rejectedSpans\":3}}", why),
                    3);
    CU_ASSERT_EQUAL(
        rejected("{\"partialSuccess\":{\"rejectedSpans\":-3}}", why), 0);
}

static void test_retry_after(void)
{
    const int64_t most = 300000000;

    CU_ASSERT_EQUAL(otlp_retry_after_us("5", 1, most), 5000000);
    CU_ASSERT_EQUAL(otlp_retry_after_us("0", 1, most), 0);
    CU_ASSERT_EQUAL(otlp_retry_after_us("", 0, most), 0);
    CU_ASSERT_EQUAL(otlp_retry_after_us("-1", 2, most), 0);
    CU_ASSERT_EQUAL(otlp_retry_after_us("5 s", 3, most), 0);
    CU_ASSERT_EQUAL(
        otlp_retry_after_us("Mon, 23 Nov 2026 09:00:00 GMT", 29, most), 0);
    CU_ASSERT_EQUAL(otlp_retry_after_us("99999999999999999999999999", 26, most),
                    most);
}

static const struct suite_test tests[] = {
    {"good ones", test_good},
    {"bad ones", test_bad},
    {"answers", test_answers},
    {"Retry-After", test_retry_after},
};
SUITE("trace context", tests)
