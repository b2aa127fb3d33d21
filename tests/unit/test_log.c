/* Lines of the log, as they come out of a pipe. */
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/unit/suite.h"

#define LINE_MAX_BYTES 4096

/* What one line says; NUL-terminated. */
static void logged(const char *text, char out[LINE_MAX_BYTES])
{
    int ends[2], before = dup(STDERR_FILENO);

    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    CU_ASSERT_TRUE_FATAL(dup2(ends[1], STDERR_FILENO) >= 0);
    log_warn("%s", text);
    CU_ASSERT_TRUE_FATAL(dup2(before, STDERR_FILENO) >= 0);
    ssize_t n = read(ends[0], out, LINE_MAX_BYTES - 1);
    CU_ASSERT_TRUE_FATAL(n > 0);
    out[n] = '\0';
    close(ends[0]);
    close(ends[1]);
    close(before);
}

/* The message of a line of JSON, which must be one. Owned. */
static char *message_of(const char *line)
{
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    const char *time, *level, *program, *message;
    char *copy;

    CU_ASSERT_PTR_NOT_NULL_FATAL(object);
    CU_ASSERT_EQUAL_FATAL(json_unpack(object, "{s:s, s:s, s:s, s:s !}", "time",
                                      &time, "level", &level, "program",
                                      &program, "message", &message),
                          0);
    CU_ASSERT_EQUAL(strlen(time), strlen("2026-11-23T08:00:00.000Z"));
    CU_ASSERT_STRING_EQUAL(level, "warn");
    CU_ASSERT_STRING_EQUAL(program, "a\"b");
    CU_ASSERT_PTR_EQUAL(strchr(line, '\n'), line + strlen(line) - 1);
    copy = strdup(message);
    json_decref(object);
    return copy;
}

static void check_json(const char *text, const char *expected)
{
    char line[LINE_MAX_BYTES];

    logged(text, line);
    char *message = message_of(line);
    CU_ASSERT_STRING_EQUAL(message, expected);
    free(message);
}

static void test_text(void)
{
    char line[LINE_MAX_BYTES];

    log_set_format(LOG_TEXT);
    logged("a \"b\"\n{", line);
    CU_ASSERT_PTR_NOT_NULL(strstr(line, "Z warn  a\"b: a \"b\"?{\n"));
}

static void test_json(void)
{
    log_set_format(LOG_JSON);
    check_json("", "");
    check_json("say \"x\\y\"", "say \"x\\y\"");
    check_json("one\n{\"level\":\"error\"}", "one?{\"level\":\"error\"}");
    check_json("\xc3\xa9\xe2\x82\xac", "\xc3\xa9\xe2\x82\xac");
    check_json("\xc3\xa9 \xff", "?? ?"); /* no UTF-8 */
}

/* A text that is cut within a character, and one whose every byte is escaped.
 */
static void test_long(void)
{
    char text[3000], line[LINE_MAX_BYTES];

    log_set_format(LOG_JSON);
    memset(text, '"', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    logged(text, line);
    char *message = message_of(line);
    CU_ASSERT_EQUAL(strlen(message), 999);
    free(message);
    memset(text, 'x', 998);
    memcpy(text + 998, "\xc3\xa9", 3);
    logged(text, line);
    message = message_of(line);
    CU_ASSERT_EQUAL(strlen(message), 999);
    free(message);
}

/* A pipe that nobody reads holds nobody up, and loses lines, which a later one
 * counts. */
static void test_nobody_reads(void)
{
    static char all[1 << 20];
    int ends[2], before = dup(STDERR_FILENO);
    char *at, *lost;
    ssize_t n;

    log_set_format(LOG_TEXT);
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    CU_ASSERT_TRUE_FATAL(dup2(ends[1], STDERR_FILENO) >= 0);
    uint64_t untold, before_all = log_lines_lost(&untold);
    CU_ASSERT_EQUAL(untold, 0);
    for (int i = 0; i < 10000; i++)
        log_warn("line %d", i);
    uint64_t lost_all = log_lines_lost(&untold) - before_all;
    CU_ASSERT_EQUAL(untold, lost_all);
    n = read(ends[0], all, sizeof(all) - 1);
    log_warn("and on");
    n += read(ends[0], all + n, sizeof(all) - 1 - (size_t)n);
    CU_ASSERT_TRUE_FATAL(dup2(before, STDERR_FILENO) >= 0);
    all[n] = '\0';
    int whole = 0;
    for (at = all; (at = strstr(at, ": line ")); at++)
        CU_ASSERT_EQUAL(atoi(at + 7), whole++);
    CU_ASSERT(whole > 1000);
    lost = strstr(all, ": and on\n");
    CU_ASSERT_PTR_NOT_NULL_FATAL(lost);
    lost = strstr(all, " lines were lost");
    CU_ASSERT_PTR_NOT_NULL_FATAL(lost);
    while (lost[-1] != ' ')
        lost--;
    CU_ASSERT_EQUAL(atoi(lost) + whole, 10000);
    CU_ASSERT_EQUAL(lost_all + (uint64_t)whole, 10000);
    CU_ASSERT_EQUAL(log_lines_lost(&untold) - before_all, lost_all);
    CU_ASSERT_EQUAL(untold, 0);
    close(ends[0]);
    close(ends[1]);
    close(before);
}

static void test_names(void)
{
    CU_ASSERT_STRING_EQUAL(log_format_name(LOG_TEXT), "text");
    CU_ASSERT_STRING_EQUAL(log_format_name(LOG_JSON), "json");
    CU_ASSERT_PTR_NULL(log_format_name(2));
}

static const struct suite_test tests[] = {
    {"text", test_text},   {"json", test_json},
    {"long", test_long},   {"nobody reads", test_nobody_reads},
    {"names", test_names},
};

int main(void)
{
    log_init("a\"b", LOG_INFO);
    return SUITE_RUN("log", tests);
}
