/* Reports of instances, and settings: health, roles, KV, rates. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "conductor/core/pool/internal.h"

/* [from][to]; the diagonal is handled in the code. */
static const bool health_allowed[HEALTH_STATES][HEALTH_STATES] = {
    [HEALTH_STARTING] = {[HEALTH_READY] = true,
                         [HEALTH_DRAINING] = true,
                         [HEALTH_SUSPECT] = true,
                         [HEALTH_GONE] = true},
    [HEALTH_READY] = {[HEALTH_DRAINING] = true,
                      [HEALTH_SUSPECT] = true,
                      [HEALTH_GONE] = true},
    [HEALTH_DRAINING] =
        {[HEALTH_READY] = true, [HEALTH_SUSPECT] = true, [HEALTH_GONE] = true},
    [HEALTH_SUSPECT] =
        {[HEALTH_READY] = true, [HEALTH_DRAINING] = true, [HEALTH_GONE] = true},
};

static void note_ready(struct pool *pool, const struct pool_slot *slot)
{
    const struct pool_instance *i = &slot->view;

    pool->ready_roles[i->slot] = (uint8_t)(pool_takes_work(i) ? i->role : 0);
}

int pool_set_health(struct pool *pool, uint32_t id, enum pool_health health)
{
    struct pool_slot *slot = pool_slot_of(pool, id);

    if (!slot)
        return -ESTALE;
    if (slot->view.health == health)
        return 0;
    if ((unsigned)health >= HEALTH_STATES ||
        !CHECK(&pool->broken, health_allowed[slot->view.health][health]))
        return -EPERM;
    slot->view.health = health;
    note_ready(pool, slot);
    return 0;
}

const char *pool_broken(struct pool *pool)
{
    return check_take(&pool->broken);
}

int pool_hold(struct pool *pool, uint32_t id, bool held)
{
    struct pool_slot *slot = pool_slot_of(pool, id);

    if (!slot)
        return -ESTALE;
    slot->view.held = held;
    note_ready(pool, slot);
    return 0;
}

int pool_switch(struct pool *pool, uint32_t id, unsigned role)
{
    struct pool_slot *slot = pool_slot_of(pool, id);

    if (!slot)
        return -ESTALE;
    if ((role & ROLE_BOTH) == 0 || (role & ~ROLE_BOTH) != 0 ||
        !slot->view.switches)
        return -EINVAL;
    slot->view.next_role = role == slot->view.role ? 0 : role;
    note_ready(pool, slot);
    return 0;
}

int pool_take_role(struct pool *pool, uint32_t id, int64_t kv_capacity_tokens)
{
    struct pool_slot *slot = pool_slot_of(pool, id);
    struct pool_instance *i;

    if (!slot)
        return -ESTALE;
    i = &slot->view;
    if (i->next_role == 0 || kv_capacity_tokens <= 0)
        return -EINVAL;
    if (!pool_is_empty(i))
        return -EBUSY;
    i->role = i->next_role;
    i->next_role = 0;
    i->kv_capacity_tokens = kv_capacity_tokens;
    i->kv_whole_tokens =
        kv_capacity_tokens - kv_capacity_tokens % i->block_tokens;
    note_ready(pool, slot);
    return 0;
}

int pool_set_kv_used(struct pool *pool, uint32_t id, int64_t used_tokens)
{
    struct pool_slot *slot = pool_slot_of(pool, id);

    if (!slot)
        return -ESTALE;
    if (used_tokens < 0)
        return -EINVAL;
    slot->view.kv_used_tokens = used_tokens;
    return 0;
}

int pool_set_reuse(struct pool *pool, uint32_t id, uint32_t blocks)
{
    struct pool_slot *slot = pool_slot_of(pool, id);

    if (!slot)
        return -ESTALE;
    slot->view.reuse_blocks = blocks;
    pool->reuses_in_steps |= blocks > 1;
    return 0;
}

bool pool_reuses_in_steps(const struct pool *pool)
{
    return pool->reuses_in_steps;
}

int pool_set_others(struct pool *pool, uint32_t id, int64_t decodes,
                    int64_t kv_tokens)
{
    struct pool_slot *slot = pool_slot_of(pool, id);

    if (!slot)
        return -ESTALE;
    if (decodes < 0 || kv_tokens < 0)
        return -EINVAL;
    slot->view.other_decodes = decodes;
    slot->view.other_kv_tokens = kv_tokens;
    return 0;
}

int pool_link_observed(struct pool *pool, uint32_t id, int64_t bytes,
                       int64_t elapsed_us)
{
    struct pool_slot *slot = pool_slot_of(pool, id);
    double *rate, seen;

    if (!slot)
        return -ESTALE;
    if (bytes <= 0 || elapsed_us <= 0)
        return 0;
    rate = &slot->view.link_bytes_per_s;
    seen = (double)bytes * 1e6 / (double)elapsed_us;
    if (*rate > 0.0)
        *rate += pool->config.link_smoothing * (seen - *rate);
    else
        *rate = seen;
    return 0;
}

int pool_set_paths(struct pool *pool, uint32_t id,
                   const struct pool_path *paths, uint32_t n)
{
    struct pool_slot *slot = pool_slot_of(pool, id);

    if (!slot)
        return -ESTALE;
    if (n > POOL_PATHS_MAX)
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++)
        if (!isfinite(paths[i].bytes_per_s) || !(paths[i].bytes_per_s > 0.0))
            return -EINVAL;
    if (n > 0)
        memcpy(slot->paths, paths, n * sizeof(*paths));
    slot->view.n_paths = n;
    return 0;
}

int pool_set_tier_rate(struct pool *pool, uint32_t id, enum block_tier tier,
                       double bytes_per_s)
{
    struct pool_slot *slot = pool_slot_of(pool, id);

    if (!slot)
        return -ESTALE;
    if ((unsigned)tier >= LOAD_TIERS)
        return -EINVAL;
    if (isfinite(bytes_per_s) &&
        (bytes_per_s > 0.0 || (tier == TIER_SHARED && bytes_per_s == 0.0)))
        slot->view.tier_bytes_per_s[tier] = bytes_per_s;
    return 0;
}
