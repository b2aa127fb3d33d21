/* See reach.h. */
#include "conductor/core/dispatch/reach.h"

static bool may_go(const uint64_t *eligible, uint32_t only,
                   const struct pool_instance *instance)
{
    if (only != POOL_NO_INSTANCE && only != instance->id)
        return false;
    return !eligible ||
           (eligible[instance->slot / 64] >> instance->slot % 64 & 1u);
}

static bool is_everywhere(const struct pool *pool,
                          const struct schedule_request *ask)
{
    const struct pool_instance *const *instances = pool_instances(pool);
    const uint8_t *ready = pool_ready_roles(pool);

    for (uint32_t slot = 0; slot < pool_slots(pool); slot++)
        if (ready[slot] && !may_go(ask->eligible, ask->only, instances[slot]))
            return false;
    return true;
}

static bool is_same(const struct reach_set *set,
                    const struct schedule_request *ask)
{
    return set->n > 0 && set->eligible == ask->eligible &&
           set->only == ask->only;
}

uint32_t reach_add(struct reach *reach, const struct schedule_request *ask)
{
    uint32_t place = DISPATCH_REACHES;

    for (uint32_t i = 0; i < DISPATCH_REACHES; i++)
        if (is_same(&reach->sets[i], ask))
            return reach->sets[i].n++, i;
        else if (reach->sets[i].n == 0)
            place = i;
    if (place == DISPATCH_REACHES ||
        (!ask->eligible && ask->only == POOL_NO_INSTANCE)) {
        reach->n_anywhere++;
        return DISPATCH_REACHES;
    }
    reach->sets[place] = (struct reach_set){ask->eligible, ask->only, 1, false};
    return place;
}

void reach_remove(struct reach *reach, uint32_t place)
{
    if (place < DISPATCH_REACHES)
        reach->sets[place].n--;
    else
        reach->n_anywhere--;
}

void reach_begin(struct reach *reach)
{
    reach->missed_anywhere = false;
    for (uint32_t i = 0; i < DISPATCH_REACHES; i++)
        reach->sets[i].missed = false;
}

void reach_miss(struct reach *reach, const struct pool *pool,
                const struct schedule_request *ask, uint32_t place)
{
    if (place == DISPATCH_REACHES || is_everywhere(pool, ask))
        reach->missed_anywhere = true;
    else
        reach->sets[place].missed = true;
}

bool reach_missed(const struct reach *reach, const struct schedule_request *ask)
{
    for (uint32_t i = 0; i < DISPATCH_REACHES; i++)
        if (reach->sets[i].missed && is_same(&reach->sets[i], ask))
            return true;
    return false;
}

static bool takes_of(const uint64_t *eligible, uint32_t only,
                     const struct pool *pool,
                     const struct schedule_decision *decision)
{
    const uint32_t taken[] = {decision->prefill, decision->decode};

    for (size_t i = 0; i < 2; i++) {
        const struct pool_instance *instance =
            taken[i] != POOL_NO_INSTANCE ? pool_get(pool, taken[i]) : NULL;

        if (instance && may_go(eligible, only, instance))
            return true;
    }
    return false;
}

bool reach_takes(const struct reach *reach, enum reach_of of,
                 const struct pool *pool,
                 const struct schedule_decision *decision)
{
    bool missed = of == REACH_MISSED;

    if (of == REACH_NONE)
        return false;
    if (missed ? reach->missed_anywhere : reach->n_anywhere > 0)
        return true;
    for (uint32_t i = 0; i < DISPATCH_REACHES; i++)
        if (reach->sets[i].n > 0 && (!missed || reach->sets[i].missed) &&
            takes_of(reach->sets[i].eligible, reach->sets[i].only, pool,
                     decision))
            return true;
    return false;
}

bool reach_takes_of(const struct schedule_request *ask, const struct pool *pool,
                    const struct schedule_decision *decision)
{
    return takes_of(ask->eligible, ask->only, pool, decision);
}
