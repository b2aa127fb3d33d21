/* The log's buffers: order, another file, a reader that takes nothing. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "conductor/service/access/log.h"
#include "tests/unit/suite.h"

/* So many lines of 64 bytes. */
static void add_lines(struct access_log *log, unsigned from, unsigned n)
{
    char line[65];

    for (unsigned i = from; i < from + n; i++) {
        snprintf(line, sizeof(line), "%062u\n", i);
        access_log_add(log, line, strlen(line));
    }
}

/* The next n lines are numbered from `from`. */
static void expect_lines(FILE *f, unsigned from, unsigned n)
{
    char line[80] = "";

    for (unsigned i = 0; i < n; i++) {
        CU_ASSERT_PTR_NOT_NULL_FATAL(fgets(line, sizeof(line), f));
        CU_ASSERT_EQUAL(strtoul(line, NULL, 10), from + i);
    }
}

static void test_two_files(void)
{
    struct access_log *log;
    char rest[8];
    int a[2], b[2];

    CU_ASSERT_EQUAL_FATAL(access_log_new(&log), 0);
    CU_ASSERT_FALSE(access_log_is_open(log));
    CU_ASSERT_EQUAL_FATAL(pipe2(a, O_CLOEXEC) | pipe2(b, O_CLOEXEC), 0);
    FILE *first = fdopen(a[0], "r"), *second = fdopen(b[0], "r");
    CU_ASSERT_FATAL(first && second);
    access_log_take(log, a[1]);
    CU_ASSERT(access_log_is_open(log));
    add_lines(log, 0, 100);
    expect_lines(first, 0, 100);
    add_lines(log, 100, 20);
    access_log_take(log, b[1]);
    add_lines(log, 120, 50);
    expect_lines(first, 100, 20);
    CU_ASSERT_PTR_NULL(fgets(rest, sizeof(rest), first)); /* it is closed */
    expect_lines(second, 120, 50);
    CU_ASSERT_EQUAL(access_log_lost(log), 0);
    access_log_free(log);
    CU_ASSERT_PTR_NULL(fgets(rest, sizeof(rest), second));
    fclose(first);
    fclose(second);
}

static void test_nobody_reads(void)
{
    const unsigned n = 2 * ACCESS_LOG_BYTES / 63;
    struct access_log *log;
    int a[2];

    CU_ASSERT_EQUAL_FATAL(access_log_new(&log), 0);
    CU_ASSERT_EQUAL_FATAL(pipe2(a, O_CLOEXEC), 0);
    access_log_take(log, a[1]);
    add_lines(log, 0, n);
    CU_ASSERT(access_log_lost(log) >= n / 2 - 65536 / 63);
    CU_ASSERT(access_log_lost(log) < n);
    access_log_free(log); /* within a second or so */
    close(a[0]);
}

/* A file that takes no more in the middle of a line, and then does again: the
 * lines that follow are whole. */
static void test_no_room(void)
{
    enum { ROOM = 1000 }; /* within the 16th line */
    struct rlimit before, less;
    struct access_log *log;
    char line[80] = "";
    FILE *f = tmpfile();
    unsigned n = 0, torn = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_FSIZE, &before), 0);
    less = (struct rlimit){ROOM, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    CU_ASSERT_EQUAL_FATAL(access_log_new(&log), 0);
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_FSIZE, &less), 0);
    access_log_take(log, fcntl(fileno(f), F_DUPFD_CLOEXEC, 3));
    add_lines(log, 0, 50);
    while (access_log_lost(log) < 35)
        usleep(1000);
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_FSIZE, &before), 0);
    CU_ASSERT_EQUAL(access_log_lost(log), 35);
    add_lines(log, 50, 10);
    access_log_free(log);
    rewind(f);
    while (fgets(line, sizeof(line), f)) {
        torn += strlen(line) != 63;
        n += strlen(line) == 63;
    }
    CU_ASSERT_EQUAL(torn, 1);
    CU_ASSERT_EQUAL(n, 15 + 10);
    fclose(f);
}

static void test_too_long(void)
{
    struct access_log *log;

    CU_ASSERT_EQUAL_FATAL(access_log_new(&log), 0);
    access_log_add(log, "x\n", SIZE_MAX);
    CU_ASSERT_EQUAL(access_log_lost(log), 1);
    access_log_free(log);
    access_log_free(NULL);
}

static const struct suite_test tests[] = {
    {"two files", test_two_files},
    {"nobody reads", test_nobody_reads},
    {"no room", test_no_room},
    {"too long", test_too_long},
};
SUITE("access_log", tests)
