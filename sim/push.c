/* KV that goes to a decode node once that has memory for it. */
#include "sim/internal.h"

void sim_push(struct sim *sim, struct sim_request *r, double bytes)
{
    int rc;

    if (!r->push.granted) {
        r->push.held_bytes += bytes;
        return;
    }
    rc = links_start(sim->links, r->record.prefill_node, r->record.decode_node,
                     bytes, SIM_FLOW_PUSH, r, sim->now_us);
    if (rc < 0) {
        sim_fail(sim, rc, "out of memory");
        return;
    }
    r->push.n++;
    sim->summary.pushes.bytes += (uint64_t)bytes;
}

void sim_push_granted(struct sim *sim, struct sim_request *r)
{
    double bytes = r->push.held_bytes;

    r->push.held_bytes = 0.0;
    if (bytes > 0.0)
        sim_push(sim, r, bytes);
}
