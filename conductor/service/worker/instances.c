/* Looks up and counts registered workers. */
#include "conductor/service/internal.h"
#include "conductor/service/models.h"

struct worker *worker_of(const struct service *service, uint32_t id)
{
    const struct pool_instance *in = pool_get(service->pool, id);

    if (!in)
        return NULL;
    struct worker *w = &service->native.workers[in->slot];
    return w->link ? w : NULL;
}

uint32_t instances_count(const struct service *service, unsigned role,
                         const struct name_set *named)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < pool_slots(service->pool); i++) {
        const struct pool_instance *in = pool_at(service->pool, i);

        if (in && pool_takes_work(in) && (in->role & role) &&
            (!named || name_set_has(named, i)))
            n++;
    }
    return n;
}

void instances_pack_lead(struct service *service, struct worker *worker)
{
    const struct msg_lead m = {cluster_lead_token(service->models->cluster)};

    if (m.token == worker->lead)
        return;
    msg_lead_pack(&service->native.out, 0, &m);
    worker->lead = m.token;
}
