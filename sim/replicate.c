/* Hot blocks copied ahead of demand: carries out the orders of core's
 * replication, as conductor/service/worker/copies.c does in the daemon. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim/copies.h"
#include "sim/internal.h"

/* Owner of copied blocks in caches; above all requests' indexes. */
#define COPY_INDEX (UINT64_C(1) << 63)

struct sim_copy {
    TAILQ_ENTRY(sim_copy) every;
    uint64_t id;
    uint32_t to; /* node */
    uint32_t first, end;
    uint64_t keys[]; /* (end) */
};

static void look_again(struct sim *sim)
{
    int64_t at_us = replication_due_us(sim->replication);

    if (links_delay(sim->links, SIM_FLOW_PASS, NULL, sim->now_us,
                    at_us > sim->now_us ? at_us : sim->now_us) < 0)
        sim_fail(sim, -ENOMEM, "out of memory");
    else
        sim->passes = true;
}

void sim_replicate_asked(struct sim *sim, const struct sim_request *r)
{
    if (!sim->replication || !replication_on(sim->replication))
        return;
    replication_asked(sim->replication, &r->dispatch.ask, 0, sim->now_us);
    if (!sim->passes)
        look_again(sim);
}

static int begin_copy(struct sim *sim, const struct replication_action *a)
{
    uint32_t from = pool_get(sim->views[0].pool, a->from)->slot;
    double bytes = (double)(a->end_block - a->first_block) *
                   sim->cluster.block_tokens *
                   (double)sim->cluster.kv_bytes_per_token;
    struct sim_copy *copy =
        malloc(sizeof(*copy) + a->end_block * sizeof(copy->keys[0]));

    if (!copy)
        return -ENOMEM;
    copy->id = a->id;
    copy->to = pool_get(sim->views[0].pool, a->to)->slot;
    copy->first = a->first_block;
    copy->end = a->end_block;
    memcpy(copy->keys, a->keys, a->end_block * sizeof(copy->keys[0]));
    TAILQ_INSERT_TAIL(&sim->copying, copy, every);
    sim->summary.copies.count++;
    sim->summary.copies.bytes += (uint64_t)bytes;
    return links_start_behind(sim->links, from, copy->to, bytes, a->bytes_per_s,
                              SIM_FLOW_COPY, copy, sim->now_us);
}

/* Removes blocks from the last one to the first. */
static void drop(struct sim *sim, const struct replication_action *a)
{
    struct sim_node *node =
        &sim->nodes[pool_get(sim->views[0].pool, a->to)->slot];
    uint64_t key = a->key;

    for (uint32_t b = a->end_block; node->cache && b > a->first_block; b--) {
        uint32_t slot = block_cache_find(node->cache, key);

        if (slot == BLOCK_CACHE_NONE)
            return;
        key = block_cache_at(node->cache, slot)->parent;
        block_cache_drop(node->cache, slot);
    }
}

void sim_replicate_next(struct sim *sim)
{
    struct replication_action a;
    int rc = 0;

    if (!sim->replicates)
        return;
    sim->replicates = false;
    while (rc == 0 && sim->rc == 0 &&
           !(sim->source_over && sim->n_unfinished == 0) &&
           replication_next(sim->replication, sim->now_us, &a))
        if (a.kind == REPLICATION_COPY)
            rc = begin_copy(sim, &a);
        else
            drop(sim, &a);
    if (rc < 0)
        sim_fail(sim, rc, "out of memory");
}

void sim_replicate_pass(struct sim *sim)
{
    sim->passes = false;
    sim->replicates = true;
    replication_pass(sim->replication, sim->now_us);
    if (!sim->source_over || sim->n_unfinished > 0)
        look_again(sim);
}

static void copy_free(struct sim *sim, struct sim_copy *copy)
{
    TAILQ_REMOVE(&sim->copying, copy, every);
    free(copy);
}

/* Stores the copied blocks, if the block before them is still there. */
void sim_replicate_copied(struct sim *sim, const struct links_end *end)
{
    struct sim_copy *copy = end->what;
    struct sim_node *node = &sim->nodes[copy->to];
    struct sim_request blocks = {.keys = copy->keys,
                                 .n_keys = copy->end,
                                 .record = {.index = COPY_INDEX}};
    bool stands = node->cache &&
                  (copy->first == 0 ||
                   block_cache_find(node->cache, copy->keys[copy->first - 1]) !=
                       BLOCK_CACHE_NONE);

    if (stands) {
        sim_copies_store(sim, node, &blocks, copy->first, copy->end);
        sim_copies_touch(node, &blocks, copy->end);
    }
    replication_ended(sim->replication, copy->id,
                      stands ? copy->end - copy->first : 0, sim->now_us);
    sim->replicates = true;
    copy_free(sim, copy);
}

void sim_replicate_fini(struct sim *sim)
{
    struct sim_copy *copy;

    while ((copy = TAILQ_FIRST(&sim->copying)))
        copy_free(sim, copy);
    replication_free(sim->replication);
}
