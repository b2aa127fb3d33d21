/*
 * See run.h. `poke` does what is possible now: sends due requests, arms the
 * timer for the next one, or ends the loop.
 */
#include "tools/replay/live/run.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/event_loop.h"
#include "tools/replay/live/flight.h"
#include "tools/replay/math.h"

/* Progress on stderr: one moving line on a terminal, or lines in a log. */
struct progress {
    size_t total;
    size_t completed, rejected, failed;
    uint64_t prompt_tokens, reused_tokens;
    int64_t ttft_sum_us;
    size_t ttft_count;
    bool on_terminal;
    int64_t shown_us; /* when a line was last written */
};

struct run {
    const struct replay_run_params *params;
    struct replay_record *records;
    struct replay_flight flight; /* one slot per request of the trace */
    struct event *send_timer;
    struct event *progress_timer;
    struct progress progress;
    size_t next;
    int rc;
};

/* Counts a finished record. */
static void progress_add(struct progress *p, const struct replay_record *r)
{
    if (r->outcome == REPLAY_REJECTED) {
        p->rejected++;
    } else if (r->outcome == REPLAY_FAILED) {
        p->failed++;
    } else if (r->outcome == REPLAY_COMPLETED) {
        p->completed++;
        p->prompt_tokens += r->prompt_tokens;
        p->reused_tokens += r->reused_tokens;
        p->ttft_sum_us += r->first_token_us - r->intended_us;
        p->ttft_count++;
    }
}

/* Shows the progress: at every call on a terminal, every five seconds
 * elsewhere, always if `last`, which ends the line. */
static void progress_show(struct progress *p, int64_t now_us, size_t sent,
                          size_t in_flight, bool last)
{
    if (!last && !p->on_terminal && now_us - p->shown_us < 5000000)
        return;
    p->shown_us = now_us;
    double ttft_s = p->ttft_count > 0
                        ? (double)p->ttft_sum_us / (double)p->ttft_count / 1e6
                        : 0.0;
    fprintf(stderr,
            "%s%6.1f s  sent %zu/%zu  in flight %zu  completed %zu  rejected "
            "%zu  failed %zu  reused %.1f%%  mean TTFT %.3f s%s",
            p->on_terminal ? "\r\033[K" : "", (double)now_us / 1e6, sent,
            p->total, in_flight, p->completed, p->rejected, p->failed,
            100 * replay_ratio(p->reused_tokens, p->prompt_tokens), ttft_s,
            p->on_terminal && !last ? "" : "\n");
    fflush(stderr);
}

/* Appends the prompt as JSON numbers, without a JSON node per number. */
static int add_prompt(struct evbuffer *body, const uint32_t *tokens, size_t n)
{
    char text[4096];
    char *end = text;

    for (size_t i = 0; i < n; i++) {
        bool last = i + 1 == n;

        end += sprintf(end, "%" PRIu32 "%s", tokens[i], last ? "" : ",");
        if (last || end > text + sizeof text - 16) {
            if (evbuffer_add(body, text, (size_t)(end - text)) != 0)
                return -1;
            end = text;
        }
    }
    return 0;
}

struct evbuffer *replay_body_of(const char *model, uint32_t max_tokens,
                                const char *fields, const uint32_t *prompt,
                                size_t n)
{
    struct evbuffer *body = evbuffer_new();
    json_t *name_json = json_string(model);
    char *name = json_dumps(name_json, JSON_ENCODE_ANY);
    bool good = body && name &&
                evbuffer_add_printf(
                    body,
                    "{\"model\":%s,\"max_tokens\":%u,\"stream\":true,%s"
                    "\"stream_options\":{\"include_usage\":true},\"prompt\":[",
                    name, (unsigned)max_tokens, fields) > 0 &&
                add_prompt(body, prompt, n) == 0 &&
                evbuffer_add(body, "]}", 2) == 0;

    free(name);
    json_decref(name_json);
    if (!good && body) {
        evbuffer_free(body);
        body = NULL;
    }
    return body;
}

struct evbuffer *replay_body_new(const struct trace_request *request,
                                 const char *model,
                                 const struct trace_token_options *tokens)
{
    size_t n = request->input_tokens;
    uint32_t max_tokens =
        request->output_tokens > 0 ? request->output_tokens : 1;
    uint32_t *prompt = malloc((n + 1) * sizeof prompt[0]);

    if (!prompt)
        return NULL;
    trace_tokens(request, tokens, prompt);
    char priority[32] = "";

    if (request->priority)
        snprintf(priority, sizeof priority, "\"priority\":%" PRId32 ",",
                 request->priority);
    struct evbuffer *body =
        replay_body_of(model, max_tokens, priority, prompt, n);
    free(prompt);
    return body;
}

static int64_t run_now_us(const struct run *run)
{
    return clock_now_us() - run->flight.params.start_us;
}

static int64_t intended_us(const struct run *run, size_t i)
{
    const struct trace_request *q = run->params->trace->requests;

    return (int64_t)((double)(q[i].arrival_us - q[0].arrival_us) /
                     run->params->speed);
}

static void stop(struct run *run, int rc)
{
    run->rc = rc;
    event_base_loopbreak(run->params->base);
}

static void poke(struct run *run);

static void on_call_done(void *arg, struct replay_record *record)
{
    struct run *run = arg;

    progress_add(&run->progress, record);
    poke(run);
}

static int send_request(struct run *run, size_t i)
{
    const struct replay_run_params *p = run->params;
    struct evbuffer *body =
        replay_body_new(&p->trace->requests[i], p->model, &p->tokens);

    run->records[i].sent_us = run_now_us(run);
    run->records[i].tenant = p->trace->requests[i].tenant;
    return replay_flight_send(&run->flight, i, body);
}

static void poke(struct run *run)
{
    size_t count = run->params->trace->count;

    while (run->next < count &&
           run->flight.in_flight < run->params->max_in_flight) {
        int64_t wait_us = intended_us(run, run->next) - run_now_us(run);

        if (wait_us > 0) {
            event_loop_wait(run->send_timer, wait_us);
            break;
        }
        int rc = send_request(run, run->next);
        if (rc != 0) {
            stop(run, rc);
            return;
        }
        run->next++;
    }
    if (run->next == count && run->flight.in_flight == 0)
        stop(run, 0);
}

static void on_send_timer(evutil_socket_t, short, void *arg)
{
    poke(arg);
}

static void on_progress_timer(evutil_socket_t, short, void *arg)
{
    struct run *run = arg;

    progress_show(&run->progress, run_now_us(run), run->next,
                  run->flight.in_flight, false);
}

static void init_records(struct run *run)
{
    const struct replay_run_params *p = run->params;

    for (size_t i = 0; i < p->trace->count; i++) {
        run->records[i] = (struct replay_record){
            .index = p->first_index + i,
            .intended_us = intended_us(run, i),
            .sent_us = -1,
            .first_token_us = -1,
            .end_us = -1,
            .tbt_us = -1,
            .slo_ttft_us = p->slo_ttft_us,
            .predicted_ttft_us = -1,
            .predicted_p90_us = -1,
            .queue_us = -1,
            .prefill_us = -1,
            .input_tokens = p->trace->requests[i].input_tokens,
            .output_tokens = p->trace->requests[i].output_tokens};
    }
}

static void run_fini(struct run *run)
{
    event_loop_drop(run->progress_timer);
    event_loop_drop(run->send_timer);
    replay_flight_fini(&run->flight);
}

static int run_init(struct run *run)
{
    const struct replay_run_params *p = run->params;

    run->flight = (struct replay_flight){.params = {.base = p->base,
                                                    .server = p->server,
                                                    .timeout_us = p->timeout_us,
                                                    .done = on_call_done,
                                                    .arg = run},
                                         .records = run->records};
    run->send_timer = evtimer_new(p->base, on_send_timer, run);
    run->progress_timer =
        event_new(p->base, -1, EV_PERSIST, on_progress_timer, run);
    if (replay_flight_init(&run->flight, p->trace->count) != 0 ||
        !run->send_timer || !run->progress_timer) {
        run_fini(run);
        return -ENOMEM;
    }
    return 0;
}

int replay_run(const struct replay_run_params *params,
               struct replay_record *records, struct replay_run_result *result)
{
    struct run run = {.params = params, .records = records};
    int rc = run_init(&run);

    if (rc != 0)
        return rc;
    init_records(&run);
    run.progress = (struct progress){.total = params->trace->count,
                                     .on_terminal = isatty(STDERR_FILENO) == 1};
    event_loop_wait(run.progress_timer, 200000);
    event_loop_wait(run.send_timer, 0);
    run.flight.params.start_us = clock_now_us();
    event_base_dispatch(params->base);
    result->wall_us = run_now_us(&run);
    result->interrupted = run.flight.interrupted;
    progress_show(&run.progress, result->wall_us, run.next,
                  run.flight.in_flight, true);
    run_fini(&run);
    return run.rc;
}
