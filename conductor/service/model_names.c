/* The names by which requests may call a model, and the model's window. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/service/models.h"

/* Limits of how often, and for how many names, the log lists the engines. */
#define TELL_EVERY_US 1000000
#define TELL_MAX 16u
/* Most engines in a line. */
#define TELL_ENGINES 4u

void models_know_names(struct service *s, const struct engine_config *like)
{
    name_sets_know(&s->names.sets, &like->aliases, &like->adapters);
}

/* Returns the smaller window; 0 = unknown. */
static uint32_t least(uint32_t a, uint32_t b)
{
    return a && (!b || a < b) ? a : b;
}

/* Writes the engines with a name as "a, b and 3 others". */
static void list_engines(const struct service *s, const struct name_set *set,
                         char *out, size_t size)
{
    uint32_t n = 0;
    size_t at = 0;

    *out = '\0';
    for (uint32_t i = 0; i < s->names.sets.n_slots && n < TELL_ENGINES; i++)
        if (name_set_has(set, i) && s->engines.by_slot[i])
            at += (size_t)snprintf(out + at, size - at, "%s%s", n++ ? ", " : "",
                                   s->engines.by_slot[i]->config->name);
    if (set->name.n_engines > n)
        snprintf(out + at, size - at, " and %u others",
                 set->name.n_engines - n);
}

static void tell(const struct service *s, const struct name_set *set)
{
    char engines[TELL_ENGINES * (ENGINE_NAME_MAX + 2) + 32];

    if (set->name.n_engines == 0) {
        log_warn("model %s: no engine has %s any more: requests for it get 503",
                 s->model.name, set->name.name);
        return;
    }
    list_engines(s, set, engines, sizeof(engines));
    log_info("model %s: requests may name %s: %u of %lld engines %s it: %s",
             s->model.name, set->name.name, set->name.n_engines,
             (long long)s->model.n_engines,
             set->name.n_engines == 1 ? "has" : "have", engines);
}

/* Logs the names whose engines have changed. */
static void tell_changes(struct service *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->names.sets.n; i++) {
        struct name_set *set = s->names.sets.all[i];
        bool all = (int64_t)set->name.n_engines == s->model.n_engines;
        bool news = set->changed || set->told_all != all;

        /* No news if engines were replaced and all still have the name. */
        if (news && !(all && set->told == set->name.n_engines) &&
            (set->told || set->name.n_engines) && n++ < TELL_MAX)
            tell(s, set);
        set->changed = false;
        set->told = set->name.n_engines;
        set->told_all = all;
    }
    if (n > TELL_MAX)
        log_info("model %s: the engines of %zu more names have changed, too: "
                 "see GET /v1/models",
                 s->model.name, n - TELL_MAX);
    if (s->names.sets.n_dropped && !s->names.full_told)
        log_warn("model %s: its engines have more than %u aliases and "
                 "adapters: the rest is ignored",
                 s->model.name, NAME_SETS_MAX);
    s->names.full_told = s->names.sets.n_dropped;
}

static void look(struct service *s)
{
    uint32_t widest = 0;
    bool told = true;

    s->model.window_tokens = 0;
    s->model.n_engines = 0;
    for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
        const struct engine *e = s->engines.by_slot[i];

        if (!e || e->leaving)
            continue;
        s->model.n_engines++;
        s->model.window_tokens =
            least(s->model.window_tokens, e->list.window_tokens);
        told = told && e->list.window_tokens;
        if (e->list.window_tokens > widest)
            widest = e->list.window_tokens;
    }
    s->model.widest_tokens = told ? widest : 0;
}

void models_name(struct engine *e)
{
    struct service *s = e->service;
    uint32_t slot = pool_get(s->pool, e->id)->slot;

    name_sets_take(&s->names.sets, slot, e->leaving ? NULL : &e->own.aliases,
                   e->leaving ? NULL : &e->own.adapters);
    service_freed(s); /* waiting requests may use it */
    s->names.due = s->names.untold = true;
    fleet_poke(&s->models->fleet);
}

void models_name_due(struct models *models)
{
    int64_t now_us = loop_now_us(models->loop);

    for (struct service *s = models->first; s; s = s->next) {
        if (s->names.due)
            look(s);
        s->names.due = false;
        if (!s->names.untold || now_us - s->names.told_us < TELL_EVERY_US)
            continue;
        s->names.untold = false;
        s->names.told_us = now_us;
        tell_changes(s);
    }
}

const struct service_name *service_name_at(const struct service *service,
                                           size_t i)
{
    return i < service->names.sets.n ? &service->names.sets.all[i]->name : NULL;
}

bool service_has_adapter(const struct service *service, const char *name)
{
    const struct name_set *set =
        name_sets_find(&service->names.sets, name, strlen(name));

    return set && set->name.adapter;
}
