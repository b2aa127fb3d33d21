/*
 * The map from engines' hashes to block keys against a slow one: random
 * events of an engine that stores blocks again and again, in tiers, groups and
 * ranks, before their parents, without tokens, and removes what it never
 * stored. Environment: CONDUCTOR_SEED; CONDUCTOR_CASES percent of the runs.
 */
#include <CUnit/Basic.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/block_key.h"
#include "conductor/link/events/block_map.h"
#include "conductor/link/events/waiting.h"
#include "tests/unit/cases.h"

enum {
    NODES = 300,
    DEPTH = 40,
    SIZE_MAX_TOKENS = 16,
    GROUPS = 3,
    RANKS = 2,
    WAITING_MAX = 4096,
    LENGTH_MAX = 12,
};

static uint64_t seed;

static uint64_t rng_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* An event that waits in the slow map. */
struct slow_waiting {
    uint32_t parent, nodes[LENGTH_MAX], n;
    size_t bytes;
};

/* A forest of blocks, and the slow truth about an engine's copies of them. */
struct world {
    uint64_t rng;
    uint32_t size; /* tokens of a block */
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
    bool index[NODES][BLOCK_TIERS]; /* what the sink was told */
    uint64_t sink_faults;
};

static uint32_t below(struct world *w, uint64_t n)
{
    return (uint32_t)(rng_next(&w->rng) % n);
}

static bool chance(struct world *w, uint32_t percent)
{
    return below(w, 100) < percent;
}

static uint32_t node_by_key(const struct world *w, uint64_t key)
{
    uint32_t v = 0;

    while (v < NODES && w->key[v] != key)
        v++;
    return v;
}

static void on_stored(void *arg, enum block_tier tier, uint64_t parent_key,
                      const uint64_t *keys, size_t n)
{
    struct world *w = arg;

    for (size_t i = 0; i < n; i++) {
        uint32_t v = node_by_key(w, keys[i]);

        if (v == NODES) {
            w->sink_faults++;
            return;
        }
        /* A parent that is named is the right one. */
        if (parent_key != 0 &&
            (w->parent[v] == NODES || w->key[w->parent[v]] != parent_key))
            w->sink_faults++;
        parent_key = keys[i];
        w->index[v][tier] = true;
    }
}

static void on_removed(void *arg, enum block_tier tier, const uint64_t *keys,
                       size_t n)
{
    struct world *w = arg;

    for (size_t i = 0; i < n; i++) {
        uint32_t v = node_by_key(w, keys[i]);

        if (v == NODES || !w->index[v][tier])
            w->sink_faults++;
        else
            w->index[v][tier] = false;
    }
}

static void on_cleared(void *arg)
{
    struct world *w = arg;

    memset(w->index, 0, sizeof(w->index));
}

static const struct kv_map_sink sink = {on_stored, on_removed, on_cleared};

/* A node's key from all of its tokens at once, without the map's steps. */
static uint64_t key_from_root(const struct world *w, uint32_t v)
{
    uint64_t key = 0, key_seed = block_key_seed("m", "", w->salt[v]);

    for (uint32_t i = 0; i < w->depth[v]; i++) {
        uint32_t at = w->path[v][i];

        (void)block_keys_continue(key, w->tokens[at], w->size, w->size,
                                  key_seed, &key);
        if (w->extra[at] != 0)
            key = block_key_with(key, w->extra[at], key_seed);
    }
    return key;
}

static void make_node(struct world *w, uint32_t v)
{
    uint32_t parent = v < 6 || chance(w, 5) ? NODES : below(w, v);

    if (parent != NODES && w->depth[parent] + 1 >= DEPTH)
        parent = NODES;
    w->parent[v] = parent;
    w->depth[v] = 0;
    w->salt[v] = chance(w, 30) ? "tenant" : "";
    if (parent != NODES) {
        memcpy(w->path[v], w->path[parent], sizeof(w->path[v]));
        w->depth[v] = w->depth[parent];
        w->salt[v] = w->salt[parent];
    }
    w->path[v][w->depth[v]++] = v;
    for (uint32_t i = 0; i < w->size; i++)
        w->tokens[v][i] = (uint32_t)rng_next(&w->rng);
    w->extra[v] = chance(w, 5) ? rng_next(&w->rng) | 1 : 0;
    w->hash[v] =
        chance(w, 50) ? v * UINT64_C(0x100000000) + 1 : rng_next(&w->rng);
    w->key[v] = key_from_root(w, v);
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

static void give(struct world *w, const struct kv_event *e, uint32_t rank)
{
    struct kv_batch batch = {.events = e, .n_events = 1};

    kv_map_batch(w->map, (uint16_t)rank, &batch);
}

/* A stretch of a random path, now and then without tokens. */
static void store(struct world *w)
{
    uint64_t hashes[LENGTH_MAX], extras[LENGTH_MAX];
    uint32_t tokens[LENGTH_MAX * SIZE_MAX_TOKENS];
    uint32_t v = below(w, NODES), rank = below(w, RANKS), from, n;
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
    slow_stored(w, &w->path[v][from], n, &e, rank);
    give(w, &e, rank);
}

static void remove_some(struct world *w)
{
    uint64_t hashes[LENGTH_MAX];
    uint32_t n = 1 + below(w, LENGTH_MAX), rank = below(w, RANKS);
    struct kv_event e = {.kind = KV_REMOVED,
                         .tier = chance(w, 80) ? TIER_DEVICE : below(w, 3),
                         .groups = random_groups(w),
                         .hashes = hashes,
                         .n_hashes = n};

    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = below(w, NODES);

        hashes[i] = w->hash[v];
        slow_removed(w, v, &e, rank);
    }
    give(w, &e, rank);
}

static void clear(struct world *w)
{
    uint32_t rank = below(w, RANKS);
    struct kv_event e = {.kind = KV_CLEARED, .groups = 1};

    if (chance(w, 50)) {
        e.has_tier = true;
        e.tier = below(w, 3);
    }
    slow_cleared(w, &e, rank);
    give(w, &e, rank);
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
    give(w, &e, 0);
}

static bool same(const struct world *w)
{
    struct kv_map_stats stats = kv_map_stats(w->map);

    for (uint32_t v = 0; v < NODES; v++)
        for (uint32_t t = 0; t < BLOCK_TIERS; t++) {
            if (w->index[v][t] != held(w, v, t))
                return false;
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
    static const uint32_t sizes[] = {1, 2, 16};
    struct world *w = calloc(1, sizeof(*w));

    w->rng = seed + run;
    w->size = sizes[below(w, 3)];
    w->max_waiting_bytes = chance(w, 50) ? 100000 : 1500;
    w->map = kv_map_new(
        &(struct kv_map_config){.model = "m",
                                .block_tokens = w->size,
                                .max_blocks = 1u << 20,
                                .max_waiting_bytes = w->max_waiting_bytes,
                                .seed = rng_next(&w->rng)},
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
    for (uint32_t run = 0; run < cases_of(40); run++) {
        struct world *w = world_new(run);
        uint32_t removals = below(w, 50);

        for (uint32_t step = 0; step < 1500; step++) {
            if (chance(w, 1))
                clear(w);
            else if (chance(w, 3))
                nonsense(w);
            else if (chance(w, removals))
                remove_some(w);
            else
                store(w);
            if ((step % 16 == 0 && !kv_map_check(w->map)) || !same(w)) {
                printf("CONDUCTOR_SEED=%" PRIu64 " run %u, step %u\n", seed,
                       run, step);
                CU_FAIL_FATAL("the maps differ");
            }
        }
        world_free(w);
    }
}

/* An engine that makes everything up keeps the map within its bounds. */
static void test_a_liar(void)
{
    for (uint32_t run = 0; run < cases_of(10); run++) {
        struct world *w = world_new(1000 + run);
        struct kv_map *map =
            kv_map_new(&(struct kv_map_config){.model = "m",
                                               .block_tokens = 1,
                                               .max_blocks = 500,
                                               .max_waiting_bytes = 3000,
                                               .seed = 5},
                       &sink, w);

        for (uint32_t step = 0; step < 5000; step++) {
            uint64_t hashes[8], extras[8];
            uint32_t tokens[8];
            struct kv_event e = {.kind = chance(w, 70) ? KV_STORED : KV_REMOVED,
                                 .tier = below(w, 3),
                                 .has_parent = chance(w, 80),
                                 .parent = below(w, 200),
                                 .groups = rng_next(&w->rng) &
                                           rng_next(&w->rng) & 0xff00f,
                                 .hashes = hashes,
                                 .tokens = tokens,
                                 .extras = chance(w, 20) ? extras : NULL,
                                 .n_hashes = below(w, 9),
                                 .block_size = 1};

            e.groups |= e.groups == 0;
            e.n_tokens = chance(w, 90) ? e.n_hashes : 0;
            for (uint32_t i = 0; i < 8; i++) {
                hashes[i] = below(w, 200);
                extras[i] = below(w, 2);
                tokens[i] = below(w, 3);
            }
            kv_map_batch(map, (uint16_t)below(w, 3),
                         &(struct kv_batch){.events = &e, .n_events = 1});
            CU_ASSERT_FATAL(kv_map_check(map));
            CU_ASSERT_FATAL(kv_map_stats(map).entries <= 500);
        }
        CU_ASSERT(kv_map_stats(map).full > 0);
        CU_ASSERT(kv_map_stats(map).contradictions > 0);
        kv_map_clear(map);
        CU_ASSERT(kv_map_stats(map).entries == 0);
        CU_ASSERT(kv_map_check(map));
        kv_map_free(map);
        world_free(w);
    }
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
        give(w, &e, first);
        kv_map_clear_rank(w->map, (uint16_t)(1 - first));
        CU_ASSERT(kv_map_copies(w->map, hash, TIER_DEVICE, (uint16_t)first) ==
                  1);
        give(w, &e, 1 - first);
        kv_map_clear_rank(w->map, (uint16_t)first);
        CU_ASSERT(kv_map_copies(w->map, hash, TIER_DEVICE,
                                (uint16_t)(1 - first)) == 1);
        kv_map_clear(w->map);
        CU_ASSERT(kv_map_stats(w->map).entries == 0);
    }
    world_free(w);
}

int main(void)
{
    const char *text = getenv("CONDUCTOR_SEED");
    CU_pSuite suite;
    unsigned failures;

    seed = text ? strtoull(text, NULL, 0) : 4711;
    if (CU_initialize_registry() != CUE_SUCCESS)
        return (int)CU_get_error();
    printf("seed %" PRIu64 "\n", seed);
    suite = CU_add_suite("kv_map", NULL, NULL);
    CU_add_test(suite, "against a slow map", test_against_a_slow_map);
    CU_add_test(suite, "a liar", test_a_liar);
    CU_add_test(suite, "ranks are cleared apart", test_ranks_are_cleared_apart);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    failures = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failures > 0;
}
