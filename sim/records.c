/* Ends of requests, and their records in the order of the source. */
#include <errno.h>
#include <stdlib.h>

#include "sim/internal.h"
#include "sim/views/views.h"

#define RECORDS_FIRST 1024u

int64_t sim_real_us(int64_t slow_us)
{
    if (slow_us < 0)
        return -1;
    return (slow_us + SIM_SLOWDOWN / 2) / SIM_SLOWDOWN;
}

/* Converts the times to the source's microseconds. */
static struct sim_record real_record(struct sim_record record)
{
    record.arrival_us = sim_real_us(record.arrival_us);
    record.first_token_us = sim_real_us(record.first_token_us);
    record.end_us = sim_real_us(record.end_us);
    record.tbt_us = sim_real_us(record.tbt_us);
    record.queue_us = sim_real_us(record.queue_us);
    record.prefill_us = sim_real_us(record.prefill_us);
    record.predicted_ttft_us = sim_real_us(record.predicted_ttft_us);
    record.predicted_p90_us = sim_real_us(record.predicted_p90_us);
    record.predicted_tbt_us = sim_real_us(record.predicted_tbt_us);
    return record;
}

static void hand_over(struct sim *sim, const struct sim_record *record)
{
    const struct sim_record real = real_record(*record);

    sim->io.record(sim->io.arg, &real);
}

/* Reports an end to a closed loop's source at once, out of order. */
static void tell_source(struct sim *sim, const struct sim_record *record)
{
    const struct sim_record real = real_record(*record);
    int rc = sim->io.ended ? sim->io.ended(sim->io.arg, &real) : 0;

    if (rc != 0)
        sim_fail(sim, rc, "the source of requests failed");
}

/* Makes room for the record of `index`. An empty slot has index UINT64_MAX. */
static int records_reserve(struct sim *sim, uint64_t index)
{
    uint64_t n = !sim->late.records ? 0 : sim->late.mask + 1;
    uint64_t need = n == 0 ? RECORDS_FIRST : n;
    struct sim_record *records;

    while (index - sim->late.first >= need)
        need *= 2;
    if (need == n)
        return 0;
    records = calloc(need, sizeof(*records));
    if (!records)
        return -ENOMEM;
    for (uint64_t i = 0; i < need; i++)
        records[i].index = UINT64_MAX;
    for (uint64_t i = 0; i < n; i++)
        if (sim->late.records[i].index != UINT64_MAX)
            records[sim->late.records[i].index & (need - 1)] =
                sim->late.records[i];
    free(sim->late.records);
    sim->late.records = records;
    sim->late.mask = need - 1;
    return 0;
}

void sim_end(struct sim *sim, struct sim_request *request,
             enum sim_outcome outcome, const char *reason)
{
    struct sim_record *record = &request->record;
    uint64_t index = record->index;

    if (request->warms) {
        warm_end(&request->view->warm, request->warms, false);
        request->warms = NULL;
        goto free_request;
    }
    if (outcome == SIM_COMPLETED)
        sim_views_answered(sim, request);
    record->outcome = outcome;
    record->reason = reason;
    record->end_us = sim->now_us;
    sim->n_unfinished--;
    tell_source(sim, record);
    if (records_reserve(sim, index) < 0) {
        sim_fail(sim, -ENOMEM, "out of memory");
        goto free_request;
    }
    sim->late.records[index & sim->late.mask] = *record;
    for (;;) {
        struct sim_record *next =
            &sim->late.records[sim->late.first & sim->late.mask];

        if (next->index != sim->late.first)
            break;
        hand_over(sim, next);
        next->index = UINT64_MAX;
        sim->late.first++;
    }
free_request:
    sim_load_let_go(sim, request);
    sim_unmark_ready(sim, request);
    TAILQ_REMOVE(&sim->every, request, every);
    free(request->keys);
    free(request);
}
