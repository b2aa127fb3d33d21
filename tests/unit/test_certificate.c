/* When an operator is told to renew a certificate; an empty file. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/certificate.h"
#include "tests/unit/suite.h"

#define DAY_S 86400
#define JULY_2026_S 1782864000 /* the 1st, 00:00:00 UTC */
#define EARLY ": put a valid one there, or set the clock"
#define SOON ": put a new one there before then"
#define LATE ": put a valid one there"

/* What is said at now_s of one that lives for `days` from July 2026 on. */
static const char *said(int64_t days, int64_t now_s)
{
    const struct certificate_span span = {JULY_2026_S,
                                          JULY_2026_S + days * DAY_S};
    static char text[160];

    return certificate_span_warning(&span, now_s, text, sizeof(text)) ? text
                                                                      : "";
}

static void test_a_year(void)
{
    const int64_t end_s = JULY_2026_S + INT64_C(365) * DAY_S;

    CU_ASSERT_STRING_EQUAL(said(365, JULY_2026_S - 1),
                           "is not valid before 2026-07-01 00:00:00 UTC" EARLY);
    CU_ASSERT_STRING_EQUAL(said(365, JULY_2026_S), "");
    CU_ASSERT_STRING_EQUAL(said(365, end_s - 14 * DAY_S - 1), "");
    CU_ASSERT_STRING_EQUAL(said(365, end_s - 14 * DAY_S),
                           "expires on 2027-07-01 00:00:00 UTC" SOON);
    CU_ASSERT_STRING_EQUAL(said(365, end_s - 1),
                           "expires on 2027-07-01 00:00:00 UTC" SOON);
    CU_ASSERT_STRING_EQUAL(said(365, end_s),
                           "expired on 2027-07-01 00:00:00 UTC" LATE);
}

/* A certificate that is renewed every few days is warned of only near its end.
 */
static void test_six_days(void)
{
    CU_ASSERT_STRING_EQUAL(said(6, JULY_2026_S), "");
    CU_ASSERT_STRING_EQUAL(said(6, JULY_2026_S + 4 * DAY_S - 1), "");
    CU_ASSERT_STRING_EQUAL(said(6, JULY_2026_S + 4 * DAY_S),
                           "expires on 2026-07-07 00:00:00 UTC" SOON);
}

/* Whose end is before its begin. */
static void test_never_valid(void)
{
    CU_ASSERT_STRING_EQUAL(said(-1, JULY_2026_S - 2 * DAY_S),
                           "is not valid before 2026-07-01 00:00:00 UTC" EARLY);
    CU_ASSERT_STRING_EQUAL(said(-1, JULY_2026_S),
                           "expired on 2026-06-30 00:00:00 UTC" LATE);
}

static void test_empty_file(void)
{
    char path[] = "/tmp/test_certificate_XXXXXX";
    const struct certificate_files files = {path, "cert", path, "key"};
    char err[256], want[64];
    int fd = mkstemp(path);

    CU_ASSERT_FATAL(fd >= 0);
    (void)close(fd);
    CU_ASSERT_PTR_NULL(certificate_load(&files, err, sizeof(err)));
    snprintf(want, sizeof(want), "cert: \"%s\": it is empty", path);
    CU_ASSERT_STRING_EQUAL(err, want);
    (void)unlink(path);
}

static const struct suite_test tests[] = {
    {"of a year", test_a_year},
    {"of six days", test_six_days},
    {"never valid", test_never_valid},
    {"an empty file", test_empty_file},
};
SUITE("certificate", tests)
