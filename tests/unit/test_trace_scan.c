/* One line of a trace: what is read, and what is refused with which words. */
#include <CUnit/CUnit.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "traces/scan.h"

static int scan(const char *line, struct trace_request *request,
                struct trace_error *error)
{
    *error = (struct trace_error){0};
    return trace_scan_line(line, strlen(line), request, error);
}

#define REST ", \"output_length\": 7, \"hash_ids\": [0]}"

static void test_good_lines(void)
{
    struct trace_request q = {0};
    struct trace_error e;

    CU_ASSERT_EQUAL(scan("{\"timestamp\": 2999, \"input_length\": 600, "
                         "\"output_length\": 7, \"hash_ids\": [0, 18]}",
                         &q, &e),
                    0);
    CU_ASSERT_EQUAL(q.arrival_us, 2999000);
    CU_ASSERT_EQUAL(q.input_tokens, 600);
    CU_ASSERT_EQUAL(q.output_tokens, 7);
    CU_ASSERT_EQUAL_FATAL(q.block_count, 2);
    CU_ASSERT_EQUAL(q.hash_ids[0], 0);
    CU_ASSERT_EQUAL(q.hash_ids[1], 18);
    /* Another order, no spaces, fields that aren't ours, the largest id. */
    CU_ASSERT_EQUAL(scan("\t{\"type\":\"te\\\"xt\",\"turn\":-1.5e3,\"x\":null,"
                         "\"hash_ids\":[9223372036854775807],"
                         "\"output_length\":0,\"input_length\":1,"
                         "\"timestamp\":0} \r",
                         &q, &e),
                    0);
    CU_ASSERT_EQUAL_FATAL(q.block_count, 1);
    CU_ASSERT_EQUAL(q.hash_ids[0], (uint64_t)INT64_MAX);
    CU_ASSERT_EQUAL(q.output_tokens, 0);
    CU_ASSERT(q.tenant == 0 && q.priority == 0);
    CU_ASSERT_EQUAL(scan("{\"tenant\": 12, \"priority\":-3, \"timestamp\": 1, "
                         "\"input_length\": 6" REST,
                         &q, &e),
                    0);
    CU_ASSERT_EQUAL(q.tenant, 12);
    CU_ASSERT_EQUAL(q.priority, -3);
    /* Nothing of the line before is left. */
    CU_ASSERT_EQUAL(scan("{\"timestamp\": 1, \"input_length\": 6" REST, &q, &e),
                    0);
    CU_ASSERT(q.tenant == 0 && q.priority == 0);
    trace_request_fini(&q);
}

static void test_bad_lines(void)
{
    static const struct {
        const char *line, *field, *value, *reason;
    } cases[] = {
        {"", "", "", "expected a JSON object"},
        {"[1]", "", "[1", "expected a JSON object"},
        {"{", "", "", "field name"},
        {"{\"timestamp\": 1", "", "", "expected , or }"},
        {"{\"timestamp\": -1, \"input_length\": 6" REST, "timestamp", "-1",
         "non-negative integer"},
        {"{\"timestamp\": 1.5, \"input_length\": 6" REST, "timestamp", "1.5",
         "non-negative integer"},
        {"{\"timestamp\": 1, \"input_length\": \"6\"" REST, "input_length",
         "\"6\"", "non-negative integer"},
        {"{\"timestamp\": 1, \"input_length\": 0" REST, "input_length", "0",
         "at least 1"},
        {"{\"timestamp\": 1, \"input_length\": 06" REST, "input_length", "06",
         "non-negative integer"},
        {"{\"timestamp\": 1, \"input_length\": 16777217" REST, "input_length",
         "16777217", "at most 16777216"},
        {"{\"timestamp\": 99999999999999999999, \"input_length\": 6" REST,
         "timestamp", "99999999999999999999", "at most 1000000000000000"},
        {"{\"timestamp\": 1, \"timestamp\": 1, \"input_length\": 6" REST,
         "timestamp", "1", "twice"},
        {"{\"timestamp\": 1" REST, "input_length", "", "missing"},
        {"{\"tenant\": \"a\", \"timestamp\": 1, \"input_length\": 6" REST,
         "tenant", "\"a\"", "non-negative integer"},
        {"{\"priority\": \"x\", \"timestamp\": 1" REST, "priority", "\"x\"",
         "must be an integer"},
        {"{\"priority\": 2147483648, \"timestamp\": 1" REST, "priority",
         "2147483648", "at most 2147483647"},
        {"{\"timestamp\": 1, \"input_length\": 6, \"output_length\": 1, "
         "\"hash_ids\": 3}",
         "hash_ids", "3", "array"},
        {"{\"timestamp\": 1, \"input_length\": 6, \"output_length\": 1, "
         "\"hash_ids\": [3 4]}",
         "hash_ids", "4", "expected , or ]"},
        {"{\"timestamp\": 1, \"input_length\": 6, \"output_length\": 1, "
         "\"hash_ids\": [3,]}",
         "hash_ids", "]", "non-negative integer"},
        {"{\"timestamp\": 1, \"input_length\": 6, \"output_length\": 1, "
         "\"hash_ids\": [9223372036854775808]}",
         "hash_ids", "9223372036854775808", "at most 9223372036854775807"},
        {"{\"timestamp\": 1, \"input_length\": 6" REST " 5", "", "5",
         "more than one value"},
        {"{\"more\": {\"a\": 1}, \"timestamp\": 1, \"input_length\": 6" REST,
         "", "more", "unknown field"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct trace_request q = {0};
        struct trace_error e;
        int rc = scan(cases[i].line, &q, &e);
        bool ok = rc == -EINVAL && strcmp(e.field, cases[i].field) == 0 &&
                  strcmp(e.value, cases[i].value) == 0 &&
                  strstr(e.reason, cases[i].reason);

        if (!ok) {
            printf("\n    %s -> %d '%s' '%s' '%s'", cases[i].line, rc, e.field,
                   e.value, e.reason);
        }
        CU_ASSERT(ok);
        trace_request_fini(&q);
    }
}

/* Every prefix of a good line is refused, whatever lies behind its end. */
static void test_every_cut(void)
{
    const char *line = "{\"timestamp\": 1, \"input_length\": 600, \"a\": \"b\","
                       " \"output_length\": 7, \"hash_ids\": [0, 18]}";
    struct trace_request q = {0};

    for (size_t n = 0; n < strlen(line); n++) {
        struct trace_error e = {0};

        CU_ASSERT_EQUAL(trace_scan_line(line, n, &q, &e), -EINVAL);
        CU_ASSERT(e.reason[0] != '\0');
    }
    trace_request_fini(&q);
}

static void test_error_text(void)
{
    struct trace_error e = {.line = 12};
    char text[200];

    trace_error_set(&e, "timestamp",
                    "-\x01"
                    "5",
                    3, "is %d too low", 5);
    trace_error_format(&e, "a.jsonl", text, sizeof text);
    CU_ASSERT_STRING_EQUAL(text, "a.jsonl:12: timestamp -?5: is 5 too low");
    e = (struct trace_error){0};
    trace_error_set(&e, "", "", 0, "gone");
    trace_error_format(&e, "a.jsonl", text, sizeof text);
    CU_ASSERT_STRING_EQUAL(text, "a.jsonl: gone");
}

static const struct suite_test tests[] = {
    {"good lines", test_good_lines},
    {"bad lines", test_bad_lines},
    {"every cut", test_every_cut},
    {"error text", test_error_text},
};
SUITE("trace_scan", tests)
