/* Chunks of prompts: the prefill part of a step, the blocks it completes, and
 * the KV it sends to the decode node. */
#include <string.h>

#include "conductor/core/observation/observation.h"
#include "conductor/core/step/follow.h"
#include "conductor/core/step/step.h"
#include "sim/copies.h"
#include "sim/decode.h"
#include "sim/internal.h"
#include "sim/views/views.h"

static bool decodes_elsewhere(const struct sim_request *r)
{
    return r->record.decode_node != SIM_NO_NODE &&
           r->record.decode_node != r->record.prefill_node;
}

/* Returns whether the first token leaves at the end of the prefill: it is
 * neither held back nor sent by the decode node. */
static bool sends_at_end(const struct sim *sim, const struct sim_request *r)
{
    return !r->holds_first && !(decodes_elsewhere(r) &&
                                (sim->cluster.coupled_nodes > 0 ||
                                 sim->cluster.reality.first_token_at_decode));
}

/* Sends KV of `tokens` tokens, a `share` of each, to the decode node. */
static void push(struct sim *sim, struct sim_request *r, uint32_t tokens,
                 double share)
{
    if (!decodes_elsewhere(r))
        return;
    if (!r->push.asked)
        sim_decode_ask(sim, r);
    if (tokens == 0) {
        r->push.nothing = true; /* the decode node has these blocks */
        return;
    }
    sim_push(sim, r,
             (double)tokens * (double)sim->cluster.kv_bytes_per_token * share);
}

/* Returns whether all of the request's KV is on its decode node. */
static bool all_pushed(const struct sim_request *r)
{
    return r->push.granted && !r->push.under_way && r->prefill.done;
}

/* Layer by layer: the share of a chunk's KV that leaves while the chunk is
 * computed, all layers but the last. */
static double early_share(const struct sim *sim)
{
    return 1.0 - 1.0 / (double)sim->cluster.layers;
}

/* Returns how many leading blocks of its prompt a request may reuse. */
static uint32_t usable_blocks(const struct sim *sim,
                              const struct sim_request *r)
{
    return estimate_usable_blocks(
        &(struct estimate_model){.block_tokens = sim->cluster.block_tokens,
                                 .simulated.whole_prompt_reuse =
                                     sim->cluster.whole_prompt_reuse},
        r->n_keys, r->n_tokens);
}

static void remove_waiting(struct sim_node *node, uint32_t i)
{
    size_t behind = node->queue.n - i - 1;

    memmove(node->queue.requests + i, node->queue.requests + i + 1,
            behind * sizeof(struct sim_request *));
    memmove(node->queue.items + i, node->queue.items + i + 1,
            behind * sizeof(*node->queue.items));
    node->queue.n--;
}

int64_t sim_prefill_passage_us(const struct sim *sim,
                               const struct cost_model *cost, uint32_t n_tokens,
                               int64_t cached_tokens)
{
    uint32_t p = cached_tokens < n_tokens ? (uint32_t)cached_tokens : n_tokens;
    uint32_t u = n_tokens - p;
    uint32_t step = sim->cluster.step_tokens;
    uint32_t full;
    int64_t us, longest_us;

    if (sim->cluster.pipeline_stages == 1 || u == 0)
        return 0;
    if (step == 0 || step > u)
        step = u;
    full = u / step * step;
    longest_us = sim_model_us(cost, step, p);
    us = sim_model_us(cost, full, p) - sim_model_us(cost, full - step, p);
    if (us > longest_us)
        longest_us = us;
    us = sim_model_us(cost, u, p) - sim_model_us(cost, full, p);
    if (us > longest_us)
        longest_us = us;
    return longest_us * (sim->cluster.pipeline_stages - 1);
}

/* Starts the i-th waiting request. */
static struct sim_request *start(struct sim *sim, struct sim_node *node,
                                 uint32_t i)
{
    struct sim_request *r = node->queue.requests[i];

    r->prefill.item = node->queue.items[i];
    remove_waiting(node, i);
    sim_follow_keep(sim, node);
    sim_reuse_settle(sim, node, r);
    sim_follow_began(sim, node, r);
    r->prefill.started_us = sim->now_us;
    r->record.queue_us = sim->now_us - r->accepted_at_us;
    sim_views_begun(sim, r);
    if (decodes_elsewhere(r)) {
        sim_push_begin(sim, r);
        sim_views_comes(sim, r);
    }
    node->active[node->n_active++] = r;
    return r;
}

/* Returns the true time (us) of a request's next n tokens; adds core's
 * predicted time to *model_us. */
static int64_t chunk_us(const struct sim_node *node,
                        const struct sim_request *r, uint32_t n,
                        int64_t *model_us)
{
    uint32_t done = r->prefill.position - r->prefill.cached_tokens;

    *model_us +=
        cost_model_chunk_us(node->known, n, done, r->prefill.cached_tokens);
    return sim_real_work_us(r, cost_model_chunk_us(&node->has.cost, n, done,
                                                   r->prefill.cached_tokens));
}

/* Gives a request the rest of the step's budget. Returns its time (us). */
static int64_t add_chunk(struct sim *sim, struct sim_node *node,
                         struct sim_request *r, struct step *step)
{
    uint32_t bt = sim->cluster.block_tokens;
    uint32_t left, n;
    int64_t us;

    left = sim_reuse_chunk_end(sim, node, r) - r->prefill.position;
    n = sim_lent_chunk(r, left < step->budget ? left : step->budget);
    us = sim_lent_us(r, chunk_us(node, r, n, &r->prefill.computed_us));
    us = sim_sum_us(us, r->prefill.load_us);
    if (r->load && r->load->plan.mode != LOAD_MODE_LAYERWISE)
        sim_load_claim(sim, r->load, (r->prefill.position + n + bt - 1) / bt);
    r->prefill.step_tokens = n;
    if (sim->cluster.layerwise)
        r->push.step_tokens = sim_push_left(r, n + r->push.unsent_tokens);
    r->push.unsent_tokens = 0;
    r->prefill.load_us = 0;
    step_take(step, n,
              step_part_us(r->prefill.item.cost_us, n,
                           (int64_t)r->n_tokens - r->prefill.cached_tokens));
    if (sim->cluster.layerwise)
        push(sim, r, r->push.step_tokens, early_share(sim));
    return us;
}

/* Describes an active prefill to core at the begin of a step. */
static struct step_prefill describe(const struct sim *sim,
                                    const struct sim_request *r)
{
    const struct sim_prefill *p = &r->prefill;
    struct step_prefill seen = {
        .loading = sim_reuse_meets_load(r),
        .item = p->item,
        .begun = yield_begun(
            p->item.cost_us, sim->now_us - p->started_us, p->stood_us,
            p->computed_tokens,
            sim_reuse_meets_load(r) ? 0 : r->n_tokens - p->position),
    };

    if (r->lent.n > 0) /* an interruption would stop its members, too */
        seen.begun.stood_us = seen.begun.cost_us;
    return seen;
}

int64_t sim_prefill_left_us(const struct sim *sim, const struct sim_node *node)
{
    int64_t us = 0;

    for (uint32_t i = 0; i < node->queue.n; i++)
        us = sim_sum_us(us, node->queue.items[i].cost_us);
    for (uint32_t i = 0; i < node->n_active; i++)
        us = sim_sum_us(us, describe(sim, node->active[i]).begun.left_us);
    return us;
}

/* Returns whether an active prefill computes blocks that `r` can use. */
static bool is_computed_for(const struct sim *sim, const struct sim_node *node,
                            const struct sim_request *r)
{
    uint32_t bt = sim->cluster.block_tokens;
    uint32_t n = usable_blocks(sim, r);

    if (r->load && r->plan.local_blocks < n)
        n = r->plan.local_blocks;
    for (uint32_t a = 0; a < node->n_active; a++) {
        const struct sim_request *begun = node->active[a];

        if (yield_computes_for(begun->keys, begun->n_keys,
                               begun->prefill.position / bt, r->keys, n))
            return true;
    }
    return false;
}

/* Holds back prefills that can use blocks which others of the node will
 * make. */
static void hold(const struct sim *sim, struct sim_node *node)
{
    for (uint32_t i = 0; i < node->queue.n; i++) {
        struct sim_request *r = node->queue.requests[i];
        struct queue_item *item = &node->queue.items[i];
        bool held;

        if (item->ready_at_us > sim->now_us && !r->prefill.waits_for_other)
            continue;
        held = is_computed_for(sim, node, r) || sim_follow_waits(sim, node, i);
        if (held)
            item->ready_at_us = QUEUE_NOT_READY;
        else if (r->prefill.waits_for_other)
            item->ready_at_us = sim->now_us;
        r->prefill.waits_for_other = held;
    }
}

/* Returns how many waiting requests may begin, from *first on. On a lent node
 * only a group's leader may: two conductors with separate views may each have
 * lent the other group's leader, and both would wait for ever. */
static uint32_t may_begin(const struct sim_node *node, uint32_t *first)
{
    if (node->n_lent == 0)
        return node->queue.n;
    for (uint32_t i = 0; i < node->queue.n; i++) {
        if (node->queue.requests[i]->lent.n > 0) {
            *first = i;
            return 1;
        }
    }
    return 0;
}

int64_t sim_prefill_form(struct sim *sim, struct sim_node *node, bool *any)
{
    const struct cluster *c = &sim->cluster;
    struct step_prefill active[SIM_ACTIVE_MAX] = {{false}};
    struct step step;
    int64_t us = 0;

    step_begin(&step,
               &(struct step_config){
                   .order = sim->order,
                   .tokens = c->step_tokens,
                   .max_prefills = c->mix_requests ? SIM_ACTIVE_MAX : 1,
                   .max_segments = UINT32_MAX,
                   .patience_us = pool_config(sim->views[0].pool)->patience_us,
               },
               node->batch.n);
    for (uint32_t i = 0; i < node->n_active; i++) {
        struct sim_request *r = node->active[i];

        r->prefill.step_tokens = r->push.step_tokens = 0;
        active[i] = describe(sim, r);
    }
    for (;;) {
        uint32_t first = 0;
        uint32_t n_waiting =
            node->n_active < SIM_ACTIVE_MAX ? may_begin(node, &first) : 0;
        struct step_choice next;

        if (sim_follows(sim))
            hold(sim, node);
        next = step_next(&step, active, node->n_active,
                         node->queue.items + first, n_waiting, sim->now_us);

        if (next.kind == STEP_FORMED)
            return us;
        if (next.kind == STEP_START) {
            struct sim_request *r = start(sim, node, first + next.index);

            next.index = node->n_active - 1;
            active[next.index] = describe(sim, r);
        }
        active[next.index].in_step = true;
        us = sim_sum_us(us,
                        add_chunk(sim, node, node->active[next.index], &step));
        *any = true;
    }
}

/* Stores the blocks completed since token `from`. */
static void store_blocks(struct sim *sim, struct sim_node *node,
                         const struct sim_request *r, uint32_t from)
{
    uint32_t bt = sim->cluster.block_tokens;
    uint32_t last = r->prefill.position / bt;

    if (r->prefill.position == r->n_tokens && last < r->n_keys)
        last++; /* a partial last block, where it has a key */
    sim_copies_store(sim, node, r, from / bt, last);
    if (r->prefill.position == r->n_tokens)
        sim_copies_touch(node, r, r->n_keys);
}

/* Reports core's observations: the engine's time, and the fetch's rate. */
static void observe(struct sim *sim, struct sim_request *r)
{
    const struct observation_prefill seen = {
        .predicted_us = r->plan.predicted_us,
        .model_us = r->prefill.computed_us,
        .engine_us = r->prefill.engine_us - r->prefill.waited_us,
        .by_layer = r->prefill.by_layer,
    };

    if (r->fetch.bytes > 0.0 && sim->cluster.links_shared)
        sim_views_loaded(
            sim, r,
            &(struct observation_load){.holder = r->plan.fetch_from,
                                       .link_bytes = (int64_t)r->fetch.bytes,
                                       .us = r->fetch.us});
    /* Time shared with lent nodes is not one engine's time. */
    sim_views_done(sim, r, r->lent.n > 0 ? -1 : observation_prefill_us(&seen));
    sim_give_back(sim, r);
}

void sim_prefill_done(struct sim *sim, struct sim_request *r)
{
    struct sim_node *node = &sim->nodes[r->record.prefill_node];

    r->prefill.held = r->load && !r->load->over;
    if (r->prefill.held)
        return; /* the last layer is still to come */
    sim_load_let_go(sim, r);
    r->record.first_token_us = sim->now_us; /* or later, from the decode node */
    r->record.queue_us += r->prefill.stood_us;
    r->record.prefill_us =
        sim->now_us - r->prefill.started_us - r->prefill.stood_us;
    r->prefill.done = true;
    if (sim->cluster.cache_at == CLUSTER_CACHE_AT_DISPATCH)
        sim_copies_ready(sim, node, r);
    observe(sim, r);
    if (sends_at_end(sim, r))
        sim_first_token(r);
    if (decodes_elsewhere(r)) {
        sim->summary.pushes.count++;
        if (!sim->cluster.layerwise)
            push(sim, r, sim_push_left(r, r->n_tokens), 1.0);
        if (all_pushed(r))
            sim_decode_add(sim, r);
    } else if (r->record.decode_node != SIM_NO_NODE) {
        sim_decode_add(sim, r);
    } else {
        sim_end(sim, r, SIM_COMPLETED, NULL);
    }
}

void sim_prefill_pipe_ended(struct sim *sim, struct sim_request *request)
{
    sim_prefill_done(sim, request);
}

void sim_push_ended(struct sim *sim, const struct links_end *end)
{
    struct sim_request *r = end->what;

    r->push.under_way = false;
    if (r->push.held_bytes > 0.0)
        sim_push_granted(sim, r);
    else if (all_pushed(r))
        sim_decode_add(sim, r);
}

/* Passes the step's chunk through the stages behind the first, one step each.
 * Returns when it leaves the last stage. */
static int64_t pass_stages(struct sim *sim, struct sim_node *node,
                           int64_t step_us)
{
    int64_t at_us = sim->now_us;

    for (uint32_t s = 1; s < sim->cluster.pipeline_stages; s++) {
        if (node->stage_free_us[s] > at_us)
            at_us = node->stage_free_us[s];
        at_us = sim_sum_us(at_us, step_us);
        node->stage_free_us[s] = at_us;
    }
    return at_us;
}

void sim_prefill_advance(struct sim *sim, struct sim_node *node)
{
    int64_t step_us = sim->now_us - node->batch.run_start_us;
    int64_t out_us = pass_stages(sim, node, step_us);
    uint32_t n = node->n_active;

    node->n_active = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct sim_request *r = node->active[i];
        uint32_t from = r->prefill.position;
        int rc = 0;

        r->prefill.position += r->prefill.step_tokens;
        r->prefill.computed_tokens += r->prefill.step_tokens;
        if (sim->cluster.cache_at == CLUSTER_CACHE_AT_SERVICE)
            store_blocks(sim, node, r, from);
        if (sim->cluster.layerwise)
            push(sim, r, r->push.step_tokens, 1.0 - early_share(sim));
        if (sim->order->preempts && r->prefill.step_tokens == 0)
            r->prefill.stood_us += step_us;
        r->prefill.engine_us =
            sim->now_us - r->prefill.started_us - r->prefill.stood_us;
        if (r->prefill.position < r->n_tokens)
            node->active[node->n_active++] = r;
        else if (out_us > sim->now_us || r->lent.n > 0)
            rc = links_delay(sim->links, SIM_FLOW_PIPE, r, sim->now_us,
                             sim_sum_us(out_us, r->lent.n * step_us));
        else
            sim_prefill_done(sim, r);
        if (rc < 0)
            sim_fail(sim, rc, "out of memory");
    }
}
