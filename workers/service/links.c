/* Callbacks of the links to conductors: up, frame, heartbeat, down,
 * refused. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "workers/service/internal.h"

static const char *on_link_up(void *arg, const struct msg_welcome *welcome)
{
    struct conductor *c = arg;
    struct worker *w = c->worker;
    bool others = worker_has_conductor(w);

    if (others && strcmp(w->queue_order, welcome->queue_order) != 0)
        return "its queue_order differs from the other conductors'";
    if (batch_set_order(w->batch, welcome->queue_order) < 0)
        return "this worker does not know the conductor's queue_order";
    log_info("worker %s: queue order %s, as the conductor says",
             w->options->name, welcome->queue_order);
    snprintf(w->queue_order, sizeof(w->queue_order), "%s",
             welcome->queue_order);
    c->role = w->role;
    c->turns = false;
    c->lead = 0;
    c->paths.n = 0;
    worker_send_events(w); /* others get the news, `c` the inventory */
    worker_send_inventory(w, c);
    c->up = true;
    worker_shared_tell(w, c);
    worker_leave_tell(w, c);
    return NULL;
}

static void on_link_down(void *arg)
{
    struct conductor *c = arg;
    struct worker *w = c->worker;
    uint32_t n = w->requests.n;

    c->up = c->asked = c->leave_due = false;
    c->named_us = loop_now_us(w->loop); /* FORGET_US starts now */
    worker_drop_all(w, c);
    log_warn("conductor %s:%u is lost: %u of %u requests are dropped, the "
             "cache stays",
             c->at.host, c->at.port, n - w->requests.n, n);
    worker_leave_look(w);
}

/* Returns whether some conductor has not refused this worker. */
static bool has_hope(const struct worker *w)
{
    const struct conductor *c;

    TAILQ_FOREACH(c, &w->conductors, entry)
    {
        if (!c->refuses)
            return true;
    }
    return false;
}

static void on_refused(void *arg, const char *why)
{
    struct conductor *c = arg;
    struct worker *w = c->worker;

    log_error("%s", why);
    c->refuses = true;
    c->up = false;
    if (has_hope(w)) {
        loop_defer(&w->tick);
        return;
    }
    w->exit_status = 1;
    loop_stop(w->loop);
}

static void on_heartbeat(void *arg)
{
    struct conductor *c = arg;

    worker_send_status(c->worker, c);
    worker_shared_say(c->worker, c);
}

const struct conductor_link_ops worker_link_ops = {
    .up = on_link_up,
    .frame = worker_on_frame,
    .heartbeat = on_heartbeat,
    .down = on_link_down,
    .refused = on_refused,
};
