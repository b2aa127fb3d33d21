/* The statistics and the report, on records with literal times. */
#include <CUnit/CUnit.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tail_mean.h"
#include "tests/unit/suite.h"
#include "tools/replay/math.h"
#include "tools/replay/report/report.h"

static void test_math(void)
{
    double v[] = {5, 1, 4, 2, 3};
    struct replay_summary s = replay_summarise(v, 5);

    CU_ASSERT_EQUAL(s.count, 5);
    CU_ASSERT_DOUBLE_EQUAL(s.mean, 3.0, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(s.p50, 3.0, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(s.p90, 4.6, 1e-12); /* rank 3.6 of 0 to 4 */
    CU_ASSERT_DOUBLE_EQUAL(s.p99, 4.96, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(s.max, 5.0, 1e-12);
    double one[] = {7};
    CU_ASSERT_DOUBLE_EQUAL(replay_percentile(one, 1, 0.9), 7.0, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(replay_percentile(one, 1, 1.0), 7.0, 1e-12);
    CU_ASSERT_EQUAL(replay_summarise(NULL, 0).count, 0);
    CU_ASSERT_DOUBLE_EQUAL(replay_ratio(1, 4), 0.25, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(replay_ratio(1, 0), 0.0, 1e-12);
}

static void test_tail(void)
{
    /* 21 intervals: the longest 10 % are 3, of 21, 20 and 19. */
    int64_t many[21];

    for (int i = 0; i < 21; i++)
        many[i] = (i * 8) % 21 + 1;
    CU_ASSERT_EQUAL(tail_mean(many, 21), 20);
    int64_t ten[] = {1, 2, 3, 4, 50, 6, 7, 8, 9, 10};
    CU_ASSERT_EQUAL(tail_mean(ten, 10), 50);
    int64_t one[] = {4};
    CU_ASSERT_EQUAL(tail_mean(one, 1), 4);
    CU_ASSERT_EQUAL(tail_mean(NULL, 0), -1);
}

/* Beyond the exact numbers, percentiles are 0.2 % off at most. */
static void test_distribution(void)
{
    struct replay_distribution d = {0};
    size_t n = REPLAY_EXACT_MAX + 100000;
    double *all = calloc(n, sizeof all[0]);

    CU_ASSERT_PTR_NOT_NULL_FATAL(all);
    CU_ASSERT_EQUAL(replay_distribution_summary(&d).count, 0);
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        double u = (double)(state >> 8) / 16777216.0;
        all[i] = u * u * u * 500.0; /* 1e-19 to 500, uneven */
        CU_ASSERT_EQUAL_FATAL(replay_distribution_add(&d, all[i]), 0);
    }
    struct replay_summary got = replay_distribution_summary(&d);
    struct replay_summary want = replay_summarise(all, n);
    CU_ASSERT_EQUAL(got.count, n);
    CU_ASSERT_DOUBLE_EQUAL(got.mean, want.mean, want.mean * 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(got.p50, want.p50, want.p50 * 2e-3);
    CU_ASSERT_DOUBLE_EQUAL(got.p90, want.p90, want.p90 * 2e-3);
    CU_ASSERT_DOUBLE_EQUAL(got.p99, want.p99, want.p99 * 2e-3);
    CU_ASSERT_EQUAL(got.max, want.max);
    /* The ends of the range. */
    CU_ASSERT_EQUAL(replay_distribution_add(&d, 0.0), 0);
    CU_ASSERT_EQUAL(replay_distribution_add(&d, 1e300), 0);
    CU_ASSERT_EQUAL(replay_distribution_summary(&d).max, 1e300);
    replay_distribution_fini(&d);
    CU_ASSERT_EQUAL(d.count, 0);
    free(all);
}

static struct replay_record answered(int64_t intended, int64_t sent,
                                     int64_t first, int64_t tbt)
{
    return (struct replay_record){.outcome = REPLAY_COMPLETED,
                                  .status = 200,
                                  .intended_us = intended,
                                  .sent_us = sent,
                                  .first_token_us = first,
                                  .end_us = first + 1000,
                                  .tbt_us = tbt,
                                  .prompt_tokens = 100,
                                  .reused_tokens = 32,
                                  .fetched_tokens = 32,
                                  .computed_tokens = 68,
                                  .generated_tokens = 3,
                                  .predicted_ttft_us = -1,
                                  .predicted_p90_us = -1,
                                  .queue_us = -1,
                                  .prefill_us = -1,
                                  .retries = 1};
}

static struct replay_record lost(enum replay_outcome outcome,
                                 const char *reason, const char *message)
{
    struct replay_record r = {.outcome = outcome,
                              .sent_us = 10,
                              .first_token_us = -1,
                              .end_us = -1,
                              .tbt_us = -1,
                              .predicted_ttft_us = -1,
                              .predicted_p90_us = -1,
                              .queue_us = -1,
                              .prefill_us = -1};

    snprintf(r.reason, sizeof r.reason, "%s", reason);
    snprintf(r.message, sizeof r.message, "%s", message);
    return r;
}

static const struct replay_context context = {.mode = "live",
                                              .policy = "plan",
                                              .block_tokens = 32,
                                              .slo_ttft_s = 2.0,
                                              .slo_tbt_s = 0.1,
                                              .best_possible_hit_ratio = 0.5,
                                              .wall_us = 9000000};

static void test_report(void)
{
    struct replay_record r[] = {
        answered(0, 0, 1000000, 50000),              /* in time */
        answered(0, 1500000, 2500000, 50000),        /* late only by its lag */
        answered(1000000, 1000000, 1500000, 200000), /* TBT missed */
        answered(1000000, 1000000, 1500000, -1),     /* one token: no TBT */
        lost(REPLAY_REJECTED, "http 429 slo_miss", ""),
        lost(REPLAY_FAILED, "timeout", "first"),
        lost(REPLAY_FAILED, "timeout", "second"),
        lost(REPLAY_PENDING, "", ""),
    };
    r[0].predicted_ttft_us = 900000;  /* 10 % off */
    r[1].predicted_ttft_us = 1200000; /* 20 % off the time since sending */
    r[0].predicted_p90_us = 999999;
    r[1].predicted_p90_us = 1000000;
    struct replay_report report;
    CU_ASSERT_EQUAL(replay_report_make(r, 8, &context, &report), 0);
    CU_ASSERT_EQUAL(report.total, 7);
    CU_ASSERT_EQUAL(report.completed, 4);
    CU_ASSERT_EQUAL(report.rejected, 1);
    CU_ASSERT_EQUAL(report.failed, 2);
    CU_ASSERT_EQUAL(report.reason_count, 2);
    CU_ASSERT(report.reasons[0].rejected && report.reasons[0].count == 1);
    CU_ASSERT(!report.reasons[1].rejected && report.reasons[1].count == 2);
    CU_ASSERT_STRING_EQUAL(report.reasons[1].example, "first");
    CU_ASSERT_EQUAL(report.input_tokens, 400);
    CU_ASSERT_EQUAL(report.computed_tokens, 272);
    CU_ASSERT_EQUAL(report.output_tokens, 12);
    CU_ASSERT_EQUAL(report.fetched_blocks, 4);
    CU_ASSERT_DOUBLE_EQUAL(report.prefix_hit_ratio, 0.32, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(report.ttft_s.mean, 1.125, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(report.ttft_s.max, 2.5, 1e-12);
    CU_ASSERT_EQUAL(report.tbt_s.count, 3);
    CU_ASSERT_DOUBLE_EQUAL(report.tbt_s.mean, 0.1, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(report.send_lag_s.max, 1.5, 1e-12);
    CU_ASSERT_EQUAL(report.effective, 2);
    CU_ASSERT_DOUBLE_EQUAL(report.effective_ratio, 2.0 / 7, 1e-12);
    CU_ASSERT_EQUAL(report.prediction_error.count, 2);
    CU_ASSERT_DOUBLE_EQUAL(report.prediction_error.p50, 0.15, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(report.predicted_ratio, 1.05, 1e-9);
    CU_ASSERT_EQUAL(report.p90_told, 2);
    CU_ASSERT_EQUAL(report.p90_held, 1);
    CU_ASSERT_EQUAL(report.retries, 4);
}

static void print_to(const struct replay_report *report, char *text, size_t n)
{
    FILE *f = fmemopen(text, n, "w");

    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    replay_report_print(report, f);
    fclose(f);
}

/* A promise is the SLO that a request was accepted with: one that was refused,
 * failed, or asked for none has none to break. */
static void test_promises(void)
{
    struct replay_record r[] = {
        answered(0, 0, 2000000, 50000),       /* to the microsecond */
        answered(0, 0, 2000001, 50000),       /* late by 1 us */
        answered(0, 1500000, 5000000, 50000), /* its lag counts: by 3 s */
        answered(0, 0, 9000000, 50000),       /* asked for nothing */
        lost(REPLAY_REJECTED, "slo", ""),
        lost(REPLAY_FAILED, "timeout", ""),
    };
    struct replay_report report;
    char text[4000] = "";

    for (int i = 0; i < 6; i++) {
        r[i].input_tokens = 100u << i;
        r[i].slo_ttft_us = i == 3 ? 0 : 2000000;
    }
    CU_ASSERT_EQUAL(replay_report_make(r, 6, &context, &report), 0);
    CU_ASSERT_EQUAL(report.promised, 3);
    CU_ASSERT_EQUAL(report.late_s.count, 2);
    CU_ASSERT_DOUBLE_EQUAL(report.late_s.max, 3.0, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(report.late_s.mean, 1.5000005, 1e-12);
    CU_ASSERT_EQUAL(report.effective, 1);
    CU_ASSERT_EQUAL(report.effective_tokens, 100);
    CU_ASSERT_DOUBLE_EQUAL(report.effective_token_ratio, 100.0 / 6300, 1e-12);
    print_to(&report, text, sizeof text);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "2  of 3 accepted with a TTFT SLO; by "
                                        "1.500 s in the mean, 3.000 s"));
    json_t *json = replay_report_json(&report);
    CU_ASSERT_EQUAL(json_integer_value(
                        json_object_get(json_object_get(json, "slo"), "late")),
                    2);
    json_decref(json);
    CU_ASSERT_EQUAL(replay_report_make(&r[3], 1, &context, &report), 0);
    print_to(&report, text, sizeof text);
    CU_ASSERT_PTR_NULL(strstr(text, "accepted with"));
    json = replay_report_json(&report);
    CU_ASSERT(
        json_is_null(json_object_get(json_object_get(json, "slo"), "late")));
    json_decref(json);
}

/* A server that held the prompts before is not compared with the best. */
static void test_held_before(void)
{
    struct replay_record r[] = {answered(0, 0, 333333, 50000)};
    struct replay_context c = context;
    struct replay_report report;
    char text[4000] = "";

    r[0].input_tokens = 100;
    for (int held = 0; held < 2; held++) {
        c.best_possible_hit_ratio = held ? 0.30 : 0.315; /* reached: 0.32 */
        CU_ASSERT_EQUAL(replay_report_make(r, 1, &c, &report), 0);
        CU_ASSERT_EQUAL(report.held_before, held != 0);
        print_to(&report, text, sizeof text);
        CU_ASSERT_EQUAL(!strstr(text, "an infinite cache"), held != 0);
        CU_ASSERT_EQUAL(!strstr(text, "already held"), held == 0);
    }
    c.interrupted = true;
    CU_ASSERT_EQUAL(replay_report_make(r, 1, &c, &report), 0);
    CU_ASSERT_FALSE(report.held_before);
    c.interrupted = false;
    c.starts_cold = true;
    CU_ASSERT_EQUAL(replay_report_make(r, 1, &c, &report), 0);
    CU_ASSERT_FALSE(report.held_before);
    c.starts_cold = false;
    c.best_possible_hit_ratio = -1;
    CU_ASSERT_EQUAL(replay_report_make(r, 1, &c, &report), 0);
    CU_ASSERT_FALSE(report.held_before);
}

/* A completed request may reuse a rejected one's blocks, which the server
 * computed all the same: the infinite cache is of both. */
static void test_rejected_held(void)
{
    struct replay_record r[] = {lost(REPLAY_REJECTED, "slo", ""),
                                answered(0, 0, 333333, 50000)};
    struct replay_context c = context;
    struct replay_report report;
    char text[4000] = "";

    r[0].input_tokens = r[1].input_tokens = 100;
    c.best_possible_hit_ratio = 0.16;
    CU_ASSERT_EQUAL(replay_report_make(r, 2, &c, &report), 0);
    CU_ASSERT_FALSE(report.held_before);
    print_to(&report, text, sizeof text);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(text, "16.0%  of all offered  (an infinite cache: 16.0%)"));
    c.best_possible_hit_ratio = 0.14;
    CU_ASSERT_EQUAL(replay_report_make(r, 2, &c, &report), 0);
    CU_ASSERT(report.held_before);
}

/* More kinds of failure than are kept: none is lost from the count. */
static void test_reasons(void)
{
    struct replay_record r[REPLAY_REASONS_MAX + 5];
    size_t n = sizeof r / sizeof r[0];

    for (size_t i = 0; i < n; i++) {
        char reason[16];

        snprintf(reason, sizeof reason, "cause %zu", i);
        r[i] = lost(REPLAY_FAILED, reason, "");
    }
    struct replay_report report;
    CU_ASSERT_EQUAL(replay_report_make(r, n, &context, &report), 0);
    CU_ASSERT_EQUAL(report.reason_count, REPLAY_REASONS_MAX);
    uint64_t sum = 0;
    for (size_t i = 0; i < report.reason_count; i++)
        sum += report.reasons[i].count;
    CU_ASSERT_EQUAL(sum, n);
    CU_ASSERT_STRING_EQUAL(report.reasons[REPLAY_REASONS_MAX - 1].reason,
                           "other");
}

/* One message stands for all; the table says so only where others differed. */
static void test_examples(void)
{
    struct replay_record r[] = {lost(REPLAY_FAILED, "http 400", "too long"),
                                lost(REPLAY_FAILED, "http 400", "too wide"),
                                lost(REPLAY_FAILED, "http 500", "alas"),
                                lost(REPLAY_FAILED, "http 500", "alas")};
    struct replay_report report;
    char text[4000] = "";

    CU_ASSERT_EQUAL(replay_report_make(r, 4, &context, &report), 0);
    print_to(&report, text, sizeof text);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "2  for example: too long\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "2  alas\n"));
}

static double real_at(const json_t *json, const char *a, const char *b)
{
    return json_real_value(json_object_get(json_object_get(json, a), b));
}

static void test_json(void)
{
    struct replay_record r[] = {answered(0, 0, 333333, 50000)};
    struct replay_report report;

    CU_ASSERT_EQUAL(replay_report_make(r, 1, &context, &report), 0);
    json_t *json = replay_report_json(&report);
    CU_ASSERT_PTR_NOT_NULL_FATAL(json);
    CU_ASSERT_DOUBLE_EQUAL(real_at(json, "ttft_s", "p50"), 0.333333, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(real_at(json, "slo", "effective_ratio"), 1, 1e-12);
    CU_ASSERT(json_is_null(
        json_object_get(json_object_get(json_object_get(json, "prediction"),
                                        "ttft_abs_rel_error"),
                        "p50")));
    json_decref(json);

    /* A prediction of half the time: 50 % off, and too low. */
    r[0].predicted_ttft_us = (r[0].first_token_us - r[0].sent_us) / 2;
    CU_ASSERT_EQUAL(replay_report_make(r, 1, &context, &report), 0);
    CU_ASSERT_DOUBLE_EQUAL(report.prediction_error.p50, 0.5, 1e-3);
    CU_ASSERT_DOUBLE_EQUAL(report.signed_error.p50, -0.5, 1e-3);
    json = replay_report_json(&report);
    CU_ASSERT_DOUBLE_EQUAL(
        real_at(json_object_get(json, "prediction"), "ttft_rel_error", "p50"),
        report.signed_error.p50, 1e-6);
    json_decref(json);

    /* Nothing answered: no number is invented. */
    CU_ASSERT_EQUAL(replay_report_make(NULL, 0, &context, &report), 0);
    report.context.policy = NULL;
    json = replay_report_json(&report);
    CU_ASSERT_PTR_NOT_NULL_FATAL(json);
    CU_ASSERT(
        json_is_null(json_object_get(json_object_get(json, "ttft_s"), "mean")));
    CU_ASSERT(json_is_null(json_object_get(json, "policy")));
    CU_ASSERT_EQUAL(replay_json_write(json, "/nonexistent/r.json"), -ENOENT);
    CU_ASSERT_EQUAL(replay_json_write(json, "/dev/full"), -EIO);
    json_decref(json);
}

static void test_csv(void)
{
    char path[] = "/tmp/test_replay_csv.XXXXXX";
    int fd = mkstemp(path);

    CU_ASSERT_FATAL(fd >= 0);
    struct replay_record r[] = {answered(1000000, 1500000, 2000000, 50000),
                                lost(REPLAY_FAILED, "a \"b\", c", "")};
    r[0].index = 7;
    CU_ASSERT_EQUAL(replay_csv_write(r, 2, path), 0);
    char text[2000] = "";
    FILE *f = fdopen(fd, "r");
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    remove(path);
    text[n] = '\0';
    CU_ASSERT_PTR_NOT_NULL(
        strstr(text, "\n7,completed,200,1.000000,0.500000,1.000000,,,0.050000,"
                     "1.001000,,,0,0,100,32,0,32,68,3,1,"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, ",\"a \"\"b\"\", c\","));
}

static const struct suite_test tests[] = {
    {"percentiles and ratios", test_math},
    {"longest 10 %", test_tail},
    {"distribution", test_distribution},
    {"report", test_report},
    {"promises", test_promises},
    {"held before", test_held_before},
    {"held of a rejected one", test_rejected_held},
    {"reasons", test_reasons},
    {"examples", test_examples},
    {"json", test_json},
    {"csv", test_csv},
};
SUITE("replay_report", tests)
