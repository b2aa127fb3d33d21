/* See fleet.h. */
#include "conductor/service/fleet.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/service/models.h"

#define TICK_US 200000
#define TICKS_PER_S 5u

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

static struct fleet_entry *add(struct fleet *fleet, enum fleet_origin origin,
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
    TAILQ_INSERT_TAIL(&fleet->entries, e, entry);
    fleet->n_wanted++;
    return e;
}

/* Whether begin() has done nothing yet, or failed. */
static bool is_idle(const struct fleet_entry *e)
{
    return !e->left && !e->resolver && TAILQ_EMPTY(&e->engines) &&
           TAILQ_EMPTY(&e->scouts);
}

/* Its engines start. Its model is served even while it has none. */
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

/* Entries whose engine could not be started, for want of a port or of memory.
 */
static void try_again(struct fleet *fleet)
{
    char err[CONFIG_ERROR_MAX];
    struct fleet_entry *e;

    TAILQ_FOREACH(e, &fleet->entries, entry)
    {
        if (is_idle(e) && begin(e, err) && log_rate_takes(&fleet->lines, 1))
            log_warn("%s; it is tried again", err);
    }
}

static void on_tick(evutil_socket_t, short, void *arg)
{
    struct fleet *fleet = arg;

    fleet_reap(fleet);
    models_reap(fleet->models);
    if (++fleet->ticks % TICKS_PER_S)
        return;
    fleet_look_for_models(fleet);
    try_again(fleet);
    fleet_file_look(fleet);
}

void fleet_drop(struct fleet_entry *entry)
{
    char err[CONFIG_ERROR_MAX];

    if (entry->left)
        return;
    entry->left = true;
    entry->fleet->n_wanted--;
    resolver_free(entry->resolver);
    entry->resolver = NULL;
    (void)!fleet_place(entry, NULL, 0, err);
}

/* "PATH[at]." in front of a message about a field; no PATH: nothing. */
static int refuse(char err[CONFIG_ERROR_MAX], const char *path, size_t at,
                  const char *key, const char *why)
{
    char where[32] = "";

    if (path)
        snprintf(where, sizeof(where), "%s[%zu].", path, at);
    snprintf(err, CONFIG_ERROR_MAX, "%s%s%s%.400s", where, key,
             *key ? ": " : "", why);
    return -EINVAL;
}

/* Whether the n configurations can be wanted beside all entries but those of
 * the origin `instead_of`, if it is one. */
static int check(const struct fleet *fleet, int instead_of,
                 const struct engine_config *list, size_t n, const char *path,
                 char err[CONFIG_ERROR_MAX])
{
    const struct engine_config **all =
        calloc(fleet->n_wanted + n + 1, sizeof(*all));
    int64_t most = fleet->models->config.max_instances;
    char why[CONFIG_ERROR_MAX];
    struct engine_clash clash;
    const struct fleet_entry *e;
    size_t others = 0;
    int rc = 0;

    snprintf(err, CONFIG_ERROR_MAX, "out of memory");
    if (!all)
        return -ENOMEM;
    TAILQ_FOREACH(e, &fleet->entries, entry)
    {
        if (!e->left && (int)e->origin != instead_of)
            all[others++] = &e->config;
    }
    for (size_t i = 0; i < n; i++)
        all[others + i] = &list[i];
    if (engine_configs_clash(all, others + n, &clash))
        rc = refuse(err, path, clash.at - others, clash.key, clash.why);
    free(all);
    if (rc == 0 && others + n > (size_t)most) {
        snprintf(err, CONFIG_ERROR_MAX,
                 "max_instances: %lld: there would be %zu engines",
                 (long long)most, others + n);
        return -EINVAL;
    }
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (fleet_misfits(fleet, &list[i], &clash))
            rc = refuse(err, path, i, clash.key, clash.why);
        else if (engine_check(&list[i], why))
            rc = refuse(err, path, i, "", why);
    return rc;
}

static bool is_listed(const struct engine_list *list,
                      const struct engine_config *c)
{
    for (size_t i = 0; i < list->n; i++)
        if (engine_config_equal(&list->at[i], c))
            return true;
    return false;
}

static int begin_all(struct fleet *fleet, char err[CONFIG_ERROR_MAX])
{
    char why[CONFIG_ERROR_MAX];
    struct fleet_entry *e;
    int rc = 0;

    TAILQ_FOREACH(e, &fleet->entries, entry)
    {
        if (is_idle(e) && begin(e, rc ? why : err))
            rc = -EAGAIN;
    }
    return rc;
}

int fleet_set(struct fleet *fleet, enum fleet_origin origin,
              const struct engine_list *list, char err[CONFIG_ERROR_MAX])
{
    struct fleet_entry *e;
    int rc = check(fleet, (int)origin, list->at, list->n, "engines", err);

    if (rc)
        return rc;
    TAILQ_FOREACH(e, &fleet->entries, entry)
    {
        if (!e->left && e->origin == origin && !is_listed(list, &e->config))
            fleet_drop(e);
    }
    for (size_t i = 0; i < list->n; i++)
        if (!fleet_find(fleet, list->at[i].name) &&
            !add(fleet, origin, &list->at[i])) {
            snprintf(err, CONFIG_ERROR_MAX, "out of memory");
            return -EAGAIN;
        }
    return begin_all(fleet, err);
}

int fleet_add(struct fleet *fleet, const struct engine_config *config,
              char err[CONFIG_ERROR_MAX])
{
    int rc = check(fleet, -1, config, 1, NULL, err);
    struct fleet_entry *e = rc ? NULL : add(fleet, FLEET_ADMIN, config);

    if (e && begin(e, err) == 0)
        return 0;
    if (e)
        fleet_drop(e);
    return -EINVAL;
}

int fleet_start(struct models *models, char err[CONFIG_ERROR_MAX])
{
    struct fleet *fleet = &models->fleet;
    struct timeval every = {0, TICK_US};

    fleet->models = models;
    fleet->tick = event_new(models->base, -1, EV_PERSIST, on_tick, fleet);
    snprintf(err, CONFIG_ERROR_MAX, "out of memory");
    if (!fleet->tick || event_add(fleet->tick, &every))
        return -ENOMEM;
    if (fleet_set(fleet, FLEET_CONFIGURATION, &models->config.engines, err))
        return -EINVAL;
    return fleet_file_start(fleet, err);
}

void fleet_stop(struct models *models)
{
    struct fleet *fleet = &models->fleet;
    struct fleet_entry *entry;
    struct engine *e;

    if (fleet->tick)
        event_free(fleet->tick);
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
