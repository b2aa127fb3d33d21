/* Ends waiting: for a load that comes too slowly, and for a read that hangs, as
 * on a failing disk. */
#include <errno.h>

#include "base/log.h"
#include "workers/load/internal.h"

/* How long a request waits for a load, plus so many times the time to compute
 * its prompt; and how long for one piece. */
#define HELD_US 30e6
#define HELD_RATIO 4
#define HUNG_US 30000000

/* How long it waits until a source has said what it has: by layers nothing is
 * asked for before that, and there must be time left for the load. */
#define OPEN_US 15000000

/* No time overflows. */
#define HELD_MAX_US 1e15

int64_t loader_hung_us(const struct loader_piece *p)
{
    return p->from_us + HUNG_US;
}

/* When a request has waited long enough for its load. */
static int64_t held_until_us(const struct load *load)
{
    double us =
        step_pace_us(&load->loader->pace, load->r->prompt.n_tokens, 0, 0);
    double held_us = us > 0 ? HELD_US + HELD_RATIO * us : HELD_US;
    /* Its sources may be so busy with others that nothing was asked for. */
    int64_t since_us = load->asked_us > 0 ? load->asked_us : load->last_us;

    return since_us + (int64_t)(held_us < HELD_MAX_US ? held_us : HELD_MAX_US);
}

/* A source that sends very slowly holds a request that waits for all of its
 * blocks only for this long; then nothing more is asked for. */
static void give_up_late(struct loader *l, struct load *load)
{
    if (!load->r->load.held_back || load->late)
        return;
    int64_t until_us = held_until_us(load);
    if (l->config.now_us() < until_us) {
        loader_wake_at(l, until_us);
        return;
    }
    log_warn("request %llu: its load takes too long; the rest is computed",
             (unsigned long long)load->r->id);
    load->late = true;
    load->spoilt = load->mode == LOAD_MODE_LAYERWISE;
    for (uint32_t i = 0; i < load->n_runs; i++)
        load->runs[i].ended = true;
}

/* Its source has `part`, and will hand it back when it can. Until then the
 * memory is the source's, and the request has another block. 0, or -ENOSPC. */
static int leave(struct load *load, struct load_part *part)
{
    struct loader_piece *p = &part->piece;
    struct load_run *run = p->run;

    if (load->r->blocks.ids[p->block] == p->id &&
        load_replace(load, p->block) < 0)
        return -ENOSPC;
    p->rc = -ETIMEDOUT;
    loader_miss(part);
    run->ended = true;
    part->hung = true;
    run->source->n_hung++;
    load->loader->ops->poke(load->loader->arg); /* others may wait for it */
    return 0;
}

/* Pieces of `run` that are overdue. 0, or -ENOSPC. */
static int leave_overdue(struct loader *l, struct load_run *run)
{
    struct load_part *next;

    for (struct load_part *part = LIST_FIRST(&run->parts); part; part = next) {
        next = LIST_NEXT(part, of_run);
        int64_t hung_us = loader_hung_us(&part->piece);
        if (part->parked && run->load->late)
            loader_unpark(l, part, -ETIMEDOUT);
        else if (part->parked)
            continue;
        else if (l->config.now_us() < hung_us)
            loader_wake_at(l, hung_us);
        else if (leave(run->load, part) < 0)
            return -ENOSPC;
    }
    return 0;
}

/* A source that does not say what it has, although it may be busy with what
 * others asked for. */
static void give_up_opening(struct loader *l, struct load_run *run)
{
    int64_t until_us = run->load->last_us + OPEN_US;

    if (run->open)
        return;
    if (l->config.now_us() < until_us) {
        loader_wake_at(l, until_us);
        return;
    }
    log_warn("request %llu: %s does not say what it has",
             (unsigned long long)run->load->r->id, run->source->name);
    run->ended = true;
    run->open = true;
}

bool load_give_up(struct loader *l, struct load *load)
{
    give_up_late(l, load);
    if (load->r->step.under_way)
        return false; /* it may wait for them; that has an end */
    for (uint32_t i = 0; i < load->n_runs; i++) {
        struct load_run *run = &load->runs[i];

        if (leave_overdue(l, run) < 0) {
            l->ops->failed(l->arg, load->r,
                           "reads hang, and there is no room to compute what "
                           "they were to bring");
            return true;
        }
        give_up_opening(l, run);
        if (run->source->n_hung > 0)
            run->ended = true;
    }
    return false;
}
