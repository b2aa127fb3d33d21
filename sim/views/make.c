/* Creates the views: each conductor's pool, scheduler and waiting requests. */
#include <errno.h>
#include <stdlib.h>

#include "sim/views/views.h"

#define PENDING_KEYS_MAX (UINT64_C(1) << 23)

static struct pool_config pool_config_of(const struct sim *sim)
{
    const struct cluster *c = &sim->cluster;
    struct pool_config config = pool_config_default;
    uint64_t pending = (uint64_t)sim->n_nodes << 14;

    if (pending < config.max_pending_blocks)
        pending = config.max_pending_blocks;
    config.max_instances = sim->n_nodes;
    config.max_waiting = c->max_waiting;
    config.max_running = SIM_ACTIVE_MAX + 64 * c->pipeline_stages;
    config.max_decodes = 1;
    for (uint32_t i = 0; i < sim->n_nodes; i++)
        if (sim->nodes[i].has.decode_max_batch > config.max_decodes)
            config.max_decodes = sim->nodes[i].has.decode_max_batch;
    config.max_decodes *= POOL_DECODES_AHEAD;
    config.max_pending_blocks =
        (uint32_t)(pending < PENDING_KEYS_MAX ? pending : PENDING_KEYS_MAX);
    config.correction_tau_us *= SIM_SLOWDOWN;
    config.patience_us *= SIM_SLOWDOWN;
    config.order = sim->order;
    config.uncorrected = sim->rules.uncorrected;
    config.shared_steps = c->coupled_nodes > 0;
    config.step_tokens = c->step_tokens;
    config.grows = true;
    config.seed = sim->config.seed;
    return config;
}

int sim_views_init(struct sim *sim)
{
    struct pool_config config = pool_config_of(sim);

    sim->n_views = sim->config.conductors > 1 ? sim->config.conductors : 1;
    sim->news.delay_us = sim->config.state_delay_us * SIM_SLOWDOWN;
    sim->views = calloc(sim->n_views, sizeof(*sim->views));
    if (!sim->views)
        return -ENOMEM;
    for (uint32_t v = 0; v < sim->n_views; v++) {
        struct sim_view *view = &sim->views[v];

        view->index = v;
        dispatch_init(&view->dispatch);
        warm_init(&view->warm, &view->dispatch, SIM_SLOWDOWN);
        view->pool = pool_new(&config);
        view->told_steps = calloc(sim->n_nodes, sizeof(*view->told_steps));
        if (!view->pool || !view->told_steps)
            return -ENOMEM;
    }
    return 0;
}

static struct pool_instance_config instance_of(const struct sim *sim,
                                               const struct sim_node *node,
                                               const char *name)
{
    const struct cluster *c = &sim->cluster;
    uint32_t i = node->index;
    struct pool_instance_config config = {
        .name = name,
        .role = node->role,
        .pair = cluster_pair_prefills(c, i) || cluster_pair_decodes(c, i),
        .kv_capacity_tokens = sim_node_kv_tokens(node, node->role),
        .switches = true,
        .link_bytes_per_s = c->link_bytes_per_s,
        .block_tokens = c->block_tokens,
        .max_batch = node->has.decode_max_batch,
        .most_stages = c->pipeline_stages == 1 ? c->layers : 0,
    };

    for (unsigned t = 0; t < BLOCK_TIERS; t++) {
        config.tier_bytes_per_s[t] = node->has.tiers[t].read_bytes_per_s;
        config.cache_tokens += node->has.tiers[t].capacity_tokens;
    }
    return config;
}

int sim_views_add_node(struct sim *sim, struct sim_node *node)
{
    char name[POOL_NAME_BYTES];
    struct pool_instance_config config;
    int rc = 0;

    cluster_node_name(&sim->cluster, node->index, name, sizeof(name));
    config = instance_of(sim, node, name);
    for (uint32_t v = 0; rc == 0 && v < sim->n_views; v++) {
        struct pool *pool = sim->views[v].pool;

        rc = pool_add(pool, &config, &node->id); /* the same id in all pools */
        if (rc == 0 && node->known != &sim->cluster.cost)
            rc = pool_set_cost(pool, node->id, node->known);
        if (rc == 0)
            rc = pool_set_health(pool, node->id, HEALTH_READY);
    }
    return rc;
}

static int start(struct sim *sim, struct sim_view *view)
{
    const struct cluster *c = &sim->cluster;

    view->scheduler = scheduler_new(
        &(struct schedule_config){
            .policy = sim->policy,
            .options = sim->policy_options,
            .admission = sim->config.admission,
        },
        &(struct estimate_model){
            .cost = &c->cost,
            .block_tokens = c->block_tokens,
            .kv_bytes_per_token = c->kv_bytes_per_token,
            .layers = c->layers,
            .coupled = c->coupled_nodes > 0,
            .push = sim->push,
            .step_tokens = c->step_tokens,
            .simulated = {.pooled_cache = sim->shared,
                          .whole_prompt_reuse = c->whole_prompt_reuse,
                          .links_unshared = !c->links_shared,
                          .slowdown = SIM_SLOWDOWN,
                          .disks_send = true,
                          .expected = sim->expected},
        },
        view->pool, sim->index);
    view->dispatch.share.slowdown = SIM_SLOWDOWN;
    view->dispatch.scheduler = view->scheduler;
    view->dispatch.overhead_us = c->handover_us;
    return view->scheduler ? 0 : -ENOMEM; /* the names were checked */
}

int sim_views_start(struct sim *sim)
{
    int rc = 0;

    for (uint32_t v = 0; rc == 0 && v < sim->n_views; v++)
        rc = start(sim, &sim->views[v]);
    if (rc < 0)
        return rc;
    if (sim->n_views > 1 &&
        (sim->rules.replicates > 0.0 || sim->rules.switch_us > 0)) {
        sim_fail(sim, -EINVAL,
                 "%u conductors: set replicate and switch_roles to 0: their "
                 "simulation needs a single conductor",
                 (unsigned)sim->n_views);
        return -EINVAL;
    }
    return 0;
}

void sim_views_fini(struct sim *sim)
{
    for (uint32_t v = 0; sim->views && v < sim->n_views; v++) {
        sim_warm_fini(&sim->views[v]);
        scheduler_free(sim->views[v].scheduler);
        pool_free(sim->views[v].pool);
        free(sim->views[v].told_steps);
    }
    free(sim->views);
    sim_news_fini(&sim->news);
}

/* Returns whether an instance has no work and nothing booked. */
static bool is_free(const struct pool_instance *i, int64_t now_us)
{
    bool idle = i->egress_free_us <= now_us && i->ingress_free_us <= now_us;

    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        idle = idle && i->tier_free_us[t] <= now_us;
    return idle && pool_is_empty(i) && i->decode_kv_tokens == 0 &&
           i->decode_reserved_tokens == 0 && i->running_kv_tokens == 0 &&
           i->prefill_tokens == 0 && i->push_out_bytes == 0 &&
           i->push_in_bytes == 0;
}

void sim_views_check(struct sim *sim)
{
    const char *broken = prefix_index_broken(sim->index);

    for (uint32_t v = 0; !broken && v < sim->n_views; v++)
        broken = pool_broken(sim->views[v].pool);
    if (broken)
        sim_fail(sim, -EIO, "a bug: an invariant broke: %s", broken);
    for (uint32_t v = 0; v < sim->n_views; v++)
        for (uint32_t i = 0; i < sim->n_nodes; i++) {
            const struct pool_instance *instance =
                pool_get(sim->views[v].pool, sim->nodes[i].id);

            if (!is_free(instance, sim->now_us))
                sim_fail(sim, -EIO,
                         "conductor %u still counts work on %s at the end",
                         (unsigned)v, instance->name);
        }
}
