/*
 * The line of an engine: its requests without a first token, as sent.
 *
 * Engines compute prompts roughly in the order of arrival: the first request of
 * the line counts as being computed, and its first byte ends that time.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "conductor/service/engine/engine.h"

/* Begins the first request of the line: the engine was free for it since
 * from_us, or since it joined the line, if that was later. */
static void next_turn(struct engine *e, int64_t from_us, int64_t now_us)
{
    struct service_request *first = TAILQ_FIRST(&e->line);
    struct forward *f;

    if (!first || first->attempt.turn_us)
        return;
    f = first->forward;
    first->attempt.turn_us = from_us > f->line_us ? from_us : f->line_us;
    pool_prefill_started(e->service->pool, e->id, first->attempt.id, now_us);
    cluster_started(e->service->peers, first->attempt.id);
    if (first->state == REQUEST_SCHEDULED)
        request_set_state(first, REQUEST_PREFILLING);
}

void forward_join_line(struct service_request *request, int64_t now_us)
{
    struct forward *f = request->forward;

    f->alone =
        upstream_busy(f->engine->upstream) == 1 && TAILQ_EMPTY(&f->engine->line)
            ? f->engine->count.sent
            : 0;
    TAILQ_INSERT_TAIL(&f->engine->line, request, unsent);
    f->in_line = true;
    f->line_us = now_us;
    next_turn(f->engine, now_us, now_us);
}

static void leave(struct service_request *request, int64_t from_us,
                  int64_t now_us)
{
    struct forward *f = request->forward;

    if (!f->in_line)
        return;
    TAILQ_REMOVE(&f->engine->line, request, unsent);
    f->in_line = false;
    next_turn(f->engine, from_us, now_us);
}

void forward_leave_line(struct service_request *request, int64_t now_us)
{
    leave(request, now_us, now_us);
}

void forward_refused_in_line(struct service_request *request, int64_t now_us)
{
    leave(request, request->attempt.turn_us, now_us);
}

void forward_abort(struct service_request *request)
{
    struct forward *f = request->forward;

    upstream_cancel(f->exchange);
    f->exchange = NULL;
    if (f->engine) {
        forward_leave_line(request, clock_now_us());
        expect_failed(request);
    }
    free(f->headers);
    f->headers = NULL;
    f->engine = NULL;
    f->silent = POOL_NO_INSTANCE;
    request->attempt.turn_us = 0;
    f->alone = 0;
    f->refused = f->paused = false;
    f->n_tail = 0;
    f->n_had = 0;
    f->n_bytes = 0;
    memset(&f->read, 0, sizeof(f->read));
}
