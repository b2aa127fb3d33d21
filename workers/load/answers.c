/* What becomes of an answer, and when the loader looks again. */
#include <errno.h>
#include <event2/event.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/event_loop.h"
#include "base/log.h"
#include "workers/load/internal.h"

/* All layers in order that all blocks have. */
static void open_gate(struct load *load)
{
    uint32_t layers = load->loader->config.layout->layers;
    uint32_t blocks = load->end - load->first;
    uint32_t n = layer_gate_layers(&load->r->step.gate);

    while (!load->stalled && !load->spoilt && n < layers &&
           load->layer_got[n] == blocks)
        n++;
    layer_gate_open(&load->r->step.gate, n);
}

static void count_bytes(struct request *r, enum block_origin origin,
                        uint64_t bytes)
{
    if (origin == BLOCK_FROM_DISK)
        r->load.disk_bytes += bytes;
    else
        r->load.fetch_bytes += bytes;
}

/* The bytes of a piece that is waited for are in the request's block. */
static void take_in(struct loader *l, struct load *load,
                    const struct loader_piece *p)
{
    struct request *r = load->r;
    struct load_block *block = &load->blocks[p->block];
    uint64_t ticket;

    block->got = (uint16_t)(block->got + p->n_layers);
    if (block->got == l->config.layout->layers)
        r->load.origin[p->block] = (uint8_t)p->source->ops->origin;
    count_bytes(r, p->source->ops->origin, p->bytes);
    for (uint32_t i = 0; i < p->n_layers; i++)
        load->layer_got[p->from_layer + i]++;
    if (load->mode == LOAD_MODE_LAYERWISE)
        open_gate(load);
    /* An engine that has no room or too much to do copies it in its step. */
    if (l->config.engine)
        (void)engine_kv_upload(l->config.engine, &r->blocks.data[p->block], 1,
                               p->from_layer, p->from_layer + p->n_layers,
                               &ticket);
}

/* What is wrong with a block, in words. */
static const char *why_not(int rc)
{
    switch (rc) {
    case -EBADMSG: /* of the disk tier */
    case -EILSEQ:  /* of a frame */
        return "its checksum is wrong";
    case -EMSGSIZE:
        return "it has another size";
    case -ESTALE:
    case -ENOENT:
        return "it is not there any more";
    case -ENODATA:
        return "the file ends in front of it";
    case -ETIMEDOUT:
        return "it takes too long";
    default:
        return strerror(-rc);
    }
}

/* Layerwise: block b will not come. Those in front of it still do, and are used
 * once they are complete. Layers of fewer blocks than the gate has counted, or
 * than a step may have waited for, come too late for the gate. */
static void load_cut(struct load *load, uint32_t b)
{
    struct request *r = load->r;

    if (b >= load->end)
        return; /* it was cut in front of it before */
    load->spoilt = b <= load->first;
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

/* The block is to come from somewhere else, or to be computed. */
static void give_up(struct load *load, const struct loader_piece *p)
{
    struct load_block *block = &load->blocks[p->block];

    bool layerwise = load->mode == LOAD_MODE_LAYERWISE;
    if (!p->run->ended && (!layerwise || p->block < load->end))
        log_warn("request %llu: block %u did not come from %s: %s",
                 (unsigned long long)load->r->id, p->block, p->source->name,
                 why_not(p->rc));
    if (layerwise) {
        load_cut(load, p->block);
        return;
    }
    block->asked = 0;
    p->run->ended = true;
}

/* `part` is no longer on its way to its run. Returns whether its block is still
 * the request's. */
static bool land(struct load_part *part)
{
    struct loader_piece *p = &part->piece;
    struct load *load = p->run->load;
    struct load_block *block = &load->blocks[p->block];
    bool ours = load->r->blocks.ids[p->block] == p->id;

    LIST_REMOVE(part, of_run);
    p->run->in_flight--;
    if (ours)
        block->flying = (uint16_t)(block->flying - p->n_layers);
    return ours;
}

void loader_miss(struct load_part *part)
{
    struct loader_piece *p = &part->piece;

    (void)land(part);
    give_up(p->run->load, p);
    p->run = NULL;
    p->session = NULL;
}

static void finish(struct loader *l, struct load_part *part)
{
    struct loader_piece *p = &part->piece;

    if (p->run) {
        struct load *load = p->run->load;

        load->last_us = l->config.now_us();
        if (p->rc < 0)
            loader_miss(part);
        else if (land(part))
            take_in(l, load, p);
    }
    p->source->n_hung -= part->hung;
    uint64_t came_bytes = p->rc == 0 ? p->bytes : 0;
    load_rate_end(&p->source->pace, l->config.now_us(), came_bytes);
    load_rate_end(&p->source->rate, l->config.now_us(), came_bytes);
    p->source->in_flight--;
    l->in_flight--;
    kv_store_release(l->config.store, p->id);
    free(part);
    l->ops->poke(l->arg);
}

static struct load_part *part_of(struct loader_piece *p)
{
    return (struct load_part *)(void *)((char *)p -
                                        offsetof(struct load_part, piece));
}

static void park(struct loader *l, struct loader_piece *p)
{
    struct loader_piece *at = TAILQ_LAST(&l->parked, loader_piece_list);

    while (at && at->due_us > p->due_us)
        at = TAILQ_PREV(at, loader_piece_list, link);
    if (at)
        TAILQ_INSERT_AFTER(&l->parked, at, p, link);
    else
        TAILQ_INSERT_HEAD(&l->parked, p, link);
    part_of(p)->parked = true;
    loader_wake_at(l, p->due_us);
}

void loader_done(struct loader_piece *p, int rc)
{
    struct loader *l = p->source->loader;

    p->rc = rc;
    if (rc == 0 && p->run && p->due_us > l->config.now_us())
        park(l, p);
    else
        finish(l, part_of(p));
}

void loader_unpark(struct loader *l, struct load_part *part, int rc)
{
    TAILQ_REMOVE(&l->parked, &part->piece, link);
    part->parked = false;
    part->piece.rc = rc;
    finish(l, part);
}

void loader_orphan(struct loader *l, struct load_run *run)
{
    struct load_part *part;

    while ((part = LIST_FIRST(&run->parts))) {
        LIST_REMOVE(part, of_run);
        part->piece.run = NULL;
        part->piece.session = NULL;
        run->in_flight--;
        if (part->parked)
            loader_unpark(l, part, part->piece.rc);
        /* else its source has it */
    }
}

/* --- time --------------------------------------------------------------- */

void loader_wake_at(struct loader *l, int64_t when_us)
{
    if (when_us >= l->wake_us)
        return;
    l->wake_us = when_us;
    if (!l->timer)
        return;
    int64_t us = when_us - l->config.now_us();
    event_loop_wait(l->timer, us > 0 ? us : 0);
}

void loader_tick(struct loader *l)
{
    int64_t now_us = l->config.now_us();
    struct loader_piece *p;

    l->wake_us = INT64_MAX;
    while ((p = TAILQ_FIRST(&l->parked)) && p->due_us <= now_us)
        loader_unpark(l, part_of(p), p->rc);
    if (p)
        loader_wake_at(l, p->due_us);
    l->ops->poke(l->arg);
}
