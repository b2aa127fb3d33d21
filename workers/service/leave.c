/*
 * Leaving: a worker that is told to end says LEAVING, ends what it has, and
 * leaves when the conductor's LEAVE has come, behind which no work comes, and
 * it has nothing left; or when its time is over. It leaves at once where nobody
 * would know: without a conductor, or with one that does not take LEAVING.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/supervisor.h"
#include "workers/service/internal.h"

/* LEAVE comes at once, from a conductor that is well. */
#define LEAVE_PATIENCE_US 2000000

static void end(struct worker *w)
{
    event_base_loopbreak(w->base);
}

void worker_leave(struct worker *w)
{
    int64_t now_us = clock_now_us(), limit_us = w->options->drain_ms * 1000ll;

    if (w->leave.until_us || !w->leave.taken || limit_us == 0) {
        end(w);
        return;
    }
    supervisor_say("STOPPING=1");
    log_info("worker %s: ends its %u requests first, for at most %u ms; "
             "another signal ends it at once",
             w->options->name, w->requests.n, w->options->drain_ms);
    w->leave.until_us = now_us + limit_us;
    w->leave.answer_until_us = now_us + LEAVE_PATIENCE_US;
    msg_empty_pack(&w->out, FRAME_LEAVING, 0);
    worker_send(w);
}

void worker_leave_answered(struct worker *w)
{
    w->leave.answer_until_us = 0;
    worker_leave_look(w);
}

void worker_leave_look(struct worker *w)
{
    int64_t now_us = clock_now_us();

    if (!w->leave.until_us)
        return;
    if (now_us >= w->leave.until_us && w->requests.n > 0)
        log_warn("worker %s: leaves with %u requests, after the %u ms of "
                 "--drain-ms",
                 w->options->name, w->requests.n, w->options->drain_ms);
    if (now_us >= w->leave.until_us ||
        (w->requests.n == 0 && now_us >= w->leave.answer_until_us &&
         conductor_link_sent(w->link)))
        end(w);
}
