/* Takes finished pieces from sources. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "workers/load/internal.h"

static void count_bytes(struct request *r, enum block_origin origin,
                        uint64_t bytes)
{
    if (origin == BLOCK_FROM_DISK)
        r->load.disk_bytes += bytes;
    else if (origin == BLOCK_FROM_SHARED)
        r->load.shared_bytes += bytes;
    else
        r->load.fetch_bytes += bytes;
}

/* Takes in `p`, whose bytes are in the request's block, and opens the gate. */
static void take_in(struct load *load, const struct loader_piece *p)
{
    struct request *r = load->r;
    struct engine *engine = load->loader->config.engine;
    uint64_t ticket;

    load_units_set(&load->units, p->unit, UNIT_CAME);
    if (load_units_count(&load->units, p->block, UNIT_CAME) ==
        load->units.layers)
        r->load.origin[p->block] = (uint8_t)p->source->ops.origin;
    count_bytes(r, p->source->ops.origin, p->bytes);
    if (load->mode == LOAD_MODE_LAYERWISE && !load->stalled && !load->spoilt)
        layer_gate_open(&r->step.gate,
                        load_units_gate(&load->units, load->end));
    /* If the engine has no room or is busy, its step copies the layers. */
    if (engine)
        (void)!engine_kv_upload(engine, &r->blocks.data[p->block], 1,
                                p->from_layer, p->from_layer + p->n_layers,
                                &ticket);
}

/* Returns in words why a block did not come. */
static const char *why_not(int rc)
{
    switch (rc) {
    case -EBADMSG: /* from the disk tier */
    case -EILSEQ:  /* from a transport */
        return "its checksum is wrong";
    case -ESTALE:
    case -ENOENT:
        return "it is gone";
    case -ENODATA:
        return "the file ends before it";
    default:
        return strerror(-rc);
    }
}

/* Layerwise: gives up block b, which will not come, and all later ones. Blocks
 * before it are used once all of their layers came. No step may wait for them
 * at the gate, which counts layers of all blocks up to the old end. */
static void load_cut(struct load *load, uint32_t b)
{
    struct request *r = load->r;

    if (b >= load->end)
        return; /* it was cut off already */
    load->spoilt = b <= load->units.first;
    load->stalled = true;
    load->end = b;
    for (uint32_t i = 0; i < load->n_runs; i++)
        if (load->runs[i].held > b)
            load->runs[i].held = b;
    if (!r->step.gated)
        return;
    layer_gate_fail(&r->step.gate);
    r->step.gated = r->step.under_way;
    r->load.held_back = true;
}

/* Returns whether the piece's block still belongs to the request. */
static bool is_ours(const struct loader_piece *p)
{
    return p->run->load->r->blocks.ids[p->block] == p->id;
}

void load_orphan(struct loader_piece *p)
{
    LIST_REMOVE(p, of_run);
    p->run->in_flight--;
    p->run = NULL;
}

void load_miss(struct loader_piece *p, int rc)
{
    struct load_run *run = p->run;
    struct load *load = run->load;
    bool layerwise = load->mode == LOAD_MODE_LAYERWISE;

    if (is_ours(p))
        load_units_set(&load->units, p->unit, UNIT_WANTED);
    load_orphan(p);
    if (!run->ended && (!layerwise || p->block < load->end))
        log_warn("request %llu: block %u did not come from %s: %s",
                 (unsigned long long)load->r->id, p->block, p->source->name,
                 why_not(rc));
    if (layerwise)
        load_cut(load, p->block);
    else
        run->ended = true;
}

/* Takes in `p`, or misses it, for the run that waits for it. */
static void land(struct loader_piece *p, int rc)
{
    struct load_run *run = p->run;

    run->load->last_us = loader_now_us(run->load->loader);
    if (rc < 0) {
        load_miss(p, rc);
        return;
    }
    if (is_ours(p))
        take_in(run->load, p);
    load_orphan(p);
    load_run_came(run, p);
}

void loader_done(struct loader_piece *p, int rc)
{
    struct loader_source *s = p->source;
    struct loader *l = s->loader;
    uint64_t came_bytes = rc == 0 ? p->bytes : 0;

    if (p->run && p->run->load->over)
        load_orphan(p);
    else if (p->run)
        land(p, rc);
    load_rate_end(&s->pace, loader_now_us(l), came_bytes);
    load_rate_end(&s->rate, loader_now_us(l), came_bytes);
    s->n_hung -= p->hung;
    s->silent &= came_bytes == 0;
    s->in_flight--;
    kv_store_release(l->config.store, p->id);
    free(p);
    l->ops->poke(l->arg);
}

void load_cancel_pieces(struct load_run *run)
{
    const struct loader_source *s = run->source;
    struct loader_piece *next;

    for (struct loader_piece *p = LIST_FIRST(&run->pieces); p; p = next) {
        next = LIST_NEXT(p, of_run);
        if (s->ops.cancel)
            s->ops.cancel(s->arg, p);
    }
}
