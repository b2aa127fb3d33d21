/* The registered workers: by pool id, and how many. */
#include "conductor/service/state.h"

struct worker *worker_of(const struct service *service, uint32_t id)
{
    const struct pool_instance *in = pool_get(service->pool, id);

    if (!in)
        return NULL;
    struct worker *w = &service->workers[in->slot];
    return w->link ? w : NULL;
}

uint32_t instances_count(const struct service *service, unsigned role)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < pool_slots(service->pool); i++) {
        const struct pool_instance *in = pool_at(service->pool, i);

        if (in && pool_takes_work(in) && (in->role & role))
            n++;
    }
    return n;
}
