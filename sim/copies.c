/* The nodes' caches, and their events for the prefix index. */
#include "sim/copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Blocks to prefetch ahead of the lookup. */
#define AHEAD 8u
/* Largest run of evicted blocks in one event of the index. */
#define MOVES_MAX 64u

/* Moves while a chain of blocks is stored. They are gathered so that the index
 * gets runs: the new blocks, then the blocks evicted to the next tier. */
struct sim_moves {
    bool gathers;
    uint32_t slot;          /* of the node */
    const uint64_t *next;   /* the key to store next */
    const uint64_t *stored; /* (n_stored) */
    uint32_t n_stored;
    uint64_t parent;     /* of the first new block */
    unsigned first_tier; /* tier of the new blocks */
    unsigned from, to;   /* tiers of the evicted blocks */
    uint32_t n_keys;
    uint64_t keys[MOVES_MAX]; /* (n_keys) */
};

/* Prefetches n blocks of a request, from block i on. */
static void look_ahead(const struct sim_node *node, const struct sim_request *r,
                       uint32_t i, uint32_t n)
{
    for (; node->cache && n > 0; i++, n--)
        block_cache_prefetch(node->cache, r->keys[i]);
}

static void tell_stored(struct sim *sim, struct prefix_index *index,
                        uint32_t slot, unsigned tier, uint64_t parent,
                        const uint64_t *keys, size_t n)
{
    int rc = 0;

    if (n > 0 && tier != BLOCK_CACHE_NO_TIER)
        rc = prefix_index_stored(index, slot, (enum block_tier)tier, parent,
                                 keys, n);
    if (rc == -ENOSPC)
        sim_fail(sim, rc, "more cached blocks than can be indexed");
}

static void tell_removed(struct prefix_index *index, uint32_t slot,
                         unsigned tier, const uint64_t *keys, size_t n)
{
    /* Cannot fail: the node is in range. */
    if (n > 0 && tier != BLOCK_CACHE_NO_TIER)
        prefix_index_removed(index, slot, (enum block_tier)tier, keys, n);
}

static void tell(struct sim *sim, struct prefix_index *index, uint32_t slot,
                 const struct cached_block *block, unsigned from, unsigned to)
{
    tell_stored(sim, index, slot, to, block->parent, &block->key, 1);
    tell_removed(index, slot, from, &block->key, 1);
}

/* Reports the gathered moves. The new blocks come first: some of them may have
 * been evicted, too. Evictions were gathered leaves first, so their run is
 * reversed. */
static void tell_moves(struct sim *sim)
{
    struct sim_moves *m = sim->moves;
    uint64_t keys[MOVES_MAX];

    for (uint32_t i = 0; i < m->n_keys; i++)
        keys[i] = m->keys[m->n_keys - 1 - i];
    tell_stored(sim, sim->index, m->slot, m->first_tier, m->parent, m->stored,
                m->n_stored);
    tell_stored(sim, sim->index, m->slot, m->to, 0, keys, m->n_keys);
    tell_removed(sim->index, m->slot, m->from, keys, m->n_keys);
    m->n_stored = m->n_keys = 0;
}

static bool is_gathered(const struct sim_moves *moves, uint64_t key)
{
    for (uint32_t i = 0; i < moves->n_keys; i++)
        if (moves->keys[i] == key)
            return true;
    return false;
}

/* Gathers a move while a chain is stored. Counts every block as ready, as
 * blocks placed at service are. */
static void gather(struct sim *sim, uint32_t slot,
                   const struct cached_block *block, unsigned from, unsigned to)
{
    struct sim_moves *m = sim->moves;

    m->slot = slot;
    if (from == BLOCK_CACHE_NO_TIER) {
        /* A block that was just evicted is stored again. */
        if (m->to == BLOCK_CACHE_NO_TIER && is_gathered(m, block->key))
            tell_moves(sim);
        if (m->n_stored++ == 0) {
            m->stored = m->next;
            m->parent = block->parent;
            m->first_tier = to;
        }
        return;
    }
    if (m->n_keys == MOVES_MAX ||
        (m->n_keys > 0 && (m->from != from || m->to != to)))
        tell_moves(sim);
    m->from = from;
    m->to = to;
    m->keys[m->n_keys++] = block->key;
}

static void on_moved(void *arg, const struct cached_block *block, unsigned from,
                     unsigned to)
{
    struct sim_node *node = arg;
    struct sim *sim = node->sim;

    if (sim->moves->gathers) {
        gather(sim, node->index, block, from, to);
        return;
    }
    if (sim->expected)
        tell(sim, sim->expected, node->index, block, from, to);
    if (block->ready)
        tell(sim, sim->index, node->index, block, from, to);
}

static void add_capacity(const struct sim *sim, const struct sim_node *node,
                         uint64_t capacity[BLOCK_TIERS])
{
    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        capacity[t] += (uint64_t)node->has.tiers[t].capacity_tokens /
                       sim->cluster.block_tokens;
}

uint32_t sim_copies_nodes(const struct sim *sim)
{
    const struct cluster *c = &sim->cluster;

    return sim->rules.switch_us > 0 ? sim->n_nodes
                                    : c->prefill_nodes + c->coupled_nodes;
}

int sim_copies_init(struct sim *sim)
{
    const struct cluster *c = &sim->cluster;
    uint32_t n = sim_copies_nodes(sim);
    bool pooled = sim->shared;
    uint64_t capacity[BLOCK_TIERS] = {0};

    if (!c->prefix_cache)
        return 0;
    sim->moves = calloc(1, sizeof(*sim->moves));
    if (!sim->moves)
        return -ENOMEM;
    for (uint32_t i = 0; pooled && i < n; i++)
        add_capacity(sim, &sim->nodes[i], capacity);
    for (uint32_t i = 0; i < n; i++) {
        struct sim_node *node = &sim->nodes[i];

        if (!pooled) {
            memset(capacity, 0, sizeof(capacity));
            add_capacity(sim, node, capacity);
        }
        node->cache = pooled && i > 0
                          ? sim->nodes[0].cache
                          : block_cache_new(capacity, on_moved, node);
        if (!node->cache)
            return -ENOMEM;
    }
    return 0;
}

void sim_copies_fini(struct sim *sim)
{
    free(sim->moves);
    for (uint32_t i = 0; sim->nodes && i < sim->n_nodes; i++)
        if (i == 0 || !sim->shared)
            block_cache_free(sim->nodes[i].cache);
}

static uint64_t parent_of(const struct sim_request *r, uint32_t i)
{
    return i == 0 ? 0 : r->keys[i - 1];
}

static void place(struct sim *sim, struct sim_node *node,
                  const struct sim_request *r, uint32_t i, bool ready)
{
    int rc = block_cache_place(node->cache, r->keys[i], parent_of(r, i),
                               r->record.index, ready);

    if (rc < 0)
        sim_fail(sim, rc, "out of memory");
}

/* Places blocks first .. last - 1, or makes them the most recently used. */
static void place_or_touch(struct sim *sim, struct sim_node *node,
                           const struct sim_request *r, uint32_t first,
                           uint32_t last, bool ready)
{
    for (uint32_t i = first; node->cache && i < last; i++) {
        uint32_t slot = block_cache_find(node->cache, r->keys[i]);

        if (slot == BLOCK_CACHE_NONE)
            place(sim, node, r, i, ready);
        else
            block_cache_touch(node->cache, slot);
    }
}

void sim_copies_dispatch(struct sim *sim, struct sim_node *node,
                         const struct sim_request *request)
{
    place_or_touch(sim, node, request, 0, request->n_keys, false);
}

void sim_copies_ready(struct sim *sim, struct sim_node *node,
                      const struct sim_request *request)
{
    uint32_t owner = sim->shared ? sim->nodes[0].index : node->index;

    for (uint32_t i = 0; node->cache && i < request->n_keys; i++) {
        uint32_t slot = block_cache_find(node->cache, request->keys[i]);
        struct cached_block *block;

        if (slot == BLOCK_CACHE_NONE)
            continue;
        block = block_cache_at(node->cache, slot);
        if (block->ready || block->owner != request->record.index)
            continue;
        block->ready = true;
        tell(sim, sim->index, owner, block, BLOCK_CACHE_NO_TIER, block->tier);
    }
}

void sim_copies_touch(struct sim_node *node, const struct sim_request *request,
                      uint32_t n)
{
    look_ahead(node, request, n < AHEAD ? 0 : n - AHEAD, n < AHEAD ? n : AHEAD);
    for (uint32_t i = n; node->cache && i > 0; i--) {
        uint32_t slot = block_cache_find(node->cache, request->keys[i - 1]);

        if (i > AHEAD)
            look_ahead(node, request, i - 1 - AHEAD, 1);

        /* The block is missing if a small first tier has evicted it. */
        if (slot != BLOCK_CACHE_NONE)
            block_cache_touch(node->cache, slot);
    }
}

/* Returns whether reading the block in a slot costs nothing. */
static bool is_at_hand(const struct sim_node *node, uint32_t slot)
{
    return node->has.tiers[block_cache_at(node->cache, slot)->tier]
               .read_bytes_per_s <= 0.0;
}

bool sim_copies_at_hand(const struct sim_node *node, uint64_t key)
{
    uint32_t slot =
        node->cache ? block_cache_find(node->cache, key) : BLOCK_CACHE_NONE;

    return slot != BLOCK_CACHE_NONE && is_at_hand(node, slot);
}

uint32_t sim_copies_there(const struct sim_node *node,
                          const struct sim_request *request, uint32_t most)
{
    uint32_t n = 0;

    look_ahead(node, request, 0, most < AHEAD ? most : AHEAD);
    while (n < most && sim_copies_at_hand(node, request->keys[n]))
        n++;
    return n;
}

void sim_copies_keep(struct sim_node *node, const struct sim_request *request)
{
    uint32_t n = 0;

    if (!node->cache)
        return;
    while (n < request->n_keys &&
           block_cache_find(node->cache, request->keys[n]) != BLOCK_CACHE_NONE)
        n++;
    while (n-- > 0)
        block_cache_keep(node->cache,
                         block_cache_find(node->cache, request->keys[n]));
}

uint32_t sim_copies_match(struct sim *sim, struct sim_node *node,
                          const struct sim_request *request, uint32_t planned,
                          int64_t *load_us)
{
    double block_bytes = (double)sim->cluster.block_tokens *
                         (double)sim->cluster.kv_bytes_per_token;
    double us = 0.0;
    uint32_t n = 0;

    while (node->cache && n < request->n_keys) {
        uint32_t slot = block_cache_find(node->cache, request->keys[n]);
        double rate;

        if (n + AHEAD < request->n_keys)
            look_ahead(node, request, n + AHEAD, 1);

        if (slot == BLOCK_CACHE_NONE)
            break;
        rate = node->has.tiers[block_cache_at(node->cache, slot)->tier]
                   .read_bytes_per_s;
        if (rate > 0.0 && n >= planned)
            break;
        if (rate > 0.0)
            us += block_bytes / rate * 1e6;
        n++;
    }
    sim_copies_touch(node, request, n);
    *load_us = (int64_t)sim_bounded_us(us);
    return n;
}

void sim_copies_loaded(struct sim *sim, struct sim_node *node,
                       const struct sim_request *request, uint32_t first,
                       uint32_t last)
{
    place_or_touch(sim, node, request, first, last, true);
}

void sim_copies_store(struct sim *sim, struct sim_node *node,
                      const struct sim_request *request, uint32_t first,
                      uint32_t last)
{
    struct sim_moves *m = sim->moves;

    if (!node->cache || first >= last)
        return;
    prefix_index_prefetch(sim->index, request->keys + first, last - first);
    look_ahead(node, request, first, last - first);
    /* Gathered moves are reported as ready, and to `index` only. */
    m->gathers = !sim->expected;
    for (uint32_t i = first; i < last; i++) {
        m->next = &request->keys[i];
        if (block_cache_find(node->cache, *m->next) == BLOCK_CACHE_NONE)
            place(sim, node, request, i, true);
        else if (m->n_stored > 0)
            tell_moves(sim); /* a cached block ends the run */
    }
    tell_moves(sim);
    m->gathers = false;
}

void sim_copies_share_memory(struct sim *sim, struct sim_node *node)
{
    int64_t left = node->has.decode_kv_tokens - node->decode_tokens;

    if (!node->shares || !node->cache)
        return;
    if (sim->shared) {
        left = 0;
        for (uint32_t i = 0; i < sim->n_nodes; i++)
            left += sim->nodes[i].has.decode_kv_tokens -
                    sim->nodes[i].decode_tokens;
    }
    block_cache_set_capacity(
        node->cache, TIER_DEVICE,
        left < 0 ? 0 : (uint64_t)left / sim->cluster.block_tokens);
}

void sim_copies_watch(struct sim *sim, int64_t now_us)
{
    const struct sim_config *c = &sim->config;
    uint32_t copies[SIM_WATCH_MAX] = {0};

    if (c->n_watch == 0 || sim->next_watch_us > now_us)
        return;
    /* Nothing has changed since the previous event. */
    for (size_t w = 0; w < c->n_watch; w++)
        for (uint32_t i = 0; i < sim->n_nodes; i++)
            copies[w] += prefix_index_tiers(sim->index, i,
                                            sim_key_of(c->watch_ids[w])) != 0;
    while (sim->next_watch_us <= now_us) {
        if (sim->io.copies)
            sim->io.copies(sim->io.arg, sim->next_watch_us / SIM_SLOWDOWN,
                           copies);
        sim->next_watch_us += c->watch_interval_us * SIM_SLOWDOWN;
    }
}
