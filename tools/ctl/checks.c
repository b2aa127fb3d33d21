/* See checks.h. */
#include "tools/ctl/checks.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Fewer than these say nothing about a share. */
#define TIMERS_LEAST 30
#define FIRST_TOKENS_LEAST 20
#define PROMPT_TOKENS_LEAST 1000
#define PATHS_LEAST 3
/* Points of the history that make up its last minute. */
#define MINUTE_POINTS 6

/* Keeps a finding if the value is beyond the check's limit. NAN is none. The
 * format is of the detail. */
__attribute__((format(printf, 5, 6))) static void
judge(struct findings *f, const struct check *check, const char *subject,
      double value, const char *format, ...)
{
    bool wrong = check->below ? value < check->limit : value > check->limit;
    va_list ap;

    if (!wrong)
        return;
    if (f->n == FINDINGS_MAX) {
        f->left_out++;
        return;
    }
    struct finding *one = &f->all[f->n++];
    *one = (struct finding){.check = check, .value = value};
    snprintf(one->subject, sizeof one->subject, "%s", subject);
    ctl_tame(one->subject);
    va_start(ap, format);
    vsnprintf(one->detail, sizeof one->detail, format, ap);
    va_end(ap);
    ctl_tame(one->detail);
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

static double sum(const struct findings *f, const char *name)
{
    return samples_sum(&f->r->now, name, NULL);
}

/* Writes how many instances of a role in which the model has none ready are
 * drained, and what ends that; "" = none. */
static void say_drained(const struct findings *f, const char *model,
                        char text[200])
{
    static const char *const roles[] = {"prefill", "decode"};
    const json_t *list = json_object_get(f->r->instances, "instances"), *one;
    size_t i;

    *text = '\0';
    for (size_t r = 0; r < 2 && !*text; r++) {
        unsigned all = 0, n_ready = 0, n_drained = 0;
        const char *name = "", *which = "";

        json_array_foreach(list, i, one)
        {
            const char *role = ctl_member(one, "role");
            const char *state = ctl_member(one, "state");
            bool both = strcmp(role, "both") == 0;
            bool drained = json_is_true(json_object_get(one, "drained"));

            if (strcmp(ctl_member(one, "model"), model) != 0 ||
                (!both && strcmp(role, roles[r]) != 0) ||
                strcmp(state, "observed") == 0)
                continue;
            all++;
            n_ready += strcmp(state, "ready") == 0 && !drained;
            if (drained && n_drained++ == 0)
                name = ctl_member(one, "name");
            if (!both)
                which = roles[r];
        }
        if (n_ready == 0 && n_drained > 0)
            snprintf(text, 200,
                     "%u of %u%s%s drained: conductorctl undrain %.100s",
                     n_drained, all, *which ? " for " : "", which, name);
    }
}

/* Writes why no model is known. */
static void say_no_model(const struct findings *f, char text[200])
{
    const json_t *list = json_object_get(f->r->instances, "instances"), *one;
    size_t i, n = 0;

    json_array_foreach(list, i, one)
    {
        n += json_is_null(json_object_get(one, "model"));
    }
    if (n > 0)
        snprintf(text, 200, "engines that have not told their model: %zu", n);
    else
        snprintf(text, 200,
                 "no model is known: no engine is named, and no worker came");
}

static void read_models(struct findings *f, const struct check *check)
{
    const json_t *models = json_object_get(f->r->ready, "models"), *yes;
    char drained[200], why[200];
    const char *model;

    json_object_foreach((json_t *)(uintptr_t)models, model, yes)
    {
        say_drained(f, model, drained);
        judge(f, check, model, json_is_true(yes), "%s", drained);
    }
    if (json_object_size(models) == 0) {
        say_no_model(f, why);
        judge(f, check, "", json_is_true(json_object_get(f->r->ready, "ready")),
              "%s", why);
    }
}

/* Writes the state of an instance, its URL and its last error, as far as
 * /admin/instances has them. Returns the text. */
static const char *say_state(const struct findings *f, const char *name,
                             char text[200])
{
    const json_t *list = json_object_get(f->r->instances, "instances"), *one;
    size_t i;

    *text = '\0';
    json_array_foreach(list, i, one)
    {
        const char *url = ctl_member(one, "url");
        const char *error = ctl_member(one, "last_error");

        if (strcmp(ctl_member(one, "name"), name) == 0)
            snprintf(text, 200, "%.20s%s%.70s%s%s", ctl_member(one, "state"),
                     *url ? ", " : "", url, *error ? ": " : "", error);
    }
    return text;
}

static void read_instances(struct findings *f, const struct check *check)
{
    const struct sample *ready = NULL, *draining = NULL;
    const struct samples *now = &f->r->now;
    char name[128], text[200];

    while ((ready = samples_next(now, "conductor_instance_ready", ready))) {
        /* Both have their lines in the same order. */
        draining = samples_next(now, "conductor_instance_draining", draining);
        sample_label(ready, "instance", name, sizeof name);
        if (draining && strcmp(draining->labels, ready->labels) == 0 &&
            draining->value == 1)
            continue;
        judge(f, check, name, ready->value, "%s", say_state(f, name, text));
    }
}

static void read_losses(struct findings *f, const struct check *check)
{
    const struct sample *one = NULL;
    char name[128];

    while ((one = samples_next(&f->r->now, "conductor_instance_losses", one)))
        judge(f, check, sample_label(one, "instance", name, sizeof name),
              one->value, "%s", "");
}

static void read_responses(struct findings *f, const struct check *check)
{
    const char *name = "conductor_http_responses_total";
    double failed = readings_rise(f->r, name, "class=\"5xx\"");

    if (failed >= check->least)
        judge(f, check, "", failed / readings_rise(f->r, name, NULL), "%s", "");
}

/* An expired certificate fails only the first of both checks. */
static void read_certificates(struct findings *f, const struct check *check)
{
    const char *name = "conductor_certificate_expires_seconds";
    const struct sample *one = NULL;
    char option[64];

    while ((one = samples_next(&f->r->now, name, one))) {
        double left_s = one->value - (double)time(NULL);

        if (left_s < 0 && check->limit > 0)
            continue;
        judge(f, check, sample_label(one, "option", option, sizeof option),
              left_s, "%s", "");
    }
}

static void read_state(struct findings *f, const struct check *check)
{
    const struct sample *up =
        samples_next(&f->r->now, "conductor_state_up", NULL);

    if (up)
        judge(f, check, "", up->value, "%s", "");
}

static void read_missing(struct findings *f, const struct check *check)
{
    judge(f, check, "", sum(f, "conductor_state_missing"), "%s", "");
}

static void read_memory(struct findings *f, const struct check *check)
{
    double limit = sum(f, "conductor_memory_limit_bytes");

    if (limit > 0)
        judge(f, check, "", sum(f, "process_resident_memory_bytes") / limit,
              "of %.0f MiB; index %.0f, bodies of requests %.0f, answers that "
              "clients have not read %.0f MiB",
              limit / 1048576, sum(f, "conductor_index_bytes") / 1048576,
              sum(f, "conductor_http_body_bytes") / 1048576,
              sum(f, "conductor_http_unsent_bytes") / 1048576);
}

static void read_lag(struct findings *f, const struct check *check)
{
    double cores = sum(f, "conductor_cpu_limit_cores");
    char most[60] = "";

    if (cores > 0)
        snprintf(most, sizeof most, " of %.2f that it may use", cores);
    judge(f, check, "",
          readings_above(f->r, "conductor_loop_lag_seconds", "0.02",
                         TIMERS_LEAST),
          "the process used %.2f cores%s",
          readings_rise(f->r, "process_cpu_seconds_total", NULL) / f->r->over_s,
          most);
}

static void read_events_of(struct findings *f, const struct check *check,
                           const char *name, const char *label)
{
    static const char *const meaning[] = {"", "none comes after requests",
                                          "some are lost",
                                          "a replay is running"};
    const struct sample *one = NULL;
    char subject[128];

    while ((one = samples_next(&f->r->now, name, one)))
        judge(f, check, sample_label(one, label, subject, sizeof subject),
              one->value, "%s",
              one->value > 0 && one->value < 4 ? meaning[(int)one->value] : "");
}

static void read_events(struct findings *f, const struct check *check)
{
    read_events_of(f, check, "conductor_engine_events_state", "instance");
}

static void read_store_events(struct findings *f, const struct check *check)
{
    read_events_of(f, check, "conductor_store_events_state", "store");
}

static void read_index(struct findings *f, const struct check *check)
{
    judge(f, check, "",
          sum(f, "conductor_index_unindexed_blocks") +
              readings_rise(f->r, "conductor_index_evicted_blocks_total", NULL),
          "it uses %.1f of %.1f MiB", sum(f, "conductor_index_bytes") / 1048576,
          sum(f, "conductor_index_max_bytes") / 1048576);
}

static void read_corrections(struct findings *f, const struct check *check)
{
    const char *name = "conductor_instance_prefill_correction_ratio";
    const struct sample *one = NULL;
    char subject[128];

    while ((one = samples_next(&f->r->now, name, one)))
        if (one->value > 0)
            judge(f, check,
                  sample_label(one, "instance", subject, sizeof subject),
                  fmax(one->value, 1 / one->value),
                  "it takes %.2f times as long as its cost model says",
                  one->value);
}

static void read_forecasts(struct findings *f, const struct check *check)
{
    judge(f, check, "",
          readings_above(f->r, "conductor_ttft_prediction_error_ratio", "0.5",
                         FIRST_TOKENS_LEAST),
          "%s", "");
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Compares the rate of each path between workers with the median. */
static void read_paths(struct findings *f, const struct check *check)
{
    const char *name = "conductor_instance_path_bytes_per_second";
    const struct sample *one = NULL;
    char from[128], to[128], subject[300];
    double rates[1024];
    size_t n = 0;

    while (n < 1024 && (one = samples_next(&f->r->now, name, one)))
        rates[n++] = one->value;
    if (n < PATHS_LEAST)
        return;
    one = NULL;
    qsort(rates, n, sizeof rates[0], by_value);
    while ((one = samples_next(&f->r->now, name, one))) {
        snprintf(subject, sizeof subject, "%s to %s",
                 sample_label(one, "from", from, sizeof from),
                 sample_label(one, "instance", to, sizeof to));
        if (rates[n / 2] > 0)
            judge(f, check, subject, one->value / rates[n / 2], "%.1f MB/s",
                  one->value / 1e6);
    }
}

static void read_rejections(struct findings *f, const struct check *check)
{
    const json_t *m = json_object_get(f->r->overview, "last_minute");
    double rejected = number(m, "rejected");
    double all = rejected + number(m, "in_time") + number(m, "late") +
                 number(m, "failed");
    const char *why = "";
    double most = 0;
    char reason[80], label[64];
    const struct sample *one = NULL;

    while (
        (one = samples_next(&f->r->now, "conductor_rejections_total", one))) {
        sample_label(one, "reason", label, sizeof label);
        char part[80];

        snprintf(part, sizeof part, "reason=\"%s\"", label);
        double rise = readings_rise(f->r, "conductor_rejections_total", part);
        if (rise > most) {
            most = rise;
            snprintf(reason, sizeof reason, "most for %s", label);
            why = reason;
        }
    }
    if (all >= check->least)
        judge(f, check, "", rejected / all, "%s", why);
}

static void read_promises(struct findings *f, const struct check *check)
{
    double broken =
        readings_rise(f->r, "conductor_promises_broken_total", NULL);

    if (broken >= check->least)
        judge(f, check, "",
              broken / readings_rise(f->r, "conductor_promises_total", NULL),
              "%s", "");
}

/* Compares the last minute's median with the median of the history's points
 * before it. */
static void read_ttft(struct findings *f, const struct check *check)
{
    const json_t *m = json_object_get(f->r->overview, "last_minute"), *one;
    const json_t *points = json_object_get(f->r->history, "ttft_p50_ms");
    size_t size = json_array_size(points), n = 0, i;
    double *before = calloc(size + 1, sizeof(*before));
    double now = number(m, "ttft_p50_ms");

    json_array_foreach(points, i, one)
    {
        if (before && i + MINUTE_POINTS < size && json_is_number(one))
            before[n++] = json_number_value(one);
    }
    if (n > 0) {
        qsort(before, n, sizeof before[0], by_value);
        if (before[n / 2] > 0)
            judge(f, check, "", now / before[n / 2],
                  "%.0f ms, in the hour before %.0f ms", now, before[n / 2]);
    }
    free(before);
}

/* Compares the last minute's hit ratio with that of all time before it, of
 * which at least a tenth was hits. */
static void read_hits(struct findings *f, const struct check *check)
{
    const json_t *m = json_object_get(f->r->overview, "last_minute");
    const json_t *all = json_object_get(f->r->overview, "tokens");
    double prompt = number(m, "prompt_tokens");
    double reused = number(m, "reused_tokens");
    double prompt_before = number(all, "prompt") - prompt;
    double reused_before = number(all, "local") + number(all, "fetched") +
                           number(all, "disk") + number(all, "shared") - reused;

    if (prompt >= PROMPT_TOKENS_LEAST && prompt_before >= PROMPT_TOKENS_LEAST &&
        reused_before > 0.1 * prompt_before)
        judge(f, check, "", reused / prompt / (reused_before / prompt_before),
              "%.1f %%, before %.1f %%", 100 * reused / prompt,
              100 * reused_before / prompt_before);
}

static void read_log(struct findings *f, const struct check *check)
{
    judge(f, check, "log",
          fmax(sum(f, "conductor_log_lost_untold"),
               readings_rise(f->r, "conductor_log_lost_total", NULL)),
          "%.0f since the start", sum(f, "conductor_log_lost_total"));
    judge(f, check, "access log",
          readings_rise(f->r, "conductor_access_log_lost_total", NULL),
          "%.0f since the start, %.1f MiB wait",
          sum(f, "conductor_access_log_lost_total"),
          sum(f, "conductor_access_log_bytes") / 1048576);
}

static void read_clock(struct findings *f, const struct check *check)
{
    judge(f, check, "", fabs(f->r->clock_ahead_s), "the conductor's is %s",
          f->r->clock_ahead_s > 0 ? "ahead" : "behind");
}

static void read_version(struct findings *f, const struct check *check)
{
    const struct sample *one =
        samples_next(&f->r->now, "conductor_build_info", NULL);
    char version[64];

    if (one)
        judge(f, check, "",
              strcmp(sample_label(one, "version", version, sizeof version),
                     CONDUCTOR_VERSION) != 0,
              "conductor %s, conductorctl " CONDUCTOR_VERSION, version);
}

#define DAY_S 86400.0

/* tests/scenario/test_on_call.py compares the limits and the least numbers with
 * the alerts'. */
const struct check checks[] = {
    {"certificate_expired", "a certificate has expired", "a-certificate-ends",
     NULL, "left", 0, true, UNIT_DAYS, read_certificates, 0},
    {"losses", "an instance flaps", "a-worker-flaps", "ConductorInstanceFlaps",
     "losses in 10 minutes", 2, false, UNIT_COUNT, read_losses, 0},
    {"model_ready", "a model is not ready", "an-instance-gets-no-work", NULL,
     "ready", 1, true, UNIT_COUNT, read_models, 0},
    {"instance_ready", "an instance gets no work", "an-instance-gets-no-work",
     "ConductorInstanceUnready", "ready", 1, true, UNIT_COUNT, read_instances,
     0},
    {"responses_5xx", "requests fail", "requests-fail", "ConductorFailing",
     "answers with 5xx", 0.02, false, UNIT_SHARE, read_responses, 3},
    {"state_up", "Redis is away", "redis-away", "ConductorRedisAway", "up", 1,
     true, UNIT_COUNT, read_state, 0},
    {"state_missing", "work of other conductors is not known", "redis-away",
     NULL, "conductors", 0, false, UNIT_COUNT, read_missing, 0},
    {"memory", "memory is nearly used up", "memory-up", "ConductorMemoryUp",
     "resident", 0.8, false, UNIT_SHARE, read_memory, 0},
    {"loop_lag", "the event loop is late", "loop-lag", "ConductorLoopLate",
     "timers more than 20 ms late", 0.1, false, UNIT_SHARE, read_lag, 0},
    {"events", "KV events are not whole", "an-engine-is-silent",
     "ConductorEventsSilent", "state", 0, false, UNIT_COUNT, read_events, 0},
    {"store_events", "KV events of a store are not whole",
     "an-engine-is-silent", NULL, "state", 0, false, UNIT_COUNT,
     read_store_events, 0},
    {"index", "the index is full", "index-full", "ConductorIndexFull",
     "blocks without room", 0, false, UNIT_COUNT, read_index, 0},
    {"correction", "predictions are off", "predictions-off",
     "ConductorPredictionsOff", "factor", 1.5, false, UNIT_TIMES,
     read_corrections, 0},
    {"ttft_error", "predictions of TTFT are off", "predictions-off",
     "ConductorForecastsOff", "more than 50 % off", 0.5, false, UNIT_SHARE,
     read_forecasts, 0},
    {"path", "a link is slow", "a-link-is-slow", NULL,
     "rate divided by the median of all links", 0.25, true, UNIT_TIMES,
     read_paths, 0},
    {"rejected", "requests are refused", "429s-up", "ConductorOverloaded",
     "answers with 429 in the last minute", 0.1, false, UNIT_SHARE,
     read_rejections, 20},
    {"promises", "promises of TTFT are broken", "promises-broken",
     "ConductorPromisesBroken", "late", 0.01, false, UNIT_SHARE, read_promises,
     3},
    {"ttft", "TTFT is up", "ttft-up", "ConductorTtftUp",
     "median of the last minute divided by that before", 2, false, UNIT_TIMES,
     read_ttft, 0},
    {"hits", "hits are down", "hits-down", "ConductorHitsDown",
     "hit ratio of the last minute divided by that before", 0.5, true,
     UNIT_TIMES, read_hits, 0},
    {"certificate", "a certificate ends soon", "a-certificate-ends",
     "ConductorCertificateExpires", "left", 14 * DAY_S, true, UNIT_DAYS,
     read_certificates, 0},
    {"log_lost", "log lines are lost", "log-lines-lost", "ConductorLogLost",
     "lines", 0, false, UNIT_COUNT, read_log, 0},
    {"clock", "the clocks differ", "clocks-and-versions", NULL, "apart", 5,
     false, UNIT_SECONDS, read_clock, 0},
    {"version", "the versions differ", "clocks-and-versions", NULL, "differ", 0,
     false, UNIT_COUNT, read_version, 0},
};
const size_t checks_n = sizeof checks / sizeof checks[0];

void checks_run(const struct readings *r, struct findings *f)
{
    *f = (struct findings){.r = r};
    for (size_t i = 0; i < checks_n; i++)
        checks[i].read(f, &checks[i]);
}

const char *check_show(const struct check *check, double value, char text[32])
{
    static const struct {
        const char *format;
        double factor;
    } units[] = {
        [UNIT_COUNT] = {"%.0f", 1},
        [UNIT_SHARE] = {"%.1f %%", 100},
        [UNIT_TIMES] = {"%.2f", 1},
        [UNIT_SECONDS] = {"%.1f s", 1},
        [UNIT_DAYS] = {"%.1f days", 1 / DAY_S},
    };

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, 32, units[check->unit].format,
             value * units[check->unit].factor);
#pragma GCC diagnostic pop
    return text;
}
