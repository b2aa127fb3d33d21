/* The loop over events. */
#include "sim/sim.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "sim/copies.h"
#include "sim/internal.h"
#include "sim/views/views.h"

static void end_flow(struct sim *sim, uint32_t id)
{
    struct links_end end = links_finish(sim->links, id, sim->now_us);

    switch ((enum sim_flow)end.kind) {
    case SIM_FLOW_HANDOVER:
        sim_handed_over(sim, end.what);
        break;
    case SIM_FLOW_FETCH:
        sim_fetch_ended(sim, &end);
        break;
    case SIM_FLOW_PUSH:
        sim_push_ended(sim, &end);
        break;
    case SIM_FLOW_PIPE:
        sim_prefill_pipe_ended(sim, end.what);
        break;
    case SIM_FLOW_READ:
        sim_load_read(sim, &end);
        break;
    case SIM_FLOW_LOAD:
        sim_load_sent(sim, &end);
        break;
    case SIM_FLOW_LOOK:
        sim_mark_node(sim, end.what);
        break;
    case SIM_FLOW_AGAIN:
        sim_ask_again(sim, end.what);
        break;
    case SIM_FLOW_DUE:
        sim_load_due(sim, &end);
        break;
    case SIM_FLOW_PASS:
        sim_replicate_pass(sim);
        break;
    case SIM_FLOW_COPY:
        sim_replicate_copied(sim, &end);
        break;
    case SIM_FLOW_ROLES:
        sim_switch_pass(sim);
        break;
    }
}

/* Handles the marked nodes and requests, in the order of the marks. */
static void settle(struct sim *sim)
{
    struct sim_request *r;
    struct sim_node *node;

    for (;;) {
        if ((node = TAILQ_FIRST(&sim->dirty))) {
            sim_unmark_node(sim, node);
            sim_node_poke(sim, node);
        } else if ((r = TAILQ_FIRST(&sim->ready))) {
            sim_unmark_ready(sim, r);
            sim_load_ready(sim, r);
        } else {
            return;
        }
    }
}

/* Tries the requests that wait for freed room, oldest first. As in the daemon,
 * a round ends before any node begins with its new requests. */
static void retry_view(struct sim *sim, struct sim_view *view, bool at_once)
{
    do {
        while (sim_retry_next(sim, view))
            ;
        settle(sim);
    } while (at_once && view->dispatch.room && sim->rc == 0);
}

static void retry_waiting(struct sim *sim)
{
    bool at_once = sim_retries_at_once(sim);

    for (uint32_t v = 0; v < sim->n_views; v++)
        if (sim->views[v].dispatch.n_waiting > 0)
            retry_view(sim, &sim->views[v], at_once);
}

/* Runs background work last, after all requests. */
static void warm(struct sim *sim)
{
    while (sim_warm_next(sim))
        settle(sim);
}

/* Runs an event. All events of one time precede the tries that they cause. */
static void run_event(struct sim *sim, const struct heap_entry *event)
{
    const struct heap_entry *next;
    uint32_t id = event->id;

    if (event->at > SIM_LAST_US) {
        sim_fail(sim, -ERANGE, "an event lies over 30 years ahead");
        return;
    }
    sim_copies_watch(sim, event->at);
    sim_samples_take(sim, event->at);
    sim->now_us = event->at;
    sim->summary.events++;
    if (id < sim->n_nodes)
        sim_node_step_ended(sim, &sim->nodes[id]);
    else if (id == sim_news_id(sim))
        sim_views_hear(sim);
    else
        end_flow(sim, id);
    settle(sim);
    next = heap_first(&sim->heap);
    if (next && next->at <= sim->now_us)
        return;
    sim_switch_next(sim);
    retry_waiting(sim);
    warm(sim);
    sim_replicate_next(sim);
}

/* Returns when a request of the source arrives, in slow us; -1 after an error.
 */
static int64_t arrival_us(struct sim *sim, const struct trace_request *request)
{
    double us;

    if (sim->summary.requests == 0)
        sim->epoch_us = request->arrival_us;
    us = (double)(request->arrival_us - sim->epoch_us) / sim->config.speed;
    if (!(us <= SIM_SPAN_MAX_US)) {
        sim_fail(sim, -ERANGE, "arrivals over 30 years apart");
        return -1;
    }
    int64_t at_us = llround(us * SIM_SLOWDOWN);

    return at_us > sim->now_us ? at_us : sim->now_us;
}

/* Runs the events up to until_us; at the same time they precede the arrival. */
static void run_until(struct sim *sim, int64_t until_us)
{
    const struct heap_entry *event;

    while (sim->rc == 0 && (event = heap_first(&sim->heap)) &&
           event->at <= until_us)
        run_event(sim, event);
}

/* Takes a request of the source at its arrival. */
static void take(struct sim *sim, const struct trace_request *request,
                 int64_t at_us)
{
    sim_copies_watch(sim, at_us);
    sim_samples_take(sim, at_us);
    sim->now_us = at_us;
    sim->summary.events++;
    sim_arrive(sim, request);
    settle(sim);
    if (sim_retries_at_once(sim))
        retry_waiting(sim);
    warm(sim);
}

/* Asks for the next request. Returns 1; 0 = no more requests, or an error. */
static int ask_source(struct sim *sim, struct trace_request *request)
{
    int rc = sim->io.next(sim->io.arg, request);

    if (rc < 0)
        sim_fail(sim, rc, "the source of requests failed");
    return rc > 0;
}

static void run_open(struct sim *sim, struct trace_request *request)
{
    while (sim->rc == 0 && ask_source(sim, request) == 1) {
        int64_t at_us = arrival_us(sim, request);

        run_until(sim, at_us);
        if (sim->rc == 0)
            take(sim, request, at_us);
    }
}

/* Returns when a closed loop's next request comes, in slow us; INT64_MAX = not
 * before another request ends. */
static int64_t due_us(struct sim *sim)
{
    int64_t us = sim->io.due_us(sim->io.arg);

    if (us < 0)
        return INT64_MAX;
    if ((double)us > SIM_SPAN_MAX_US) {
        sim_fail(sim, -ERANGE, "a request is due in over 30 years");
        return INT64_MAX;
    }
    us *= SIM_SLOWDOWN;
    return us > sim->now_us ? us : sim->now_us;
}

/* Runs a closed loop: any event may bring the next due time nearer. */
static void run_closed(struct sim *sim, struct trace_request *request)
{
    while (sim->rc == 0) {
        const struct heap_entry *event = heap_first(&sim->heap);
        int64_t at_us = due_us(sim);

        if (at_us == INT64_MAX && sim->n_unfinished == 0)
            return;
        if (event && event->at <= at_us)
            run_event(sim, event);
        else if (at_us == INT64_MAX || ask_source(sim, request) == 0)
            return;
        else
            take(sim, request, at_us);
    }
}

static void run(struct sim *sim)
{
    struct trace_request request = {0};

    if (sim->io.due_us)
        run_closed(sim, &request);
    else
        run_open(sim, &request);
    trace_request_fini(&request);
    sim->source_over = true;
    run_until(sim, INT64_MAX);
    if (sim->rc == 0 && sim->n_unfinished > 0)
        sim_fail(sim, -EIO, "%llu requests never ended",
                 (unsigned long long)sim->n_unfinished);
    if (sim->rc == 0)
        sim_views_check(sim);
}

static void sum_up(struct sim *sim, struct sim_summary *summary)
{
    for (uint32_t v = 0; v < sim->n_views; v++)
        sim->summary.decisions += sim->views[v].dispatch.n_decisions;
    sim->summary.warm = sim_warm_counts(sim);
    if (sim->replication)
        sim->summary.replication = *replication_counts(sim->replication);
    if (sim->roles)
        sim->summary.roles = *roles_counts(sim->roles);
    sim->summary.simulated_us = sim_real_us(sim->now_us);
    *summary = sim->summary;
}

int sim_run(const struct sim_config *config, const struct sim_io *io,
            struct sim_summary *summary, char err[SIM_ERROR_BYTES])
{
    struct sim sim;
    int rc = sim_check_config(config, err);

    if (rc < 0)
        return rc;
    memset(&sim, 0, sizeof(sim));
    rc = sim_init(&sim, config, io, err);
    if (rc < 0)
        sim_fail(&sim, rc, "out of memory");
    else
        run(&sim);
    if (sim.rc == 0)
        sum_up(&sim, summary);
    sim_fini(&sim);
    return sim.rc;
}
