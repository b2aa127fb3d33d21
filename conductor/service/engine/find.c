/* Engines by pool id. */
#include "conductor/service/engine/engine.h"
#include "conductor/service/fleet/fleet.h"

struct engine *engine_at(const struct service *s, uint32_t slot)
{
    return s->engines.by_slot ? s->engines.by_slot[slot] : NULL;
}

const char *engine_entry_name(const struct service *s, uint32_t slot)
{
    const struct engine *e = engine_at(s, slot);

    return e ? e->entry->config.name : NULL;
}

struct engine *engine_of(const struct service *s, uint32_t id)
{
    const struct pool_instance *in = pool_get(s->pool, id);

    return in ? engine_at(s, in->slot) : NULL;
}
