/* From a decision to a node's queue, and the blocks fetched to it. */
#include <errno.h>

#include "base/array.h"
#include "sim/copies.h"
#include "sim/internal.h"

static int queue_reserve(struct sim_node *node)
{
    struct sim_queue *q = &node->queue;
    size_t n = q->n + 1 + SIM_ACTIVE_MAX; /* and active ones: */
    size_t capacity = q->capacity;        /* step_next() looks at both */
    int rc = array_reserve(q->requests, capacity, n);

    return rc == 0 ? array_reserve(q->items, q->capacity, n) : rc;
}

/* Returns whether the prefill must wait for its blocks. A load that meets
 * computing from the front lets it begin. */
static bool waits_for_blocks(const struct sim_request *r)
{
    if (r->load)
        return !r->load->over && r->load->plan.mode != LOAD_MODE_BOTH;
    return r->fetch.bytes > 0.0;
}

static int enqueue(struct sim *sim, struct sim_node *node,
                   struct sim_request *r)
{
    int64_t due_us = schedule_due_us(&r->dispatch.ask, &r->plan);
    int64_t implied_us =
        queue_implied_us(r->plan.prefill_us, sim_prefill_left_us(sim, node));
    int rc = queue_reserve(node);

    if (rc < 0)
        return rc;
    r->queued = true;
    node->queue.requests[node->queue.n] = r;
    node->queue.items[node->queue.n++] = (struct queue_item){
        .arrival_seq = node->queue.next_seq++,
        .ready_at_us = waits_for_blocks(r) || sim->cluster.handover_us > 0
                           ? QUEUE_NOT_READY
                           : 0,
        .expected_us = r->plan.ready_us,
        .cost_us = r->plan.prefill_us,
        .arrived_us = sim->now_us,
        .deadline_us = due_us > 0 ? due_us : sim->now_us + implied_us,
        .has_slo = due_us > 0,
        .slo_us = due_us == 0            ? implied_us
                  : due_us > sim->now_us ? due_us - sim->now_us
                                         : 0,
        .loading_until_us = r->load && !r->load->over && !waits_for_blocks(r)
                                ? QUEUE_NOT_READY
                                : 0,
    };
    sim_follow_joined(sim, node);
    return 0;
}

/* Fetches through the sender's disk: loads all blocks from one source. */
static int fetch_by_block(struct sim *sim, struct sim_request *r,
                          const struct pool_instance *sender)
{
    static const struct schedule_decision none;
    struct schedule_decision d = none;
    const struct sim_node *holder = &sim->nodes[sender->slot];

    d.plan.mode = LOAD_MODE_LOAD;
    d.plan.split_block = r->plan.local_blocks;
    d.plan.cached_blocks = r->plan.used_blocks;
    d.plan.pieces[d.plan.n_pieces++] = (struct load_piece){
        .from_block = r->plan.local_blocks, .to_block = r->plan.used_blocks};
    d.sources[d.n_sources++].instance = sender->id;
    for (uint32_t i = d.plan.split_block; i < d.plan.cached_blocks; i++) {
        uint32_t slot = block_cache_find(holder->cache, r->keys[i]);

        if (slot != BLOCK_CACHE_NONE &&
            !block_tiers[block_cache_at(holder->cache, slot)->tier].sent)
            d.sources[0].tier = block_cache_at(holder->cache, slot)->tier;
    }
    return sim_load_begin(sim, r, &d);
}

/* Starts the fetch of the decision. */
static int start_fetch(struct sim *sim, struct sim_node *node,
                       struct sim_request *r)
{
    uint32_t blocks = r->plan.used_blocks - r->plan.local_blocks;
    const struct pool_instance *sender =
        pool_get(r->view->pool, r->plan.fetch_from);

    if (!sender || blocks == 0)
        return 0;
    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        if (!block_tiers[t].sent &&
            sim->nodes[sender->slot].has.tiers[t].read_bytes_per_s > 0.0)
            return fetch_by_block(sim, r, sender);
    r->fetch.bytes = (double)blocks * sim->cluster.block_tokens *
                     (double)sim->cluster.kv_bytes_per_token;
    sim->summary.fetches.count++;
    sim->summary.fetches.bytes += (uint64_t)r->fetch.bytes;
    return links_start(sim->links, sender->slot, node->index, r->fetch.bytes,
                       SIM_FLOW_FETCH, r, sim->now_us);
}

/* Lets the node begin the prefill. */
static void set_ready(struct sim *sim, struct sim_request *r)
{
    struct sim_node *node = &sim->nodes[r->record.prefill_node];
    uint32_t i = 0;

    while (node->queue.requests[i] != r)
        i++;
    node->queue.items[i].ready_at_us = sim->now_us;
    node->queue.items[i].loading_until_us = 0;
    sim_mark_node(sim, node);
}

int sim_hand_over(struct sim *sim, struct sim_node *node, struct sim_request *r)
{
    int64_t handover_us = sim->cluster.handover_us;
    int rc = handover_us > 0 ? 0 : start_fetch(sim, node, r);

    if (rc == 0)
        rc = enqueue(sim, node, r);
    if (rc == 0 && handover_us > 0)
        rc = links_delay(sim->links, SIM_FLOW_HANDOVER, r, sim->now_us,
                         sim->now_us + handover_us);
    return rc;
}

void sim_handed_over(struct sim *sim, struct sim_request *request)
{
    struct sim_node *node = &sim->nodes[request->record.prefill_node];

    if (start_fetch(sim, node, request) < 0)
        sim_fail(sim, -ENOMEM, "out of memory");
    else if (!waits_for_blocks(request))
        set_ready(sim, request);
}

void sim_load_ready(struct sim *sim, struct sim_request *request)
{
    if (request->prefill.held) {
        sim_prefill_done(sim, request);
        return;
    }
    set_ready(sim, request);
}

void sim_fetch_ended(struct sim *sim, const struct links_end *end)
{
    struct sim_request *r = end->what;
    struct sim_node *node = &sim->nodes[r->record.prefill_node];

    r->fetch.us = sim->now_us - end->started_us;
    if (sim->cluster.cache_at == CLUSTER_CACHE_AT_SERVICE)
        sim_copies_store(sim, node, r, r->plan.local_blocks,
                         r->plan.used_blocks);
    set_ready(sim, r);
}
