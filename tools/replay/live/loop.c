/* See loop.h. `poke` sends the due turns and arms the timer for the next one.
 */
#include "tools/replay/live/loop.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/event_loop.h"
#include "tools/replay/live/flight.h"
#include "tools/replay/live/run.h"

struct run {
    const struct replay_loop_params *params;
    struct replay_record *records; /* (slots) */
    size_t *slots;                 /* (n_free), free slots */
    size_t n_free;
    struct replay_flight flight;
    struct event *timer;
    struct trace_request request;
    int rc;
};

static int64_t run_now_us(const struct run *run)
{
    return clock_now_us() - run->flight.params.start_us;
}

static void stop(struct run *run, int rc)
{
    run->rc = rc;
    event_base_loopbreak(run->params->base);
}

static int send_turn(struct run *run, int64_t due_us)
{
    const struct replay_loop_params *p = run->params;
    uint64_t number = closed_loop_counts(p->loop).turns;
    int rc = closed_loop_next(p->loop, &run->request);

    if (rc < 0)
        return rc;
    if (p->length_scale > 1)
        trace_request_scale(&run->request, p->length_scale);
    rc = p->sent(p->arg, &run->request);
    if (rc != 0)
        return rc;
    size_t slot = run->slots[--run->n_free];
    run->records[slot] =
        (struct replay_record){.index = number,
                               .intended_us = due_us,
                               .sent_us = run_now_us(run),
                               .first_token_us = -1,
                               .end_us = -1,
                               .tbt_us = -1,
                               .predicted_ttft_us = -1,
                               .predicted_p90_us = -1,
                               .queue_us = -1,
                               .prefill_us = -1,
                               .input_tokens = run->request.input_tokens,
                               .output_tokens = run->request.output_tokens};
    return replay_flight_send(
        &run->flight, slot,
        replay_body_new(&run->request, p->model, &p->tokens));
}

static void poke(struct run *run)
{
    const struct closed_loop *loop = run->params->loop;
    int64_t due_us;

    while (run->n_free > 0 && (due_us = closed_loop_due_us(loop)) >= 0) {
        int64_t wait_us = due_us - run_now_us(run);

        if (wait_us > 0) {
            event_loop_wait(run->timer, wait_us);
            return;
        }
        int rc = send_turn(run, due_us);
        if (rc != 0) {
            stop(run, rc);
            return;
        }
    }
    if (run->flight.in_flight == 0)
        stop(run, 0);
}

/* The slot's record belongs to the request until this returns, so the timer
 * sends the next turn. */
static void on_done(void *arg, struct replay_record *record)
{
    struct run *run = arg;
    const struct replay_loop_params *p = run->params;
    int rc = p->ended(p->arg, record);

    if (rc == 0)
        rc = closed_loop_ended(p->loop, record->index, run_now_us(run),
                               record->outcome == REPLAY_COMPLETED);
    run->slots[run->n_free++] = (size_t)(record - run->records);
    if (rc != 0)
        stop(run, rc);
    else
        event_loop_wait(run->timer, 0);
}

static void on_timer(evutil_socket_t, short, void *arg)
{
    poke(arg);
}

int replay_loop_run(const struct replay_loop_params *params,
                    struct replay_loop_result *result)
{
    struct run run = {.params = params, .n_free = params->slots};

    run.records = calloc(params->slots, sizeof run.records[0]);
    run.slots = calloc(params->slots, sizeof run.slots[0]);
    run.timer = evtimer_new(params->base, on_timer, &run);
    run.flight =
        (struct replay_flight){.params = {.base = params->base,
                                          .server = params->server,
                                          .timeout_us = params->timeout_us,
                                          .done = on_done,
                                          .arg = &run},
                               .records = run.records};
    if (!run.records || !run.slots || !run.timer ||
        replay_flight_init(&run.flight, params->slots) != 0) {
        run.rc = -ENOMEM;
        goto release;
    }
    for (size_t i = 0; i < params->slots; i++)
        run.slots[i] = params->slots - 1 - i;
    run.flight.params.start_us = clock_now_us();
    event_loop_wait(run.timer, 0);
    event_base_dispatch(params->base);
    result->wall_us = run_now_us(&run);
    result->interrupted = run.flight.interrupted;

release:
    replay_flight_fini(&run.flight);
    event_loop_drop(run.timer);
    trace_request_fini(&run.request);
    free(run.slots);
    free(run.records);
    return run.rc;
}
