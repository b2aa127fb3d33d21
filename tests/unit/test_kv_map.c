/*
 * The map from engines' hashes to block keys against a slow one: random
 * events of an engine that stores blocks again and again, in tiers, groups and
 * ranks, before their parents, without tokens, and removes what it never
 * stored. Its blocks have the index's size, or are cut for it: then the index
 * is compared with a recount from all tokens. Environment: CONDUCTOR_SEED;
 * CONDUCTOR_CASES percent of the runs.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/block_key.h"
#include "conductor/link/events/waiting.h"
#include "tests/unit/cases.h"
#include "tests/unit/kv_map_test.h"
#include "tests/unit/suite.h"

enum {
    NODES = 300,
    DEPTH = 40,
    SIZE_MAX_TOKENS = 16,
    GROUPS = 3,
    RANKS = 2,
    WAITING_MAX = 4096,
    LENGTH_MAX = 12,
    CUTS_MAX = 16, /* of the index's blocks in one of the engine's */
    BATCH_MAX = 4,
};

static uint64_t seed;

/* Two of them begin alike for longer than a name may be. */
static char salts[3][801] = {"tenant"};

static uint64_t seed_of(const char *salt)
{
    char name[BLOCK_KEY_NAME_BYTES];

    block_key_name(salt, strlen(salt), name);
    return block_key_seed("m", "", name);
}

/* An event that waits in the slow map. */
struct slow_waiting {
    uint32_t parent, nodes[LENGTH_MAX], n;
    size_t bytes;
};

/* A block of the index, and where it was told to be. */
struct cut {
    uint64_t key, before;
    bool told[BLOCK_TIERS], held[BLOCK_TIERS];
};

/* An event of the batch under way. */
struct event {
    struct kv_event e;
    uint64_t hashes[LENGTH_MAX], extras[LENGTH_MAX];
    uint32_t tokens[LENGTH_MAX * SIZE_MAX_TOKENS];
};

/* A forest of blocks, and the slow truth about an engine's copies of them. */
struct world {
    uint64_t rng;
    uint32_t size;       /* tokens of a block */
    uint32_t index_size; /* likewise, of the index */
    struct kv_map *map;
    uint32_t parent[NODES]; /* NODES: none */
    uint32_t depth[NODES];
    uint32_t path[NODES][DEPTH];
    uint32_t tokens[NODES][SIZE_MAX_TOKENS];
    uint64_t extra[NODES], hash[NODES], key[NODES];
    const char *salt[NODES];
    uint32_t copies[NODES][BLOCK_TIERS][GROUPS][RANKS];
    bool known[NODES]; /* its key */
    struct slow_waiting waiting[WAITING_MAX];
    uint32_t n_waiting;
    size_t waiting_bytes, max_waiting_bytes;
    uint64_t waited, dropped, unknown_removed;
    struct cut cuts[NODES * CUTS_MAX];
    uint32_t n_cuts;
    uint32_t cuts_of[NODES][CUTS_MAX]; /* that end in a node */
    uint32_t n_cuts_of[NODES];
    uint64_t sink_faults;
    struct event batch[BATCH_MAX];
    uint32_t n_batch, n_batch_wanted;
    uint32_t rank; /* of the batch */
};

static uint32_t below(struct world *w, uint64_t n)
{
    return (uint32_t)(draw_u64(&w->rng) % n);
}

static bool chance(struct world *w, uint32_t percent)
{
    return below(w, 100) < percent;
}

static struct cut *cut_by_key(struct world *w, uint64_t key)
{
    for (uint32_t i = 0; i < w->n_cuts; i++)
        if (w->cuts[i].key == key)
            return &w->cuts[i];
    return NULL;
}

static void on_stored(void *arg, enum block_tier tier, uint64_t parent_key,
                      const uint64_t *keys, size_t n)
{
    struct world *w = arg;

    for (size_t i = 0; i < n; i++) {
        struct cut *cut = cut_by_key(w, keys[i]);

        if (!cut) {
            w->sink_faults++;
            return;
        }
        /* A parent that is named is the right one. */
        w->sink_faults += parent_key != 0 && parent_key != cut->before;
        parent_key = keys[i];
        cut->told[tier] = true;
    }
}

static void on_removed(void *arg, enum block_tier tier, const uint64_t *keys,
                       size_t n)
{
    struct world *w = arg;

    for (size_t i = 0; i < n; i++) {
        struct cut *cut = cut_by_key(w, keys[i]);

        if (!cut || !cut->told[tier])
            w->sink_faults++;
        else
            cut->told[tier] = false;
    }
}

static void on_cleared(void *arg)
{
    struct world *w = arg;

    for (uint32_t i = 0; i < w->n_cuts; i++)
        memset(w->cuts[i].told, 0, sizeof(w->cuts[i].told));
}

static const struct kv_map_sink sink = {on_stored, on_removed, on_cleared};

/* A node's key from all of its tokens at once, without the map's steps. */
static uint64_t key_from_root(const struct world *w, uint32_t v)
{
    uint64_t key = 0, key_seed = seed_of(w->salt[v]);

    for (uint32_t i = 0; i < w->depth[v]; i++) {
        uint32_t at = w->path[v][i];

        (void)block_keys_continue(key, w->tokens[at], w->size, w->size,
                                  key_seed, &key);
        if (w->extra[at] != 0)
            key = block_key_with(key, w->extra[at], key_seed);
    }
    return key;
}

/* Tokens, now and then those of a block beside this one in the beginning. */
static void make_tokens(struct world *w, uint32_t v)
{
    uint32_t other = v ? below(w, v) : 0, n = below(w, w->size);

    for (uint32_t i = 0; i < w->size; i++)
        w->tokens[v][i] = (uint32_t)draw_u64(&w->rng);
    while (other > 0 && w->parent[other] != w->parent[v])
        other--;
    if (w->parent[other] == w->parent[v])
        memcpy(w->tokens[v], w->tokens[other], n * sizeof(w->tokens[v][0]));
}

static void add_cut(struct world *w, uint32_t v, uint64_t before, uint64_t key)
{
    const struct cut *known = cut_by_key(w, key);

    if (!known) {
        known = &w->cuts[w->n_cuts++];
        w->cuts[known - w->cuts] = (struct cut){.key = key, .before = before};
    }
    w->cuts_of[v][w->n_cuts_of[v]++] = (uint32_t)(known - w->cuts);
}

/* The keys of the index's blocks that end in a node, from all tokens before.
 * What tells a block of the engine apart beside its tokens counts for the first
 * of its parts, or for the block that it is a part of. */
static void make_cuts(struct world *w, uint32_t v)
{
    uint64_t key = 0, key_seed = seed_of(w->salt[v]);
    uint32_t tokens[DEPTH * SIZE_MAX_TOKENS], per = w->index_size / w->size;
    uint32_t n = w->depth[v] * w->size / w->index_size;

    for (uint32_t i = 0; i < w->depth[v]; i++)
        memcpy(tokens + i * w->size, w->tokens[w->path[v][i]],
               w->size * sizeof(*tokens));
    for (uint32_t i = 0; i < n; i++) {
        uint64_t before = key;
        uint32_t end = (i + 1) * w->index_size;
        uint32_t last = w->path[v][(end - 1) / w->size];
        bool odd = false;

        (void)block_keys_continue(before, tokens + end - w->index_size,
                                  w->index_size, w->index_size, key_seed, &key);
        for (uint32_t k = 0; k < per; k++)
            odd |= w->extra[w->path[v][end / w->size - per + k]] != 0;
        if (per > 1 && odd)
            key = block_key_with(key, w->key[last], key_seed);
        else if (per <= 1 && w->extra[last] &&
                 (end - w->index_size) % w->size == 0)
            key = block_key_with(key, w->extra[last], key_seed);
        if (last == v && end > (w->depth[v] - 1) * w->size)
            add_cut(w, v, before, key);
    }
}

static void make_node(struct world *w, uint32_t v)
{
    uint32_t parent = v < 6 || chance(w, 5) ? NODES : below(w, v);

    if (parent != NODES && w->depth[parent] + 1 >= DEPTH)
        parent = NODES;
    w->parent[v] = parent;
    w->depth[v] = 0;
    w->salt[v] = chance(w, 30) ? salts[draw_u64(&w->rng) % 3] : "";
    if (parent != NODES) {
        memcpy(w->path[v], w->path[parent], sizeof(w->path[v]));
        w->depth[v] = w->depth[parent];
        w->salt[v] = w->salt[parent];
    }
    w->path[v][w->depth[v]++] = v;
    make_tokens(w, v);
    w->extra[v] = chance(w, 5) ? draw_u64(&w->rng) | 1 : 0;
    w->hash[v] =
        chance(w, 50) ? v * UINT64_C(0x100000000) + 1 : draw_u64(&w->rng);
    w->key[v] = key_from_root(w, v);
    make_cuts(w, v);
}

static bool has_copies(const struct world *w, uint32_t v)
{
    for (uint32_t t = 0; t < BLOCK_TIERS; t++)
        for (uint32_t g = 0; g < GROUPS; g++)
            for (uint32_t r = 0; r < RANKS; r++)
                if (w->copies[v][t][g][r] > 0)
                    return true;
    return false;
}

static bool held(const struct world *w, uint32_t v, uint32_t tier)
{
    for (uint32_t g = 0; g < GROUPS; g++)
        for (uint32_t r = 0; r < RANKS; r++)
            if (w->copies[v][tier][g][r] > 0 && w->known[v])
                return true;
    return false;
}

/* The slow map. */

static void slow_add(struct world *w, const uint32_t *nodes, uint32_t n,
                     const struct kv_event *e, uint32_t rank)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t g = 0; g < GROUPS; g++)
            w->copies[nodes[i]][e->tier][g][rank] +=
                (uint32_t)(e->groups >> g & 1);
}

/* Takes in whoever waits for a block that is known, until nobody does. */
static void slow_adopt(struct world *w)
{
    for (uint32_t i = 0; i < w->n_waiting; i++) {
        struct slow_waiting event = w->waiting[i];

        if (!w->known[event.parent])
            continue;
        memmove(&w->waiting[i], &w->waiting[i + 1],
                (--w->n_waiting - i) * sizeof(event));
        w->waiting_bytes -= event.bytes;
        for (uint32_t k = 0; k < event.n; k++)
            w->known[event.nodes[k]] |= has_copies(w, event.nodes[k]);
        i = UINT32_MAX; /* from the beginning */
    }
}

static void slow_wait(struct world *w, const uint32_t *nodes, uint32_t n,
                      const struct kv_event *e, uint32_t parent)
{
    struct slow_waiting *event = &w->waiting[w->n_waiting];
    size_t bytes = sizeof(struct waiting_event) + n * (e->extras ? 16 : 8) +
                   n * w->size * 4;

    w->waited++;
    while (w->waiting_bytes + bytes > w->max_waiting_bytes && w->n_waiting) {
        w->waiting_bytes -= w->waiting[0].bytes;
        memmove(&w->waiting[0], &w->waiting[1],
                --w->n_waiting * sizeof(*event));
        event--;
        w->dropped++;
    }
    if (bytes > w->max_waiting_bytes) {
        w->dropped++;
        return;
    }
    *event = (struct slow_waiting){.parent = parent, .n = n, .bytes = bytes};
    memcpy(event->nodes, nodes, n * sizeof(*nodes));
    w->waiting_bytes += bytes;
    w->n_waiting++;
}

static void slow_stored(struct world *w, const uint32_t *nodes, uint32_t n,
                        const struct kv_event *e, uint32_t rank)
{
    uint32_t parent = w->parent[nodes[0]];

    if (e->n_tokens > 0 && e->has_parent && !w->known[parent] &&
        !w->known[nodes[0]]) {
        slow_add(w, nodes, n, e, rank);
        slow_wait(w, nodes, n, e, parent);
        return;
    }
    slow_add(w, nodes, n, e, rank);
    for (uint32_t i = 0; i < n && e->n_tokens > 0; i++)
        w->known[nodes[i]] = true;
    slow_adopt(w);
}

static void slow_removed(struct world *w, uint32_t v, const struct kv_event *e,
                         uint32_t rank)
{
    for (uint32_t g = 0; g < 64; g++) {
        if (!(e->groups >> g & 1))
            continue;
        if (g >= GROUPS || w->copies[v][e->tier][g][rank] == 0)
            w->unknown_removed++;
        else
            w->copies[v][e->tier][g][rank]--;
    }
    w->known[v] &= has_copies(w, v);
}

static void slow_cleared(struct world *w, const struct kv_event *e,
                         uint32_t rank)
{
    for (uint32_t v = 0; v < NODES; v++) {
        for (uint32_t t = 0; t < BLOCK_TIERS; t++)
            for (uint32_t g = 0; g < GROUPS; g++)
                if (!e->has_tier || t == (uint32_t)e->tier)
                    w->copies[v][t][g][rank] = 0;
        w->known[v] &= has_copies(w, v);
    }
    if (!e->has_tier) {
        w->n_waiting = 0;
        w->waiting_bytes = 0;
    }
}

/* Events, said to both. */

static uint64_t random_groups(struct world *w)
{
    return chance(w, 70) ? 1 : 1 + below(w, (1u << GROUPS) - 1);
}

static void give_batch(struct world *w)
{
    struct kv_event events[BATCH_MAX];

    for (uint32_t i = 0; i < w->n_batch; i++)
        events[i] = w->batch[i].e;
    kv_map_batch(w->map, (uint16_t)w->rank,
                 &(struct kv_batch){.events = events, .n_events = w->n_batch});
    w->n_batch = 0;
    w->n_batch_wanted = 1 + below(w, BATCH_MAX);
    w->rank = below(w, RANKS);
}

/* Adds it to the batch, which goes when it is long enough. */
static void give(struct world *w, const struct kv_event *e)
{
    struct event *to = &w->batch[w->n_batch++];

    to->e = *e;
    if (e->n_hashes > 0)
        memcpy(to->hashes, e->hashes, e->n_hashes * sizeof(to->hashes[0]));
    to->e.hashes = to->hashes;
    if (e->extras)
        memcpy(to->extras, e->extras, e->n_hashes * sizeof(to->extras[0]));
    to->e.extras = e->extras ? to->extras : NULL;
    if (e->n_tokens > 0)
        memcpy(to->tokens, e->tokens, e->n_tokens * sizeof(to->tokens[0]));
    to->e.tokens = to->tokens;
    if (w->n_batch >= w->n_batch_wanted)
        give_batch(w);
}

/* A stretch of a random path, now and then without tokens. */
static void store(struct world *w)
{
    uint64_t hashes[LENGTH_MAX], extras[LENGTH_MAX];
    uint32_t tokens[LENGTH_MAX * SIZE_MAX_TOKENS];
    uint32_t v = below(w, NODES), from, n;
    struct kv_event e = {.kind = KV_STORED,
                         .tier = chance(w, 80) ? TIER_DEVICE : below(w, 3),
                         .groups = random_groups(w),
                         .hashes = hashes,
                         .tokens = tokens,
                         .block_size = w->size};

    from = chance(w, 60) ? 0 : below(w, w->depth[v]);
    n = 1 + below(w, w->depth[v] - from);
    n = n > LENGTH_MAX ? LENGTH_MAX : n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = w->path[v][from + i];

        hashes[i] = w->hash[at];
        extras[i] = w->extra[at];
        memcpy(tokens + i * w->size, w->tokens[at], w->size * sizeof(*tokens));
        if (extras[i] != 0)
            e.extras = extras;
    }
    e.n_hashes = n;
    e.n_tokens = chance(w, 90) ? n * w->size : 0;
    e.has_parent = from > 0;
    if (from > 0)
        e.parent = w->hash[w->path[v][from - 1]];
    else
        e.salt = (struct unpack_text){w->salt[v], (uint32_t)strlen(w->salt[v])};
    slow_stored(w, &w->path[v][from], n, &e, w->rank);
    give(w, &e);
}

static void remove_some(struct world *w)
{
    uint64_t hashes[LENGTH_MAX];
    uint32_t n = 1 + below(w, LENGTH_MAX);
    struct kv_event e = {.kind = KV_REMOVED,
                         .tier = chance(w, 80) ? TIER_DEVICE : below(w, 3),
                         .groups = random_groups(w),
                         .hashes = hashes,
                         .n_hashes = n};

    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = below(w, NODES);

        hashes[i] = w->hash[v];
        slow_removed(w, v, &e, w->rank);
    }
    give(w, &e);
}

static void clear(struct world *w)
{
    struct kv_event e = {.kind = KV_CLEARED, .groups = 1};

    if (chance(w, 50)) {
        e.has_tier = true;
        e.tier = below(w, 3);
    }
    slow_cleared(w, &e, w->rank);
    give(w, &e);
}

/* The engine was lost, with all ranks. */
static void clear_all(struct world *w)
{
    const struct kv_event e = {.kind = KV_CLEARED};

    give_batch(w);
    kv_map_clear(w->map);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        slow_cleared(w, &e, rank);
}

/* What must change nothing. */
static void nonsense(struct world *w)
{
    uint64_t hash = w->hash[below(w, NODES)];
    uint32_t tokens[2 * SIZE_MAX_TOKENS] = {1};
    struct kv_event e = {.kind = KV_STORED,
                         .groups = 1,
                         .hashes = &hash,
                         .tokens = tokens,
                         .n_hashes = 1,
                         .n_tokens = w->size,
                         .block_size = w->size};

    switch (below(w, 4)) {
    case 0:
        e.block_size = e.n_tokens = 2 * w->size;
        break;
    case 1:
        e.n_tokens++;
        break;
    case 2:
        e.odd = true;
        break;
    default:
        e.unknown_medium = true;
        break;
    }
    give(w, &e);
}

/* Whether the blocks of the index that end in a node are there because of it.
 */
static bool ends_held(const struct world *w, uint32_t v, uint32_t tier)
{
    uint32_t per = w->index_size / w->size;

    for (uint32_t i = 1; i < per; i++)
        if (!held(w, w->path[v][w->depth[v] - 1 - i], tier))
            return false;
    return held(w, v, tier);
}

static bool same_index(struct world *w)
{
    for (uint32_t i = 0; i < w->n_cuts; i++)
        memset(w->cuts[i].held, 0, sizeof(w->cuts[i].held));
    for (uint32_t v = 0; v < NODES; v++)
        for (uint32_t t = 0; w->n_cuts_of[v] > 0 && t < BLOCK_TIERS; t++)
            for (uint32_t i = 0; i < w->n_cuts_of[v] && ends_held(w, v, t); i++)
                w->cuts[w->cuts_of[v][i]].held[t] = true;
    for (uint32_t i = 0; i < w->n_cuts; i++)
        if (memcmp(w->cuts[i].told, w->cuts[i].held, sizeof(w->cuts[i].held)) !=
            0)
            return false;
    return true;
}

static bool same(struct world *w)
{
    struct kv_map_stats stats = kv_map_stats(w->map);

    if (!same_index(w))
        return false;
    for (uint32_t v = 0; v < NODES; v++)
        for (uint32_t t = 0; t < BLOCK_TIERS; t++) {
            for (uint32_t r = 0; r < RANKS; r++) {
                uint64_t n = 0;

                for (uint32_t g = 0; g < GROUPS; g++)
                    n += w->copies[v][t][g][r];
                if (kv_map_copies(w->map, w->hash[v], t, (uint16_t)r) != n)
                    return false;
            }
        }
    return stats.waiting_events == w->n_waiting &&
           stats.waiting_bytes == w->waiting_bytes &&
           stats.waited == w->waited && stats.dropped == w->dropped &&
           stats.unknown_removed == w->unknown_removed &&
           stats.contradictions == 0 && w->sink_faults == 0;
}

static struct world *world_new(uint64_t run)
{
    static const uint32_t sizes[][2] = {
        {1, 1},  {2, 2},  {16, 16}, {1, 2},  {1, 16}, {4, 16}, {8, 16},
        {3, 12}, {16, 1}, {16, 2},  {16, 8}, {2, 1},  {12, 4}, {15, 5}};
    struct world *w = calloc(1, sizeof(*w));
    uint32_t kind;

    w->rng = seed + run;
    kind = below(w, sizeof(sizes) / sizeof(sizes[0]));
    w->size = sizes[kind][0];
    w->index_size = sizes[kind][1];
    w->max_waiting_bytes = chance(w, 50) ? 100000 : 1500;
    w->map = kv_map_new(
        &(struct kv_map_config){.model = "m",
                                .block_tokens = w->index_size,
                                .engine_tokens = w->size,
                                .max_blocks = 1u << 20,
                                .max_waiting_bytes = w->max_waiting_bytes,
                                .seed = draw_u64(&w->rng)},
        &sink, w);
    for (uint32_t v = 0; v < NODES; v++)
        make_node(w, v);
    return w;
}

static void world_free(struct world *w)
{
    kv_map_free(w->map);
    free(w);
}

static void test_against_a_slow_map(void)
{
    for (uint32_t run = 0; run < cases_of(80); run++) {
        struct world *w = world_new(run);
        uint32_t removals = below(w, 50);

        for (uint32_t step = 0; step < 1500; step++) {
            if (step % 500 == 499)
                clear_all(w);
            else if (chance(w, 1))
                clear(w);
            else if (chance(w, 3))
                nonsense(w);
            else if (chance(w, removals))
                remove_some(w);
            else
                store(w);
            if (w->n_batch > 0)
                continue;
            if ((step % 16 == 0 && !kv_map_check(w->map)) || !same(w)) {
                printf("CONDUCTOR_SEED=%" PRIu64 " run %u, step %u: %u in %u\n",
                       seed, run, step, w->size, w->index_size);
                CU_FAIL_FATAL("the maps differ");
            }
        }
        world_free(w);
    }
}

/* An engine that makes everything up keeps the map within its bounds. */
static void test_a_liar(void)
{
    uint64_t full = 0, contradictions = 0, wrong_size = 0;

    for (uint32_t run = 0; run < cases_of(10); run++) {
        struct world *w = world_new(1000 + run);
        uint32_t size = 1 + below(w, 4);
        struct kv_map *map =
            kv_map_new(&(struct kv_map_config){.model = "m",
                                               .block_tokens = 1 + below(w, 4),
                                               .max_blocks = 500,
                                               .max_waiting_bytes = 3000,
                                               .seed = 5},
                       &sink, w);

        for (uint32_t step = 0; step < 5000; step++) {
            uint64_t hashes[8], extras[8];
            uint32_t tokens[8 * 4];
            struct kv_event e = {
                .kind = chance(w, 70) ? KV_STORED : KV_REMOVED,
                .tier = below(w, 3),
                .has_parent = chance(w, 80),
                .parent = below(w, 200),
                .groups = draw_u64(&w->rng) & draw_u64(&w->rng) & 0xff00f,
                .hashes = hashes,
                .tokens = tokens,
                .extras = chance(w, 20) ? extras : NULL,
                .n_hashes = below(w, 9),
                .block_size = chance(w, 2) ? below(w, 9) : size};

            e.groups |= e.groups == 0;
            e.n_tokens = chance(w, 90) ? size * e.n_hashes : 0;
            for (uint32_t i = 0; i < 8 * 4; i++)
                tokens[i] = below(w, 3);
            for (uint32_t i = 0; i < 8; i++) {
                hashes[i] = below(w, 200);
                extras[i] = below(w, 2);
            }
            kv_map_batch(map, (uint16_t)below(w, 3),
                         &(struct kv_batch){.events = &e, .n_events = 1});
            CU_ASSERT_FATAL(kv_map_check(map));
            CU_ASSERT_FATAL(kv_map_stats(map).entries <= 500);
            CU_ASSERT_FATAL(kv_map_stats(map).pieces <= 500);
            if (chance(w, 1) && chance(w, 10))
                kv_map_clear(map);
        }
        full += kv_map_stats(map).full;
        contradictions += kv_map_stats(map).contradictions;
        wrong_size += kv_map_stats(map).wrong_size;
        kv_map_clear(map);
        CU_ASSERT(kv_map_stats(map).entries == 0);
        CU_ASSERT(kv_map_check(map));
        kv_map_free(map);
        world_free(w);
    }
    CU_ASSERT(full > 0 && contradictions > 0 && wrong_size > 0);
}

/* A block of an engine that does not say beforehand how large its blocks are:
 * the map's answer to it. */
static uint32_t tell_size(struct kv_map *map, uint32_t block_size)
{
    static const uint32_t tokens[64];
    uint64_t hash = block_size;
    struct kv_event e = {.kind = KV_STORED,
                         .groups = 1,
                         .hashes = &hash,
                         .tokens = tokens,
                         .n_hashes = 1,
                         .n_tokens = block_size,
                         .block_size = block_size};

    kv_map_batch(map, 0, &(struct kv_batch){.events = &e, .n_events = 1});
    CU_ASSERT(kv_map_check(map));
    return kv_map_engine_tokens(map);
}

static void test_a_size_that_was_not_said(void)
{
    struct world *w = world_new(1);
    struct kv_map_config config = {.model = "m",
                                   .block_tokens = 16,
                                   .max_blocks = 100,
                                   .max_waiting_bytes = 1000};
    struct kv_map *map = kv_map_new(&config, &sink, w);

    /* The first blocks say it, until there is none of them. */
    CU_ASSERT(tell_size(map, 24) == 16);
    CU_ASSERT(kv_map_stats(map).wrong_size == 1);
    CU_ASSERT(tell_size(map, 32) == 32);
    CU_ASSERT(tell_size(map, 16) == 32);
    CU_ASSERT(kv_map_stats(map).wrong_size == 2);
    kv_map_clear(map);
    CU_ASSERT(tell_size(map, 1) == 1);
    kv_map_clear_rank(map, 0);
    CU_ASSERT(tell_size(map, 16) == 16);
    CU_ASSERT(kv_map_stats(map).wrong_size == 2);
    kv_map_free(map);
    /* Once said, it holds. */
    config.engine_tokens = 32;
    map = kv_map_new(&config, &sink, w);
    CU_ASSERT(tell_size(map, 16) == 32 && tell_size(map, 32) == 32);
    CU_ASSERT(kv_map_stats(map).wrong_size == 1);
    kv_map_free(map);
    config.engine_tokens = 24;
    CU_ASSERT(!kv_map_new(&config, &sink, w));
    world_free(w);
}

static void give_now(struct world *w, const struct kv_event *e, uint32_t rank)
{
    kv_map_batch(w->map, (uint16_t)rank,
                 &(struct kv_batch){.events = e, .n_events = 1});
}

/* Clearing one rank leaves the others alone, whoever was heard first. */
static void test_ranks_are_cleared_apart(void)
{
    struct world *w = world_new(1);
    uint64_t hash = w->hash[0];
    struct kv_event e = {.kind = KV_STORED,
                         .groups = 1,
                         .hashes = &hash,
                         .tokens = w->tokens[0],
                         .n_hashes = 1,
                         .n_tokens = w->size,
                         .block_size = w->size};

    for (uint32_t first = 0; first < RANKS; first++) {
        give_now(w, &e, first);
        kv_map_clear_rank(w->map, (uint16_t)(1 - first));
        CU_ASSERT(kv_map_copies(w->map, hash, TIER_DEVICE, (uint16_t)first) ==
                  1);
        give_now(w, &e, 1 - first);
        kv_map_clear_rank(w->map, (uint16_t)first);
        CU_ASSERT(kv_map_copies(w->map, hash, TIER_DEVICE,
                                (uint16_t)(1 - first)) == 1);
        kv_map_clear(w->map);
        CU_ASSERT(kv_map_stats(w->map).entries == 0);
    }
    world_free(w);
}

static const struct suite_test tests[] = {
    {"against a slow map", test_against_a_slow_map},
    {"a liar", test_a_liar},
    {"a size that was not said", test_a_size_that_was_not_said},
    {"ranks are cleared apart", test_ranks_are_cleared_apart},
};

int main(void)
{
    seed = cases_seed(4711);
    memset(salts[1], 'x', sizeof(salts[1]) - 1);
    memset(salts[2], 'x', sizeof(salts[2]) - 1);
    salts[2][sizeof(salts[2]) - 2] = 'y';
    return SUITE_RUN("kv_map", tests);
}
