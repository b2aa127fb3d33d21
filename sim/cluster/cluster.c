/* What holds between the fields of a cluster, and its nodes' names. */
#include "sim/cluster/cluster.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "conductor/core/step/queue.h"

/* A bit per millisecond: nothing real is slower. */
#define GBPS_MIN 1e-6

__attribute__((format(printf, 2, 3))) static int
refuse(char err[CLUSTER_ERROR_BYTES], const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(err, CLUSTER_ERROR_BYTES, format, args);
    va_end(args);
    return -EINVAL;
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
    if (!queue_order_by_name(c->order))
        return refuse(err, "%s: prefill.order: no order \"%s\"", c->name,
                      c->order);
    return 0;
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
        (c->coupled_nodes > 0 || c->tiers[TIER_HOST].capacity_tokens > 0 ||
         c->tiers[TIER_DISK].capacity_tokens > 0))
        return refuse(err,
                      "%s: conventions.cache_at: \"dispatch\" is for "
                      "prefill nodes with one tier",
                      c->name);
    if (c->mix_requests && c->step_tokens == 0)
        return refuse(err, "%s: mix_requests needs step_tokens", c->name);
    if (c->link_bytes_per_s > 0.0 && c->link_bytes_per_s * 8 / 1e9 < GBPS_MIN)
        return refuse(err, "%s: links.gbps: %g, expected 0 or at least %g",
                      c->name, c->link_bytes_per_s * 8 / 1e9, GBPS_MIN);
    if (c->decode_nodes > 0 && !(c->link_bytes_per_s > 0.0))
        return refuse(err,
                      "%s: links.gbps: 0, but KV has to reach decode "
                      "nodes",
                      c->name);
    if (c->pipeline_stages > 1 && c->coupled_nodes > 0)
        return refuse(err, "%s: coupled nodes have no pipeline", c->name);
    return 0;
}

int cluster_check(const struct cluster *cluster, char err[CLUSTER_ERROR_BYTES])
{
    int rc = check_nodes(cluster, err);

    return rc == 0 ? check_memory(cluster, err) : rc;
}

int cluster_override(struct cluster *cluster, int64_t prefill_nodes,
                     int64_t decode_nodes, double link_gbps,
                     char err[CLUSTER_ERROR_BYTES])
{
    struct cluster changed = *cluster;
    int rc;

    if (prefill_nodes > CLUSTER_NODES_MAX || decode_nodes > CLUSTER_NODES_MAX)
        return refuse(err, "%s: more than %d nodes", cluster->name,
                      CLUSTER_NODES_MAX);
    if (prefill_nodes >= 0 && cluster->coupled_nodes > 0)
        changed.coupled_nodes = (uint32_t)prefill_nodes;
    else if (prefill_nodes >= 0)
        changed.prefill_nodes = (uint32_t)prefill_nodes;
    if (decode_nodes >= 0)
        changed.decode_nodes = (uint32_t)decode_nodes;
    if (link_gbps >= 0.0)
        changed.link_bytes_per_s = link_gbps * 1e9 / 8;
    rc = cluster_check(&changed, err);
    if (rc == 0)
        *cluster = changed;
    return rc;
}

int cluster_override_cache(struct cluster *cluster, int64_t device_tokens,
                           char err[CLUSTER_ERROR_BYTES])
{
    struct cluster changed = *cluster;
    int rc;

    if (cluster->coupled_nodes > 0)
        return refuse(err,
                      "%s: coupled nodes have no cache of their own: its "
                      "blocks share coupled.kv_tokens",
                      cluster->name);
    changed.tiers[TIER_DEVICE].capacity_tokens = device_tokens;
    rc = cluster_check(&changed, err);
    if (rc == 0)
        *cluster = changed;
    return rc;
}

uint32_t cluster_nodes(const struct cluster *cluster)
{
    return cluster->coupled_nodes + cluster->prefill_nodes +
           cluster->decode_nodes;
}

void cluster_node_name(const struct cluster *cluster, uint32_t i, char *name,
                       size_t size)
{
    if (i < cluster->coupled_nodes)
        (void)snprintf(name, size, "coupled-%u", (unsigned)i);
    else if (i < cluster->prefill_nodes)
        (void)snprintf(name, size, "prefill-%u", (unsigned)i);
    else
        (void)snprintf(name, size, "decode-%u",
                       (unsigned)(i - cluster->prefill_nodes));
}
