/*
 * The instances themselves; their accepted work is in work.c.
 *
 * Invariants (tests/unit/pool_check.c asserts them):
 *   queue[i] = waiting[i].item, arrival_seq ascending;
 *   load = sum of costs and latest times over queue;
 *   running_load = sum and first of the ends of running prefills;
 *   item.cost_us = correction * predicted_us, for waiting and running prefills,
 *   without shared_us while they wait;
 *   started_at_us < 0 exactly for waiting prefills;
 *   decode_kv_tokens = sum of prompt + produced, decode_reserved_tokens = sum
 *   of pool_kv_tokens() over decodes;
 *   decodes_here exactly for running prefills with a decode of their request;
 *   running_kv_tokens = sum of pool_kv_tokens() over the others' prompts;
 *   accepted = sum of the work of all prefills without cancelled ones; a
 *   decode's before = the same sum over arrival_seq below before_seq;
 *   pending blocks = blocks of prefills with keys, and of pool_expect().
 */
#include "conductor/core/pool/pool.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/prefix_index.h"
#include "conductor/core/pool/internal.h"

#define GENERATION_MAX 0xffffu

const struct pool_config pool_config_default = {
    .max_instances = 64,
    .max_waiting = 512,
    .max_running = 64,
    .max_decodes = 1024,
    .max_pending_blocks = 1u << 18,
    .max_bookings = 1u << 16,
    .order = NULL, /* fifo */
    .patience_us = QUEUE_PATIENCE_US,
    .correction_tau_us = 60000000,
    .correction_min_ratio = 0.25,
    .correction_max_ratio = 4.0,
    .link_smoothing = 0.25,
    .seed = 1,
};

static bool config_ok(const struct pool_config *c)
{
    struct correction correction;

    return c->max_instances >= 1 &&
           c->max_instances <= PREFIX_INDEX_INSTANCES_MAX &&
           c->max_waiting >= 1 && c->max_waiting < QUEUE_ITEMS_MAX &&
           c->patience_us > 0 && c->max_running >= 1 && c->max_decodes >= 1 &&
           c->max_bookings >= 1 && c->max_bookings < BOOKING_NONE &&
           c->link_smoothing > 0.0 && c->link_smoothing <= 1.0 &&
           correction_init(&correction, c->correction_tau_us,
                           c->correction_min_ratio,
                           c->correction_max_ratio) == 0;
}

static int reserve(struct pool *pool)
{
    const struct pool_config *c = &pool->config;
    size_t n = c->max_instances;

    pool->slots = calloc(n, sizeof(*pool->slots));
    pool->instances = calloc(n, sizeof(*pool->instances));
    pool->ready_roles = calloc(n, sizeof(*pool->ready_roles));
    pool->waiting = calloc(n * c->max_waiting, sizeof(*pool->waiting));
    pool->queue = calloc(n * c->max_waiting, sizeof(*pool->queue));
    pool->running = calloc(n * c->max_running, sizeof(*pool->running));
    pool->decodes = calloc(n * c->max_decodes, sizeof(*pool->decodes));
    pool->paths = calloc(n * POOL_PATHS_MAX, sizeof(*pool->paths));
    pool->pending =
        pending_new(c->max_instances, c->max_pending_blocks, c->grows, c->seed);
    if (!pool->slots || !pool->instances || !pool->ready_roles ||
        !pool->waiting || !pool->queue || !pool->running || !pool->decodes ||
        !pool->paths || !pool->pending ||
        bookings_init(&pool->bookings, c->max_bookings) < 0)
        return -ENOMEM;
    /* Arrays of keys are rounded up to powers of two. */
    return arena_init(&pool->keys, 2 * (uint64_t)c->max_pending_blocks);
}

struct pool *pool_new(const struct pool_config *config)
{
    struct pool *pool;

    if (!config_ok(config))
        return NULL;
    pool = calloc(1, sizeof(*pool));
    if (!pool)
        return NULL;
    pool->config = *config;
    if (!pool->config.order)
        pool->config.order = queue_order_by_name("fifo");
    if (reserve(pool) < 0) {
        pool_free(pool);
        return NULL;
    }
    for (uint32_t s = 0; s < config->max_instances; s++) {
        struct pool_slot *slot = &pool->slots[s];

        slot->generation = 1;
        slot->waiting = pool->waiting + (size_t)s * config->max_waiting;
        slot->queue = pool->queue + (size_t)s * config->max_waiting;
        slot->running = pool->running + (size_t)s * config->max_running;
        slot->decodes = pool->decodes + (size_t)s * config->max_decodes;
        slot->paths = pool->paths + (size_t)s * POOL_PATHS_MAX;
    }
    return pool;
}

const struct pool_config *pool_config(const struct pool *pool)
{
    return &pool->config;
}

void pool_free(struct pool *pool)
{
    if (!pool)
        return;
    arena_fini(&pool->keys);
    bookings_fini(&pool->bookings);
    pending_free(pool->pending);
    free(pool->paths);
    free(pool->decodes);
    free(pool->running);
    free(pool->queue);
    free(pool->waiting);
    free(pool->ready_roles);
    free(pool->instances);
    free(pool->slots);
    free(pool);
}

static bool tiers_ok(const struct pool_instance_config *c)
{
    for (size_t t = 0; t < LOAD_TIERS; t++)
        if (!isfinite(c->tier_bytes_per_s[t]) || c->tier_bytes_per_s[t] < 0.0)
            return false;
    return true;
}

static bool instance_config_ok(const struct pool_instance_config *c)
{
    return (c->role & ROLE_BOTH) != 0 && (c->role & ~ROLE_BOTH) == 0 &&
           c->pair < POOL_PAIRS && c->kv_capacity_tokens > 0 &&
           isfinite(c->link_bytes_per_s) && c->link_bytes_per_s >= 0.0 &&
           tiers_ok(c);
}

static void init_correction(const struct pool *pool, struct pool_slot *slot)
{
    const struct pool_config *c = &pool->config;

    /* The bounds were checked by pool_new(). */
    (void)!correction_init(&slot->view.correction, c->correction_tau_us,
                           c->correction_min_ratio, c->correction_max_ratio);
    (void)!correction_init(&slot->view.occupancy, c->correction_tau_us,
                           c->correction_min_ratio, c->correction_max_ratio);
}

int pool_add(struct pool *pool, const struct pool_instance_config *config,
             uint32_t *id)
{
    const struct pool_config *c = &pool->config;
    uint32_t block_tokens = config->block_tokens > 0 ? config->block_tokens : 1;
    const struct queue_order *order = config->order ? config->order : c->order;
    struct pool_slot *slot;
    uint32_t s = 0;

    if (!instance_config_ok(config))
        return -EINVAL;
    while (s < pool->n_slots && pool->slots[s].in_use)
        s++;
    if (s == c->max_instances)
        return -ENOSPC;
    if (s == pool->n_slots)
        pool->n_slots++;
    slot = &pool->slots[s];
    slot->in_use = true;
    slot->view = (struct pool_instance){
        .id = slot->generation << 16 | s,
        .slot = s,
        .role = config->role,
        .health = HEALTH_STARTING,
        .pair = config->pair,
        .most_stages = config->most_stages,
        .switches = config->switches,
        .kv_capacity_tokens = config->kv_capacity_tokens,
        .cache_tokens = config->cache_tokens,
        .kv_whole_tokens = config->kv_capacity_tokens -
                           config->kv_capacity_tokens % (int64_t)block_tokens,
        .block_tokens = block_tokens,
        .link_bytes_per_s = config->link_bytes_per_s,
        .max_waiting = c->max_waiting,
        .order = order,
        .running_load = {.first_us = INT64_MAX,
                         .in_line = c->shared_steps || order->preempts},
        .max_batch = config->max_batch,
        .max_decodes =
            config->max_batch > 0 && config->max_batch < c->max_decodes
                ? config->max_batch
                : c->max_decodes,
        .window_tokens = config->window_tokens,
        .waiting = slot->waiting,
        .queue = slot->queue,
        .load = {.latest_ready_us = INT64_MIN},
        .running = slot->running,
        .decodes = slot->decodes,
        .paths = slot->paths,
    };
    for (unsigned channel = 0; channel < POOL_CHANNELS; channel++)
        TAILQ_INIT(&slot->channels[channel]);
    memcpy(slot->view.tier_bytes_per_s, config->tier_bytes_per_s,
           sizeof(slot->view.tier_bytes_per_s));
    if (config->name)
        strncpy(slot->view.name, config->name, POOL_NAME_BYTES - 1);
    init_correction(pool, slot);
    pool->instances[s] = &slot->view;
    *id = slot->view.id;
    return 0;
}

int pool_remove(struct pool *pool, uint32_t id, int64_t now_us)
{
    struct pool_slot *slot = pool_slot_of(pool, id);

    if (!slot)
        return -ESTALE;
    while (slot->view.n_waiting > 0)
        pool_prefill_cancel(pool, id, slot->waiting[0].request_id, now_us);
    while (slot->view.n_running > 0)
        pool_prefill_cancel(pool, id, slot->running[0].request_id, now_us);
    for (size_t i = 0; i < slot->view.n_decodes; i++)
        pool_unbook_push(pool, slot, &slot->decodes[i]);
    slot->in_use = false;
    pool->n_own_costs -= !!slot->view.cost;
    pool->instances[slot->view.slot] = NULL;
    pool->ready_roles[slot->view.slot] = 0;
    slot->generation =
        slot->generation == GENERATION_MAX ? 1 : slot->generation + 1;
    while (pool->n_slots > 0 && !pool->slots[pool->n_slots - 1].in_use)
        pool->n_slots--;
    return 0;
}

const struct pool_instance *pool_get(const struct pool *pool, uint32_t id)
{
    const struct pool_slot *slot = pool_slot_of(pool, id);

    return !slot ? NULL : &slot->view;
}

const struct pool_instance *pool_at(const struct pool *pool, uint32_t slot)
{
    if (slot >= pool->n_slots || !pool->slots[slot].in_use)
        return NULL;
    return &pool->slots[slot].view;
}

const struct pool_instance *const *pool_instances(const struct pool *pool)
{
    return pool->instances;
}

uint32_t pool_slots(const struct pool *pool)
{
    return pool->n_slots;
}

const uint8_t *pool_ready_roles(const struct pool *pool)
{
    return pool->ready_roles;
}

int pool_set_cost(struct pool *pool, uint32_t id, const struct cost_model *cost)
{
    struct pool_slot *slot = pool_slot_of(pool, id);

    if (!slot)
        return -ESTALE;
    if (slot->view.cost == cost)
        return 0;
    pool->n_own_costs += !!cost;
    pool->n_own_costs -= !!slot->view.cost;
    slot->view.cost = cost;
    init_correction(pool, slot);
    pool_apply_correction(slot);
    return 0;
}

bool pool_costs_differ(const struct pool *pool)
{
    return pool->n_own_costs > 0;
}

void pool_pending_match(struct pool *pool, const uint64_t *keys, size_t n,
                        struct prefix_match *match)
{
    pending_match(pool->pending, keys, n, match);
}

int pool_expect(struct pool *pool, uint32_t id, const uint64_t *keys, size_t n)
{
    const struct pool_slot *slot = pool_slot_of(pool, id);
    int error;

    if (!slot)
        return -ESTALE;
    error = pending_add(pool->pending, slot->view.slot, keys, n);
    pool->n_dropped += error == -ENOSPC;
    return error;
}

void pool_unexpect(struct pool *pool, uint32_t id, const uint64_t *keys,
                   size_t n)
{
    const struct pool_slot *slot = pool_slot_of(pool, id);

    if (slot)
        pending_drop(pool->pending, slot->view.slot, keys, n);
}

uint64_t pool_interrupted(const struct pool *pool)
{
    return pool->n_interrupted;
}

uint64_t pool_pending_dropped(const struct pool *pool)
{
    return pool->n_dropped;
}
