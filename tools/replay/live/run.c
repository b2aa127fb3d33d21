/*
 * See run.h. `poke` looks at the state and does whatever is possible
 * now: sends what is due, arms the timer for what is next, or ends the loop.
 */
#include "tools/replay/live/run.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "tools/replay/live/progress.h"

struct run {
    const struct replay_run_params *params;
    struct replay_record *records;
    struct replay_request **requests; /* (trace count), NULL: none in flight */
    struct event *send_timer;
    struct event *progress_timer;
    struct event *interrupt;
    struct event *terminate;
    struct replay_progress progress;
    int64_t start_us;
    size_t next;
    size_t in_flight;
    bool interrupted;
    int rc;
};

static int64_t run_now_us(const struct run *run)
{
    return clock_now_us() - run->start_us;
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

    run->requests[record - run->records] = NULL;
    run->in_flight--;
    replay_progress_add(&run->progress, record);
    poke(run);
}

static int send_request(struct run *run, size_t i)
{
    const struct replay_run_params *p = run->params;
    struct replay_request_params request = {.base = p->base,
                                            .server = p->server,
                                            .record = &run->records[i],
                                            .start_us = run->start_us,
                                            .timeout_us = p->timeout_us,
                                            .done = on_call_done,
                                            .arg = run};
    struct evbuffer *body =
        replay_body_new(&p->trace->requests[i], p->model, &p->tokens);

    if (!body)
        return -ENOMEM;
    run->records[i].sent_us = run_now_us(run);
    return replay_request_start(&request, body, &run->requests[i]);
}

static void poke(struct run *run)
{
    size_t count = run->params->trace->count;

    while (run->next < count && run->in_flight < run->params->max_in_flight) {
        int64_t wait_us = intended_us(run, run->next) - run_now_us(run);

        if (wait_us > 0) {
            struct timeval wait = {.tv_sec = wait_us / 1000000,
                                   .tv_usec = wait_us % 1000000};

            evtimer_add(run->send_timer, &wait);
            break;
        }
        int rc = send_request(run, run->next);
        if (rc != 0) {
            stop(run, rc);
            return;
        }
        run->next++;
        run->in_flight++;
    }
    if (run->next == count && run->in_flight == 0)
        stop(run, 0);
}

static void on_send_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    poke(arg);
}

static void on_progress_timer(evutil_socket_t fd, short what, void *arg)
{
    struct run *run = arg;

    (void)fd;
    (void)what;
    replay_progress_show(&run->progress, run_now_us(run), run->next,
                         run->in_flight, false);
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
    struct run *run = arg;

    (void)fd;
    (void)what;
    run->interrupted = true;
    stop(run, 0);
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
            .predicted_ttft_us = -1,
            .queue_us = -1,
            .prefill_us = -1,
            .input_tokens = p->trace->requests[i].input_tokens,
            .output_tokens = p->trace->requests[i].output_tokens};
    }
}

/* What is in flight at the end was stopped by us: not the server's failure. */
static void drop_calls(struct run *run)
{
    for (size_t i = 0; i < run->next; i++) {
        if (run->requests[i]) {
            replay_request_cancel(run->requests[i], "interrupted");
            run->records[i].outcome = REPLAY_PENDING;
        }
    }
}

static void free_event(struct event *event)
{
    if (event)
        event_free(event);
}

static void run_fini(struct run *run)
{
    free_event(run->terminate);
    free_event(run->interrupt);
    free_event(run->progress_timer);
    free_event(run->send_timer);
    free(run->requests);
}

static int run_init(struct run *run)
{
    struct event_base *base = run->params->base;

    run->requests = calloc(run->params->trace->count, sizeof run->requests[0]);
    run->send_timer = evtimer_new(base, on_send_timer, run);
    run->progress_timer =
        event_new(base, -1, EV_PERSIST, on_progress_timer, run);
    run->interrupt = evsignal_new(base, SIGINT, on_signal, run);
    run->terminate = evsignal_new(base, SIGTERM, on_signal, run);
    if (!run->requests || !run->send_timer || !run->progress_timer ||
        !run->interrupt || !run->terminate) {
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
    replay_progress_init(&run.progress, params->trace->count);
    struct timeval tick = {.tv_sec = 0, .tv_usec = 200000};
    struct timeval at_once = {0, 0};
    event_add(run.interrupt, NULL);
    event_add(run.terminate, NULL);
    event_add(run.progress_timer, &tick);
    evtimer_add(run.send_timer, &at_once);
    run.start_us = clock_now_us();
    event_base_dispatch(params->base);
    result->wall_us = run_now_us(&run);
    result->interrupted = run.interrupted;
    replay_progress_show(&run.progress, result->wall_us, run.next,
                         run.in_flight, true);
    drop_calls(&run);
    run_fini(&run);
    return run.rc;
}
