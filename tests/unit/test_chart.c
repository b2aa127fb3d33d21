/* Charts: hostile texts, missing gnuplot, what is drawn. */
#include <CUnit/Basic.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/plot/chart.h"

static const double xs[] = {1, 2, 3};
static const double ys[] = {10.9, NAN, 80};

static struct chart chart_of(const char *name)
{
    struct chart c = {
        .title = "t", .x_label = "x", .y_label = "y", .x = xs, .y_log = true};

    chart_line(&c, name, ys, 3);
    return c;
}

/* The file's text, owned; the file is removed. */
static char *take(const char *path)
{
    char *text = calloc(1, 200001);
    FILE *file = fopen(path, "r");

    CU_ASSERT_FATAL(text && file);
    CU_ASSERT(fread(text, 1, 200000, file) < 200000);
    fclose(file);
    unlink(path);
    return text;
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;

    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

/* What a user wrote is a text: gnuplot neither runs nor expands it. (With the
 * doubled quotes of its manual the third text ended a string early.) */
static void test_hostile_texts(void)
{
    char path[] = "/tmp/test_chart.XXXXXX";
    const char *texts[] = {
        "a 'b' \"c\" <d> & {e}^2 f_1 %g @x $y",
        "`touch /tmp/test_chart_broke_out`",
        "';\nsystem('touch /tmp/test_chart_broke_out'); '",
        "\\n\" . system(\"touch /tmp/test_chart_broke_out\")"};
    const char *shown[] = {
        "a 'b' \"c\" &lt;d> &amp; {e}^2 f_1 %g @x $y",
        "`touch /tmp/test_chart_broke_out`",
        "'; system('touch /tmp/test_chart_broke_out'); '",
        "\\n\" . system(\"touch /tmp/test_chart_broke_out\")"};

    close(mkstemp(path));
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct chart c = chart_of(texts[i]);

        c.title = c.x_label = c.y_label = texts[i];
        CU_ASSERT_EQUAL(chart_write(path, texts[i], &c, 1, 1), 0);
        char *text = take(path);
        CU_ASSERT_EQUAL(count(text, shown[i]), 5);
        free(text);
    }
    CU_ASSERT_NOT_EQUAL(access("/tmp/test_chart_broke_out", F_OK), 0);
}

/* Ticks of a logarithmic axis are powers of ten, and the same numbers give the
 * same bytes. */
static void test_ticks(void)
{
    char path[] = "/tmp/test_chart.XXXXXX";
    struct chart c = chart_of("one");

    close(mkstemp(path));
    CU_ASSERT_EQUAL(chart_write(path, "whole", &c, 1, 1), 0);
    char *text = take(path);
    CU_ASSERT_EQUAL(count(text, ">10<"), 1);
    CU_ASSERT_EQUAL(count(text, ">100<"), 1);
    CU_ASSERT_EQUAL(count(text, "NaN"), 0);
    CU_ASSERT_EQUAL(chart_write(path, "whole", &c, 1, 1), 0);
    char *again = take(path);
    CU_ASSERT_STRING_EQUAL(text, again);
    free(again);
    free(text);
}

/* A frame is drawn even if there is no number. */
static void test_nothing(void)
{
    char path[] = "/tmp/test_chart.XXXXXX";
    struct chart c = chart_of(NULL);

    close(mkstemp(path));
    c.series[0].n = 0;
    CU_ASSERT_EQUAL(chart_write(path, "empty", &c, 1, 1), 0);
    char *text = take(path);
    CU_ASSERT_EQUAL(count(text, "</svg>"), 1);
    free(text);
}

static void test_errors(void)
{
    char path[] = "/tmp/test_chart.XXXXXX";
    struct chart c = chart_of("one");
    char *search = strdup(getenv("PATH"));
    FILE *file = fdopen(mkstemp(path), "w");

    fputs("kept", file);
    fclose(file);
    CU_ASSERT_EQUAL(chart_write("/nowhere/p.svg", "t", &c, 1, 1), -ENOENT);
    setenv("PATH", "/nowhere", 1);
    CU_ASSERT_EQUAL(chart_write(path, "t", &c, 1, 1), -ENOPKG);
    setenv("PATH", search, 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(chart_error(-ENOPKG), "gnuplot-nox"));
    CU_ASSERT_STRING_EQUAL(chart_error(-EACCES), strerror(EACCES));
    char *text = take(path);
    CU_ASSERT_STRING_EQUAL(text, "kept");
    free(text);
    free(search);
}

/* Ctrl-C goes to gnuplot, too: the tool that draws ends by it, and does not go
 * on with its next picture. */
static void test_interrupt(void)
{
    char folder[] = "/tmp/test_chart.XXXXXX", path[64], search[4096];
    struct chart c = chart_of("one");
    int status = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/gnuplot", folder);
    FILE *file = fopen(path, "w");
    fputs("#!/bin/sh\nkill -INT $$\n", file);
    fchmod(fileno(file), 0700);
    fclose(file);
    pid_t child = fork();
    if (child == 0) {
        snprintf(search, sizeof(search), "%s:%s", folder, getenv("PATH"));
        setenv("PATH", search, 1);
        signal(SIGINT, SIG_DFL);
        _exit(chart_write("/dev/null", "t", &c, 1, 1) ? 1 : 0);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    CU_initialize_registry();
    CU_pSuite s = CU_add_suite("chart", NULL, NULL);

    CU_add_test(s, "hostile texts", test_hostile_texts);
    CU_add_test(s, "ticks", test_ticks);
    CU_add_test(s, "nothing to draw", test_nothing);
    CU_add_test(s, "errors", test_errors);
    CU_add_test(s, "interrupt", test_interrupt);
    CU_basic_run_tests();
    unsigned failed = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failed != 0;
}
