/* See fleet.h: the list of entries. */
#include <stdlib.h>
#include <string.h>

#include "base/loop/loop.h"
#include "conductor/service/fleet/fleet.h"

const char *fleet_origin_name(enum fleet_origin origin)
{
    static const char *const names[] = {"configuration", "file", "admin"};

    return names[origin];
}

struct fleet_entry *fleet_find(const struct fleet *fleet, const char *name)
{
    struct fleet_entry *e;

    TAILQ_FOREACH(e, &fleet->entries, entry)
    {
        if (!e->left && strcmp(e->config.name, name) == 0)
            return e;
    }
    return NULL;
}

bool fleet_has_name(const struct fleet *fleet, const char *name)
{
    const struct fleet_entry *entry;
    const struct engine *e;

    TAILQ_FOREACH(entry, &fleet->entries, entry)
    {
        if (!entry->left && strcmp(entry->config.name, name) == 0)
            return true;
        TAILQ_FOREACH(e, &entry->engines, of_entry)
        {
            if (strcmp(e->own.name, name) == 0)
                return true;
        }
    }
    return false;
}

struct fleet_entry *fleet_entry_new(struct fleet *fleet,
                                    enum fleet_origin origin,
                                    const struct engine_config *config)
{
    struct fleet_entry *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    e->fleet = fleet;
    e->origin = origin;
    e->config = *config;
    TAILQ_INIT(&e->engines);
    TAILQ_INIT(&e->scouts);
    return e;
}

void fleet_append(struct fleet_entry *entry)
{
    TAILQ_INSERT_TAIL(&entry->fleet->entries, entry, entry);
    entry->fleet->n_wanted++;
    entry->due = true;
}

void fleet_leave(struct fleet_entry *entry)
{
    if (entry->left)
        return;
    entry->left = entry->due = true;
    entry->fleet->n_wanted--;
    resolver_free(entry->resolver);
    entry->resolver = NULL;
}

void fleet_poke(struct fleet *fleet)
{
    if (!loop_timer_pending(&fleet->work))
        loop_timer_start(&fleet->work, 0);
}
