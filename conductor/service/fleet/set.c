/* Replaces an origin's entries: checks the new list as a whole, then compares
 * it with the old one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "conductor/service/models.h"

/* Writes the clash after "PATH[at]."; path NULL = without it. */
static int refuse(char err[CONFIG_ERROR_MAX], const char *path, size_t at,
                  const struct engine_clash *clash)
{
    char where[32] = "";

    if (path)
        snprintf(where, sizeof(where), "%s[%zu].", path, at);
    return error_say(err, CONFIG_ERROR_MAX, -EINVAL, "%s%s: %.400s", where,
                     clash->key, clash->why);
}

/* Returns an array of the other origins' configurations and then the list: *n
 * in all, owned by the caller. NULL = out of memory. */
static const struct engine_config **
join_wanted(const struct fleet *fleet, int instead_of,
            const struct engine_config *list, size_t n_list, size_t *n)
{
    const struct engine_config **all =
        calloc(fleet->n_wanted + n_list + 1, sizeof(*all));
    const struct fleet_entry *e;

    *n = 0;
    TAILQ_FOREACH(e, &fleet->entries, entry)
    {
        if (all && !e->left && (int)e->origin != instead_of)
            all[(*n)++] = &e->config;
    }
    for (size_t i = 0; all && i < n_list; i++)
        all[(*n)++] = &list[i];
    return all;
}

/* Checks that all of them fit together; the new list begins at `others`. */
static int check_together(const struct fleet *fleet,
                          const struct engine_config *const *all, size_t others,
                          size_t n, const char *path,
                          char err[CONFIG_ERROR_MAX])
{
    int64_t most = fleet->models->config.max_instances;
    struct engine_clash clash;

    if (engine_configs_clash(all, n, &clash) ||
        engine_costs_clash(all, n, &clash))
        return refuse(err, clash.at < others ? NULL : path, clash.at - others,
                      &clash);
    if (n <= (size_t)most)
        return 0;
    return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                     "max_instances: %lld: too low for %zu engines",
                     (long long)most, n);
}

int fleet_check(struct fleet *fleet, int instead_of,
                const struct engine_config *list, size_t n, const char *path,
                char err[CONFIG_ERROR_MAX])
{
    struct engine_clash clash;
    size_t n_all;
    const struct engine_config **all =
        join_wanted(fleet, instead_of, list, n, &n_all);

    if (!all)
        return error_say(err, CONFIG_ERROR_MAX, -ENOMEM, "out of memory");
    int rc = check_together(fleet, all, n_all - n, n_all, path, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (fleet_misfits(fleet, &list[i], &clash))
            rc = refuse(err, path, i, &clash);
    if (rc == 0)
        engine_urls_warn(all, n_all, &fleet->shared_url);
    free(all);
    return rc;
}

/* A configuration of the list, for an array sorted by name. */
struct listed {
    const struct engine_config *config;
    struct fleet_entry **entry; /* its slot, in the order of the list */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct listed *)a)->config->name,
                  ((const struct listed *)b)->config->name);
}

/* Marks as kept the origin's entries that are unchanged in the list. */
static void match(struct fleet *fleet, enum fleet_origin origin,
                  const struct listed *listed, size_t n)
{
    struct fleet_entry *e;

    TAILQ_FOREACH(e, &fleet->entries, entry)
    {
        const struct listed key = {&e->config, NULL};
        const struct listed *is;

        e->kept = false;
        if (e->left || e->origin != origin)
            continue;
        is = bsearch(&key, listed, n, sizeof(key), by_name);
        e->kept = is && engine_config_equal(is->config, &e->config);
        if (e->kept)
            *is->entry = e;
    }
}

/* Makes entries for configurations without a kept entry. */
static int make(struct fleet *fleet, enum fleet_origin origin,
                const struct engine_list *list, struct fleet_entry **entries)
{
    for (size_t i = 0; i < list->n; i++) {
        if (!entries[i])
            entries[i] = fleet_entry_new(fleet, origin, &list->at[i]);
        if (!entries[i])
            return -ENOMEM;
    }
    return 0;
}

/* Makes these n entries the origin's only ones, in this order. */
static void take(struct fleet *fleet, enum fleet_origin origin,
                 struct fleet_entry **entries, size_t n)
{
    struct fleet_entry *e;

    TAILQ_FOREACH(e, &fleet->entries, entry)
    {
        if (e->origin == origin && !e->kept)
            fleet_leave(e);
    }
    for (size_t i = 0; i < n; i++) {
        e = entries[i];
        if (!e->kept) {
            fleet_append(e);
            continue;
        }
        TAILQ_REMOVE(&fleet->entries, e, entry);
        TAILQ_INSERT_TAIL(&fleet->entries, e, entry);
    }
    fleet_poke(fleet);
}

int fleet_set(struct fleet *fleet, enum fleet_origin origin,
              const struct engine_list *list, char err[CONFIG_ERROR_MAX])
{
    int rc = fleet_check(fleet, (int)origin, list->at, list->n, "engines", err);
    struct fleet_entry **entries = calloc(list->n + 1, sizeof(*entries));
    struct listed *listed = calloc(list->n + 1, sizeof(*listed));

    if (rc)
        goto out;
    snprintf(err, CONFIG_ERROR_MAX, "out of memory");
    rc = -ENOMEM;
    if (!entries || !listed)
        goto out;
    for (size_t i = 0; i < list->n; i++)
        listed[i] = (struct listed){&list->at[i], &entries[i]};
    qsort(listed, list->n, sizeof(*listed), by_name);
    match(fleet, origin, listed, list->n);
    rc = make(fleet, origin, list, entries);
    if (rc == 0)
        take(fleet, origin, entries, list->n);
    for (size_t i = 0; rc && i < list->n; i++)
        if (entries[i] && !entries[i]->kept)
            free(entries[i]);
out:
    free(entries);
    free(listed);
    return rc;
}
