/* Loads of planned blocks; see load.h. */
#include "sim/load.h"

#include <errno.h>
#include <stdlib.h>

#include "conductor/core/observation/observation.h"
#include "sim/internal.h"
#include "sim/views/views.h"

static double block_bytes(const struct sim *sim)
{
    return (double)sim->cluster.block_tokens *
           (double)sim->cluster.kv_bytes_per_token;
}

static void free_if_done(struct sim *sim, struct sim_load *load)
{
    if (!load->over || load->n_events > 0 || load->request)
        return;
    TAILQ_REMOVE(&sim->loads, load, every);
    free(load);
}

static struct sim_node *own_node(struct sim *sim, const struct sim_load *load)
{
    return &sim->nodes[load->request->record.prefill_node];
}

/* Finds the n-th block that a source sends. Returns false if it has fewer. */
static bool nth_block(const struct sim_source *s, uint32_t n, uint32_t *block)
{
    const struct load_plan *plan = &s->load->plan;

    for (uint32_t p = plan->n_pieces; p > 0; p--) {
        const struct load_piece *piece = &plan->pieces[p - 1];

        if (piece->source != s->index)
            continue;
        if (n < piece->to_block - piece->from_block) {
            *block = piece->to_block - 1 - n;
            return true;
        }
        n -= piece->to_block - piece->from_block;
    }
    return false;
}

/* Returns the tier to read a block from; BLOCK_TIERS = evicted. A load by layer
 * began with all of its blocks: eviction does not affect it. */
static uint32_t tier_now(const struct sim *sim, const struct sim_source *s,
                         uint32_t block)
{
    const struct sim_node *holder = &sim->nodes[s->holder];
    uint32_t slot;

    if (!holder->cache || sim->cluster.cache_at == CLUSTER_CACHE_AT_DISPATCH)
        return s->tier;
    slot = block_cache_find(holder->cache, s->load->request->keys[block]);
    if (slot != BLOCK_CACHE_NONE)
        return block_cache_at(holder->cache, slot)->tier;
    return s->load->plan.mode == LOAD_MODE_LAYERWISE ? s->tier : BLOCK_TIERS;
}

/* Ends the load once all sources are over and their blocks are here. */
static void load_over(struct sim *sim, struct sim_load *load)
{
    struct sim_request *r = load->request;

    if (load->over)
        return;
    for (size_t i = 0; i < load->n_sources; i++)
        if (!load->sources[i].over ||
            load->sources[i].n_here < load->sources[i].n_asked)
            return;
    load->over = true;
    for (size_t i = 0; r && i < load->n_sources; i++) {
        const struct sim_source *s = &load->sources[i];

        int64_t bytes = (int64_t)(s->n_here * block_bytes(sim));

        if (sim->cluster.links_shared && s->holder != r->record.prefill_node)
            sim_views_loaded(
                sim, r,
                &(struct observation_load){
                    .holder = sim->nodes[s->holder].id,
                    .link_bytes = bytes,
                    .tier_bytes = sim->nodes[s->holder]
                                              .has.tiers[s->tier]
                                              .read_bytes_per_s > 0.0
                                      ? bytes
                                      : 0,
                    .us = sim->now_us - s->started_us});
    }
    if (r)
        sim_mark_ready(sim, r);
}

static void ask_next(struct sim *sim, struct sim_source *s);

static void leave_tier(struct sim *sim, struct sim_source *s)
{
    struct sim_source_list *list = &sim->nodes[s->holder].readers[s->reading];
    bool first = TAILQ_FIRST(list) == s;

    TAILQ_REMOVE(list, s, link);
    s->reading = BLOCK_TIERS;
    if (first && !TAILQ_EMPTY(list))
        ask_next(sim, TAILQ_FIRST(list));
}

static void stop(struct sim *sim, struct sim_source *s)
{
    s->over = true;
    if (s->reading != BLOCK_TIERS)
        leave_tier(sim, s);
    load_over(sim, s->load);
}

static void start_event(struct sim *sim, struct sim_load *load, int rc)
{
    if (rc < 0)
        sim_fail(sim, rc, "out of memory");
    else
        load->n_events++;
}

static void here(struct sim *sim, struct sim_source *s)
{
    s->n_here++;
    load_over(sim, s->load);
}

/* Sends a block from its holder's memory to the node that loads it. */
static void send_block(struct sim *sim, struct sim_source *s)
{
    uint32_t to;

    if (!s->load->request) {
        here(sim, s);
        return;
    }
    to = own_node(sim, s->load)->index;
    if (to == s->holder) {
        here(sim, s);
        return;
    }
    sim->summary.fetches.count += s->n_asked == 1;
    sim->summary.fetches.bytes += (uint64_t)block_bytes(sim);
    start_event(sim, s->load,
                links_start(sim->links, s->holder, to, block_bytes(sim),
                            SIM_FLOW_LOAD, s, sim->now_us));
}

/* Reads the source's next block, or queues the source for the tier. */
static void read_block(struct sim *sim, struct sim_source *s, uint32_t tier)
{
    struct sim_node *holder = &sim->nodes[s->holder];
    struct sim_source_list *list = &holder->readers[tier];
    double us =
        block_bytes(sim) * 1e6 / holder->has.tiers[tier].read_bytes_per_s;

    if (s->reading != tier) {
        if (s->reading != BLOCK_TIERS)
            leave_tier(sim, s);
        s->reading = tier;
        TAILQ_INSERT_TAIL(list, s, link);
    }
    if (TAILQ_FIRST(list) != s)
        return;
    s->n_asked++;
    s->asked_us = sim->now_us;
    start_event(sim, s->load,
                links_delay(sim->links, SIM_FLOW_READ, s, sim->now_us,
                            sim->now_us + (int64_t)(us + 0.5)));
}

/* Starts the next block of an idle source. */
static void ask_next(struct sim *sim, struct sim_source *s)
{
    uint32_t block, tier;

    while (!s->over) {
        if (!s->load->request || !nth_block(s, s->n_asked, &block) ||
            block < s->load->floor) {
            stop(sim, s);
            return;
        }
        tier = tier_now(sim, s, block);
        if (tier == BLOCK_TIERS) {
            s->load->floor = block + 1;
            continue;
        }
        if (sim->nodes[s->holder].has.tiers[tier].read_bytes_per_s > 0.0) {
            read_block(sim, s, tier);
            return;
        }
        if (s->reading != BLOCK_TIERS)
            leave_tier(sim, s);
        s->n_asked++;
        s->asked_us = sim->now_us;
        send_block(sim, s);
        if (s->holder != own_node(sim, s->load)->index)
            return;
    }
}

void sim_load_read(struct sim *sim, const struct links_end *end)
{
    struct sim_source *s = end->what;
    struct sim_load *load = s->load;

    send_block(sim, s);
    ask_next(sim, s);
    load->n_events--;
    free_if_done(sim, load);
}

void sim_load_sent(struct sim *sim, const struct links_end *end)
{
    struct sim_source *s = end->what;
    struct sim_load *load = s->load;

    here(sim, s);
    /* A source that reads a tier goes on after each read. */
    if (s->reading == BLOCK_TIERS)
        ask_next(sim, s);
    load->n_events--;
    free_if_done(sim, load);
}

void sim_load_due(struct sim *sim, const struct links_end *end)
{
    struct sim_load *load = end->what;

    if (load->request)
        sim_mark_ready(sim, load->request);
    load->n_events--;
    free_if_done(sim, load);
}

int sim_load_begin(struct sim *sim, struct sim_request *request,
                   const struct schedule_decision *decision)
{
    struct sim_load *load;

    if (decision->plan.n_pieces == 0)
        return 0;
    load = calloc(1, sizeof(*load));
    if (!load)
        return -ENOMEM;
    load->request = request;
    load->plan = decision->plan;
    load->n_sources = decision->n_sources;
    request->load = load;
    TAILQ_INSERT_TAIL(&sim->loads, load, every);
    for (size_t i = 0; i < load->n_sources; i++) {
        const struct schedule_source *source = &decision->sources[i];

        load->sources[i] = (struct sim_source){
            .load = load,
            .holder = pool_get(sim->views[0].pool, source->instance)->slot,
            .index = (uint32_t)i,
            .tier = source->tier,
            .reading = BLOCK_TIERS,
            .started_us = sim->now_us,
        };
    }
    load->n_events++; /* the load must not end before all sources have begun */
    for (size_t i = 0; i < load->n_sources; i++)
        ask_next(sim, &load->sources[i]);
    load->n_events--;
    if (load->plan.mode == LOAD_MODE_LAYERWISE && !load->over)
        start_event(sim, load,
                    links_delay(sim->links, SIM_FLOW_DUE, load, sim->now_us,
                                request->plan.ready_us));
    return 0;
}

/* Returns how many of a source's blocks are at or above `block`. */
static uint32_t blocks_from(const struct sim_source *s, uint32_t block)
{
    const struct load_plan *plan = &s->load->plan;
    uint32_t n = 0;

    for (uint32_t p = 0; p < plan->n_pieces; p++) {
        const struct load_piece *piece = &plan->pieces[p];
        uint32_t from = piece->from_block > block ? piece->from_block : block;

        if (piece->source == s->index && from < piece->to_block)
            n += piece->to_block - from;
    }
    return n;
}

uint32_t sim_load_met(const struct sim_load *load)
{
    uint32_t met = load->plan.split_block;

    /* A source's missing blocks are below its loaded ones. */
    for (size_t i = 0; i < load->n_sources; i++) {
        const struct sim_source *s = &load->sources[i];
        uint32_t lacks;

        if (nth_block(s, s->n_here, &lacks) && lacks + 1 > met)
            met = lacks + 1;
    }
    return met;
}

void sim_load_claim(struct sim *sim, struct sim_load *load, uint32_t block)
{
    if (block > load->floor)
        load->floor = block;
    for (size_t i = 0; i < load->n_sources; i++) {
        struct sim_source *s = &load->sources[i];
        bool idle = s->n_here == s->n_asked;
        uint32_t next;

        /* A source that waits for its turn to read would notice late. */
        if (!s->over && idle &&
            (!nth_block(s, s->n_asked, &next) || next < load->floor))
            stop(sim, s);
    }
}

int64_t sim_load_left_us(const struct sim *sim, const struct sim_load *load)
{
    int64_t most_us = 0;

    for (size_t i = 0; i < load->n_sources; i++) {
        const struct sim_source *s = &load->sources[i];
        double rate = sim->nodes[s->holder].has.tiers[s->tier].read_bytes_per_s;
        double link = sim->cluster.link_bytes_per_s;
        uint32_t left = blocks_from(s, 0) - s->n_here;

        if (s->holder != load->request->record.prefill_node &&
            (rate <= 0.0 || link < rate))
            rate = link;
        if (rate <= 0.0 || left == 0)
            continue;
        int64_t block_us = (int64_t)(block_bytes(sim) * 1e6 / rate + 0.5);
        int64_t us = left * block_us;

        if (s->n_asked > s->n_here) /* one block is under way */
            us -= sim->now_us - s->asked_us < block_us
                      ? sim->now_us - s->asked_us
                      : block_us;

        most_us = us > most_us ? us : most_us;
    }
    return most_us;
}

const struct sim_source *sim_load_source(const struct sim_load *load,
                                         uint32_t block)
{
    for (uint32_t p = 0; p < load->plan.n_pieces; p++) {
        const struct load_piece *piece = &load->plan.pieces[p];

        if (block >= piece->from_block && block < piece->to_block)
            return &load->sources[piece->source];
    }
    return NULL;
}

void sim_load_let_go(struct sim *sim, struct sim_request *request)
{
    struct sim_load *load = request->load;

    if (!load)
        return;
    request->load = NULL;
    load->request = NULL;
    load->n_events++;
    sim_load_claim(sim, load, UINT32_MAX);
    load->n_events--;
    free_if_done(sim, load);
}

void sim_load_fini(struct sim *sim)
{
    struct sim_load *load;

    while ((load = TAILQ_FIRST(&sim->loads))) {
        TAILQ_REMOVE(&sim->loads, load, every);
        free(load);
    }
}
