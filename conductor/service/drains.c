/* See drains.h. */
#include "conductor/service/drains.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/service/models.h"

/* Where the name is; n: nowhere. */
static size_t find(const struct drains *drains, const char *name)
{
    size_t i = 0;

    while (i < drains->n && strcmp(drains->names[i], name) != 0)
        i++;
    return i;
}

bool drains_has(const struct drains *drains, const char *name)
{
    return find(drains, name) < drains->n;
}

int drains_set(struct drains *drains, const char *name, bool on)
{
    size_t at = find(drains, name);
    drains_name *names;

    if (on == (at < drains->n))
        return 0;
    if (!on) {
        memmove(drains->names[at], drains->names[--drains->n], sizeof(*names));
        return 0;
    }
    if (drains->n == DRAINS_MAX)
        return -ENOSPC;
    names = realloc(drains->names, (drains->n + 1) * sizeof(*names));
    if (!names)
        return -ENOMEM;
    drains->names = names;
    snprintf(names[drains->n++], sizeof(*names), "%s", name);
    return 0;
}

void drains_fini(struct drains *drains)
{
    free(drains->names);
    *drains = (struct drains){0};
}

void drains_mark(struct service *s, uint32_t id, const char *entry)
{
    const struct drains *drains = &s->models->drains;

    if (drains->n == 0 && !pool_get(s->pool, id)->held)
        return;
    (void)!pool_hold(s->pool, id,
                     drains_has(drains, pool_get(s->pool, id)->name) ||
                         (entry && drains_has(drains, entry)));
}
