/* Marks for the loop: an error ends it; marked nodes and requests are handled
 * when the current event is over. No part calls upward. */
#include <stdarg.h>
#include <stdio.h>

#include "sim/internal.h"

void sim_fail(struct sim *sim, int rc, const char *format, ...)
{
    va_list args;

    if (sim->rc != 0)
        return;
    sim->rc = rc;
    va_start(args, format);
    vsnprintf(sim->err, SIM_ERROR_BYTES, format, args);
    va_end(args);
}

void sim_mark_node(struct sim *sim, struct sim_node *node)
{
    if (node->dirty)
        return;
    node->dirty = true;
    TAILQ_INSERT_TAIL(&sim->dirty, node, dirty_link);
}

void sim_unmark_node(struct sim *sim, struct sim_node *node)
{
    if (!node->dirty)
        return;
    node->dirty = false;
    TAILQ_REMOVE(&sim->dirty, node, dirty_link);
}

void sim_mark_ready(struct sim *sim, struct sim_request *request)
{
    bool last = request->prefill.held && request->load->over;
    bool begins = request->queued && request->record.queue_us < 0 &&
                  sim->now_us >= request->accepted_at_us;

    if (request->ready || !(last || begins))
        return;
    request->ready = true;
    TAILQ_INSERT_TAIL(&sim->ready, request, ready_link);
}

void sim_unmark_ready(struct sim *sim, struct sim_request *request)
{
    if (!request->ready)
        return;
    request->ready = false;
    TAILQ_REMOVE(&sim->ready, request, ready_link);
}
