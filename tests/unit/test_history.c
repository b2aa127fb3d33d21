/* The spans in points: what falls into which, what has fallen out, and how
 * far off quantiles are. */
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "conductor/json/text_buf.h"
#include "conductor/service/history/history.h"
#include "tests/unit/suite.h"

#define S INT64_C(1000000)

/* Returns the members of a span, or of the hour's last n points, as an object,
 * owned by the caller. */
static json_t *read_object(const struct history *h, enum history_span span,
                           unsigned n, int64_t now_us)
{
    struct text_buf out;
    json_t *json;

    text_buf_init(&out, SIZE_MAX);
    text_buf_puts(&out, "{");
    CU_ASSERT_EQUAL(n ? history_write_last(h, n, now_us, &out)
                      : history_write(h, span, now_us, &out),
                    0);
    text_buf_puts(&out, "}");
    json = json_loadb(out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
    text_buf_fini(&out);
    CU_ASSERT_PTR_NOT_NULL(json);
    return json;
}

static json_t *read_span(const struct history *h, enum history_span span,
                         int64_t now_us)
{
    return read_object(h, span, 0, now_us);
}

static json_t *read_last(const struct history *h, unsigned n, int64_t now_us)
{
    return read_object(h, HISTORY_1H, n, now_us);
}

static double at(const json_t *json, const char *key, size_t i)
{
    const json_t *v = json_array_get(json_object_get(json, key), i);

    return json_is_null(v) ? -1.0 : json_number_value(v);
}

static double of(const json_t *json, const char *key)
{
    const json_t *v = json_object_get(json, key);

    return json_is_null(v) ? -1.0 : json_number_value(v);
}

static void test_points(void)
{
    struct history *h = history_new();

    history_ended(h, HISTORY_IN_TIME, 5 * S);
    history_prompt(h, 100, 40, 0, 5 * S);
    history_ended(h, HISTORY_LATE, 9 * S);
    history_prompt(h, 100, 0, 100, 9 * S);
    history_ended(h, HISTORY_REJECTED, 10 * S);
    history_ended(h, HISTORY_FAILED, 39 * S);
    history_promise(h, true, 12 * S);
    history_promise(h, false, 13 * S);
    json_t *json = read_span(h, HISTORY_1H, 39 * S);
    const size_t n = HISTORY_POINTS;
    CU_ASSERT_EQUAL(of(json, "step_s"), 10);
    CU_ASSERT_EQUAL(of(json, "last_s"), 9);
    CU_ASSERT_EQUAL(json_array_size(json_object_get(json, "in_time")), n);
    CU_ASSERT_EQUAL(at(json, "in_time", n - 4), 1);
    CU_ASSERT_EQUAL(at(json, "late", n - 4), 1);
    CU_ASSERT_EQUAL(at(json, "reused_tokens", n - 4), 40);
    CU_ASSERT_EQUAL(at(json, "promises_kept", n - 3), 1);
    CU_ASSERT_EQUAL(at(json, "promises_late", n - 3), 1);
    CU_ASSERT_EQUAL(at(json, "rejected", n - 3), 1);
    CU_ASSERT_EQUAL(at(json, "rejected", n - 2), 0);
    CU_ASSERT_EQUAL(at(json, "failed", n - 1), 1);
    CU_ASSERT_EQUAL(at(json, "ttft_p50_ms", n - 4), -1);
    CU_ASSERT_EQUAL(at(json, "ttft_mean_ms", n - 4), -1);
    json_decref(json);
    json = read_last(h, 4, 39 * S);
    CU_ASSERT_EQUAL(of(json, "promises_kept"), 1);
    CU_ASSERT_EQUAL(of(json, "seconds"), 39);
    CU_ASSERT_EQUAL(of(json, "prompt_tokens"), 200);
    CU_ASSERT_EQUAL(of(json, "reused_tokens"), 40);
    CU_ASSERT_EQUAL(of(json, "guessed_tokens"), 100);
    json_decref(json);
    history_free(h);
}

/* One point each ten seconds, and an hour later its place is another's. */
static void test_an_hour_ago(void)
{
    const int64_t hour = HISTORY_POINTS * HISTORY_POINT_US;
    struct history *h = history_new();

    history_ended(h, HISTORY_IN_TIME, 5 * S);
    history_first_token(h, 0, 1000, 5 * S);
    json_t *json = read_span(h, HISTORY_1H, hour - 1);
    CU_ASSERT_EQUAL(at(json, "in_time", 0), 1);
    json_decref(json);
    json = read_span(h, HISTORY_1H, hour);
    CU_ASSERT_EQUAL(at(json, "in_time", 0), 0);
    CU_ASSERT_EQUAL(at(json, "in_time", HISTORY_POINTS - 1), 0);
    json_decref(json);
    history_ended(h, HISTORY_LATE, hour);
    json = read_span(h, HISTORY_1H, hour);
    CU_ASSERT_EQUAL(at(json, "in_time", HISTORY_POINTS - 1), 0);
    CU_ASSERT_EQUAL(at(json, "late", HISTORY_POINTS - 1), 1);
    CU_ASSERT_EQUAL(at(json, "ttft_p50_ms", HISTORY_POINTS - 1), -1);
    json_decref(json);
    history_free(h);
}

/* Each span holds its own points, and forgets them when its time is over. */
static void test_spans(void)
{
    static const struct {
        enum history_span span;
        size_t points;
        int64_t step_s;
    } all[] = {
        {HISTORY_5M, 60, 5}, {HISTORY_1H, 360, 10}, {HISTORY_24H, 360, 240}};
    struct history *h = history_new();

    history_ended(h, HISTORY_IN_TIME, 5 * S);
    for (size_t i = 0; i < 3; i++) {
        int64_t length = (int64_t)all[i].points * all[i].step_s * S;
        int64_t began = 5 / all[i].step_s * all[i].step_s * S;
        json_t *json = read_span(h, all[i].span, began + length - 1);

        CU_ASSERT_EQUAL(of(json, "step_s"), (double)all[i].step_s);
        CU_ASSERT_EQUAL(json_array_size(json_object_get(json, "late")),
                        all[i].points);
        CU_ASSERT_EQUAL(at(json, "in_time", 0), 1);
        json_decref(json);
        json = read_span(h, all[i].span, began + length);
        CU_ASSERT_EQUAL(at(json, "in_time", 0), 0);
        json_decref(json);
        /* Another point takes the place of an old one. */
        history_ended(h, HISTORY_LATE, began + length);
        json = read_span(h, all[i].span, began + length);
        CU_ASSERT_EQUAL(at(json, "late", all[i].points - 1), 1);
        CU_ASSERT_EQUAL(at(json, "in_time", all[i].points - 1), 0);
        json_decref(json);
    }
    history_free(h);
}

/* Any time is found again, at most 7.5 % off; far ones count as the last. */
static void test_quantiles(void)
{
    for (double us = 1000; us < 2e8; us *= 1.037) {
        struct history *h = history_new();

        history_first_token(h, (int64_t)us * 2, (int64_t)us, S);
        json_t *json = read_last(h, 1, S);
        CU_ASSERT(fabs(of(json, "ttft_p50_ms") * 1e3 / us - 1) < 0.075);
        CU_ASSERT(us > 1e8 ||
                  fabs(of(json, "predicted_p50_ms") * 5e2 / us - 1) < 0.075);
        json_decref(json);
        history_free(h);
    }
    struct history *h = history_new();
    for (int i = 1; i <= 100; i++)
        history_first_token(h, 0, i <= 80 ? 10000 : 1000000, S);
    json_t *mean = read_last(h, 6, S);
    CU_ASSERT_EQUAL(of(mean, "ttft_mean_ms"), 208);
    json_decref(mean);
    history_first_token(h, 0, -5, S);
    history_first_token(h, 0, INT64_MAX, S);
    json_t *json = read_last(h, 6, S);
    CU_ASSERT(fabs(of(json, "ttft_p50_ms") / 10 - 1) < 0.075);
    CU_ASSERT(fabs(of(json, "ttft_p90_ms") / 1000 - 1) < 0.075);
    CU_ASSERT_EQUAL(of(json, "ttft_p99_ms"), of(json, "ttft_p90_ms"));
    CU_ASSERT_EQUAL(of(json, "predicted_p50_ms"), -1);
    json_decref(json);
    history_free(h);
    history_first_token(NULL, 1, 1, S);
    history_ended(NULL, HISTORY_LATE, S);
    history_prompt(NULL, 1, 1, 1, S);
    history_promise(NULL, true, S);
}

static const struct suite_test tests[] = {
    {"points", test_points},
    {"an hour ago", test_an_hour_ago},
    {"spans", test_spans},
    {"quantiles", test_quantiles},
};
SUITE("history", tests)
