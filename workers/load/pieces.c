/* Pieces: what to ask for next. */
#include <stdlib.h>

#include "workers/load/internal.h"

/* So much is under way at a source that it never waits for us; more would be
 * wasted where computing and loading meet. */
#define AHEAD_US 5000
#define PIECES_MIN 2u
#define PIECES_MAX 32u

static uint32_t window_of(const struct loader_source *s, uint64_t piece_bytes)
{
    double us = load_rate_us_per_byte(&s->pace) * (double)piece_bytes;
    double n = us > 0 ? 1 + AHEAD_US / us : PIECES_MIN;

    return n < PIECES_MIN ? PIECES_MIN
                          : (n > PIECES_MAX ? PIECES_MAX : (uint32_t)n);
}

static bool askable(const struct load_run *run, uint32_t b)
{
    return run->load->blocks[b].asked == 0 && load_coming(run->load, b);
}

/* The last block that was not asked for: of those that the source was planned
 * to send, else of all that it has. KV_BLOCK_NONE: none. */
static uint32_t next_block(const struct load_run *run)
{
    uint32_t to = run->to < run->held ? run->to : run->held;

    for (uint32_t b = to; b > run->from; b--)
        if (askable(run, b - 1))
            return b - 1;
    for (uint32_t b = run->held; b > 0; b--)
        if (askable(run, b - 1))
            return b - 1;
    return KV_BLOCK_NONE;
}

/* The first block of the lowest layer that was not asked for. */
static uint32_t next_layer(const struct load_run *run)
{
    const struct load *load = run->load;
    uint32_t best = KV_BLOCK_NONE;
    uint32_t best_asked = load->loader->config.layout->layers;

    for (uint32_t b = load->first; b < load->end && b < run->held; b++) {
        if (load->blocks[b].asked < best_asked) {
            best = b;
            best_asked = load->blocks[b].asked;
        }
    }
    return best;
}

/* Layers are asked for when all sources have said what they have: it is clear
 * then what a layer needs. */
static bool fix_end(struct load *load)
{
    for (uint32_t i = 0; i < load->n_runs; i++)
        if (!load->runs[i].open)
            return false;
    if (load->end == 0)
        load->end = load_last(load);
    return true;
}

/* The next piece of block b; NULL: no memory. */
static struct load_part *new_part(struct load_run *run, uint32_t b)
{
    struct load *load = run->load;
    const struct engine_kv_layout *layout = load->loader->config.layout;
    bool by_layer = load->mode == LOAD_MODE_LAYERWISE;
    struct load_part *part = calloc(1, sizeof(*part));

    if (!part)
        return NULL;
    struct load_block *block = &load->blocks[b];
    part->piece = (struct loader_piece){
        .run = run,
        .session = run->session,
        .source = run->source,
        .block = b,
        .from_layer = block->asked,
        .n_layers = by_layer ? 1 : layout->layers,
        .data = engine_kv_row(layout, load->r->blocks.data[b], block->asked,
                              ENGINE_K, 0),
        .id = load->r->blocks.ids[b],
    };
    part->piece.bytes =
        layout->block_bytes / layout->layers * part->piece.n_layers;
    block->asked = (uint16_t)(block->asked + part->piece.n_layers);
    block->flying = (uint16_t)(block->flying + part->piece.n_layers);
    return part;
}

/* The throttle's link is at most so long behind: no time overflows. */
#define BEHIND_MAX_US 1e15

/* Pieces go over a link of the given rate, one after another. */
static void throttle(struct loader *l, struct loader_piece *p)
{
    if (l->config.bytes_per_s <= 0)
        return;
    if (l->in_flight == 0 || l->link_free_us < p->from_us)
        l->link_free_us = p->from_us;
    double behind_us = (double)(l->link_free_us - p->from_us) +
                       (double)p->bytes / l->config.bytes_per_s * 1e6;
    l->link_free_us =
        p->from_us +
        (int64_t)(behind_us < BEHIND_MAX_US ? behind_us : BEHIND_MAX_US);
    p->due_us = l->link_free_us;
}

/* Returns whether it can be asked for more. */
static bool ask(struct loader *l, struct load_run *run, uint32_t b)
{
    struct load_part *part = new_part(run, b);

    if (!part)
        return false;
    struct loader_piece *p = &part->piece;
    p->from_us = l->config.now_us();
    if (run->load->asked_us == 0)
        run->load->asked_us = p->from_us;
    throttle(l, p);
    kv_store_pin(l->config.store, p->id);
    LIST_INSERT_HEAD(&run->parts, part, of_run);
    run->in_flight++;
    run->source->in_flight++;
    l->in_flight++;
    load_rate_begin(&run->source->pace, p->from_us);
    load_rate_begin(&run->source->rate, p->from_us);
    loader_wake_at(l, loader_hung_us(p));
    int rc = run->source->ops->read(run->source->arg, run->session, p);
    if (rc < 0)
        loader_done(p, rc);
    return rc == 0;
}

static double piece_us(const struct loader_source *s, uint64_t bytes)
{
    return load_rate_us_per_byte(&s->pace) * (double)bytes;
}

/* Pieces that no source was asked for. */
static uint32_t count_unasked(const struct load *load)
{
    uint32_t layers = load->loader->config.layout->layers;
    bool by_layer = load->mode == LOAD_MODE_LAYERWISE;
    uint32_t last = load_last(load);
    uint32_t n = 0;

    for (uint32_t b = load->first; b < last; b++)
        if (by_layer)
            n += layers - load->blocks[b].asked;
        else
            n += load->blocks[b].asked == 0 && load_coming(load, b);
    return n;
}

/* Whether another source, which has block b too, could send all that was not
 * asked for before this one could send one more piece: a slow source must not
 * hold up the end. The fastest never waits for others. */
static bool another_is_faster(const struct load_run *run, uint32_t b,
                              uint64_t bytes)
{
    const struct load *load = run->load;
    double mine_us =
        piece_us(run->source, bytes) * (run->source->in_flight + 1);
    uint32_t unasked = load->n_runs > 1 ? count_unasked(load) : 0;

    for (uint32_t i = 0; i < load->n_runs; i++) {
        const struct load_run *other = &load->runs[i];
        double us = piece_us(other->source, bytes);

        if (other != run && !other->ended && other->open && other->held > b &&
            us > 0 && us * (other->source->in_flight + unasked) < mine_us)
            return true;
    }
    return false;
}

static void pump_run(struct loader *l, struct load_run *run)
{
    const struct engine_kv_layout *layout = l->config.layout;
    bool by_layer = run->load->mode == LOAD_MODE_LAYERWISE;
    uint64_t bytes = layout->block_bytes / (by_layer ? layout->layers : 1);

    while (run->open && !run->ended &&
           run->source->in_flight < window_of(run->source, bytes)) {
        uint32_t b = by_layer ? next_layer(run) : next_block(run);

        if (b == KV_BLOCK_NONE || another_is_faster(run, b, bytes) ||
            !ask(l, run, b))
            return;
    }
}

static void pump_load(struct loader *l, struct load *load)
{
    for (uint32_t i = 0; i < load->n_runs && !load->spoilt; i++)
        pump_run(l, &load->runs[i]);
}

void loader_pump(struct loader *l)
{
    struct load *next;

    for (struct load *load = TAILQ_FIRST(&l->loads); load; load = next) {
        next = TAILQ_NEXT(load, link);
        if (!load->begun)
            continue;
        if (load_give_up(l, load))
            continue;
        if (load->mode != LOAD_MODE_LAYERWISE || fix_end(load))
            pump_load(l, load);
        if (!load_check(load))
            load_maybe_gate(load);
    }
}
