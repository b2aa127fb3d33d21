/*
 * Leaving: the worker sends LEAVING and finishes its requests. It exits when
 * every conductor has answered LEAVE, after which no new request arrives, and
 * no request is left; or after --drain-ms. It exits at once without a
 * connected conductor.
 */
#include "base/log.h"
#include "base/loop/loop.h"
#include "base/supervisor.h"
#include "workers/service/internal.h"

/* A healthy conductor answers with LEAVE at once. */
#define LEAVE_PATIENCE_US 2000000

static void end(struct worker *w)
{
    loop_stop(w->loop);
}

void worker_leave_tell(struct worker *w, struct conductor *c)
{
    if (!w->leave.until_us)
        return;
    c->leave_due = true;
    msg_empty_pack(&w->out, FRAME_LEAVING, 0);
    worker_send(w, c);
}

void worker_leave(struct worker *w)
{
    int64_t now_us = loop_now_us(w->loop),
            limit_us = w->options->drain_ms * 1000ll;
    struct conductor *c;

    if (w->leave.until_us || !worker_has_conductor(w) || limit_us == 0) {
        end(w);
        return;
    }
    supervisor_say("STOPPING=1");
    if (w->requests.n > 0)
        log_info("worker %s: ends its %u requests first, for at most %u ms; "
                 "another signal ends it at once",
                 w->options->name, w->requests.n, w->options->drain_ms);
    w->leave.until_us = now_us + limit_us;
    w->leave.answer_until_us = now_us + LEAVE_PATIENCE_US;
    TAILQ_FOREACH(c, &w->conductors, entry)
    {
        if (c->up)
            worker_leave_tell(w, c);
    }
}

void worker_leave_answered(struct conductor *c)
{
    c->leave_due = false;
    worker_leave_look(c->worker);
}

/* Returns whether no new request can arrive, and the kernel has all output. */
static bool all_know(const struct worker *w, int64_t now_us)
{
    const struct conductor *c;

    TAILQ_FOREACH(c, &w->conductors, entry)
    {
        if ((c->leave_due && now_us < w->leave.answer_until_us) ||
            !conductor_link_sent(c->link))
            return false;
    }
    return true;
}

void worker_leave_look(struct worker *w)
{
    int64_t now_us = loop_now_us(w->loop);

    if (!w->leave.until_us)
        return;
    if (now_us >= w->leave.until_us && w->requests.n > 0)
        log_warn("worker %s: leaves with %u unfinished requests, after the %u "
                 "ms of --drain-ms",
                 w->options->name, w->requests.n, w->options->drain_ms);
    if (now_us >= w->leave.until_us || !worker_has_conductor(w) ||
        (w->requests.n == 0 && all_know(w, now_us)))
        end(w);
}
