/* One load: the blocks that can still come, and its end. */
#include <stdlib.h>

#include "workers/load/internal.h"

/* --- blocks that a run may still deliver
 * ----------------------------------------------- */

uint32_t load_last(const struct load *load)
{
    uint32_t last = 0;

    for (uint32_t i = 0; i < load->n_runs; i++) {
        const struct load_run *run = &load->runs[i];
        uint32_t end = run->open ? run->held : run->to;

        if (end > load->r->prompt.n_reusable)
            end = load->r->prompt.n_reusable;
        if ((!run->ended || run->in_flight > 0) && end > last)
            last = end;
    }
    return last;
}

uint32_t load_first_wanted(const struct load *load)
{
    uint32_t bt = load->loader->config.layout->block_tokens;
    uint32_t at = (load->r->position + bt - 1) / bt;

    return at > load->claimed ? at : load->claimed;
}

bool load_coming(const struct load *load, uint32_t b)
{
    if (b < load_first_wanted(load) ||
        load->r->load.origin[b] != BLOCK_COMPUTED)
        return false;
    for (uint32_t i = 0; i < load->n_runs; i++) {
        const struct load_run *run = &load->runs[i];

        if (!run->ended && b < (run->open ? run->held : run->to))
            return true;
    }
    return load_units_count(&load->units, b, UNIT_ASKED) > 0;
}

/* Returns whether a block can come; before the load begins, whether one is not
 * computed. */
static bool anything_coming(const struct load *load)
{
    uint32_t last = load_last(load);

    if (!load->begun)
        return load_first_wanted(load) < load->r->prompt.n_reusable;
    for (uint32_t b = load_first_wanted(load); b < last; b++)
        if (load_coming(load, b))
            return true;
    return false;
}

/* --- the end ------------------------------------------------------------ */

void load_close_run(struct load_run *run)
{
    void *session = run->session;

    run->ended = true;
    run->session = NULL;
    load_cancel_pieces(run);
    if (session)
        run->source->ops.close(run->source->arg, session);
}

static bool has_peer(const struct load *load)
{
    for (uint32_t i = 0; i < load->n_runs; i++)
        if (load->runs[i].source->ops.origin == BLOCK_FETCHED)
            return true;
    return false;
}

void load_end(struct load *load)
{
    struct loader *l = load->loader;
    struct request *r = load->r;

    load->over = true;
    for (uint32_t i = 0; i < load->n_runs; i++) {
        struct load_run *run = &load->runs[i];

        load_close_run(run);
        while (!LIST_EMPTY(&run->pieces))
            load_orphan(LIST_FIRST(&run->pieces));
        run->source->n_runs--;
    }
    if (r->step.gated && (load->spoilt || anything_coming(load))) {
        /* Ends the step that waits at the gate, or keeps any from beginning. */
        layer_gate_fail(&r->step.gate);
        r->step.gated = r->step.under_way;
    }
    if (load->asked_us > 0 && load->last_us > load->asked_us)
        r->load.us = load->last_us - load->asked_us;
    if (has_peer(load))
        r->load.fetch_us = loader_now_us(l) - r->turn.arrival_us;
    r->load.mode = (uint8_t)(load->stalled ? LOAD_MODE_LOAD : load->mode);
    r->load.job = NULL;
    /* A running request no longer queues. */
    if (r->load.held_back && r->state == REQUEST_WAITING)
        r->turn.freed_us = loader_now_us(l);
    r->load.held_back = false;
    TAILQ_REMOVE(&l->loads, load, link);
    load_units_fini(&load->units);
    free(load);
}

static uint32_t in_flight(const struct load *load)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < load->n_runs; i++)
        n += load->runs[i].in_flight;
    return n;
}

bool load_check(struct load *load)
{
    if (load->spoilt)
        layer_gate_fail(&load->r->step.gate);
    /* By layers, pieces of given-up blocks may be in flight. */
    bool whole = load->spoilt || load->mode == LOAD_MODE_LAYERWISE;
    if ((whole && in_flight(load) > 0) ||
        (!load->spoilt && anything_coming(load)))
        return false;
    load_end(load);
    return true;
}

void loader_forget(struct request *r)
{
    if (!r->load.job)
        return;
    r->load.job->spoilt = true;
    load_end(r->load.job);
}
