/* Engines by pool id. */
#include "conductor/service/engine/engine.h"

struct engine *engine_of(const struct service *s, uint32_t id)
{
    const struct pool_instance *in = pool_get(s->pool, id);

    return in ? s->engines.by_slot[in->slot] : NULL;
}
