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

static int refuse_order(const struct cluster *c, char err[CLUSTER_ERROR_BYTES])
{
    char known[128] = "";

    for (size_t i = 0, n = 0; queue_order_name(i) && n < sizeof(known); i++)
        n += (size_t)snprintf(known + n, sizeof(known) - n, " %s",
                              queue_order_name(i));
    return refuse(err, "%s: prefill.order: \"%s\" is not one of%s", c->name,
                  c->order, known);
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
    return queue_order_by_name(c->order) ? 0 : refuse_order(c, err);
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
        *cluster = c;
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
