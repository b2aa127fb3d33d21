/* Reuse by a prefill: cached blocks of its node, and its load. */
#include <errno.h>
#include <math.h>

#include "conductor/core/step/meeting.h"
#include "sim/copies.h"
#include "sim/internal.h"

int64_t sim_model_us(const struct cost_model *cost, uint32_t uncached,
                     uint32_t cached)
{
    if (uncached == 0)
        return 0;
    return cost_model_prefill_us(cost, uncached, cached, NULL);
}

int64_t sim_real_work_us(const struct sim_request *request, int64_t us)
{
    double error = request->prefill.error;

    return error == 1.0 ? us : llround(sim_bounded_us((double)us * error));
}

/* Returns the true time (us) of computing tokens behind cached ones. */
static int64_t true_us(const struct sim_node *node, const struct sim_request *r,
                       uint32_t uncached, uint32_t cached)
{
    int64_t us = cost_model_prefill_us(&node->has.cost, uncached, cached, NULL);

    return uncached == 0 ? 0 : sim_real_work_us(r, us);
}

static uint32_t usable_blocks(const struct sim *sim,
                              const struct sim_request *r, uint32_t n)
{
    return estimate_usable_blocks(
        &(struct estimate_model){.block_tokens = sim->cluster.block_tokens,
                                 .simulated.whole_prompt_reuse =
                                     sim->cluster.whole_prompt_reuse},
        n, r->n_tokens);
}

static uint32_t tokens_of(const struct sim *sim, const struct sim_request *r,
                          uint32_t blocks)
{
    uint64_t tokens = (uint64_t)blocks * sim->cluster.block_tokens;

    return tokens < r->n_tokens ? (uint32_t)tokens : r->n_tokens;
}

/* The cost model's largest answer stands for all longer times. */
static void check_length(struct sim *sim, const struct sim_request *r,
                         int64_t compute_us)
{
    if (compute_us >= COST_MODEL_MAX_US)
        sim_fail(sim, -ERANGE,
                 "request %llu: a prefill of %u tokens takes more than 1,000 s",
                 (unsigned long long)r->record.index,
                 (unsigned)r->record.computed_tokens);
}

/* Layer l + 1 is read while layer l computes; the first read is exposed. */
static int64_t exposed_us(const struct sim *sim, int64_t compute_us,
                          int64_t read_us)
{
    int64_t first_us = read_us / sim->cluster.layers;

    return read_us > compute_us + first_us ? read_us - compute_us : first_us;
}

static bool loads_by_layer(const struct sim_request *r)
{
    return r->load && r->load->plan.mode == LOAD_MODE_LAYERWISE;
}

bool sim_reuse_meets_load(const struct sim_request *r)
{
    return r->load && !loads_by_layer(r);
}

/* Moves a request's position behind its loaded blocks. */
static void jump(struct sim *sim, struct sim_node *node, struct sim_request *r)
{
    struct sim_load *load = r->load;
    uint32_t bt = sim->cluster.block_tokens;
    uint32_t from = r->prefill.position;
    uint32_t to = tokens_of(sim, r, load->plan.cached_blocks);

    for (uint32_t i = from / bt; i < load->plan.cached_blocks; i++) {
        const struct sim_source *s = sim_load_source(load, i);
        uint32_t begin = i * bt > from ? i * bt : from;
        uint32_t n = tokens_of(sim, r, i + 1) - begin;

        sim->summary.loaded_tokens[s->tier] += n;
        if (s->holder == node->index)
            r->record.local_tokens += n;
        else
            r->record.fetched_tokens += n;
    }
    if (sim->cluster.cache_at == CLUSTER_CACHE_AT_SERVICE)
        sim_copies_loaded(sim, node, r, from / bt, load->plan.cached_blocks);
    r->record.computed_tokens -= to - from;
    r->push.unsent_tokens += to - from;
    r->prefill.cached_tokens = r->prefill.position = to;
    if (load->plan.mode != LOAD_MODE_LAYERWISE)
        sim_load_let_go(sim, r);
}

/* Returns how long (us) a late load by layer makes the engine wait for its last
 * layer. Each layer loads while those before it compute. */
static int64_t late_us(const struct sim *sim, const struct sim_node *node,
                       const struct sim_request *r)
{
    uint32_t cached = tokens_of(sim, r, r->load->plan.cached_blocks);
    int64_t suffix_us = true_us(node, r, r->n_tokens - cached, cached);
    int64_t late = sim_load_left_us(sim, r->load) - suffix_us +
                   suffix_us / sim->cluster.layers;

    return late > 0 ? late : 0;
}

/* Returns the true time (us) of the planned computing, scaled as the time of
 * the whole prompt. */
static int64_t planned_us(const struct sim_node *node,
                          const struct sim_request *r)
{
    int64_t model_us = sim_model_us(node->known, r->n_tokens, 0);
    int64_t real_us = true_us(node, r, r->n_tokens, 0);

    if (real_us == model_us)
        return r->plan.predicted_us;
    return llround(sim_bounded_us((double)r->plan.predicted_us *
                                  (double)real_us / (double)model_us));
}

/* Settles a plan: blocks at no cost are reused, others come by the load. */
static void settle_planned(struct sim *sim, struct sim_node *node,
                           struct sim_request *r)
{
    uint32_t n = r->plan.local_blocks;

    if (sim->cluster.cache_at == CLUSTER_CACHE_AT_SERVICE)
        n = usable_blocks(
            sim, r, sim_copies_match(sim, node, r, n, &r->prefill.load_us));
    r->prefill.position = r->prefill.cached_tokens = tokens_of(sim, r, n);
    r->record.local_tokens = r->push.unsent_tokens = r->prefill.cached_tokens;
    r->record.computed_tokens = r->n_tokens - r->prefill.cached_tokens;
    check_length(sim, r, r->plan.predicted_us);
    r->prefill.load_us =
        exposed_us(sim, planned_us(node, r), r->prefill.load_us);
    if (r->load && n >= r->load->plan.cached_blocks)
        sim_load_let_go(sim, r);
    /* Blocks before the split were evicted: compute them first. */
    if (r->load && n < r->load->plan.split_block)
        r->load->plan.mode = LOAD_MODE_BOTH;
    if (loads_by_layer(r)) {
        r->prefill.by_layer = true;
        r->prefill.load_us += late_us(sim, node, r);
        jump(sim, node, r);
    }
    r->prefill.waited_us = r->prefill.load_us;
}

/* A worker settles reuse now, too; cache_at "dispatch" did at dispatch. */
void sim_reuse_settle(struct sim *sim, struct sim_node *node,
                      struct sim_request *r)
{
    const struct prefill_estimate *plan = &r->plan;
    int64_t local = plan->local_blocks;
    int64_t compute_us;
    uint32_t n = plan->used_blocks;

    if (plan->planned) {
        settle_planned(sim, node, r);
        return;
    }
    if (r->load && sim->cluster.cache_at == CLUSTER_CACHE_AT_SERVICE)
        sim_copies_loaded(sim, node, r, sim_load_met(r->load),
                          plan->used_blocks);
    sim_load_let_go(sim, r);
    if (sim->cluster.cache_at == CLUSTER_CACHE_AT_SERVICE)
        n = usable_blocks(
            sim, r,
            sim_copies_match(sim, node, r, UINT32_MAX, &r->prefill.load_us));
    r->prefill.cached_tokens = r->push.unsent_tokens = tokens_of(sim, r, n);
    r->prefill.position = r->prefill.cached_tokens;
    local *= sim->cluster.block_tokens;
    if (plan->fetch_from == POOL_NO_INSTANCE ||
        local > r->prefill.cached_tokens)
        local = r->prefill.cached_tokens;
    r->record.local_tokens = (uint32_t)local;
    r->record.fetched_tokens = r->prefill.cached_tokens - (uint32_t)local;
    r->record.computed_tokens = r->n_tokens - r->prefill.cached_tokens;
    compute_us =
        true_us(node, r, r->record.computed_tokens, r->prefill.cached_tokens);
    check_length(sim, r, compute_us);
    r->prefill.load_us = exposed_us(sim, compute_us, r->prefill.load_us);
    r->prefill.waited_us = r->prefill.load_us;
}

/* Returns how far a request may compute while its load comes from the end: to
 * the loaded blocks, or block by block past the split if the load is late. */
uint32_t sim_reuse_chunk_end(struct sim *sim, struct sim_node *node,
                             struct sim_request *r)
{
    const struct sim_load *load = r->load;

    if (sim_reuse_meets_load(r) &&
        meeting_met(r->prefill.position, tokens_of(sim, r, sim_load_met(load))))
        jump(sim, node, r);
    if (!sim_reuse_meets_load(r))
        return r->n_tokens;
    return tokens_of(sim, r,
                     meeting_planned_block(r->prefill.position,
                                           sim->cluster.block_tokens,
                                           load->plan.split_block,
                                           sim_load_met(load), load->over));
}
