/*
 * The sources of a request's blocks: an instance's own slow tiers, and the best
 * of its peers.
 */
#include <math.h>
#include <string.h>

#include "conductor/core/plan/traffic.h"
#include "conductor/core/schedule/internal.h"

/* Consecutive blocks of an instance with the same fastest tier. */
struct tier_run {
    uint32_t first_block;
    uint32_t n_blocks;
    enum block_tier tier;
};

/* Cuts the first `blocks` blocks of an instance into at most PREFIX_RUNS_MAX
 * runs by their fastest tier. Returns the number of runs. */
static size_t tier_runs(const struct scheduler *s, uint32_t slot,
                        uint32_t blocks, struct tier_run *runs)
{
    const struct prefix_run *told[PREFIX_RUNS_MAX];
    const struct prefix_match *m = &s->stored;
    size_t n_told = 0, n = 0;

    for (uint32_t r = m->last_run[slot]; r != 0; r = m->runs[r].before)
        if (m->runs[r].first_block < blocks)
            told[n_told++] = &m->runs[r];
    while (n_told-- > 0) {
        enum block_tier tier =
            (enum block_tier)__builtin_ctz((unsigned)told[n_told]->tiers);
        uint32_t end = schedule_lesser(told[n_told]->end_block, blocks);

        if (n == 0 || runs[n - 1].tier != tier)
            runs[n++] = (struct tier_run){
                .first_block = told[n_told]->first_block, .tier = tier};
        runs[n - 1].n_blocks = end - runs[n - 1].first_block;
    }
    return n;
}

static double block_bytes(const struct scheduler *s)
{
    return (double)s->model.block_tokens * (double)s->model.kv_bytes_per_token;
}

bool schedule_has_slow_tier(const struct pool_instance *instance)
{
    for (size_t t = 0; t < LOAD_TIERS; t++)
        if (instance->tier_bytes_per_s[t] > 0.0)
            return true;
    return false;
}

static double rate_of(const struct pool_instance *instance,
                      enum block_tier tier)
{
    double rate = instance->tier_bytes_per_s[tier];

    return rate > 0.0 ? rate : INFINITY;
}

/* Adds a tier's range: its first run, and later runs in tiers no slower. */
static void add_own_range(const struct pool_instance *instance,
                          const struct tier_run *runs, size_t n,
                          enum block_tier tier, struct schedule_own *own)
{
    size_t first = 0;
    size_t last;

    while (first < n && runs[first].tier != tier)
        first++;
    if (first == n)
        return;
    last = first;
    while (last + 1 < n &&
           rate_of(instance, runs[last + 1].tier) >= rate_of(instance, tier))
        last++;
    own->sources[own->n_sources++] = (struct schedule_source){
        .instance = instance->id,
        .tier = tier,
        .from_block = runs[first].first_block,
        .to_block = runs[last].first_block + runs[last].n_blocks,
    };
}

void schedule_own_blocks(const struct scheduler *s,
                         const struct pool_instance *instance, uint32_t blocks,
                         struct schedule_own *own)
{
    struct tier_run runs[PREFIX_RUNS_MAX];
    size_t n, at_no_cost = 0;

    own->free_blocks = blocks;
    own->n_sources = 0;
    if (blocks == 0 || !schedule_has_slow_tier(instance))
        return;
    n = tier_runs(s, instance->slot, blocks, runs);
    own->free_blocks = 0;
    while (at_no_cost < n &&
           instance->tier_bytes_per_s[runs[at_no_cost].tier] <= 0.0)
        own->free_blocks += runs[at_no_cost++].n_blocks;
    for (unsigned t = 0; t < LOAD_TIERS; t++)
        if (instance->tier_bytes_per_s[t] > 0.0)
            add_own_range(instance, runs + at_no_cost, n - at_no_cost,
                          (enum block_tier)t, own);
}

/* Returns the tiers of which an instance sends others nothing. */
static unsigned unsent_tiers(const struct scheduler *s,
                             const struct pool_instance *instance)
{
    unsigned tiers = 0;

    for (unsigned t = 0; t < LOAD_TIERS; t++)
        if (!block_tiers[t].sent && !s->model.simulated.disks_send &&
            instance->tier_bytes_per_s[t] > 0.0)
            tiers |= BLOCK_TIER_BIT(t);
    return tiers;
}

/* The number of the first `blocks` blocks, all of which an instance holds, that
 * it can send. */
static uint32_t sendable_blocks(const struct scheduler *s,
                                const struct pool_instance *instance,
                                uint32_t blocks)
{
    const struct prefix_match *m = &s->stored;
    const struct prefix_run *last = &m->runs[m->last_run[instance->slot]];
    struct tier_run runs[PREFIX_RUNS_MAX];
    unsigned unsent = unsent_tiers(s, instance);
    uint32_t sendable = 0;
    size_t n;

    if (unsent == 0)
        return blocks;
    if (last->before == 0 && last->first_block == 0 &&
        (last->tiers & ~unsent) != 0)
        return schedule_lesser(last->end_block, blocks);
    n = tier_runs(s, instance->slot, blocks, runs);
    for (size_t r = 0; r < n && !(unsent >> runs[r].tier & 1u); r++)
        sendable += runs[r].n_blocks;
    return sendable;
}

static int64_t busy_until_us(const struct pool_instance *instance,
                             const struct schedule_request *request)
{
    return instance->egress_free_us > request->now_us ? instance->egress_free_us
                                                      : request->now_us;
}

const struct pool_instance *
schedule_find_sender(const struct scheduler *s,
                     const struct schedule_request *request,
                     uint32_t usable_blocks, uint32_t *best_blocks)
{
    const struct pool_instance *const *instances = pool_instances(s->pool);
    const struct pool_instance *best = NULL;
    uint32_t n_slots = pool_slots(s->pool);
    int64_t best_us = INT64_MIN; /* no instance without blocks wins */

    *best_blocks = 0;
    for (uint32_t slot = 0; slot < n_slots; slot++) {
        uint32_t blocks =
            schedule_lesser(s->stored.blocks[slot], usable_blocks);
        const struct pool_instance *i = instances[slot];
        int64_t until_us;

        if (blocks < *best_blocks || blocks == 0 ||
            !schedule_can_send(request, i))
            continue;
        until_us = busy_until_us(i, request);
        if (blocks == *best_blocks && until_us >= best_us)
            continue;
        blocks = sendable_blocks(s, i, blocks);
        if (blocks < *best_blocks ||
            (blocks == *best_blocks && until_us >= best_us))
            continue;
        *best_blocks = blocks;
        best_us = until_us;
        best = i;
    }
    return best;
}

static int64_t at_most_never(double us)
{
    return us < (double)ESTIMATE_NEVER_US ? (int64_t)(us + 0.5)
                                          : ESTIMATE_NEVER_US;
}

/* When an instance's tier can begin to read. */
static int64_t tier_free_us(const struct pool_instance *instance,
                            enum block_tier tier, int64_t now_us)
{
    int64_t us = instance->tier_free_us[tier];

    return us > now_us ? us : now_us;
}

int64_t schedule_own_ready_us(const struct scheduler *s,
                              const struct pool_instance *instance,
                              const struct schedule_own *own, int64_t now_us)
{
    int64_t ready_us = now_us;

    for (size_t i = 0; i < own->n_sources; i++) {
        const struct schedule_source *o = &own->sources[i];
        int64_t end_us =
            tier_free_us(instance, o->tier, now_us) +
            at_most_never((double)(o->to_block - o->from_block) *
                          block_bytes(s) * 1e6 / rate_of(instance, o->tier));

        if (end_us > ready_us)
            ready_us = end_us;
    }
    return ready_us;
}

/* Writes the blocks that another instance can send, and how fast: at the slower
 * of its link and its slow tiers. If some are in a slow tier, all count as
 * such: the others may be evicted to it before they are sent. */
static bool peer_of(const struct scheduler *s,
                    const struct schedule_request *request,
                    const struct pool_instance *i, uint32_t blocks,
                    struct schedule_peer *peer)
{
    struct schedule_own own;
    double us = blocks * block_bytes(s) * 1e6 / i->link_bytes_per_s;
    int64_t free_us =
        s->model.simulated.links_unshared ? request->now_us : i->egress_free_us;

    if (s->rules.sees_links)
        us = traffic_fetch_us(i, us, request->now_us);
    peer->source = (struct schedule_source){
        .instance = i->id, .tier = TIER_DEVICE, .to_block = blocks};
    schedule_own_blocks(s, i, blocks, &own);
    for (size_t o = 0; o < own.n_sources; o++) {
        enum block_tier tier = own.sources[o].tier;
        double read_us = blocks * block_bytes(s) * 1e6 / rate_of(i, tier);

        if (read_us > us)
            us = read_us;
        if (tier_free_us(i, tier, request->now_us) > free_us)
            free_us = tier_free_us(i, tier, request->now_us);
        if (peer->source.tier == TIER_DEVICE ||
            rate_of(i, tier) < rate_of(i, peer->source.tier))
            peer->source.tier = tier;
    }
    peer->load = (struct load_source){
        .id = i->id,
        .to_block = blocks,
        .bytes_per_s = blocks * block_bytes(s) * 1e6 / us,
        .free_at_us = free_us,
        .by_layer = true,
    };
    return peer->load.bytes_per_s > 0.0 && isfinite(peer->load.bytes_per_s);
}

/* The number of blocks that an instance could send by a given time. */
static double worth_of(const struct scheduler *s,
                       const struct schedule_request *request,
                       const struct pool_instance *i, uint32_t blocks,
                       int64_t horizon_us)
{
    int64_t busy_us = i->egress_free_us - request->now_us;
    double sent;

    if (busy_us < 0 || s->model.simulated.links_unshared)
        busy_us = 0;
    sent = (double)(horizon_us - busy_us) * i->link_bytes_per_s /
           (1e6 * block_bytes(s));
    if (s->rules.sees_links && sent > 0.0 && i->push_out_bytes > 0) {
        double us = blocks * block_bytes(s) * 1e6 / i->link_bytes_per_s;

        sent *= us / traffic_fetch_us(i, us, request->now_us);
    }
    return sent < blocks ? sent : blocks;
}

/* The time that the slowest instance takes to compute the prompt. */
static int64_t horizon_of(const struct scheduler *s,
                          const struct schedule_request *request)
{
    const struct cost_model *last = s->model.cost;
    int64_t horizon_us =
        cost_model_prefill_us(last, request->n_tokens, 0, NULL);

    if (!pool_costs_differ(s->pool))
        return horizon_us;
    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++) {
        const struct pool_instance *i = pool_at(s->pool, slot);
        int64_t us;

        if (!i || estimate_cost(&s->model, i) == last)
            continue;
        last = estimate_cost(&s->model, i);
        us = cost_model_prefill_us(last, request->n_tokens, 0, NULL);
        if (us > horizon_us)
            horizon_us = us;
    }
    return horizon_us;
}

void schedule_find_peers(const struct scheduler *s,
                         const struct schedule_request *request,
                         uint32_t usable_blocks, struct schedule_peers *p)
{
    const struct pool_instance *const *instances = pool_instances(s->pool);
    double worth[SCHEDULE_PEERS_MAX + 1];
    uint32_t slots[SCHEDULE_PEERS_MAX + 1];
    uint32_t n_slots = pool_slots(s->pool), n = 0, deepest_blocks;
    int64_t horizon_us = horizon_of(s, request);
    const struct pool_instance *deepest =
        schedule_find_sender(s, request, usable_blocks, &deepest_blocks);

    p->n = 0;
    if (!deepest)
        return;
    worth[0] = s->rules.sees_links
                   ? worth_of(s, request, deepest, deepest_blocks, horizon_us)
                   : INFINITY;
    slots[0] = deepest->slot;
    if (worth[0] >= 1.0)
        n++;
    for (uint32_t slot = 0; slot < n_slots; slot++) {
        const struct pool_instance *i = instances[slot];
        uint32_t blocks =
            schedule_lesser(s->stored.blocks[slot], usable_blocks);
        uint32_t at = n;

        /* An instance's worth is at most its number of blocks. */
        if (blocks == 0 || i == deepest ||
            (n > SCHEDULE_PEERS_MAX && worth[n - 1] >= blocks) ||
            !schedule_can_send(request, i))
            continue;
        blocks = sendable_blocks(s, i, blocks);
        double w = worth_of(s, request, i, blocks, horizon_us);

        if (!(w >= 1.0))
            continue;
        while (at > 0 && worth[at - 1] < w)
            at--;
        if (at > SCHEDULE_PEERS_MAX)
            continue;
        if (n <= SCHEDULE_PEERS_MAX)
            n++;
        memmove(&worth[at + 1], &worth[at], (n - 1 - at) * sizeof(worth[0]));
        memmove(&slots[at + 1], &slots[at], (n - 1 - at) * sizeof(slots[0]));
        worth[at] = w;
        slots[at] = slot;
    }
    for (uint32_t k = 0; k < n; k++) {
        const struct pool_instance *i = instances[slots[k]];
        uint32_t blocks = sendable_blocks(
            s, i, schedule_lesser(s->stored.blocks[slots[k]], usable_blocks));

        if (peer_of(s, request, i, blocks, &p->at[p->n]))
            p->n++;
    }
}
