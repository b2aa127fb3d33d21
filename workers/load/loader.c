/* The loader: its sources, the begin of loads, and reports of sources. */
#include "workers/load/loader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "workers/load/internal.h"

static const struct load_rate_config pace_config = {.memory_us = 20000};
static const struct load_rate_config rate_config = {.memory_us = 1000000,
                                                    .least_us = 5000,
                                                    .least_bytes = 16u << 20,
                                                    .most_slower = 4};

static void on_timer(void *arg)
{
    loader_tick(arg);
}

struct loader *loader_new(const struct loader_config *config,
                          const struct loader_ops *ops, void *arg)
{
    struct loader *l = calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    l->config = *config;
    l->ops = ops;
    l->arg = arg;
    l->pace.cost = config->cost;
    l->wake_us = INT64_MAX;
    TAILQ_INIT(&l->sources);
    TAILQ_INIT(&l->loads);
    TAILQ_INIT(&l->throttle.waiting);
    l->throttle.bytes_per_s = config->bytes_per_s;
    if (config->loop)
        loop_timer_init(config->loop, &l->timer, on_timer, l);
    return l;
}

static void free_source(struct loader *l, struct loader_source *s)
{
    TAILQ_REMOVE(&l->sources, s, link);
    l->n_sources--;
    if (s->ops.forget)
        s->ops.forget(s->arg);
    free(s);
}

void loader_free(struct loader *l)
{
    struct loader_source *s;

    if (!l)
        return;
    while ((s = TAILQ_FIRST(&l->sources)))
        free_source(l, s);
    loop_timer_stop(&l->timer);
    free(l);
}

/* Makes room for one more source: frees an unused one if there are too many. */
static bool make_room(struct loader *l)
{
    struct loader_source *s;

    if (l->n_sources < LOADER_SOURCES_MAX)
        return true;
    TAILQ_FOREACH(s, &l->sources, link)
    {
        if (s->n_runs > 0 || s->in_flight > 0 || s->holds > 0)
            continue;
        free_source(l, s);
        return true;
    }
    return false;
}

struct loader_source *loader_add_source(struct loader *l, const char *name,
                                        const struct loader_source_ops *ops,
                                        void *arg)
{
    struct loader_source *s;

    if (!make_room(l) || !(s = calloc(1, sizeof(*s))))
        return NULL;
    snprintf(s->name, sizeof(s->name), "%s", name);
    s->loader = l;
    s->pace.config = &pace_config;
    s->rate.config = &rate_config;
    s->ops = *ops;
    s->behind = ops;
    s->arg = arg;
    if (l->throttle.bytes_per_s > 0)
        throttle_wrap(s);
    TAILQ_INSERT_TAIL(&l->sources, s, link);
    l->n_sources++;
    return s;
}

struct loader_source *loader_find_source(const struct loader *l,
                                         const char *name)
{
    struct loader_source *s;

    TAILQ_FOREACH(s, &l->sources, link)
    {
        if (strcmp(s->name, name) == 0)
            return s;
    }
    return NULL;
}

void loader_source_hold(struct loader_source *s)
{
    s->holds++;
}

void loader_source_release(struct loader_source *s)
{
    s->holds--;
}

double loader_source_bytes_per_s(const struct loader_source *s)
{
    double rate = load_rate_bytes_per_s(&s->rate);
    double most = s->loader->throttle.bytes_per_s;

    return most > 0 && (rate <= 0 || rate > most) ? most : rate;
}

int loader_add(struct loader *l, struct request *r,
               const struct load_request *plan)
{
    struct load *load = calloc(1, sizeof(*load));

    if (!load || load_units_init(&load->units, r->prompt.n_reusable,
                                 l->config.layout->layers,
                                 plan->mode == LOAD_MODE_LAYERWISE) < 0) {
        free(load);
        return -ENOMEM;
    }
    load->loader = l;
    load->r = r;
    load->mode = plan->mode;
    load->n_runs = plan->n_sources;
    for (uint32_t i = 0; i < plan->n_sources; i++) {
        struct load_run *run = &load->runs[i];

        run->load = load;
        run->source = plan->sources[i].source;
        run->source->n_runs++;
        run->from = plan->sources[i].from_block;
        run->to = plan->sources[i].to_block;
        LIST_INIT(&run->pieces);
    }
    TAILQ_INSERT_TAIL(&l->loads, load, link);
    r->load.job = load;
    r->load.held_back = plan->mode != LOAD_MODE_BOTH;
    return 0;
}

bool loader_busy(const struct loader *l)
{
    return !TAILQ_EMPTY(&l->loads);
}

/* --- the beginning ------------------------------------------------------ */

static void open_run(struct load_run *run)
{
    struct load *load = run->load;
    struct loader_source *s = run->source;

    s->silent = false;
    if (s->n_hung == 0)
        run->session =
            s->ops.open(s->arg, run, load->r, load->r->prompt.n_reusable);
    if (!run->session)
        run->ended = run->open = true;
}

static void begin(struct load *load)
{
    struct request *r = load->r;

    load->begun = true;
    load_units_begin(&load->units, r->blocks.n_chained);
    load->last_us = loader_now_us(load->loader);
    layer_gate_reset(&r->step.gate);
    for (uint32_t i = 0; i < load->n_runs; i++)
        open_run(&load->runs[i]);
}

/* Ends a load for which no source has a block: the request gives back its
 * blocks and waits for its turn without them. */
static void drop_empty(struct load *load)
{
    struct request *r = load->r;
    struct kv_store *store = load->loader->config.store;

    if (load_check(load) && r->state == REQUEST_WAITING)
        request_release(r, store);
}

void loader_poke(struct loader *l, int (*take)(void *arg, struct request *r),
                 void *take_arg)
{
    struct load *next;
    bool room = true;

    for (struct load *load = TAILQ_FIRST(&l->loads); load; load = next) {
        next = TAILQ_NEXT(load, link);
        if (load->begun)
            continue;
        /* If there is no room for one load, younger ones wait, too. */
        if (load->r->blocks.n == 0 && room)
            room = take(take_arg, load->r) == 0;
        if (load->r->blocks.n == 0)
            continue;
        begin(load);
        drop_empty(load);
    }
    loader_pump(l);
}

/* --- reports of sources ------------------------------------------------- */

void loader_opened(struct load_run *run, uint32_t n_blocks)
{
    struct loader *l = run->load->loader;

    if (run->open)
        return; /* too late: the run was given up */
    run->open = true;
    run->held = n_blocks < run->load->r->prompt.n_reusable
                    ? n_blocks
                    : run->load->r->prompt.n_reusable;
    l->ops->poke(l->arg);
}

void loader_run_failed(struct load_run *run, const char *why)
{
    struct load *load = run->load;
    struct loader *l = load->loader;

    if (why)
        log_warn("request %llu: loading from %s ended: %s",
                 (unsigned long long)load->r->id, run->source->name, why);
    run->session = NULL;
    run->ended = run->open = true;
    load->spoilt = load->mode == LOAD_MODE_LAYERWISE;
    load_cancel_pieces(run);
    l->ops->poke(l->arg);
}

/* --- time --------------------------------------------------------------- */

void loader_tick(struct loader *l)
{
    l->wake_us = INT64_MAX;
    throttle_tick(l);
    l->ops->poke(l->arg);
}
