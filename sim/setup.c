/* Checks a configuration and makes the parts of a simulation. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/copies.h"
#include "sim/decode.h"
#include "sim/internal.h"
#include "sim/views/views.h"

/* Bytes of the largest prefix index: 36 a block and 16 a copy. */
#define INDEX_BYTES_MAX (UINT64_C(8) << 30)

/* Simulator-only policies: a policy of core in a world that no real cluster
 * has. */
static const struct own_policy {
    const char *name;
    const char *core; /* the policy that decides */
    bool pooled_cache;
} own_policies[] = {
    {"ideal_pool", "local_cache", true},
};

#define N_OWN_POLICIES (sizeof(own_policies) / sizeof(own_policies[0]))

const char *sim_policy_name(size_t i)
{
    size_t n_core = 0;

    while (schedule_policy_name(n_core))
        n_core++;
    if (i < n_core)
        return schedule_policy_name(i);
    return i - n_core < N_OWN_POLICIES ? own_policies[i - n_core].name : NULL;
}

static const struct own_policy *own_policy(const char *name)
{
    for (size_t i = 0; i < N_OWN_POLICIES; i++)
        if (strcmp(own_policies[i].name, name) == 0)
            return &own_policies[i];
    return NULL;
}

const struct schedule_policy *sim_policy(const char *name)
{
    const struct own_policy *own = own_policy(name);

    return schedule_policy_by_name(own ? own->core : name);
}

/* Slows costs and rates down by SIM_SLOWDOWN. A node of several machines
 * computes as many chunks at once. */
static void slow_down_costs(double prefill[COST_MODEL_PREFILL_TERMS],
                            double decode[COST_MODEL_DECODE_TERMS],
                            struct cluster_tier tiers[BLOCK_TIERS],
                            uint32_t stages)
{
    for (size_t i = 0; i < COST_MODEL_PREFILL_TERMS; i++)
        prefill[i] *= (double)SIM_SLOWDOWN / stages;
    for (size_t i = 0; i < COST_MODEL_DECODE_TERMS; i++)
        decode[i] *= (double)SIM_SLOWDOWN;
    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        tiers[t].read_bytes_per_s /= (double)SIM_SLOWDOWN;
}

static void slow_down(struct cluster *c)
{
    slow_down_costs(c->cost.prefill, c->cost.decode, c->tiers,
                    c->pipeline_stages);
    for (uint32_t i = 0; i < c->n_groups; i++)
        slow_down_costs(c->groups[i].prefill_us, c->groups[i].decode_us,
                        c->groups[i].tiers, c->pipeline_stages);
    c->handover_us *= SIM_SLOWDOWN;
    c->link_bytes_per_s /= (double)SIM_SLOWDOWN;
}

static uint64_t at_most(uint64_t x, uint64_t most)
{
    return x < most ? x : most;
}

static int make_index(const struct sim *sim, struct prefix_index **index)
{
    const struct cluster *c = &sim->cluster;
    uint64_t blocks = 1024;

    for (uint32_t i = 0; i < sim_copies_nodes(sim); i++)
        for (unsigned t = 0; t < BLOCK_TIERS; t++)
            blocks += (uint64_t)sim->nodes[i].has.tiers[t].capacity_tokens /
                      c->block_tokens;
    /* 320 bytes: at worst each block has a page of its own. */
    *index = prefix_index_new(&(struct prefix_index_config){
        .max_instances = sim->n_nodes,
        .max_bytes = at_most(320 * blocks, INDEX_BYTES_MAX),
        .max_pairs = blocks,
        .grows = true,
        .seed = sim->config.seed,
    });
    return *index ? 0 : -ENOMEM;
}

static bool same_cost(const struct cost_model *a, const struct cost_model *b)
{
    return memcmp(a->prefill, b->prefill, sizeof(a->prefill)) == 0 &&
           memcmp(a->decode, b->decode, sizeof(a->decode)) == 0;
}

/* Returns the cost model that core predicts a node by; nodes with equal costs
 * share it. */
static const struct cost_model *known_cost(const struct sim *sim, uint32_t i)
{
    const struct cost_model *cost = &sim->nodes[i].has.cost;

    if (sim->cluster.reality.speeds_unknown ||
        same_cost(cost, &sim->cluster.cost))
        return &sim->cluster.cost;
    for (uint32_t k = i; k-- > 0;)
        if (same_cost(sim->nodes[k].known, cost))
            return sim->nodes[k].known;
    return cost;
}

static unsigned role_of(const struct cluster *c, uint32_t i)
{
    if (cluster_pair_prefills(c, i))
        return ROLE_PREFILL;
    if (cluster_pair_decodes(c, i) && !c->pair_decodes_alone)
        return ROLE_DECODE;
    if (i < c->coupled_nodes)
        return ROLE_BOTH;
    return i < c->prefill_nodes ? ROLE_PREFILL : ROLE_DECODE;
}

static int add_node(struct sim *sim, uint32_t i)
{
    const struct cluster *c = &sim->cluster;
    struct sim_node *node = &sim->nodes[i];
    int rc;

    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        TAILQ_INIT(&node->readers[t]);
    node->sim = sim;
    node->index = i;
    node->known = known_cost(sim, i);
    node->role = role_of(c, i);
    node->shares = i < c->coupled_nodes && (node->role & ROLE_DECODE) != 0;
    rc = sim_views_add_node(sim, node);
    node->stage_free_us =
        calloc(c->pipeline_stages, sizeof(*node->stage_free_us));
    if (rc == 0 && !node->stage_free_us)
        rc = -ENOMEM;
    return rc == 0 ? sim_batch_init(node) : rc;
}

static void set_policy(struct sim *sim)
{
    const struct sim_config *config = &sim->config;
    double *options = sim->policy_options;

    sim->policy = sim_policy(config->policy);
    sim->shared =
        own_policy(config->policy) && own_policy(config->policy)->pooled_cache;
    policy_options_init(sim->policy, options);
    /* The policy may lack these two. */
    (void)!policy_options_set(sim->policy, options,
                              "kvcache_balancing_threshold",
                              sim->cluster.kvcache_balancing_threshold);
    (void)!policy_options_set(sim->policy, options, "seed",
                              (double)config->seed);
    policy_options_apply(sim->policy, options, config->settings,
                         config->n_settings);
    sim->rules = policy_rules(sim->policy, options);
    sim->order = queue_order_by_name(policy_queue_order(
        &sim->rules, sim->cluster.order,
        sim->cluster.step_tokens > 0 && sim->cluster.coupled_nodes == 0));
}

/* Creates the replication, which owns memory, if blocks are copied. */
static int make_replication(struct sim *sim)
{
    if (sim->rules.replicates <= 0.0)
        return 0;
    sim->replication = replication_new(&sim->views[0].dispatch, sim->n_nodes,
                                       SIM_SLOWDOWN, sim->config.seed);
    return sim->replication ? 0 : -ENOMEM;
}

static int make_parts(struct sim *sim)
{
    const struct cluster *c = &sim->cluster;
    int rc = sim_views_init(sim);

    if (rc < 0)
        return rc;
    if (rc == 0)
        rc = make_index(sim, &sim->index);
    /* Blocks placed at dispatch show best what a node will have. */
    if (rc == 0 && c->cache_at == CLUSTER_CACHE_AT_DISPATCH && !sim->shared)
        rc = make_index(sim, &sim->expected);
    for (uint32_t i = 0; rc == 0 && i < sim->n_nodes; i++)
        rc = add_node(sim, i);
    if (rc == 0)
        rc = sim_copies_init(sim);
    learned_init_guess(&sim->pushes, LEARNED_PUSH_US, LEARNED_PUSH_TOKEN_US);
    sim_push_learn(sim);
    if (rc == 0)
        rc = sim_views_start(sim);
    if (rc == 0)
        rc = make_replication(sim);
    if (rc == 0)
        rc = sim_switch_init(sim);
    if (rc == 0)
        rc = heap_reserve(&sim->heap, sim_news_id(sim) + 1);
    if (rc < 0)
        return rc;
    sim->links = links_new(&(struct links_config){
        .heap = &sim->heap,
        .first_id = sim_news_id(sim) + 1,
        .n_nodes = sim->n_nodes,
        .bytes_per_s = c->link_bytes_per_s,
        .shared = c->links_shared,
    });
    return sim->links ? 0 : -ENOMEM;
}

static void node_fini(struct sim_node *node)
{
    sim_batch_fini(&node->batch);
    free(node->stage_free_us);
    free(node->queue.requests);
    free(node->queue.items);
}

void sim_fini(struct sim *sim)
{
    struct sim_request *r;

    sim_replicate_fini(sim);
    roles_free(sim->roles);
    sim_copies_fini(sim);
    sim_load_fini(sim);
    for (uint32_t i = 0; sim->nodes && i < sim->n_nodes; i++)
        node_fini(&sim->nodes[i]);
    while ((r = TAILQ_FIRST(&sim->every))) {
        TAILQ_REMOVE(&sim->every, r, every);
        free(r->keys);
        free(r);
    }
    links_free(sim->links);
    heap_fini(&sim->heap);
    sim_views_fini(sim);
    prefix_index_free(sim->expected);
    prefix_index_free(sim->index);
    free(sim->nodes);
    free(sim->scratch_us);
    free(sim->late.records);
}

int sim_init(struct sim *sim, const struct sim_config *config,
             const struct sim_io *io, char *err)
{
    TAILQ_INIT(&sim->copying);
    TAILQ_INIT(&sim->every);
    TAILQ_INIT(&sim->dirty);
    TAILQ_INIT(&sim->ready);
    TAILQ_INIT(&sim->loads);
    sim->config = *config;
    sim->io = *io;
    sim->err = err;
    sim->cluster = *config->cluster;
    slow_down(&sim->cluster);
    set_policy(sim);
    sim->n_nodes = cluster_nodes(&sim->cluster);
    sim->nodes = calloc(sim->n_nodes, sizeof(*sim->nodes));
    if (!sim->nodes)
        return -ENOMEM;
    for (uint32_t i = 0; i < sim->n_nodes; i++)
        cluster_node_at(&sim->cluster, i, &sim->nodes[i].has);
    return make_parts(sim);
}

int sim_check_config(const struct sim_config *c, char err[SIM_ERROR_BYTES])
{
    char why[CLUSTER_ERROR_BYTES];
    const char *admission = c->admission ? c->admission : "plain";

    if (cluster_check(c->cluster, why) < 0)
        snprintf(err, SIM_ERROR_BYTES, "%.200s", why);
    else if (!sim_policy(c->policy))
        snprintf(err, SIM_ERROR_BYTES, "no policy \"%.100s\"", c->policy);
    else if (!admission_policy_by_name(admission))
        snprintf(err, SIM_ERROR_BYTES, "no admission \"%.100s\"", admission);
    else if (!(c->speed >= 1e-9 && c->speed <= 1e9))
        snprintf(err, SIM_ERROR_BYTES, "a speed of %g, not in 1e-9 to 1e9",
                 c->speed);
    else if (c->slo_ttft_us < 0 || c->slo_ttft_us > (int64_t)SIM_SPAN_MAX_US ||
             c->slo_tbt_us < 0 || c->slo_tbt_us > (int64_t)SIM_SPAN_MAX_US)
        snprintf(err, SIM_ERROR_BYTES, "an SLO below 0 or above 30 years");
    else if (c->n_watch > SIM_WATCH_MAX ||
             (c->n_watch > 0 && c->watch_interval_us < 1))
        snprintf(err, SIM_ERROR_BYTES, "bad watch of blocks");
    else if (c->sample_interval_us < 0 ||
             c->sample_interval_us > (int64_t)SIM_SPAN_MAX_US)
        snprintf(err, SIM_ERROR_BYTES, "bad interval between samples");
    else if (c->conductors > SIM_CONDUCTORS_MAX)
        snprintf(err, SIM_ERROR_BYTES, "%u conductors, more than %d",
                 (unsigned)c->conductors, SIM_CONDUCTORS_MAX);
    else if (c->state_delay_us < 0 ||
             c->state_delay_us > SIM_STATE_DELAY_MAX_US)
        snprintf(
            err, SIM_ERROR_BYTES, "a state delay of %lld us, not in 0 to %lld",
            (long long)c->state_delay_us, (long long)SIM_STATE_DELAY_MAX_US);
    else if (c->conductors > 1 &&
             c->cluster->cache_at == CLUSTER_CACHE_AT_DISPATCH)
        snprintf(err, SIM_ERROR_BYTES,
                 "%u conductors: cluster %s has cache_at \"dispatch\", with "
                 "which all would know a block before any node has it",
                 (unsigned)c->conductors, c->cluster->name);
    else
        return 0;
    return -EINVAL;
}
