/* See drains.h. */
#include "conductor/service/drains.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/service/models.h"

/* Returns the drain of a name, or NULL. */
static struct drain *find(const struct drains *drains, const char *name)
{
    for (size_t i = 0; i < drains->n; i++)
        if (strcmp(drains->all[i].name, name) == 0)
            return &drains->all[i];
    return NULL;
}

bool drains_has(const struct drains *drains, const char *name)
{
    return find(drains, name);
}

int drains_set(struct drains *drains, const char *name, int64_t until_us)
{
    struct drain *one = find(drains, name), *all;

    if (!one) {
        if (drains->n == DRAINS_MAX)
            return -ENOSPC;
        all = realloc(drains->all, (drains->n + 1) * sizeof(*all));
        if (!all)
            return -ENOMEM;
        drains->all = all;
        one = &all[drains->n++];
        snprintf(one->name, sizeof(one->name), "%s", name);
    }
    one->until_us = until_us;
    return 0;
}

void drains_drop(struct drains *drains, const char *name)
{
    struct drain *one = find(drains, name);

    if (one)
        *one = drains->all[--drains->n];
}

void drains_fini(struct drains *drains)
{
    free(drains->all);
    *drains = (struct drains){0};
}

/* Returns the drain of an instance or of its entry (NULL = no entry), or NULL.
 */
static struct drain *of(const struct service *s, uint32_t id, const char *entry)
{
    const struct drains *drains = &s->models->drains;
    struct drain *one = find(drains, pool_get(s->pool, id)->name);

    return one || !entry ? one : find(drains, entry);
}

bool drains_hold(const struct service *s, uint32_t id, const char *entry)
{
    return of(s, id, entry);
}

void drains_mark(struct service *s, uint32_t id, const char *entry)
{
    const struct worker *w = worker_of(s, id);
    bool was = pool_get(s->pool, id)->held;
    bool held = (w && w->leaves) || of(s, id, entry);

    if (pool_hold(s->pool, id, held) == 0 && held && !was)
        request_move_waiting(s, id);
}

void drains_tick(struct service *s, int64_t now_us)
{
    int64_t before_us = s->tick.drains_us;

    s->tick.drains_us = now_us;
    for (uint32_t i = 0; s->models->drains.n > 0 && i < pool_slots(s->pool);
         i++) {
        const struct pool_instance *in = pool_at(s->pool, i);
        const struct drain *one =
            in && in->held ? of(s, in->id, engine_entry_name(s, i)) : NULL;

        /* Ends them once: a drained instance gets no new requests. */
        if (one && one->until_us > before_us && now_us >= one->until_us)
            request_end_work(s, in->id);
    }
}
