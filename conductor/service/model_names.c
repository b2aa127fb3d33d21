/* The names of a model, which requests may use, and its window. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "conductor/service/models.h"

static void add_names(struct service *s, const struct engine_names *names,
                      bool adapters)
{
    for (uint8_t i = 0; i < names->n; i++) {
        struct service_name *next = &s->names[s->model.n_names++];

        next->adapter = adapters;
        snprintf(next->name, sizeof(next->name), "%s",
                 engine_names_at(names, i));
    }
}

void models_name_like(struct service *s, const struct engine_config *like)
{
    s->model.names = s->names;
    s->model.n_names = 0;
    add_names(s, &like->aliases, false);
    add_names(s, &like->adapters, true);
}

/* Leaves the names that the engine knows. */
static void keep_known(struct service *s, const struct engine_config *e)
{
    size_t n = 0;

    for (size_t i = 0; i < s->model.n_names; i++)
        if (engine_is_named(e, s->names[i].name))
            s->names[n++] = s->names[i];
    s->model.n_names = n;
}

/* The least window that an engine told; 0 before the first. */
static uint32_t least(uint32_t a, uint32_t b)
{
    return a && (!b || a < b) ? a : b;
}

static bool has(const struct service_name *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i].name, name) == 0)
            return true;
    return false;
}

/* Logs which names have come, and gone. */
static void tell_changes(const struct service *s,
                         const struct service_name *before, size_t n_before)
{
    for (size_t i = 0; i < s->model.n_names; i++)
        if (!has(before, n_before, s->names[i].name))
            log_info("model %s: requests may name %s, too: all of its engines "
                     "have it",
                     s->model.name, s->names[i].name);
    for (size_t i = 0; i < n_before; i++)
        if (!has(s->names, s->model.n_names, before[i].name))
            log_warn("model %s: requests may not name %s any more: not all of "
                     "its engines have it",
                     s->model.name, before[i].name);
}

static void name(struct service *s)
{
    const struct engine_config *like = NULL;
    struct service_name before[2 * ENGINE_NAMES_MAX];
    size_t n_before = s->model.n_names;

    memcpy(before, s->names, sizeof(before));

    uint32_t widest = 0;
    bool told = true;

    s->model.window_tokens = 0;
    for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
        const struct engine *e = s->engines[i];

        if (!e || e->leaving)
            continue;
        s->model.window_tokens =
            least(s->model.window_tokens, e->list.window_tokens);
        told = told && e->list.window_tokens;
        if (e->list.window_tokens > widest)
            widest = e->list.window_tokens;
        if (!like)
            models_name_like(s, like = &e->own);
        else if (engine_names_differ(like, &e->own))
            keep_known(s, &e->own);
    }
    s->model.widest_tokens = told ? widest : 0;
    if (like)
        tell_changes(s, before, n_before);
}

void models_name(struct service *s)
{
    s->names_due = true;
    fleet_poke(&s->models->fleet);
}

void models_name_due(struct models *models)
{
    for (struct service *s = models->first; s; s = s->next) {
        if (s->names_due)
            name(s);
        s->names_due = false;
    }
}
