/* Chooses the next pieces and asks sources for them. */
#include <stdlib.h>

#include "workers/load/internal.h"

/* Work to keep in flight at a source, in time, so that it never idles; more
 * would be wasted where computing and loading meet. */
#define AHEAD_US 5000
#define PIECES_MIN 2u

static uint32_t window_of(const struct loader_source *s, uint64_t piece_bytes)
{
    double us = load_piece_us(s, piece_bytes);
    double n = us > 0 ? 1 + AHEAD_US / us : PIECES_MIN;

    return n < PIECES_MIN
               ? PIECES_MIN
               : (n > LOADER_PIECES_MAX ? LOADER_PIECES_MAX : (uint32_t)n);
}

/* Returns the next unit to ask the source for. Of whole blocks, first those
 * planned for it, then all others that it has. */
static uint32_t next_unit(const struct load_run *run)
{
    struct load_units *u = &run->load->units;
    uint32_t from = load_first_wanted(run->load);
    uint32_t to = run->to < run->held ? run->to : run->held;
    uint32_t unit = LOAD_UNIT_NONE;

    if (!u->by_layer)
        unit = load_units_next(u, from > run->from ? from : run->from, to);
    return unit != LOAD_UNIT_NONE ? unit : load_units_next(u, from, run->held);
}

/* Sets load->end when all sources have reported their blocks; only then are
 * layers asked for. Returns whether it is set. */
static bool fix_end(struct load *load)
{
    for (uint32_t i = 0; i < load->n_runs; i++)
        if (!load->runs[i].open)
            return false;
    if (load->end == 0)
        load->end = load_last(load);
    return true;
}

/* Asks the source for `unit`. Returns whether it can be asked for more. */
static bool ask(struct loader *l, struct load_run *run, uint32_t unit)
{
    struct load *load = run->load;
    struct loader_source *s = run->source;
    const struct engine_kv_layout *layout = l->config.layout;
    uint32_t b = load_units_block(&load->units, unit);
    struct loader_piece *p = malloc(sizeof(*p));

    if (!p)
        return false;
    *p = (struct loader_piece){
        .run = run,
        .session = run->session,
        .source = s,
        .unit = unit,
        .block = b,
        .from_layer = load->units.by_layer ? unit / load->units.n : 0,
        .n_layers = layout->layers / load->units.layers,
        .bytes = layout->block_bytes / load->units.layers,
        .id = load->r->blocks.ids[b],
    };
    p->data = engine_kv_row(layout, load->r->blocks.data[b], p->from_layer,
                            ENGINE_K, 0);
    if (load->asked_us == 0)
        load->asked_us = loader_now_us(l);
    load_units_set(&load->units, unit, UNIT_ASKED);
    kv_store_pin(l->config.store, p->id);
    LIST_INSERT_HEAD(&run->pieces, p, of_run);
    run->in_flight++;
    s->in_flight++;
    load_rate_begin(&s->pace, loader_now_us(l));
    load_rate_begin(&s->rate, loader_now_us(l));
    load_run_asked(run);
    int rc = s->ops.read(s->arg, run->session, p);
    if (rc < 0)
        loader_done(p, rc);
    return rc == 0;
}

/* Returns how many units were not asked for yet, at least 1. */
static uint32_t count_unasked(const struct load *load)
{
    uint32_t first = load_first_wanted(load);
    uint32_t last = load_last(load);
    uint32_t n = last > first ? (last - first) * load->units.layers : 0;

    return n > load->units.n_asked ? n - load->units.n_asked : 1;
}

/* Returns whether another source with block b could send all units not asked
 * for before this one could send one more piece: a slow source must not delay
 * the end. Never true for the fastest. */
static bool another_is_faster(const struct load_run *run, uint32_t b,
                              uint64_t bytes)
{
    const struct load *load = run->load;
    double mine_us =
        load_piece_us(run->source, bytes) * (run->source->in_flight + 1);
    uint32_t unasked = load->n_runs > 1 ? count_unasked(load) : 0;

    for (uint32_t i = 0; i < load->n_runs; i++) {
        const struct load_run *other = &load->runs[i];
        double us = load_piece_us(other->source, bytes);

        if (other != run && !other->ended && other->open && other->held > b &&
            us > 0 && us * (other->source->in_flight + unasked) < mine_us)
            return true;
    }
    return false;
}

static void pump_run(struct loader *l, struct load_run *run)
{
    const struct load_units *u = &run->load->units;
    uint64_t bytes = l->config.layout->block_bytes / u->layers;

    while (run->open && !run->ended &&
           run->source->in_flight < window_of(run->source, bytes)) {
        uint32_t unit = next_unit(run);

        if (unit == LOAD_UNIT_NONE ||
            another_is_faster(run, load_units_block(u, unit), bytes) ||
            !ask(l, run, unit))
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
