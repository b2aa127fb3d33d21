/*
 * Pairs of an aggregated pool: instances of a group that prefill alone, and
 * those that decode what these have prefilled.
 */
#include "conductor/core/schedule/internal.h"

void schedule_find_pairs(struct scheduler *s,
                         const struct schedule_request *request)
{
    const struct pool_instance *const *instances = pool_instances(s->pool);
    const uint8_t *ready = pool_ready_roles(s->pool);
    uint32_t n_slots = pool_slots(s->pool);

    s->givers = s->takers = 0;
    for (uint32_t slot = 0; slot < n_slots; slot++) {
        const struct pool_instance *i = instances[slot];

        if (!ready[slot] || i->pair == 0 || schedule_excluded(request, i->id))
            continue;
        if (ready[slot] & ROLE_DECODE)
            s->takers |= 1u << i->pair;
        else if (!pool_prefill_full(i))
            s->givers |= 1u << i->pair;
    }
}

bool schedule_spares(const struct scheduler *s,
                     const struct schedule_request *request,
                     const struct pool_instance *i,
                     const struct prefill_estimate *e)
{
    if (!s->model.coupled || i->pair == 0 || (i->role & ROLE_DECODE) == 0 ||
        !((s->givers & ~request->whole) >> i->pair & 1u) ||
        request->max_output_tokens <= 1)
        return false;
    return e->prefill_us > estimate_push_us(&s->model, request->n_tokens);
}
