/*
 * From arrival to a node's queue. What is done here with a decision is what
 * conductor/service/request_decide.c does with it: carry it out, let the
 * request wait for room, or refuse it; who comes while others wait, waits
 * behind them.
 */
#include <errno.h>
#include <stdlib.h>

#include "sim/internal.h"

#define QUEUE_FIRST 64u

static struct sim_request *request_new(const struct sim *sim,
                                       const struct trace_request *t)
{
    uint32_t bt = sim->cluster.block_tokens;
    struct sim_request *r = calloc(1, sizeof(*r));
    size_t n = t->input_tokens / bt;

    if (!r)
        return NULL;
    if (sim->cluster.whole_prompt_reuse && t->input_tokens % bt != 0)
        n++;
    if (!sim->cluster.prefix_cache)
        n = 0;
    if (n > t->block_count)
        n = t->block_count;
    r->keys = malloc((n + 1) * sizeof(*r->keys));
    if (!r->keys) {
        free(r);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        r->keys[i] = sim_key_of(t->hash_ids[i]);
    r->n_keys = (uint32_t)n;
    r->n_tokens = t->input_tokens;
    r->n_output = t->output_tokens > 0 ? t->output_tokens : 1;
    r->record = (struct sim_record){.arrival_us = sim->now_us,
                                    .first_token_us = -1,
                                    .end_us = -1,
                                    .tbt_us = -1,
                                    .queue_us = -1,
                                    .prefill_us = -1,
                                    .predicted_ttft_us = -1,
                                    .predicted_tbt_us = -1,
                                    .input_tokens = t->input_tokens,
                                    .output_tokens = t->output_tokens,
                                    .prefill_node = SIM_NO_NODE,
                                    .decode_node = SIM_NO_NODE};
    return r;
}

static int64_t elapsed_us(const struct sim *sim, const struct sim_request *r)
{
    return sim->now_us - r->record.arrival_us;
}

/* What of a TTFT no estimate of a node knows. */
static int64_t promised_from_us(const struct sim *sim,
                                const struct sim_request *r)
{
    return elapsed_us(sim, r) + sim->cluster.handover_us;
}

static bool ttft_only(const struct sim *sim)
{
    return sim->cluster.decode_nodes + sim->cluster.coupled_nodes == 0;
}

/* As fill_request() in the daemon: what is left of the SLO, in the first stage
 * of a pipeline. The hand-over is part of the TTFT that is promised. What will
 * be reused is not known yet. */
static struct schedule_request ask_for(const struct sim *sim,
                                       const struct sim_request *r)
{
    int64_t slo_us = sim->config.slo_ttft_us * SIM_SLOWDOWN;
    int64_t left_us = slo_us - promised_from_us(sim, r) -
                      sim_prefill_passage_us(sim, r->n_tokens, 0);

    return (struct schedule_request){
        .request_id = r->record.index + 1,
        .keys = r->keys,
        .n_keys = r->n_keys,
        .n_tokens = r->n_tokens,
        .max_output_tokens = ttft_only(sim) ? 1 : r->n_output,
        .slo_ttft_us = slo_us == 0   ? 0
                       : left_us > 1 ? left_us
                                     : 1,
        .slo_tbt_us = sim->config.slo_tbt_us * SIM_SLOWDOWN,
        .now_us = sim->now_us,
    };
}

static int queue_reserve(struct sim_node *node)
{
    uint32_t n =
        node->queue_capacity == 0 ? QUEUE_FIRST : node->queue_capacity * 2;
    struct sim_request **queue;
    struct queue_item *items;

    if (node->n_waiting < node->queue_capacity)
        return 0;
    queue = realloc(node->queue, n * sizeof(struct sim_request *));
    if (!queue)
        return -ENOMEM;
    node->queue = queue;
    items = realloc(node->items, n * sizeof(*items));
    if (!items)
        return -ENOMEM;
    node->items = items;
    node->queue_capacity = n;
    return 0;
}

/* Whether it cannot be begun before its blocks have come. What is computed
 * from the front meanwhile can. */
static bool waits_for_blocks(const struct sim_request *r)
{
    if (r->load)
        return !r->load->over && r->load->plan.mode != LOAD_MODE_BOTH;
    return r->fetched_bytes > 0.0;
}

static int enqueue(struct sim *sim, struct sim_node *node,
                   struct sim_request *r, const struct schedule_request *asked)
{
    int rc = queue_reserve(node);

    if (rc < 0)
        return rc;
    r->queued = true;
    node->queue[node->n_waiting] = r;
    node->items[node->n_waiting++] = (struct queue_item){
        .arrival_seq = node->next_seq++,
        .ready_at_us = waits_for_blocks(r) || sim->cluster.handover_us > 0
                           ? QUEUE_NOT_READY
                           : 0,
        .cost_us = r->plan.prefill_us,
        .deadline_us =
            asked->slo_ttft_us > 0 ? sim->now_us + asked->slo_ttft_us : 0,
        .loading_until_us = r->load && !r->load->over && !waits_for_blocks(r)
                                ? QUEUE_NOT_READY
                                : 0,
    };
    return 0;
}

/* What its sender may have to read first: a load of all from one source. */
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
            block_cache_at(holder->cache, slot)->tier == TIER_DISK)
            d.sources[0].tier = TIER_DISK;
    }
    return sim_load_begin(sim, r, &d);
}

/* Starts the fetch that the decision asks for. */
static int start_fetch(struct sim *sim, struct sim_node *node,
                       struct sim_request *r)
{
    uint32_t blocks = r->plan.used_blocks - r->plan.local_blocks;
    const struct pool_instance *sender =
        pool_get(sim->pool, r->plan.fetch_from);

    if (!sender || blocks == 0)
        return 0;
    if (sim->cluster.tiers[TIER_DISK].read_bytes_per_s > 0.0)
        return fetch_by_block(sim, r, sender);
    r->fetched_bytes = (double)blocks * sim->cluster.block_tokens *
                       (double)sim->cluster.kv_bytes_per_token;
    sim->summary.fetches.count++;
    sim->summary.fetches.bytes += (uint64_t)r->fetched_bytes;
    return links_start(sim->links, sender->slot, node->index, r->fetched_bytes,
                       SIM_FLOW_FETCH, r, sim->now_us);
}

/* The node can begin with it now. */
static void set_ready(struct sim *sim, struct sim_request *r)
{
    struct sim_node *node = &sim->nodes[r->record.prefill_node];
    uint32_t i = 0;

    while (node->queue[i] != r)
        i++;
    node->items[i].ready_at_us = sim->now_us;
    node->items[i].loading_until_us = 0;
    sim_node_poke(sim, node);
}

/* Tells the node, at once or after the hand-over. It has its place in the
 * queue from the decision on: hand-overs keep the order of the decisions. */
static int hand_over(struct sim *sim, struct sim_node *node,
                     struct sim_request *r,
                     const struct schedule_request *asked)
{
    int64_t handover_us = sim->cluster.handover_us;
    int rc = handover_us > 0 ? 0 : start_fetch(sim, node, r);

    if (rc == 0)
        rc = enqueue(sim, node, r, asked);
    if (rc == 0 && handover_us > 0)
        rc = links_delay(sim->links, SIM_FLOW_HANDOVER, r, sim->now_us,
                         sim->now_us + handover_us);
    return rc;
}

/* From arrival on. */
static int64_t predicted_ttft_us(const struct sim *sim,
                                 const struct sim_request *r,
                                 const struct prefill_estimate *chosen)
{
    return promised_from_us(sim, r) + chosen->ttft_us +
           sim_prefill_passage_us(sim, r->n_tokens, chosen->cached_tokens);
}

static void carry_out(struct sim *sim, struct sim_request *r,
                      const struct schedule_request *asked,
                      const struct schedule_decision *d)
{
    struct sim_node *node = &sim->nodes[d->chosen.slot];
    const struct pool_instance *decode = pool_get(sim->pool, d->decode);
    int rc;

    r->plan = d->chosen;
    r->accepted_at_us = sim->now_us + sim->cluster.handover_us;
    r->record.predicted_ttft_us = predicted_ttft_us(sim, r, &d->chosen);
    r->record.prefill_node = node->index;
    if (decode) {
        r->record.predicted_tbt_us = d->tbt_us;
        r->record.decode_node = decode->slot;
    }
    if (decode && node->role == ROLE_BOTH) {
        node->decode_tokens += sim_decode_tokens(sim, node, r);
        sim_copies_share_memory(sim, node);
    }
    if (sim->cluster.cache_at == CLUSTER_CACHE_AT_DISPATCH)
        sim_copies_dispatch(sim, node, r);
    else
        sim_copies_keep(node, r);
    rc = d->chosen.planned ? sim_load_begin(sim, r, d) : 0;
    if (rc == 0)
        rc = hand_over(sim, node, r, asked);
    if (rc < 0)
        sim_fail(sim, rc, "out of memory");
    else
        sim_node_poke(sim, node);
}

/* Nothing has room now: it waits, with a TTFT SLO only if the room is expected
 * in time. Returns whether it does. */
static bool may_wait(const struct sim *sim, const struct sim_request *r,
                     int64_t retry_after_us)
{
    int64_t left_us =
        sim->config.slo_ttft_us * SIM_SLOWDOWN - elapsed_us(sim, r);

    return sim->config.slo_ttft_us == 0 ||
           (retry_after_us >= 0 && retry_after_us <= left_us);
}

enum tried { TRIED_ACCEPTED, TRIED_ENDED, TRIED_NO_ROOM };

static enum tried try_schedule(struct sim *sim, struct sim_request *r,
                               bool behind_others)
{
    struct schedule_request asked = ask_for(sim, r);
    struct schedule_decision d;

    sim->summary.decisions++;
    schedule_decide(sim->scheduler, &asked, &d);
    if (d.verdict == SCHEDULE_ACCEPT && behind_others)
        return TRIED_NO_ROOM;
    if (d.verdict == SCHEDULE_ACCEPT &&
        schedule_commit(sim->scheduler, &asked, &d) == 0) {
        carry_out(sim, r, &asked, &d);
        return TRIED_ACCEPTED;
    }
    switch (d.verdict) {
    case SCHEDULE_ACCEPT:
    case SCHEDULE_DECODE_FULL:
    case SCHEDULE_QUEUE_FULL:
        if (may_wait(sim, r, d.retry_after_us))
            return TRIED_NO_ROOM;
        sim_end(sim, r, SIM_REJECTED, "no_capacity");
        return TRIED_ENDED;
    case SCHEDULE_REJECT_TTFT:
    case SCHEDULE_REJECT_TBT:
        if (d.chosen.instance != POOL_NO_INSTANCE)
            r->record.predicted_ttft_us = predicted_ttft_us(sim, r, &d.chosen);
        sim_end(sim, r, SIM_REJECTED, schedule_verdict_name(d.verdict));
        return TRIED_ENDED;
    case SCHEDULE_NO_PREFILL_INSTANCE:
    case SCHEDULE_NO_DECODE_INSTANCE:
    case SCHEDULE_TOO_LONG:
        break;
    }
    sim_end(sim, r, SIM_FAILED, schedule_verdict_name(d.verdict));
    return TRIED_ENDED;
}

void sim_retry_waiting(struct sim *sim)
{
    struct sim_request *r;

    sim->room = false;
    while ((r = TAILQ_FIRST(&sim->waiting)) && sim->rc == 0) {
        TAILQ_REMOVE(&sim->waiting, r, link);
        if (try_schedule(sim, r, false) == TRIED_NO_ROOM) {
            TAILQ_INSERT_HEAD(&sim->waiting, r, link);
            return; /* neither will the younger ones find any */
        }
        sim->n_waiting--;
    }
}

static void wait_for_room(struct sim *sim, struct sim_request *r)
{
    TAILQ_INSERT_TAIL(&sim->waiting, r, link);
    if (++sim->n_waiting > sim->summary.max_waiting_for_room)
        sim->summary.max_waiting_for_room = sim->n_waiting;
}

void sim_arrive(struct sim *sim, const struct trace_request *request)
{
    struct sim_request *r = request_new(sim, request);
    uint64_t bound = sim->config.max_unfinished;

    if (!r) {
        sim_fail(sim, -ENOMEM, "out of memory");
        return;
    }
    TAILQ_INSERT_TAIL(&sim->every, r, every);
    r->record.index = sim->summary.requests++;
    if (++sim->n_unfinished > sim->summary.max_unfinished)
        sim->summary.max_unfinished = sim->n_unfinished;
    if (sim->n_unfinished > bound)
        sim_end(sim, r, SIM_FAILED, "too_many_unfinished");
    else if (try_schedule(sim, r, !TAILQ_EMPTY(&sim->waiting)) == TRIED_NO_ROOM)
        wait_for_room(sim, r);
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
    const struct sim_node *node = &sim->nodes[request->record.prefill_node];

    if (request->held && request->load->over) {
        sim_prefill_done(sim, request);
    } else if (request->queued && request->record.queue_us < 0 &&
               sim->now_us >= request->accepted_at_us) {
        (void)!pool_prefill_ready(sim->pool, node->id,
                                  request->record.index + 1, sim->now_us);
        set_ready(sim, request);
    }
}

void sim_fetch_ended(struct sim *sim, const struct links_end *end)
{
    struct sim_request *r = end->what;
    struct sim_node *node = &sim->nodes[r->record.prefill_node];

    r->fetch_us = sim->now_us - end->started_us;
    if (sim->cluster.cache_at == CLUSTER_CACHE_AT_SERVICE)
        sim_copies_store(sim, node, r, r->plan.local_blocks,
                         r->plan.used_blocks);
    (void)!pool_prefill_ready(sim->pool, node->id, r->record.index + 1,
                              sim->now_us);
    set_ready(sim, r);
}
