/* One turn of the loop, which starts everything that can start, and the
 * callbacks of the compute thread. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "workers/service/internal.h"

/* Sets a timer if the queue order holds the engine for a prefill that is soon
 * ready. */
static void look_again(struct worker *w)
{
    int64_t now_us = loop_now_us(w->loop);
    int64_t at_us = batch_look_us(w->batch, now_us);

    if (at_us != INT64_MAX)
        loop_timer_start(&w->poke, at_us - now_us);
}

/* Hands a chunk of a stage or a led group to the compute thread, if one is
 * ready. Returns whether it did. */
static bool submit_stage(struct worker *w)
{
    struct pipeline_turn *turn;

    if (!pipeline_form(w->pipeline, &turn))
        return false;
    w->staged_last = true;
    batch_thread_submit_stage(w->thread, &turn->segment, &turn->stage);
    return true;
}

/* Hands the next step or stage to the idle compute thread, if one is
 * ready. */
static void next_step(struct worker *w)
{
    struct engine_segment *segments;

    if (batch_thread_busy(w->thread))
        return;
    /* Stages and steps take turns. */
    if (!w->staged_last && submit_stage(w))
        return;
    uint32_t n = batch_form(w->batch, loop_now_us(w->loop), &segments);
    if (n == 0) {
        if (!w->staged_last || !submit_stage(w))
            look_again(w);
        return;
    }
    bool watch = false;
    w->staged_last = false;
    w->step = segments;
    w->n_step = n;
    w->step_gated = false;
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = batch_segment_owner(w->batch, i);

        watch |= transfer_pushes(r);
        if (!r->step.gated)
            continue;
        batch_thread_gate(w->thread, i, &r->step.gate);
        w->step_gated = true;
    }
    batch_thread_submit(w->thread, segments, n, watch);
}

void worker_go_on(struct worker *w)
{
    worker_grant(w);
    worker_load_poke(w);
    next_step(w);
    transfer_push_poke(w->transfer);
    worker_copy_poke(w);
    worker_shared_poke(w);
    worker_send_events(w);
}

/* Exits when the engine is lost, so that the conductor gives its requests to
 * others. */
static void on_engine_lost(struct worker *w)
{
    log_error("the engine is lost: %s; this worker leaves: start it again when "
              "the card works",
              engine_error(w->engine));
    w->exit_status = 1;
    loop_stop(w->loop);
}

static void on_step_done(void *arg, int rc, int64_t step_us)
{
    struct worker *w = arg;

    if (pipeline_in_turn(w->pipeline)) {
        if (rc < 0)
            log_error("a chunk of some layers failed: %s", strerror(-rc));
        pipeline_turned(w->pipeline, rc);
        worker_go_on(w);
        return;
    }
    if (rc == -ENODEV) {
        batch_abandon(w->batch);
        on_engine_lost(w);
        return;
    }
    /* A step whose layers did not arrive is repeated; the loader logs it. */
    if (rc < 0 && !(rc == -EIO && w->step_gated))
        log_error("a step of %lld us failed: %s", (long long)step_us,
                  strerror(-rc));
    else if (rc == 0 && !w->step_gated)
        loader_learn(w->loader, w->step, w->n_step, step_us);
    batch_complete(w->batch, rc);
    /* Keep the engine busy first, then report. */
    worker_load_poke(w);
    next_step(w);
    worker_send_tokens(w);
    worker_go_on(w);
}

static void on_step_progress(void *arg)
{
    struct worker *w = arg;

    transfer_push_poke(w->transfer);
}

const struct batch_thread_ops worker_thread_ops = {
    .done = on_step_done,
    .progress = on_step_progress,
};
