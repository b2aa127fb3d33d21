/* See loop.h. `poke` sends the due requests and arms the timer for the next
 * one. */
#include "tools/replay/live/loop.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/loop/loop.h"

struct run {
    const struct replay_loop_params *params;
    struct replay_flight flight;
    struct loop_timer timer;
    int rc;
};

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

static void stop(struct run *run, int rc)
{
    run->rc = rc;
    loop_stop(run->params->loop);
}

static int send_next(struct run *run, int64_t due_us)
{
    const struct replay_loop_params *p = run->params;
    const struct trace_request *request = NULL;
    int64_t i = p->next(p->arg, due_us, &request);

    if (i < 0)
        return (int)i;
    struct evbuffer *body = replay_body_new(request, p->model, &p->tokens);
    p->records[i].sent_us = run_now_us(run);
    return replay_flight_send(&run->flight, (size_t)i, body);
}

static void poke(struct run *run)
{
    const struct replay_loop_params *p = run->params;
    int64_t due_us = 0;

    while (run->flight.in_flight < p->max_in_flight &&
           (due_us = p->due_us(p->arg)) >= 0) {
        int64_t wait_us = due_us - run_now_us(run);

        if (wait_us > 0) {
            loop_timer_start(&run->timer, wait_us);
            return;
        }
        int rc = send_next(run, due_us);
        if (rc != 0) {
            stop(run, rc);
            return;
        }
    }
    if (run->flight.in_flight == 0)
        stop(run, 0);
}

/* The record belongs to the request until this returns, so the timer sends the
 * next one. */
static void on_done(void *arg, struct replay_record *record)
{
    struct run *run = arg;
    int rc = run->params->ended(run->params->arg, record, run_now_us(run));

    if (rc != 0)
        stop(run, rc);
    else
        loop_timer_start(&run->timer, 0);
}

static void on_timer(void *arg)
{
    poke(arg);
}

struct replay_record replay_record_new(uint64_t index, int64_t intended_us,
                                       const struct trace_request *request)
{
    return (struct replay_record){.index = index,
                                  .intended_us = intended_us,
                                  .sent_us = -1,
                                  .first_token_us = -1,
                                  .end_us = -1,
                                  .tbt_us = -1,
                                  .predicted_ttft_us = -1,
                                  .predicted_p90_us = -1,
                                  .queue_us = -1,
                                  .prefill_us = -1,
                                  .input_tokens = request->input_tokens,
                                  .output_tokens = request->output_tokens};
}

int replay_loop_run(const struct replay_loop_params *params,
                    struct replay_loop_result *result)
{
    struct run run = {.params = params};

    loop_timer_init(params->loop, &run.timer, on_timer, &run);
    run.flight =
        (struct replay_flight){.params = {.loop = params->loop,
                                          .server = params->server,
                                          .timeout_us = params->timeout_us,
                                          .done = on_done,
                                          .arg = &run},
                               .records = params->records};
    if (replay_flight_init(&run.flight, params->n_records) != 0) {
        run.rc = -ENOMEM;
    } else {
        loop_timer_start(&run.timer, 0);
        run.flight.params.start_us = clock_now_us();
        loop_run(params->loop);
        *result = (struct replay_loop_result){run_now_us(&run),
                                              run.flight.interrupted};
    }
    replay_flight_fini(&run.flight);
    loop_timer_stop(&run.timer);
    return run.rc;
}
