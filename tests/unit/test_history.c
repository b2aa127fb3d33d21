/* The last hour in points: what falls into which, what has fallen out, and how
 * far off quantiles are. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "conductor/json/text_buf.h"
#include "conductor/service/history/history.h"
#include "tests/unit/suite.h"

#define S INT64_C(1000000)

/* The members as an object, owned by the caller. */
static json_t *read_all(const struct history *h, unsigned n, int64_t now_us,
                        int (*write)(const struct history *, unsigned, int64_t,
                                     struct text_buf *))
{
    struct text_buf out;
    json_t *json;

    text_buf_init(&out, SIZE_MAX);
    text_buf_printf(&out, "{");
    CU_ASSERT_EQUAL(write(h, n, now_us, &out), 0);
    text_buf_printf(&out, "}");
    json = json_loadb(out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
    text_buf_fini(&out);
    CU_ASSERT_PTR_NOT_NULL(json);
    return json;
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
    json_t *json = read_all(h, 4, 39 * S, history_write);
    CU_ASSERT_EQUAL(json_array_size(json_object_get(json, "in_time")), 4);
    CU_ASSERT_EQUAL(at(json, "in_time", 0), 1);
    CU_ASSERT_EQUAL(at(json, "late", 0), 1);
    CU_ASSERT_EQUAL(at(json, "rejected", 1), 1);
    CU_ASSERT_EQUAL(at(json, "rejected", 2), 0);
    CU_ASSERT_EQUAL(at(json, "failed", 3), 1);
    CU_ASSERT_EQUAL(at(json, "ttft_p50_ms", 0), -1);
    json_decref(json);
    json = read_all(h, 4, 39 * S, history_write_last);
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
    json_t *json = read_all(h, HISTORY_POINTS, hour - 1, history_write);
    CU_ASSERT_EQUAL(at(json, "in_time", 0), 1);
    json_decref(json);
    json = read_all(h, HISTORY_POINTS, hour, history_write);
    CU_ASSERT_EQUAL(at(json, "in_time", 0), 0);
    CU_ASSERT_EQUAL(at(json, "in_time", HISTORY_POINTS - 1), 0);
    json_decref(json);
    history_ended(h, HISTORY_LATE, hour);
    json = read_all(h, HISTORY_POINTS, hour, history_write);
    CU_ASSERT_EQUAL(at(json, "in_time", HISTORY_POINTS - 1), 0);
    CU_ASSERT_EQUAL(at(json, "late", HISTORY_POINTS - 1), 1);
    CU_ASSERT_EQUAL(at(json, "ttft_p50_ms", HISTORY_POINTS - 1), -1);
    json_decref(json);
    history_free(h);
}

/* Any time is found again, at most 7.5 % off; far ones count as the last. */
static void test_quantiles(void)
{
    for (double us = 1000; us < 2e8; us *= 1.037) {
        struct history *h = history_new();

        history_first_token(h, (int64_t)us * 2, (int64_t)us, S);
        json_t *json = read_all(h, 1, S, history_write_last);
        CU_ASSERT(fabs(of(json, "ttft_p50_ms") * 1e3 / us - 1) < 0.075);
        CU_ASSERT(us > 1e8 ||
                  fabs(of(json, "predicted_p50_ms") * 5e2 / us - 1) < 0.075);
        json_decref(json);
        history_free(h);
    }
    struct history *h = history_new();
    for (int i = 1; i <= 100; i++)
        history_first_token(h, 0, i <= 80 ? 10000 : 1000000, S);
    history_first_token(h, 0, -5, S);
    history_first_token(h, 0, INT64_MAX, S);
    json_t *json = read_all(h, 6, S, history_write_last);
    CU_ASSERT(fabs(of(json, "ttft_p50_ms") / 10 - 1) < 0.075);
    CU_ASSERT(fabs(of(json, "ttft_p90_ms") / 1000 - 1) < 0.075);
    CU_ASSERT_EQUAL(of(json, "predicted_p50_ms"), -1);
    json_decref(json);
    history_free(h);
    history_first_token(NULL, 1, 1, S);
    history_ended(NULL, HISTORY_LATE, S);
    history_prompt(NULL, 1, 1, 1, S);
}

static const struct suite_test tests[] = {
    {"points", test_points},
    {"an hour ago", test_an_hour_ago},
    {"quantiles", test_quantiles},
};
SUITE("history", tests)
