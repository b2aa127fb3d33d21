/* See fleet.h. */
#include "conductor/service/fleet/fleet.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/loop/loop.h"
#include "conductor/service/models.h"

#define TICK_US 200000
#define TICKS_PER_S 5u
/* Length of a slice of a fleet's change, and the pause after it. */
#define TURN_US 1000
#define REST_US 1000

/* Whether begin() has not run yet, or failed. */
static bool is_idle(const struct fleet_entry *e)
{
    return !e->left && !e->resolver && TAILQ_EMPTY(&e->engines) &&
           TAILQ_EMPTY(&e->scouts);
}

/* Starts an entry's engines. Its model is served even before one has joined. */
static int begin(struct fleet_entry *e, char err[CONFIG_ERROR_MAX])
{
    char why[CONFIG_ERROR_MAX] = "out of memory";
    int rc;

    if (*e->config.model && !models_get(e->fleet->models, &e->config, why))
        rc = -EINVAL;
    else
        rc = e->config.dns ? fleet_resolve(e)
                           : fleet_place(e, &e->config, 1, why);
    if (rc)
        snprintf(err, CONFIG_ERROR_MAX, "engine %s: %.400s", e->config.name,
                 why);
    return rc;
}

static int do_due(struct fleet_entry *e, char err[CONFIG_ERROR_MAX])
{
    e->due = false;
    models_note(e->fleet->models, e);
    return e->left ? fleet_place(e, NULL, 0, err) : begin(e, err);
}

/* Does due work. Returns false if some is left at until_us. */
static bool do_some(struct fleet *fleet, int64_t until_us)
{
    char err[CONFIG_ERROR_MAX];
    struct fleet_entry *e;

    TAILQ_FOREACH(e, &fleet->entries, entry)
    {
        if (!e->due)
            continue;
        if (loop_now_us(fleet->models->loop) >= until_us)
            return false;
        if (do_due(e, err) && log_rate_takes(&fleet->lines, 1))
            log_warn("%s; it is tried again", err);
    }
    return true;
}

static void on_work(void *arg)
{
    struct fleet *fleet = arg;
    int64_t until_us = loop_now_us(fleet->models->loop) + TURN_US;

    if (!do_some(fleet, until_us) || !models_follow(fleet->models, until_us) ||
        !fleet_reap(fleet, until_us) || !models_reap(fleet->models, until_us))
        loop_timer_start(&fleet->work, REST_US);
    models_name_due(fleet->models);
}

/* Retries engines that did not start for lack of a port or of memory. */
static void try_again(struct fleet *fleet)
{
    struct fleet_entry *e;

    TAILQ_FOREACH(e, &fleet->entries, entry)
    {
        e->due |= is_idle(e);
    }
}

static void on_tick(void *arg)
{
    struct fleet *fleet = arg;

    fleet_poke(fleet);
    fleet_file_take(fleet);
    if (++fleet->ticks % TICKS_PER_S)
        return;
    fleet_look_for_models(fleet);
    try_again(fleet);
    fleet_file_look(fleet);
}

void fleet_drop(struct fleet_entry *entry)
{
    char err[CONFIG_ERROR_MAX];

    fleet_leave(entry);
    (void)!do_due(entry, err); /* the rest is tried again */
}

int fleet_add(struct fleet *fleet, const struct engine_config *config,
              char err[CONFIG_ERROR_MAX])
{
    struct fleet_entry *e;

    if (engine_check(config, err) ||
        fleet_check(fleet, -1, config, 1, NULL, err))
        return -EINVAL;
    snprintf(err, CONFIG_ERROR_MAX, "out of memory");
    e = fleet_entry_new(fleet, FLEET_ADMIN, config);
    if (!e)
        return -EINVAL;
    fleet_append(e);
    if (do_due(e, err) == 0)
        return 0;
    fleet_drop(e);
    return -EINVAL;
}

int fleet_start(struct models *models, char err[CONFIG_ERROR_MAX])
{
    struct fleet *fleet = &models->fleet;
    struct fleet_entry *e;

    fleet->models = models;
    loop_timer_init(models->loop, &fleet->tick, on_tick, fleet);
    loop_timer_init(models->loop, &fleet->work, on_work, fleet);
    snprintf(err, CONFIG_ERROR_MAX, "out of memory");
    if (loop_timer_repeat(&fleet->tick, TICK_US))
        return -ENOMEM;
    if (fleet_set(fleet, FLEET_CONFIGURATION, &models->config.engines, err) ||
        fleet_file_start(fleet, err))
        return -EINVAL;
    TAILQ_FOREACH(e, &fleet->entries, entry)
    {
        if (do_due(e, err))
            return -EINVAL;
    }
    models_name_due(models);
    return 0;
}

void fleet_stop(struct models *models)
{
    struct fleet *fleet = &models->fleet;
    struct fleet_entry *entry;
    struct engine *e;

    loop_timer_stop(&fleet->tick);
    loop_timer_stop(&fleet->work);
    fleet_file_stop(fleet);
    while ((entry = TAILQ_FIRST(&fleet->entries))) {
        TAILQ_REMOVE(&fleet->entries, entry, entry);
        resolver_free(entry->resolver);
        while (!TAILQ_EMPTY(&entry->scouts))
            scout_free(TAILQ_FIRST(&entry->scouts));
        while ((e = TAILQ_FIRST(&entry->engines))) {
            TAILQ_REMOVE(&entry->engines, e, of_entry);
            engine_leave(e);
        }
        free(entry);
    }
}
