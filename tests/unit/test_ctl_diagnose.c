/* conductorctl diagnose: what it makes of a conductor's answers, and what the
 * bundle leaves out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/suite.h"
#include "tools/ctl/bundle.h"
#include "tools/ctl/checks.h"

static const char well[] =
    "# HELP conductor_instance_ready 1 while it gets requests.\n"
    "# TYPE conductor_instance_ready gauge\n"
    "conductor_instance_ready{instance=\"p0\"} 1\n"
    "conductor_instance_ready{instance=\"p1\"} 0\n"
    "conductor_instance_draining{instance=\"p0\"} 0\n"
    "conductor_instance_draining{instance=\"p1\"} 1\n"
    "conductor_instance_losses{instance=\"p1\"} 2\n"
    "conductor_instance_prefill_correction_ratio{instance=\"p0\"} 1.5\n"
    "conductor_instance_prefill_correction_ratio{instance=\"p1\"} 0\n"
    "conductor_engine_events_state{instance=\"e0\"} -1\n"
    "conductor_engine_events_state{instance=\"e1\"} 0\n"
    "conductor_state_up 1\n"
    "process_resident_memory_bytes 800\n"
    "conductor_memory_limit_bytes 1000\n"
    "conductor_index_unindexed_blocks 0\n"
    "conductor_build_info{version=\"" CONDUCTOR_VERSION "\"} 1\n";

/* Reads metrics and, of other views, nothing. */
static void read_in(const char *before, const char *now, struct readings *r)
{
    *r = (struct readings){.over_s = 5, .clock_ahead_s = NAN};
    r->ready = json_pack("{s:b, s:{s:b}}", "ready", 1, "models", "m", 1);
    CU_ASSERT_EQUAL_FATAL(samples_cut(strdup(before), &r->before), 0);
    CU_ASSERT_EQUAL_FATAL(samples_cut(strdup(now), &r->now), 0);
}

/* Checks that of `well` with more lines only `check` is found, of `subject`;
 * NULL = nothing. */
static void finds(const char *before, const char *more, const char *check,
                  const char *subject)
{
    char text[sizeof well + 1000];
    struct findings *f = malloc(sizeof(*f));
    struct readings r;

    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    snprintf(text, sizeof text, "%s%s", well, more);
    read_in(before, text, &r);
    checks_run(&r, f);
    CU_ASSERT_EQUAL(f->n, check ? 1 : 0);
    if (f->n && check) {
        CU_ASSERT_STRING_EQUAL(f->all[0].check->name, check);
        CU_ASSERT_STRING_EQUAL(f->all[0].subject, subject);
    }
    readings_free(&r);
    free(f);
}

/* At its limit each value is well, beyond it it is not. */
static void test_limits(void)
{
    char line[200];

    finds("", "", NULL, "");
    finds("", "conductor_instance_losses{instance=\"p0\"} 3\n", "losses", "p0");
    finds("", "conductor_engine_events_state{instance=\"e2\"} 2\n", "events",
          "e2");
    finds("", "conductor_store_events_state{store=\"s\"} 1\n", "store_events",
          "s");
    finds("", "process_resident_memory_bytes 1\n", "memory", "");
    finds("", "conductor_index_unindexed_blocks 1\n", "index", "");
    finds("", "conductor_index_evicted_blocks_total 7\n", "index", "");
    finds("conductor_index_evicted_blocks_total 7\n",
          "conductor_index_evicted_blocks_total 7\n", NULL, "");
    finds("",
          "conductor_instance_prefill_correction_ratio{instance=\"a\"} 1.51\n",
          "correction", "a");
    finds("",
          "conductor_instance_prefill_correction_ratio{instance=\"a\"} 0.66\n",
          "correction", "a");
    finds("", "conductor_log_lost_untold 1\n", "log_lost", "log");
    finds("", "conductor_access_log_lost_total 1\n", "log_lost", "access log");
    finds("",
          "conductor_loop_lag_seconds_bucket{le=\"0.02\"} 45\n"
          "conductor_loop_lag_seconds_count 50\n",
          NULL, "");
    finds("",
          "conductor_loop_lag_seconds_bucket{le=\"0.02\"} 44\n"
          "conductor_loop_lag_seconds_count 50\n",
          "loop_lag", "");
    finds("conductor_loop_lag_seconds_count 100\n",
          "conductor_loop_lag_seconds_bucket{le=\"0.02\"} 44\n"
          "conductor_loop_lag_seconds_count 110\n",
          NULL, "");
    for (int days = -1; days < 20; days++) {
        snprintf(line, sizeof line,
                 "conductor_certificate_expires_seconds{option=\"c\"} %lld\n",
                 (long long)time(NULL) + days * 86400 + 3600);
        finds("", line,
              days < 0    ? "certificate_expired"
              : days < 14 ? "certificate"
                          : NULL,
              "c");
    }
}

/* A share of few requests says nothing. */
static void test_least(void)
{
    static const struct {
        int in_time, rejected;
        size_t found;
    } cases[] = {{15, 2, 0}, {15, 4, 0}, {15, 5, 1}, {18, 2, 0}, {17, 3, 1}};
    struct findings *f = malloc(sizeof(*f));

    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct readings r;

        read_in("", well, &r);
        r.overview = json_pack("{s:{s:i, s:i, s:i, s:i}}", "last_minute",
                               "in_time", cases[i].in_time, "rejected",
                               cases[i].rejected, "late", 0, "failed", 0);
        checks_run(&r, f);
        CU_ASSERT_EQUAL(f->n, cases[i].found);
        readings_free(&r);
    }
    free(f);
}

/* While no model is known, diagnose names the engines that have told none, and
 * why. */
static void test_no_model(void)
{
    struct findings *f = malloc(sizeof(*f));
    struct readings r;

    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    for (int with = 0; with < 2; with++) {
        read_in("", with ? "conductor_instance_ready{instance=\"a\"} 0\n" : "",
                &r);
        json_decref(r.ready);
        r.ready = json_pack("{s:b, s:{}}", "ready", 0, "models");
        r.instances =
            with ? json_pack("{s:[{s:s, s:n, s:s, s:s, s:s}]}", "instances",
                             "name", "a", "model", "state", "starting", "url",
                             "http://h:1", "last_error", "Connection refused")
                 : json_pack("{s:[]}", "instances");
        checks_run(&r, f);
        CU_ASSERT_EQUAL_FATAL(f->n, 1u + (unsigned)with);
        CU_ASSERT_STRING_EQUAL(
            f->all[0].detail,
            with ? "engines that have not told their model: 1"
                 : "no model is known: no engine is named, and no worker came");
        if (with)
            CU_ASSERT_STRING_EQUAL(f->all[1].detail,
                                   "starting, http://h:1: Connection refused");
        readings_free(&r);
    }
    free(f);
}

/* A cause stands before what it causes. */
static void test_order(void)
{
    static const char *const before[][2] = {
        {"losses", "model_ready"},
        {"losses", "responses_5xx"},
        {"instance_ready", "ttft"},
        {"loop_lag", "ttft"},
        {"events", "hits"},
        {"index", "hits"},
        {"correction", "promises"},
        {"correction", "rejected"},
        {"state_up", "hits"},
        {"memory", "certificate"},
        {"certificate_expired", "model_ready"},
    };

    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        size_t at[2] = {checks_n, checks_n};

        for (size_t k = 0; k < 2; k++)
            for (size_t c = 0; c < checks_n; c++)
                if (strcmp(checks[c].name, before[i][k]) == 0)
                    at[k] = c;
        CU_ASSERT(at[0] < at[1] && at[1] < checks_n);
    }
}

/* More findings than are kept are counted. */
static void test_bound(void)
{
    static char text[20000];
    struct findings *f = malloc(sizeof(*f));
    struct readings r;
    int n = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    for (unsigned i = 0; i < FINDINGS_MAX + 5; i++)
        n += sprintf(text + n,
                     "conductor_instance_losses{instance=\"w%u\"} 9\n", i);
    read_in("", text, &r);
    checks_run(&r, f);
    CU_ASSERT_EQUAL(f->n, FINDINGS_MAX);
    CU_ASSERT_EQUAL(f->left_out, 5);
    readings_free(&r);
    free(f);
}

static void test_labels(void)
{
    struct samples s;
    char text[64];

    CU_ASSERT_EQUAL_FATAL(
        samples_cut(strdup("a{x=\"1\",yx=\"2\"} 3\n"
                           "a{instance=\"q\\\"} {\\\\\"} 4e1\nb -1\nb\nb x\n"
                           "{} 1\n# b 7\n\nc{x=\"1\" 5\n"
                           "d{x=\"\x1b[2J\"} 1"),
                    &s),
        0);
    CU_ASSERT_EQUAL(s.n, 5);
    CU_ASSERT_EQUAL(samples_sum(&s, "a", NULL), 43);
    CU_ASSERT_EQUAL(samples_sum(&s, "a", "x=\"1\""), 3);
    CU_ASSERT_EQUAL(samples_sum(&s, "b", NULL), -1);
    const struct sample *one = samples_next(&s, "a", NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(one);
    CU_ASSERT_STRING_EQUAL(sample_label(one, "x", text, sizeof text), "1");
    CU_ASSERT_STRING_EQUAL(sample_label(one, "yx", text, sizeof text), "2");
    CU_ASSERT_STRING_EQUAL(sample_label(one, "y", text, sizeof text), "");
    one = samples_next(&s, "a", one);
    CU_ASSERT_PTR_NOT_NULL_FATAL(one);
    CU_ASSERT_STRING_EQUAL(sample_label(one, "instance", text, sizeof text),
                           "q\"} {\\");
    CU_ASSERT_STRING_EQUAL(sample_label(one, "instance", text, 3), "q\"");
    CU_ASSERT_PTR_NULL(samples_next(&s, "a", one));
    one = samples_next(&s, "d", NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(one);
    CU_ASSERT_STRING_EQUAL(sample_label(one, "x", text, sizeof text), "?[2J");
    samples_free(&s);
}

/* Metrics of which random bytes were changed do no harm. */
static void test_damaged(void)
{
    struct findings *f = malloc(sizeof(*f));

    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    srand(7);
    for (int i = 0; i < 20000; i++) {
        char text[sizeof well];
        struct readings r;

        memcpy(text, well, sizeof well);
        for (int k = rand() % 8; k >= 0; k--)
            text[(size_t)rand() % (sizeof well - 1)] =
                "{}\"\\ \n=,#e-9x"[rand() % 13];
        read_in(well, text, &r);
        checks_run(&r, f);
        readings_free(&r);
    }
    free(f);
}

static void test_scrub(void)
{
    static const char *const pairs[][2] = {
        {"redis://:S@h:1,g:2/0", "redis://-@h:1,g:2/0"},
        {"redis://:S@S@S@h", "redis://-@h"},
        {"http://u:S@h/p and http://v:S@g", "http://-@h/p and http://-@g"},
        {"http://h:1/p", "http://h:1/p"},
        {"GET /admin/blocks?prompt=S+S 200", "GET /admin/blocks?- 200"},
        {"what? yes=no", "what? yes=no"},
        {"Authorization: Bearer S, bearer S", "Authorization: -"},
        {"with Bearer S, bearer S", "with Bearer - bearer -"},
        {"x-request-id 'S S', traceparent 'S'", "x-request-id '-'"},
        {"x-request-id 'S'S'\n'", "x-request-id '-'\n'"},
        {"by Basic S=, bearer \"S\"", "by Basic - bearer \"-\""},
        {"authorization: S S\nnext", "authorization: -\nnext"},
        {"{\"Authorization\": \"Token S\", \"a\": 1}",
         "{\"Authorization\": \"-\", \"a\": 1}"},
        {"{\\\"api_key\\\": \\\"S\\\"}", "{\\\"api_key\\\": \\\"-\"}"},
        {"Cookie: a=S; b=S", "Cookie: -"},
        {"key=S token=S, access_token: S", "key=- token=- access_token: -"},
        {"key = S, X-Api-Key:S", "key = - X-Api-Key:-"},
        {"PASSWORD='S' MY_SECRET=\"S\"", "PASSWORD='-' MY_SECRET=\"-\""},
        {"key_file=/k prompt_tokens=3 api_keys: open",
         "key_file=/k prompt_tokens=3 api_keys: open"},
        {"key=", "key="},
        {"=:", "=:"},
        {"redis://u:S'S\"S@h", "redis://-@h"},
        {"http://h/p?api-key=S", "http://h/p?-"},
        {"http://h/p?k2=S&b=S", "http://h/p?-"},
        {"x-request-id 'S", "x-request-id '-"},
        {"://@?=", "://@?="},
        {"Bearer ", "Bearer "},
        {"", ""},
    };
    char text[200];

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        snprintf(text, sizeof text, "%s", pairs[i][0]);
        bundle_scrub(text);
        CU_ASSERT_STRING_EQUAL(text, pairs[i][1]);
    }
}

/* Shares are judged from three failures on, however many requests there are. */
static void test_failures(void)
{
    static const struct {
        int of, failed;
        bool found;
    } cases[] = {{2, 2, false},   {3, 3, true},   {1, 1, false},
                 {100, 2, false}, {100, 3, true}, {1000, 3, false}};
    char line[400];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(line, sizeof line,
                 "conductor_http_responses_total{class=\"2xx\"} %d\n"
                 "conductor_http_responses_total{class=\"5xx\"} %d\n",
                 cases[i].of - cases[i].failed, cases[i].failed);
        finds("", line, cases[i].found ? "responses_5xx" : NULL, "");
        snprintf(line, sizeof line,
                 "conductor_promises_total %d\n"
                 "conductor_promises_broken_total{cause=\"other\"} %d\n",
                 2 * cases[i].of, cases[i].failed);
        finds("", line, cases[i].found ? "promises" : NULL, "");
    }
}

static void test_json(void)
{
    static const char *const pairs[][2] = {
        {"a 1", "{\"name\": \"a\", \"labels\": {}, \"value\": 1}"},
        {"a{} 1.5", "{\"name\": \"a\", \"labels\": {}, \"value\": 1.5}"},
        {"a{x=\"1\",y=\"q\\\"} {\\\\,\\n\"} 4e1",
         "{\"name\": \"a\", \"labels\": {\"x\": \"1\", "
         "\"y\": \"q\\\"} {\\\\,\\n\"}, \"value\": 40}"},
        {"a 9007199254740993000",
         "{\"name\": \"a\", \"labels\": {}, \"value\": 9.007199254740992e18}"},
        {"a{le=\"+Inf\"} NaN",
         "{\"name\": \"a\", \"labels\": {\"le\": \"+Inf\"}, \"value\": null}"},
        {"a -Inf", "{\"name\": \"a\", \"labels\": {}, \"value\": null}"},
        {"a{x} 1",
         "{\"name\": \"a\", \"labels\": {\"x\": \"\"}, \"value\": 1}"},
    };

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct samples s;

        CU_ASSERT_EQUAL_FATAL(samples_cut(strdup(pairs[i][0]), &s), 0);
        CU_ASSERT_EQUAL_FATAL(s.n, 1);
        json_t *json = sample_json(&s.all[0]);
        char *text = json_dumps(json, JSON_REAL_PRECISION(15));
        json_t *wanted = json_loads(pairs[i][1], 0, NULL);
        char *other = json_dumps(wanted, JSON_REAL_PRECISION(15));
        CU_ASSERT_PTR_NOT_NULL_FATAL(text);
        CU_ASSERT_PTR_NOT_NULL_FATAL(other);
        CU_ASSERT_STRING_EQUAL(text, other);
        free(text);
        free(other);
        json_decref(json);
        json_decref(wanted);
        samples_free(&s);
    }
}

static const struct suite_test tests[] = {
    {"limits", test_limits},     {"least", test_least},
    {"no model", test_no_model}, {"order", test_order},
    {"bound", test_bound},       {"labels", test_labels},
    {"damaged", test_damaged},   {"scrub", test_scrub},
    {"failures", test_failures}, {"json", test_json},
};
SUITE("ctl_diagnose", tests)
