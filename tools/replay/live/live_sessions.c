/* conductor-replay live-sessions: recorded sessions against a running server.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay/command.h"
#include "tools/replay/live/loop.h"
#include "tools/replay/live/target.h"
#include "tools/replay/report/report.h"
#include "tools/replay/simulate/facts.h"
#include "traces/recorded/loop.h"

/* Assumed block size of a server that does not report it: that of the recorded
 * sessions. */
#define RECORDED_BLOCK_TOKENS 64u

static const struct option_usage usage = {
    .name = "live-sessions",
    .synopsis = "--trace FILE --in-flight N [OPTIONS]",
    .text = "Plays recorded sessions of agents against a running conductor (or "
            "any server of the\nOpenAI completions API that takes token ids) "
            "in a closed loop, as `sessions` simulates\nthem, and reports the "
            "results. A turn that is rejected or fails ends its session.\nEnds "
            "with 1 if a request failed.",
    .examples =
        "  conductor-replay live-sessions --trace agentic_sessions.jsonl.gz "
        "--in-flight 4 \\\n      --sessions 8 --length-scale 16 --think-max "
        "2\n",
};

struct settings {
    struct closed_loop_options loop;
    struct replay_target target;
    double hours, think_max_s;
    uint32_t length_scale;
};

/* A run's turns, and their results. */
struct seen {
    const struct settings *settings;
    struct closed_loop *loop;
    struct replay_record *records; /* [max_in_flight] */
    size_t *slots;                 /* [n_free], of records */
    size_t n_free;
    struct trace_request request;
    struct replay_tally *tally;
    struct replay_sessions_tally turns;
    struct replay_counter *counter;
};

static int parse(int argc, char **argv, struct settings *s, int *status)
{
    const struct option_spec specs[] = {
        REPLAY_TARGET_URL_SPEC(s->target),
        {"trace", OPTION_TEXT, &s->loop.path, "FILE", 0, 0,
         "recorded sessions, one per line (traces/DESIGN.md), plain or gzip",
         .required = true},
        {"in-flight", OPTION_U32, &s->loop.in_flight, "N", 1,
         CLOSED_LOOP_IN_FLIGHT_MAX, "sessions in flight (default 1)"},
        {"hours", OPTION_NUMBER, &s->hours, "H", 1e-6, 1e5,
         "hours after which no turn starts (default: no limit)"},
        {"sessions", OPTION_COUNT, &s->loop.sessions, "N", 1, 1e9,
         "number of sessions to start (default: no limit)"},
        {"think-max", OPTION_NUMBER, &s->think_max_s, "S", 0, 1e6,
         "longest pause before a turn, in seconds; longer ones are cut "
         "(default 120)"},
        {"input-max", OPTION_U32, &s->loop.input_max_tokens, "N", 1,
         TRACE_TOKENS_MAX,
         "longest prompt, in tokens; a session ends before a longer one "
         "(default 131072)"},
        {"length-scale", OPTION_U32, &s->length_scale, "S", 1, 65536,
         "divide lengths by this, after --input-max is applied (default 1)"},
        REPLAY_TARGET_SPECS(s->target),
    };

    return replay_parse(&usage, OPTION_TABLE(specs), argc, argv, status);
}

static int64_t due_us(void *arg)
{
    const struct seen *seen = arg;

    return closed_loop_due_us(seen->loop);
}

static int64_t take_next(void *arg, int64_t due_us,
                         const struct trace_request **request)
{
    struct seen *seen = arg;
    uint64_t number = closed_loop_counts(seen->loop).turns;
    int rc = closed_loop_next(seen->loop, &seen->request);

    if (rc < 0)
        return rc;
    if (seen->settings->length_scale > 1)
        trace_request_scale(&seen->request, seen->settings->length_scale);
    rc = replay_counter_add(seen->counter, &seen->request);
    if (rc != 0)
        return rc;
    *request = &seen->request;
    size_t slot = seen->slots[--seen->n_free];
    seen->records[slot] = replay_record_new(number, due_us, &seen->request);
    return (int64_t)slot;
}

static int take_ended(void *arg, struct replay_record *r, int64_t now_us)
{
    struct seen *seen = arg;
    bool completed = r->outcome == REPLAY_COMPLETED;
    int rc = replay_tally_add(seen->tally, r);

    if (rc == 0 && completed && r->first_token_us >= 0)
        rc = replay_sessions_add(&seen->turns,
                                 r->first_token_us - r->intended_us,
                                 r->end_us - r->intended_us, r->end_us);
    if (rc == 0)
        rc = closed_loop_ended(seen->loop, r->index, now_us, completed);
    seen->slots[seen->n_free++] = (size_t)(r - seen->records);
    return rc;
}

static int write_report(const struct settings *s,
                        const struct replay_report *report,
                        const struct replay_sessions *sessions)
{
    json_t *json = replay_report_json(report);
    json_t *turns = replay_sessions_json(sessions);
    int rc = -ENOMEM;

    if (json && turns && json_object_set(json, "closed_loop", turns) == 0 &&
        json_object_set_new(turns, "file", json_string(s->loop.path)) == 0 &&
        json_object_set_new(turns, "in_flight",
                            json_integer(s->loop.in_flight)) == 0)
        rc = replay_json_write(json, s->target.report);
    json_decref(turns);
    json_decref(json);
    return rc;
}

/* Prints the report and writes the requested files. Returns the exit status. */
static int report_on(uint32_t block_tokens, struct seen *seen,
                     const struct replay_loop_result *result)
{
    const struct settings *s = seen->settings;
    const char *policy = s->target.model.policy;
    struct closed_loop_counts counts = closed_loop_counts(seen->loop);
    struct replay_sessions sessions;
    struct replay_report report;
    struct replay_facts facts;

    if (replay_counter_facts(seen->counter, &facts) != 0)
        return replay_complain(usage.name, "out of memory");
    const struct replay_context context = {
        .mode = "live",
        .policy = policy[0] != '\0' ? policy : NULL,
        .block_tokens = block_tokens,
        .best_possible_hit_ratio = facts.best_possible_hit_ratio,
        .wall_us = result->wall_us,
        .asked = counts.turns,
        .interrupted = result->interrupted};

    replay_tally_report(seen->tally, &context, &report);
    replay_sessions_report(&seen->turns, &counts, s->loop.until_us, &sessions);
    replay_report_print(&report, stdout);
    replay_sessions_print(&sessions, stdout);
    int rc = REPLAY_OUTPUT(usage.name, s->target.report,
                           write_report(s, &report, &sessions));
    return result->interrupted ? REPLAY_EXIT_INTERRUPTED
                               : rc != 0 || report.failed > 0;
}

static int play(const struct settings *s, struct seen *seen)
{
    const struct replay_model *model = &s->target.model;
    struct closed_loop_options options = s->loop;
    uint32_t block_tokens = model->block_tokens > 0
                                ? model->block_tokens
                                : RECORDED_BLOCK_TOKENS / s->length_scale;
    struct replay_loop_result result = {0};
    size_t slots = s->target.max_in_flight;
    char error[512] = "";

    block_tokens = block_tokens > 0 ? block_tokens : 1;
    options.block_tokens = block_tokens * s->length_scale;
    seen->settings = s;
    seen->tally = replay_tally_new(30, 0.2);
    seen->counter = replay_counter_new(block_tokens, false);
    seen->records = calloc(slots, sizeof seen->records[0]);
    seen->slots = calloc(slots, sizeof seen->slots[0]);
    if (!seen->tally || !seen->counter || !seen->records || !seen->slots)
        return replay_complain(usage.name, "out of memory");
    for (; seen->n_free < slots; seen->n_free++)
        seen->slots[seen->n_free] = slots - 1 - seen->n_free;
    if (closed_loop_open(&options, &seen->loop, error, sizeof error) != 0)
        return replay_complain(usage.name, "%s", error);
    const struct replay_loop_params params = {
        .loop = s->target.loop,
        .server = &s->target.server,
        .model = model->name,
        .tokens = replay_target_tokens(&s->target, block_tokens),
        .max_in_flight = slots,
        .timeout_us = llround(s->target.timeout_s * 1e6),
        .records = seen->records,
        .n_records = slots,
        .due_us = due_us,
        .next = take_next,
        .ended = take_ended,
        .arg = seen};
    int rc = replay_loop_run(&params, &result);
    if (rc == 0)
        return report_on(block_tokens, seen, &result);
    const char *why = closed_loop_error(seen->loop);
    return replay_complain(usage.name, "%s", *why ? why : strerror(-rc));
}

int replay_command_live_sessions(int argc, char **argv)
{
    struct settings s = {
        .target = REPLAY_TARGET_DEFAULT,
        .loop = {.in_flight = 1,
                 .input_max_tokens = CLOSED_LOOP_INPUT_MAX_TOKENS},
        .think_max_s = (double)CLOSED_LOOP_THINK_MAX_US / 1e6,
        .length_scale = 1};
    struct seen seen = {0};
    int status = 0;

    if (parse(argc, argv, &s, &status) != 0)
        return status;
    if (s.hours == 0 && s.loop.sessions == 0)
        return replay_refuse(usage.name, "needs --hours or --sessions: the "
                                         "file begins again at its end");
    status = replay_target_parse(&s.target, usage.name);
    if (status != 0)
        return status;
    s.loop.until_us = llround(s.hours * 3600e6);
    s.loop.think_max_us = llround(s.think_max_s * 1e6);
    status = 1;
    if (replay_target_open(&s.target, usage.name) == 0)
        status = play(&s, &seen);
    replay_tally_free(seen.tally);
    replay_counter_free(seen.counter);
    replay_sessions_fini(&seen.turns);
    closed_loop_free(seen.loop);
    trace_request_fini(&seen.request);
    free(seen.slots);
    free(seen.records);
    replay_target_close(&s.target);
    return status;
}
