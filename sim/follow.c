/* Prefills that wait for another prefill of their node, and the cached blocks
 * they count on, as in workers/step/follow.c. */
#include "conductor/core/step/follow.h"

#include "sim/copies.h"
#include "sim/internal.h"

bool sim_follows(const struct sim *sim)
{
    return sim->order->rank &&
           sim->cluster.cache_at == CLUSTER_CACHE_AT_SERVICE;
}

/* Returns the blocks that a request counts on. */
static struct follow_prompt counted(const struct sim_node *node,
                                    const struct sim_request *r)
{
    struct follow_prompt p = {.keys = r->keys, .n = r->n_keys};

    if (r->plan.planned && r->plan.local_blocks < p.n)
        p.n = r->plan.local_blocks;
    p.n_there = sim_copies_there(node, r, p.n);
    return p;
}

/* Returns the blocks a request will leave, beyond the first n_there. */
static struct follow_prompt left(const struct sim_request *r, uint32_t n_there)
{
    struct follow_prompt p = {r->keys, r->n_keys, n_there, 0};
    uint32_t from = n_there;

    if (!r->load)
        return p;
    if (from < r->load->plan.split_block)
        from = r->load->plan.split_block;
    if (r->load->plan.cached_blocks > from)
        p.n_loaded = r->load->plan.cached_blocks - from;
    return p;
}

/* Sets `follows` of the i-th queued request: the oldest waiting request that
 * makes the next block it lacks, or NULL. */
static void find(struct sim_node *node, uint32_t i)
{
    struct sim_request *r = node->queue.requests[i];
    struct follow_prompt own = counted(node, r);

    r->prefill.follows = NULL;
    r->prefill.n_there = own.n_there;
    for (uint32_t o = 0; own.n_there < own.n && o < i; o++) {
        struct sim_request *other = node->queue.requests[o];
        struct follow_prompt makes = left(other, own.n_there);

        if (!follow_makes(&makes, &own))
            continue;
        r->prefill.follows = other;
        r->prefill.shared_us =
            follow_shared_us(&makes, node->queue.items[o].cost_us, &own);
        return;
    }
}

void sim_follow_joined(const struct sim *sim, struct sim_node *node)
{
    if (sim_follows(sim))
        find(node, node->queue.n - 1);
}

void sim_follow_began(const struct sim *sim, struct sim_node *node,
                      const struct sim_request *begun)
{
    if (!sim_follows(sim))
        return;
    for (uint32_t i = 0; i < node->queue.n; i++)
        if (node->queue.requests[i]->prefill.follows == begun)
            find(node, i);
}

/* Returns whether the next block has come, or the last one is gone. */
static bool has_changed(const struct sim_node *node,
                        const struct sim_request *r)
{
    uint32_t n = r->prefill.n_there;

    return sim_copies_at_hand(node, r->keys[n]) ||
           (n > 0 && !sim_copies_at_hand(node, r->keys[n - 1]));
}

bool sim_follow_waits(const struct sim *sim, struct sim_node *node, uint32_t i)
{
    const struct sim_request *r = node->queue.requests[i];
    uint32_t o = 0;

    if (r->prefill.follows && has_changed(node, r))
        find(node, i);
    if (!r->prefill.follows)
        return false;
    while (node->queue.requests[o] != r->prefill.follows)
        o++;
    return follow_waits(sim->order, &node->queue.items[o],
                        &node->queue.items[i], r->prefill.shared_us);
}

void sim_follow_keep(const struct sim *sim, struct sim_node *node)
{
    uint64_t left = 0;
    uint32_t n = 0;

    if (!sim_follows(sim) || !node->cache)
        return;
    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        left += (uint64_t)node->has.tiers[t].capacity_tokens /
                sim->cluster.block_tokens;
    while (n < node->queue.n) {
        uint32_t blocks = node->queue.requests[n]->n_keys;

        if (blocks > left)
            break;
        left -= blocks;
        n++;
    }
    while (n-- > 0)
        sim_copies_keep(node, node->queue.requests[n]);
}
