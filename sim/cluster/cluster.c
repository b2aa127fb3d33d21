/* Checks between the fields of a cluster, overrides, and nodes by index. */
#include "sim/cluster/cluster.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "conductor/core/step/queue.h"

/* A bit per millisecond; real links are faster. */
#define GBPS_MIN 1e-6

#define refuse(err, ...) \
    error_say(err, CLUSTER_ERROR_BYTES, -EINVAL, __VA_ARGS__)

static int refuse_order(const struct cluster *c, char err[CLUSTER_ERROR_BYTES])
{
    char known[128] = "";

    for (size_t i = 0, n = 0; queue_order_name(i) && n < sizeof(known); i++)
        n += (size_t)snprintf(known + n, sizeof(known) - n, " %s",
                              queue_order_name(i));
    return refuse(err, "%s: prefill.order: \"%s\" is not one of%s", c->name,
                  c->order, known);
}

static int check_order(const struct cluster *c, char err[CLUSTER_ERROR_BYTES])
{
    const struct queue_order *order = queue_order_by_name(c->order);

    if (!order)
        return refuse_order(c, err);
    if (order->preempts && c->step_tokens == 0)
        return refuse(err,
                      "%s: prefill.order: \"%s\" needs step_tokens: prefills "
                      "are interrupted between steps",
                      c->name, c->order);
    if (order->preempts && c->coupled_nodes > 0)
        return refuse(err,
                      "%s: coupled.order: \"%s\": coupled nodes interrupt no "
                      "prefill",
                      c->name, c->order);
    return 0;
}

static int check_nodes(const struct cluster *c, char err[CLUSTER_ERROR_BYTES])
{
    if (c->coupled_nodes > 0 && c->prefill_nodes + c->decode_nodes > 0)
        return refuse(err,
                      "%s: coupled nodes do not go with prefill or "
                      "decode nodes",
                      c->name);
    if (c->coupled_nodes + c->prefill_nodes == 0)
        return refuse(err, "%s: no node prefills", c->name);
    if ((uint64_t)c->coupled_nodes + c->prefill_nodes + c->decode_nodes >
        CLUSTER_NODES_MAX)
        return refuse(err, "%s: more than %d nodes", c->name,
                      CLUSTER_NODES_MAX);
    if ((c->pair_prefills == 0) != (c->pair_decodes == 0) ||
        (uint64_t)c->pair_prefills + c->pair_decodes > c->coupled_nodes)
        return refuse(err,
                      "%s: coupled.pairs: %lu + %lu of %lu nodes: must have "
                      "both kinds, or none",
                      c->name, (unsigned long)c->pair_prefills,
                      (unsigned long)c->pair_decodes,
                      (unsigned long)c->coupled_nodes);
    return check_order(c, err);
}

/* Whether one has another tier than its device. */
static bool has_more_tiers(const struct cluster_tier *tiers)
{
    for (unsigned t = TIER_DEVICE + 1; t < BLOCK_TIERS; t++)
        if (tiers[t].capacity_tokens > 0)
            return true;
    return false;
}

static int check_memory(const struct cluster *c, char err[CLUSTER_ERROR_BYTES])
{
    bool decodes = c->decode_nodes + c->coupled_nodes > 0;

    if (c->prefill_nodes > 0 &&
        c->tiers[TIER_DEVICE].capacity_tokens < c->block_tokens)
        return refuse(err, "%s: prefill.device.tokens: less than a block",
                      c->name);
    if (decodes && (c->decode_kv_tokens < 1 || c->decode_max_batch < 1))
        return refuse(err,
                      "%s: nodes that decode need kv_tokens and "
                      "max_batch",
                      c->name);
    if (decodes && !(c->cost.decode[0] + c->cost.decode[1] > 0.0))
        return refuse(err, "%s: nodes that decode need a decode cost", c->name);
    if (c->cache_at == CLUSTER_CACHE_AT_DISPATCH &&
        (c->coupled_nodes > 0 || has_more_tiers(c->tiers)))
        return refuse(err,
                      "%s: conventions.cache_at: \"dispatch\" is for "
                      "prefill nodes with one tier",
                      c->name);
    if (c->mix_requests && c->step_tokens == 0)
        return refuse(err, "%s: mix_requests needs step_tokens", c->name);
    if (c->link_bytes_per_s > 0.0 && c->link_bytes_per_s * 8 / 1e9 < GBPS_MIN)
        return refuse(err, "%s: links.gbps: %g: must be 0 or at least %g",
                      c->name, c->link_bytes_per_s * 8 / 1e9, GBPS_MIN);
    if (c->decode_nodes > 0 && !(c->link_bytes_per_s > 0.0))
        return refuse(err,
                      "%s: links.gbps: 0, but KV has to reach decode "
                      "nodes",
                      c->name);
    if (c->pipeline_stages > 1 && c->coupled_nodes > 0)
        return refuse(err, "%s: coupled nodes have no pipeline", c->name);
    if (c->pair_prefills > 0 && !(c->link_bytes_per_s > 0.0))
        return refuse(err, "%s: links.gbps: 0, but pairs push KV", c->name);
    return 0;
}

/* Refuses groups with more nodes than the role has. */
static int check_group_nodes(const struct cluster *c, const char *role,
                             bool decodes, uint32_t nodes,
                             char err[CLUSTER_ERROR_BYTES])
{
    uint32_t end = 0;

    for (uint32_t i = 0; i < c->n_groups; i++)
        if (c->groups[i].decodes == decodes)
            end = c->groups[i].first + c->groups[i].nodes;
    if (end <= nodes)
        return 0;
    return refuse(err, "%s: %s.groups: %u nodes, but there are %u", c->name,
                  role, (unsigned)end, (unsigned)nodes);
}

/* Checks that each group's nodes can do the work of their role. */
static int check_groups(const struct cluster *c, char err[CLUSTER_ERROR_BYTES])
{
    int rc = check_group_nodes(c, c->coupled_nodes > 0 ? "coupled" : "prefill",
                               false, c->prefill_nodes + c->coupled_nodes, err);

    if (rc == 0)
        rc = check_group_nodes(c, "decode", true, c->decode_nodes, err);
    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < c->n_groups; i++) {
        const struct cluster_group *g = &c->groups[i];
        const struct cluster_tier *device = &g->tiers[TIER_DEVICE];

        if (g->has_tier[TIER_DEVICE] &&
            device->capacity_tokens < c->block_tokens)
            return refuse(err, "%s: prefill.groups: device: less than a block",
                          c->name);
        if (g->has_decode && !(g->decode_us[0] + g->decode_us[1] > 0.0))
            return refuse(err, "%s: groups: decode_us: no cost", c->name);
        if (c->cache_at == CLUSTER_CACHE_AT_DISPATCH &&
            has_more_tiers(g->tiers))
            return refuse(err,
                          "%s: conventions.cache_at: \"dispatch\" is for "
                          "prefill nodes with one tier",
                          c->name);
    }
    if (c->reality.first_token_at_decode && c->decode_nodes == 0)
        return refuse(err,
                      "%s: first_token: \"decode\", but there are no decode "
                      "nodes",
                      c->name);
    return 0;
}

int cluster_check(const struct cluster *cluster, char err[CLUSTER_ERROR_BYTES])
{
    int rc = check_nodes(cluster, err);

    if (rc == 0)
        rc = check_memory(cluster, err);
    return rc == 0 ? check_groups(cluster, err) : rc;
}

/* Returns the number of nodes before the first node of another kind. */
static uint32_t first_kind(const struct cluster *c)
{
    return c->prefill_nodes + c->coupled_nodes - c->pair_prefills -
           c->pair_decodes;
}

/* Speeds belong to node indexes: refuses a change that would give a speed to a
 * node of another kind. */
static int check_speeds(const struct cluster *was, const struct cluster *c,
                        char err[CLUSTER_ERROR_BYTES])
{
    uint32_t n = c->reality.n_speeds, first = first_kind(was);

    if (n <= first ? n <= first_kind(c)
                   : first_kind(c) == first && n <= cluster_nodes(c))
        return 0;
    return refuse(err,
                  "%s: node_speed: its %u numbers are for the file's %u + %u "
                  "nodes, and do not fit %u + %u: change the file",
                  c->name, (unsigned)n,
                  (unsigned)(was->prefill_nodes + was->coupled_nodes),
                  (unsigned)was->decode_nodes,
                  (unsigned)(c->prefill_nodes + c->coupled_nodes),
                  (unsigned)c->decode_nodes);
}

int cluster_override(struct cluster *cluster,
                     const struct cluster_changes *changes,
                     char err[CLUSTER_ERROR_BYTES])
{
    const struct cluster_changes *to = changes;
    struct cluster c = *cluster;
    uint32_t *prefill =
        c.coupled_nodes > 0 ? &c.coupled_nodes : &c.prefill_nodes;

    if (to->prefill_nodes > CLUSTER_NODES_MAX ||
        to->decode_nodes > CLUSTER_NODES_MAX)
        return refuse(err, "%s: more than %d nodes", c.name, CLUSTER_NODES_MAX);
    if (to->cache_tokens >= 0 && c.coupled_nodes > 0)
        return refuse(err,
                      "%s: coupled nodes have no cache of their own: its "
                      "blocks share coupled.kv_tokens",
                      c.name);
    if (to->prefill_nodes >= 0)
        *prefill = (uint32_t)to->prefill_nodes;
    if (to->decode_nodes >= 0)
        c.decode_nodes = (uint32_t)to->decode_nodes;
    if (to->link_gbps >= 0)
        c.link_bytes_per_s = to->link_gbps * 1e9 / 8;
    if (to->cache_tokens >= 0)
        c.tiers[TIER_DEVICE].capacity_tokens = (int64_t)to->cache_tokens;
    int rc = cluster_check(&c, err);
    if (rc == 0)
        rc = check_speeds(cluster, &c, err);
    if (rc == 0)
        *cluster = c;
    return rc;
}

uint32_t cluster_nodes(const struct cluster *cluster)
{
    return cluster->coupled_nodes + cluster->prefill_nodes +
           cluster->decode_nodes;
}

static const struct cluster_group *group_of(const struct cluster *c, uint32_t i)
{
    uint32_t n_first = c->coupled_nodes + c->prefill_nodes;
    bool decodes = i >= n_first;
    uint32_t place = decodes ? i - n_first : i;

    for (uint32_t k = 0; k < c->n_groups; k++) {
        const struct cluster_group *g = &c->groups[k];

        if (g->decodes == decodes && place >= g->first &&
            place - g->first < g->nodes)
            return g;
    }
    return NULL;
}

static void join_group(const struct cluster_group *g, struct cluster_node *node)
{
    if (g->has_prefill)
        memcpy(node->cost.prefill, g->prefill_us, sizeof(g->prefill_us));
    if (g->has_decode)
        memcpy(node->cost.decode, g->decode_us, sizeof(g->decode_us));
    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        if (g->has_tier[t])
            node->tiers[t] = g->tiers[t];
    if (g->decode_kv_tokens > 0)
        node->decode_kv_tokens = g->decode_kv_tokens;
    if (g->decode_max_batch > 0)
        node->decode_max_batch = g->decode_max_batch;
}

void cluster_node_at(const struct cluster *cluster, uint32_t i,
                     struct cluster_node *node)
{
    const struct cluster_reality *reality = &cluster->reality;
    const struct cluster_group *group = group_of(cluster, i);

    node->cost = cluster->cost;
    memcpy(node->tiers, cluster->tiers, sizeof(node->tiers));
    node->decode_kv_tokens = cluster->decode_kv_tokens;
    node->decode_max_batch = cluster->decode_max_batch;
    if (group)
        join_group(group, node);
    if (i >= reality->n_speeds)
        return;
    for (size_t k = 0; k < COST_MODEL_PREFILL_TERMS; k++)
        node->cost.prefill[k] /= reality->node_speed[i];
    for (size_t k = 0; k < COST_MODEL_DECODE_TERMS; k++)
        node->cost.decode[k] /= reality->node_speed[i];
}

uint32_t cluster_max_tokens(const struct cluster *cluster, uint32_t n_output)
{
    const struct cluster_reality *r = &cluster->reality;
    double times = r->max_tokens_times * (double)n_output;
    uint32_t asked = r->max_tokens_fixed;

    if (times > (double)asked)
        asked = times < (double)UINT32_MAX ? (uint32_t)times : UINT32_MAX;
    return asked > n_output ? asked : n_output;
}

bool cluster_pair_decodes(const struct cluster *c, uint32_t i)
{
    return i < c->coupled_nodes && i >= c->coupled_nodes - c->pair_decodes;
}

bool cluster_pair_prefills(const struct cluster *c, uint32_t i)
{
    return i < c->coupled_nodes - c->pair_decodes &&
           i >= c->coupled_nodes - c->pair_decodes - c->pair_prefills;
}

void cluster_node_name(const struct cluster *cluster, uint32_t i, char *name,
                       size_t size)
{
    if (cluster_pair_prefills(cluster, i))
        snprintf(name, size, "prefill-%u", (unsigned)i);
    else if (cluster_pair_decodes(cluster, i))
        snprintf(name, size, "decode-%u", (unsigned)i);
    else if (i < cluster->coupled_nodes)
        snprintf(name, size, "coupled-%u", (unsigned)i);
    else if (i < cluster->prefill_nodes)
        snprintf(name, size, "prefill-%u", (unsigned)i);
    else
        snprintf(name, size, "decode-%u",
                 (unsigned)(i - cluster->prefill_nodes));
}
