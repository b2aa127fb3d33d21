/* The loop over events, and records in order. */
#include "sim/sim.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/internal.h"

#define RECORDS_FIRST 1024u

void sim_fail(struct sim *sim, int rc, const char *format, ...)
{
    va_list args;

    if (sim->rc != 0)
        return;
    sim->rc = rc;
    va_start(args, format);
    (void)vsnprintf(sim->err, SIM_ERROR_BYTES, format, args);
    va_end(args);
}

/* Back to the source's microseconds. */
static int64_t real_us(int64_t slow_us)
{
    if (slow_us < 0)
        return -1;
    return (slow_us + SIM_SLOWDOWN / 2) / SIM_SLOWDOWN;
}

static void hand_over(struct sim *sim, struct sim_record record)
{
    record.arrival_us = real_us(record.arrival_us);
    record.first_token_us = real_us(record.first_token_us);
    record.end_us = real_us(record.end_us);
    record.tbt_us = real_us(record.tbt_us);
    record.queue_us = real_us(record.queue_us);
    record.prefill_us = real_us(record.prefill_us);
    record.predicted_ttft_us = real_us(record.predicted_ttft_us);
    record.predicted_tbt_us = real_us(record.predicted_tbt_us);
    sim->io.record(sim->io.arg, &record);
}

/* Room for the record of `index`; what is not there yet has another index. */
static int records_reserve(struct sim *sim, uint64_t index)
{
    uint64_t n = !sim->records ? 0 : sim->record_mask + 1;
    uint64_t need = n == 0 ? RECORDS_FIRST : n;
    struct sim_record *records;

    while (index - sim->record_first >= need)
        need *= 2;
    if (need == n)
        return 0;
    records = calloc(need, sizeof(*records));
    if (!records)
        return -ENOMEM;
    for (uint64_t i = 0; i < need; i++)
        records[i].index = UINT64_MAX;
    for (uint64_t i = 0; i < n; i++)
        if (sim->records[i].index != UINT64_MAX)
            records[sim->records[i].index & (need - 1)] = sim->records[i];
    free(sim->records);
    sim->records = records;
    sim->record_mask = need - 1;
    return 0;
}

void sim_end(struct sim *sim, struct sim_request *request,
             enum sim_outcome outcome, const char *reason)
{
    struct sim_record *record = &request->record;
    uint64_t index = record->index;

    record->outcome = outcome;
    record->reason = reason;
    record->end_us = sim->now_us;
    sim->n_unfinished--;
    if (records_reserve(sim, index) < 0) {
        sim_fail(sim, -ENOMEM, "out of memory");
        goto free_request;
    }
    sim->records[index & sim->record_mask] = *record;
    for (;;) {
        struct sim_record *next =
            &sim->records[sim->record_first & sim->record_mask];

        if (next->index != sim->record_first)
            break;
        hand_over(sim, *next);
        next->index = UINT64_MAX;
        sim->record_first++;
    }
free_request:
    sim_load_let_go(sim, request);
    TAILQ_REMOVE(&sim->every, request, every);
    free(request->keys);
    free(request);
}

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
    case SIM_FLOW_DUE:
        sim_load_due(sim, &end);
        break;
    }
}

static void run_event(struct sim *sim, const struct sim_heap_entry *event)
{
    uint32_t id = event->id;

    if (event->at_us > SIM_LAST_US) {
        sim_fail(sim, -ERANGE, "an event lies over 30 years ahead");
        return;
    }
    sim_copies_watch(sim, event->at_us);
    sim->now_us = event->at_us;
    sim->summary.events++;
    if (id < sim->n_nodes)
        sim_node_step_ended(sim, &sim->nodes[id]);
    else
        end_flow(sim, id);
    if (sim->room && sim->dispatch.n_waiting > 0)
        sim_retry_waiting(sim);
}

/* When a request of the source arrives, in slow time; -ERANGE: too late. */
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

/* Events before an arrival come first, also those of the same time. */
static void run_until(struct sim *sim, int64_t until_us)
{
    const struct sim_heap_entry *event;

    while (sim->rc == 0 && (event = sim_heap_first(&sim->heap)) &&
           event->at_us <= until_us)
        run_event(sim, event);
}

static void run(struct sim *sim)
{
    struct trace_request request = {0};
    int rc;

    while (sim->rc == 0) {
        rc = sim->io.next(sim->io.arg, &request);
        if (rc < 0)
            sim_fail(sim, rc, "the source of requests failed");
        if (rc <= 0)
            break;
        int64_t at_us = arrival_us(sim, &request);

        run_until(sim, at_us);
        if (sim->rc != 0)
            break;
        sim_copies_watch(sim, at_us);
        sim->now_us = at_us;
        sim->summary.events++;
        sim_arrive(sim, &request);
    }
    trace_request_fini(&request);
    run_until(sim, INT64_MAX);
    if (sim->rc == 0 && sim->n_unfinished > 0)
        sim_fail(sim, -EIO, "%llu requests never ended",
                 (unsigned long long)sim->n_unfinished);
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
    sim.summary.decisions = sim.dispatch.n_decisions;
    sim.summary.simulated_us = real_us(sim.now_us);
    sim.summary.index_bytes =
        sim.index ? prefix_index_stats(sim.index).bytes : 0;
    if (sim.rc == 0)
        *summary = sim.summary;
    sim_fini(&sim);
    return sim.rc;
}
