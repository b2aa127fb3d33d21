/* What Prometheus reads: buckets cumulate, sums and counts agree. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/json/text_buf.h"
#include "conductor/service/metrics.h"
#include "tests/unit/suite.h"

static char *written(const struct metrics *m)
{
    struct text_buf out;

    text_buf_init(&out, SIZE_MAX);
    CU_ASSERT_EQUAL(metrics_write(m, &out), 0);
    text_buf_add(&out, "", 1);
    CU_ASSERT_EQUAL_FATAL(out.error, 0);
    return out.data;
}

static void test_histogram(void)
{
    struct metrics m;

    metrics_init(&m);
    histogram_observe(&m.ttft_s, 0.001);  /* on a bound: in its bucket */
    histogram_observe(&m.ttft_s, 0.0015); /* le 0.002 */
    histogram_observe(&m.ttft_s, 1e9);    /* only +Inf */
    histogram_observe(&m.ttft_s, (double)NAN);
    char *t = written(&m);
    const char *name = "conductor_time_to_first_token_seconds";
    char line[128];
    snprintf(line, sizeof(line), "\n%s_bucket{le=\"0.001\"} 1\n", name);
    CU_ASSERT_PTR_NOT_NULL(strstr(t, line));
    snprintf(line, sizeof(line), "\n%s_bucket{le=\"0.002\"} 2\n", name);
    CU_ASSERT_PTR_NOT_NULL(strstr(t, line));
    snprintf(line, sizeof(line), "\n%s_bucket{le=\"120\"} 2\n", name);
    CU_ASSERT_PTR_NOT_NULL(strstr(t, line));
    snprintf(line, sizeof(line), "\n%s_bucket{le=\"+Inf\"} 3\n", name);
    CU_ASSERT_PTR_NOT_NULL(strstr(t, line));
    snprintf(line, sizeof(line), "\n%s_count 3\n", name);
    CU_ASSERT_PTR_NOT_NULL(strstr(t, line));
    free(t);
}

static void test_counters(void)
{
    struct metrics m;

    metrics_init(&m);
    m.requests[METRICS_REJECTED] = 7;
    m.fetched_blocks = 9;
    char *t = written(&m);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(t, "\nconductor_requests_total{outcome=\"rejected\"} 7\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(t, "\nconductor_fetched_blocks_total 9\n"));
    /* One TYPE line a metric, however many label sets. */
    char *first = strstr(t, "# TYPE conductor_requests_total counter\n");
    CU_ASSERT_PTR_NOT_NULL_FATAL(first);
    CU_ASSERT_PTR_NULL(
        strstr(first + 1, "# TYPE conductor_requests_total counter\n"));
    free(t);
}

/* Broken to the microsecond; who was promised nothing breaks nothing. */
static void test_promises(void)
{
    struct metrics m;

    metrics_init(&m);
    metrics_first_token(&m, 5000000, 0, false);
    metrics_first_token(&m, 5000000, 5000000, false);
    metrics_first_token(&m, 5000001, 5000000, false);
    metrics_first_token(&m, 9000000, 5000000, true);
    CU_ASSERT_EQUAL(m.promises, 3);
    CU_ASSERT_DOUBLE_EQUAL(m.ttft_s.sum, 24.000001, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(m.late_s.sum, 4.000001, 1e-9);
    char *t = written(&m);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(t, "\nconductor_promises_broken_total{cause=\"retried\"} 1\n"));
    CU_ASSERT_PTR_NOT_NULL(
        strstr(t, "\nconductor_promises_broken_total{cause=\"other\"} 1\n"));
    CU_ASSERT_PTR_NOT_NULL(
        strstr(t, "\nconductor_promise_late_seconds_count 2\n"));
    free(t);
}

static void test_ratio_error(void)
{
    struct metrics m;

    metrics_init(&m);
    metrics_ratio_error(&m.ttft_error_ratio, 90, 100);
    metrics_ratio_error(&m.ttft_error_ratio, 90, 0);
    CU_ASSERT_DOUBLE_EQUAL(m.ttft_error_ratio.sum, 0.1, 1e-12);
    CU_ASSERT_EQUAL(m.ttft_error_ratio.counts[3], 1); /* le 0.1 */
}

static void test_predicted(void)
{
    struct metrics m;

    metrics_init(&m);
    metrics_predicted(&m.ttft_error_ratio, &m.ttft_ratio, 90, 100);
    metrics_predicted(&m.ttft_error_ratio, &m.ttft_ratio, 200, 100);
    metrics_predicted(&m.ttft_error_ratio, &m.ttft_ratio, 90, 0);
    CU_ASSERT_DOUBLE_EQUAL(m.ttft_error_ratio.sum, 1.1, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(m.ttft_ratio.sum, 2.9, 1e-12);
    CU_ASSERT_EQUAL(m.ttft_ratio.counts[6], 1);  /* le 0.9 */
    CU_ASSERT_EQUAL(m.ttft_ratio.counts[13], 1); /* le 2 */
}

static void test_failures(void)
{
    struct metrics m;

    metrics_init(&m);
    metrics_count_failure(&m, "worker_failed");
    metrics_count_failure(&m, "what_is_that");
    metrics_count_failure(&m, "other");
    char *t = written(&m);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(t, "\nconductor_failures_total{reason=\"worker_failed\"} 1\n"));
    CU_ASSERT_PTR_NOT_NULL(
        strstr(t, "\nconductor_failures_total{reason=\"other\"} 2\n"));
    free(t);
}

/* Histograms of one name are one family. */
static void test_labels(void)
{
    struct metrics m;

    metrics_init(&m);
    histogram_observe(&m.transfer_s[METRICS_DISK], 0.25);
    char *t = written(&m);
    const char *type = "# TYPE conductor_transfer_seconds histogram\n";
    char *first = strstr(t, type);
    CU_ASSERT_PTR_NOT_NULL_FATAL(first);
    CU_ASSERT_PTR_NULL(strstr(first + 1, type));
    CU_ASSERT_PTR_NOT_NULL(strstr(
        t,
        "\nconductor_transfer_seconds_bucket{path=\"disk\",le=\"0.5\"} 1\n"));
    CU_ASSERT_PTR_NOT_NULL(
        strstr(t, "\nconductor_transfer_seconds_sum{path=\"disk\"} 0.25\n"));
    CU_ASSERT_PTR_NOT_NULL(
        strstr(t, "\nconductor_transfer_seconds_count{path=\"peer\"} 0\n"));
    free(t);
}

static const struct suite_test tests[] = {
    {"buckets cumulate", test_histogram},
    {"counters", test_counters},
    {"promises", test_promises},
    {"relative errors", test_ratio_error},
    {"predicted over observed", test_predicted},
    {"why requests fail", test_failures},
    {"labels of histograms", test_labels},
};
SUITE("metrics", tests)
