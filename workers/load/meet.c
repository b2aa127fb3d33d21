/* Forecasts of a load and of the engine, for core/step/meeting, and whether
 * layers come in time. */
#include "base/log.h"
#include "workers/load/internal.h"

/* Longest time (us) until the next look, after a decision to wait. */
#define LOOK_AGAIN_US 500

double load_piece_us(const struct loader_source *s, uint64_t bytes)
{
    return load_rate_us_per_byte(&s->pace) * (double)bytes;
}

static double block_us_of(const struct loader_source *s)
{
    return load_piece_us(s, s->loader->config.layout->block_bytes);
}

/* Returns the time (us) of a block while all sources of known rate work; 0 = no
 * rate is known. */
static double pace_of(const struct load *load)
{
    double blocks_per_us = 0;

    for (uint32_t i = 0; i < load->n_runs; i++) {
        const struct load_run *run = &load->runs[i];
        double us = block_us_of(run->source);

        if (us > 0 && (!run->ended || run->in_flight > 0))
            blocks_per_us += 1 / us;
    }
    return blocks_per_us > 0 ? 1 / blocks_per_us : 0;
}

static uint32_t count_coming(const struct load *load)
{
    uint32_t last = load_last(load);
    uint32_t n = 0;

    for (uint32_t b = load->units.first; b < last; b++)
        n += load_coming(load, b);
    return n;
}

/* Returns how many blocks older loads wait for: these come first. */
static uint32_t count_ahead(const struct load *load)
{
    const struct load *older;
    uint32_t n = 0;

    TAILQ_FOREACH(older, &load->loader->loads, link)
    {
        if (older == load)
            break;
        n += older->begun ? count_coming(older) : 0;
    }
    return n;
}

static struct meeting_tail tail_of(const struct load_run *run)
{
    struct loader *l = run->load->loader;
    double us = block_us_of(run->source);
    double since_us = (double)(loader_now_us(l) - run->source->pace.end_us);

    return (struct meeting_tail){.blocks = run->in_flight,
                                 .first_us = us > since_us ? us - since_us : 0,
                                 .block_us = us};
}

static void meeting_of(const struct load *load, uint32_t most,
                       struct meeting *m)
{
    const struct request *r = load->r;
    double since_us = (double)(loader_now_us(load->loader) - load->last_us);
    double us = pace_of(load);
    double first_us = us > since_us ? us - since_us : 0;

    /* The source has slowed down or stopped: the next block may take as long
     * again. */
    if (us > 0 && since_us > 2 * us)
        us = first_us = since_us;
    *m = (struct meeting){
        .position = r->position,
        .cached = r->cached_tokens,
        .block_tokens = load->loader->config.layout->block_tokens,
        .most = most,
        .missing = count_coming(load),
        .block_us = us,
        .first_us = first_us + count_ahead(load) * us,
    };
    for (uint32_t i = 0; i < load->n_runs; i++)
        if (load->runs[i].in_flight > 0)
            m->tails[m->n_tails++] = tail_of(&load->runs[i]);
}

int load_replace(struct load *load, uint32_t b)
{
    struct kv_store *store = load->loader->config.store;
    uint32_t id;
    int rc = kv_store_alloc(store, 1, &id);

    if (rc < 0)
        return rc;
    request_replace(load->r, store, b, id);
    load_units_forget(&load->units, b);
    return 0;
}

/* Gives the next n tokens to the engine: replaces their blocks that are being
 * loaded. Returns how many of the tokens the engine can compute. */
static uint32_t claim(struct load *load, uint32_t n)
{
    const struct request *r = load->r;
    uint32_t bt = load->loader->config.layout->block_tokens;
    uint32_t end = (r->position + n + bt - 1) / bt;

    for (uint32_t b = (r->position + bt - 1) / bt;
         b < end && b < r->prompt.n_reusable; b++) {
        if (load->begun && load_units_count(&load->units, b, UNIT_ASKED) > 0 &&
            load_replace(load, b) < 0)
            return b * bt - r->position;
        load->claimed = b + 1;
    }
    return n;
}

uint32_t loader_chunk(struct loader *l, struct request *r, uint32_t most)
{
    struct load *load = r->load.job;
    struct meeting m;

    if (!load || load->mode != LOAD_MODE_BOTH || load_check(load))
        return most;
    if (load->begun) {
        meeting_of(load, most, &m);
        most = meeting_chunk(&m, step_pace_us, &l->pace);
    }
    uint32_t n = claim(load, most);
    if (n > 0 || !load->begun)
        load_check(load); /* the engine may have claimed the rest */
    else
        loader_wake_at(l, loader_now_us(l) + LOOK_AGAIN_US +
                              (int64_t)meeting_load_us(&m, m.missing));
    return n;
}

void loader_learn(struct loader *l, const struct engine_segment *segments,
                  uint32_t n, int64_t step_us)
{
    step_pace_learn(&l->pace, segments, n, step_us);
}

/* --- layerwise ---------------------------------------------------------- */

static double left_us_of(const struct load *load)
{
    const struct load_units *u = &load->units;
    double us = pace_of(load);

    if (us <= 0)
        return -1;
    return us * ((double)(load->end - u->first) -
                 (double)u->n_came / (double)u->layers);
}

void load_maybe_gate(struct load *load)
{
    struct loader *l = load->loader;
    struct request *r = load->r;
    uint32_t layers = l->config.layout->layers;
    uint32_t from = load->end * l->config.layout->block_tokens;

    if (load->mode != LOAD_MODE_LAYERWISE || !r->load.held_back ||
        load->spoilt || load->stalled || layer_gate_layers(&r->step.gate) == 0)
        return;
    uint32_t n = r->prompt.n_tokens - from;
    if (n > l->config.layout->step_tokens)
        n = l->config.layout->step_tokens;
    double left_us = left_us_of(load);
    double step_us = step_pace_us(&l->pace, n, from, from);
    if (left_us < 0 || step_us < 0)
        return; /* no forecast: it waits for all layers */
    /* The last layer must have come when the step reaches it. */
    double early_us = left_us - step_us * (layers - 1) / layers;
    if (early_us > 0) {
        loader_wake_at(l, loader_now_us(l) + (int64_t)early_us + 1);
        return;
    }
    r->step.gate_token = from;
    r->step.gated = true;
    r->load.held_back = false;
    r->turn.freed_us = loader_now_us(l);
    l->ops->poke(l->arg);
}

void loader_stalled(struct loader *l, struct request *r)
{
    if (r->load.job) {
        if (!r->load.job->stalled) /* else the reason was logged before */
            log_info("request %llu: layers of its prompt come late: its step "
                     "is repeated without them",
                     (unsigned long long)r->id);
        r->load.held_back = true; /* until all of its layers came */
        r->load.job->stalled = true;
    }
    l->ops->poke(l->arg);
}
