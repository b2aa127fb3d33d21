/*
 * The prefix index against a linear scan: millions of random events, among
 * them stores out of order, removals in any order, clears, instances that
 * come and go, and workers that name wrong parents. Environment:
 * CONDUCTOR_SEED; of 10 million operations, CONDUCTOR_CASES percent.
 */
#include <CUnit/Basic.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/prefix_index.h"
#include "tests/unit/cases.h"

enum { MAX_DEPTH = 96, MAX_NODES = 6000, MAX_INSTANCES = 64 };

static uint64_t seed;

static uint64_t rng(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* One shape of random run. */
struct shape {
    const char *name;
    uint32_t nodes, depth, instances;
    uint32_t max_keys;   /* 0: room for all */
    uint64_t max_shared; /* 0: the default */
    uint32_t messy;      /* of 256 instances, store and drop at random */
    uint32_t lies;       /* of 256 messy stores name a random parent */
};

static const struct shape shapes[] = {
    {"orderly", 4000, 64, 24, 0, 0, 0, 0},
    {"some messy", 4000, 64, 24, 0, 0, 24, 0},
    {"all messy", 1500, 24, 12, 0, 0, 256, 0},
    {"many holders", 300, 90, 64, 0, 0, 8, 0},
    {"liars", 1000, 24, 12, 0, 0, 128, 40},
    {"one liar in order", 3000, 64, 16, 0, 0, 16, 8},
    {"tight", 2000, 48, 16, 700, 600, 64, 8},
};
enum { N_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

/* The slow truth: a tier mask for each instance and node of a random forest.
 * path[v] lists the keys from a first block down to v. */
struct world {
    const struct shape *shape;
    struct prefix_index *index;
    uint64_t rng;
    uint32_t parent[MAX_NODES]; /* UINT32_MAX: none */
    uint32_t depth[MAX_NODES];  /* path length */
    uint32_t path_nodes[MAX_NODES][MAX_DEPTH];
    uint64_t key[MAX_NODES];
    uint8_t tiers[MAX_INSTANCES][MAX_NODES];
    uint16_t held_children[MAX_INSTANCES][MAX_NODES];
    bool messy[MAX_INSTANCES];
    uint64_t ops, holders, rejected, full, matches;
};

static uint32_t below(struct world *w, uint64_t n)
{
    return (uint32_t)(rng(&w->rng) % n);
}

static struct world *world_new(const struct shape *shape, uint64_t from)
{
    struct world *w = calloc(1, sizeof(*w));
    struct prefix_index_config config = {
        .max_instances = shape->instances,
        .max_keys = shape->max_keys != 0 ? shape->max_keys : shape->nodes,
        .max_shared = shape->max_shared,
        .seed = from,
    };

    w->shape = shape;
    w->rng = from;
    /* Room for all means room for any arrangement of the holders too. */
    if (config.max_shared == 0)
        config.max_shared = 4 * (uint64_t)shape->nodes * shape->instances;
    w->index = prefix_index_new(&config);
    for (uint32_t v = 0; v < shape->nodes; v++) {
        /* Mostly the node before, so that long chains come about. */
        uint32_t up = v == 0 || below(w, 40) == 0 ? UINT32_MAX
                      : below(w, 4) == 0          ? below(w, v)
                                                  : v - 1;

        if (up != UINT32_MAX && w->depth[up] == shape->depth)
            up = UINT32_MAX;
        w->parent[v] = up;
        w->key[v] = rng(&w->rng) | 1;
        w->depth[v] = up == UINT32_MAX ? 1 : w->depth[up] + 1;
        if (up != UINT32_MAX)
            memcpy(w->path_nodes[v], w->path_nodes[up],
                   w->depth[up] * sizeof(uint32_t));
        w->path_nodes[v][w->depth[v] - 1] = v;
    }
    for (uint32_t i = 0; i < shape->instances; i++)
        w->messy[i] = below(w, 256) < shape->messy;
    return w;
}

static void world_free(struct world *w)
{
    prefix_index_free(w->index);
    free(w);
}

static void truth_set(struct world *w, uint32_t i, uint32_t v, unsigned tiers)
{
    bool was = w->tiers[i][v] != 0;
    bool is = tiers != 0;

    w->tiers[i][v] = (uint8_t)tiers;
    if (was == is)
        return;
    w->holders = is ? w->holders + 1 : w->holders - 1;
    if (w->parent[v] != UINT32_MAX)
        w->held_children[i][w->parent[v]] =
            (uint16_t)(w->held_children[i][w->parent[v]] + (is ? 1 : -1));
}

static uint64_t parent_key(const struct world *w, uint32_t v)
{
    return w->parent[v] == UINT32_MAX ? 0 : w->key[w->parent[v]];
}

/* A store that may be refused only for a reason that this shape has. */
static bool store_verdict(struct world *w, int error)
{
    if (error == 0)
        return true;
    if (error == -ENOSPC && w->shape->max_keys != 0)
        w->full++;
    else if ((error == -EEXIST || error == -EINVAL) && w->shape->lies != 0)
        w->rejected++;
    else
        return false;
    return true;
}

static bool store_messy(struct world *w, uint32_t i)
{
    uint32_t v = below(w, w->shape->nodes);
    enum block_tier tier = (enum block_tier)below(w, BLOCK_TIERS);
    uint64_t parent = parent_key(w, v);

    if (below(w, 256) < w->shape->lies)
        parent = below(w, 4) == 0 ? 0 : w->key[below(w, w->shape->nodes)];
    int error = prefix_index_stored(w->index, i, tier, parent, w->key[v]);
    if (error == 0)
        truth_set(w, i, v, w->tiers[i][v] | 1u << tier);
    return store_verdict(w, error);
}

/* Extends what the instance holds of a path by a few blocks, in one call. */
static bool store_orderly(struct world *w, uint32_t i)
{
    uint32_t v = below(w, w->shape->nodes);
    enum block_tier tier = (enum block_tier)below(w, BLOCK_TIERS);
    uint32_t from = w->depth[v];
    uint64_t keys[8];
    size_t n = 0;
    size_t done = 99;

    while (from > 0 && w->tiers[i][w->path_nodes[v][from - 1]] == 0)
        from--;
    if (from == w->depth[v])
        from--; /* an event once more */
    uint64_t parent = parent_key(w, w->path_nodes[v][from]);
    while (n < 8 && from + n < w->depth[v]) {
        keys[n] = w->key[w->path_nodes[v][from + n]];
        n++;
    }
    int error =
        prefix_index_stored_chain(w->index, i, tier, parent, keys, n, &done);
    for (size_t d = 0; d < done; d++) {
        uint32_t u = w->path_nodes[v][from + d];

        truth_set(w, i, u, w->tiers[i][u] | 1u << tier);
    }
    return store_verdict(w, error) && (error == 0) == (done == n);
}

/* Some blocks at random in one event. */
static bool remove_many(struct world *w, uint32_t i)
{
    enum block_tier tier = (enum block_tier)below(w, BLOCK_TIERS);
    uint64_t keys[12];
    size_t n = below(w, 13);

    for (size_t k = 0; k < n; k++) {
        uint32_t v = below(w, w->shape->nodes);

        keys[k] = w->key[v];
        truth_set(w, i, v, w->tiers[i][v] & ~(1u << tier));
    }
    return prefix_index_removed_keys(w->index, i, tier, keys, n) == 0;
}

static bool remove_one(struct world *w, uint32_t i, uint32_t v)
{
    enum block_tier tier = (enum block_tier)below(w, BLOCK_TIERS);
    int error = prefix_index_removed(w->index, i, tier, w->key[v]);

    truth_set(w, i, v, w->tiers[i][v] & ~(1u << tier));
    return error == 0;
}

/* Leaf first: the deepest held block of a path, unless others need it. */
static bool remove_orderly(struct world *w, uint32_t i)
{
    uint32_t v = below(w, w->shape->nodes);
    uint32_t d = w->depth[v];
    unsigned tiers;

    while (d > 0 && w->tiers[i][w->path_nodes[v][d - 1]] == 0)
        d--;
    if (d == 0) /* dropping what is not there changes nothing */
        return remove_one(w, i, v);
    if (w->held_children[i][w->path_nodes[v][d - 1]] > 0)
        return true;
    v = w->path_nodes[v][d - 1];
    tiers = w->tiers[i][v];
    for (unsigned tier = 0; tier < BLOCK_TIERS; tier++)
        if (tiers >> tier & 1 &&
            prefix_index_removed(w->index, i, (enum block_tier)tier,
                                 w->key[v]) != 0)
            return false;
    truth_set(w, i, v, 0);
    return true;
}

static bool clear(struct world *w, uint32_t i)
{
    prefix_index_cleared(w->index, i);
    for (uint32_t v = 0; v < w->shape->nodes; v++)
        truth_set(w, i, v, 0);
    /* Another instance in its place may behave otherwise. */
    w->messy[i] = below(w, 256) < w->shape->messy;
    return prefix_index_held(w->index, i) == 0;
}

/* The linear scan. Foreign keys are UINT32_MAX. */
static uint32_t scan(const struct world *w, uint32_t i, const uint32_t *nodes,
                     size_t n)
{
    uint32_t d = 0;

    while (d < n && nodes[d] != UINT32_MAX && w->tiers[i][nodes[d]] != 0)
        d++;
    return d;
}

static bool match(struct world *w)
{
    uint32_t v = below(w, w->shape->nodes);
    uint32_t nodes[MAX_DEPTH + 8];
    uint64_t keys[MAX_DEPTH + 8];
    uint32_t blocks[MAX_INSTANCES];
    size_t n = w->depth[v];
    uint32_t kind = below(w, 16);

    memcpy(nodes, w->path_nodes[v], n * sizeof(*nodes));
    for (size_t d = 0; d < n; d++)
        keys[d] = w->key[nodes[d]];
    if (kind < 4)
        n = below(w, n + 1);
    while (kind >= 4 && kind < 8 && n < w->depth[v] + 8u) {
        nodes[n] = UINT32_MAX; /* beyond what anybody knows */
        keys[n++] = rng(&w->rng) & ~UINT64_C(1);
    }
    if (kind == 8 && n > 0) { /* no prompt at all, but answered all the same */
        size_t d = below(w, n);
        uint32_t other = below(w, w->shape->nodes);

        nodes[d] = other;
        keys[d] = w->key[other];
    }
    prefix_index_match(w->index, keys, n, blocks);
    w->matches++;
    for (uint32_t i = 0; i < w->shape->instances; i++)
        if (blocks[i] != scan(w, i, nodes, n))
            return false;
    return true;
}

static bool step(struct world *w)
{
    uint32_t i = below(w, w->shape->instances);
    uint32_t what = below(w, 65536);

    if (what < 4)
        return clear(w, i);
    what %= 16;
    if (what < 3)
        return match(w);
    /* Tides, so that the index is met full, empty and between. */
    if (what < (w->ops / 8192 % 2 == 0 ? 11 : 7))
        return w->messy[i] ? store_messy(w, i) : store_orderly(w, i);
    if (!w->messy[i])
        return remove_orderly(w, i);
    return what == 15 ? remove_many(w, i)
                      : remove_one(w, i, below(w, w->shape->nodes));
}

static void run(const struct shape *shape, uint64_t from, uint64_t ops)
{
    struct world *w = world_new(shape, from);

    CU_ASSERT_PTR_NOT_NULL_FATAL(w->index);
    while (w->ops < ops && step(w)) {
        w->ops++;
        if (w->ops % 50000 == 0 && !prefix_index_check(w->index))
            break;
    }
    struct prefix_index_stats stats = prefix_index_stats(w->index);
    printf("\n    %-18s %8llu ops, %llu matches, %llu refused, %llu full, "
           "%llu keys, %llu ghosts, %u open ",
           shape->name, (unsigned long long)w->ops,
           (unsigned long long)w->matches, (unsigned long long)w->rejected,
           (unsigned long long)w->full, (unsigned long long)stats.keys,
           (unsigned long long)stats.ghosts, stats.open_instances);
    CU_ASSERT_EQUAL(w->ops, ops);
    CU_ASSERT_EQUAL(stats.holders, w->holders);
    CU_ASSERT(prefix_index_check(w->index));
    for (uint32_t i = 0; i < shape->instances; i++)
        CU_ASSERT(clear(w, i));
    stats = prefix_index_stats(w->index);
    CU_ASSERT_EQUAL(stats.keys + stats.holders + stats.open_instances, 0);
    CU_ASSERT(prefix_index_check(w->index));
    world_free(w);
}

static void test_equals_linear_scan(void)
{
    printf("\n    CONDUCTOR_SEED=%llu", (unsigned long long)seed);
    for (size_t s = 0; s < N_SHAPES; s++)
        run(&shapes[s], seed + s, cases_of(10000000) / N_SHAPES + 1);
}

static struct prefix_index *small_index(uint32_t max_keys)
{
    return prefix_index_new(&(struct prefix_index_config){
        .max_instances = 4, .max_keys = max_keys, .seed = 1});
}

static void test_refusals(void)
{
    struct prefix_index *ix = small_index(100);
    const uint64_t keys[] = {1, 2, 2, 4};
    size_t done = 99;

    CU_ASSERT_EQUAL(prefix_index_stored(ix, 4, TIER_HOST, 0, 1), -EINVAL);
    CU_ASSERT_EQUAL(prefix_index_stored(ix, 0, (enum block_tier)3, 0, 1),
                    -EINVAL);
    CU_ASSERT_EQUAL(prefix_index_stored(ix, 0, TIER_HOST, 0, 0), -EINVAL);
    CU_ASSERT_EQUAL(prefix_index_stored(ix, 0, TIER_HOST, 7, 7), -EINVAL);
    CU_ASSERT_EQUAL(prefix_index_removed(ix, 4, TIER_HOST, 1), -EINVAL);
    CU_ASSERT_EQUAL(prefix_index_removed(ix, 0, (enum block_tier)3, 1),
                    -EINVAL);
    /* A second parent, and a circle of three. */
    CU_ASSERT_EQUAL(prefix_index_stored(ix, 0, TIER_HOST, 0, 9), 0);
    CU_ASSERT_EQUAL(prefix_index_stored(ix, 1, TIER_HOST, 8, 9), -EEXIST);
    CU_ASSERT_EQUAL(prefix_index_stored(ix, 0, TIER_HOST, 10, 11), 0);
    CU_ASSERT_EQUAL(prefix_index_stored(ix, 0, TIER_HOST, 11, 12), 0);
    CU_ASSERT_EQUAL(prefix_index_stored(ix, 0, TIER_HOST, 12, 10), -EINVAL);
    /* A chain stops where it fails and tells where. */
    CU_ASSERT_EQUAL(
        prefix_index_stored_chain(ix, 0, TIER_HOST, 0, keys, 4, &done),
        -EINVAL);
    CU_ASSERT_EQUAL(done, 2);
    CU_ASSERT_EQUAL(prefix_index_held(ix, 0), 5);
    CU_ASSERT(prefix_index_check(ix));
    prefix_index_free(ix);
}

static void test_tiers_and_runs(void)
{
    struct prefix_index *ix = small_index(100);
    const uint64_t keys[] = {11, 12, 13, 14, 15, 16};
    struct prefix_run runs[6];

    for (size_t i = 0; i < 5; i++)
        CU_ASSERT_EQUAL(prefix_index_stored(ix, 2,
                                            i < 2   ? TIER_DEVICE
                                            : i < 3 ? TIER_DISK
                                                    : TIER_HOST,
                                            i == 0 ? 0 : keys[i - 1], keys[i]),
                        0);
    CU_ASSERT_EQUAL(prefix_index_stored(ix, 2, TIER_DISK, 11, 12), 0);
    CU_ASSERT_EQUAL(prefix_index_tiers(ix, 2, 12), 5);
    CU_ASSERT_EQUAL(prefix_index_tiers(ix, 1, 12), 0);
    CU_ASSERT_EQUAL(prefix_index_runs(ix, 2, keys, 6, runs, 6), 3);
    CU_ASSERT(runs[0].first_block == 0 && runs[0].n_blocks == 2 &&
              runs[0].tier == TIER_DEVICE);
    CU_ASSERT(runs[1].first_block == 2 && runs[1].n_blocks == 1 &&
              runs[1].tier == TIER_DISK);
    CU_ASSERT(runs[2].first_block == 3 && runs[2].n_blocks == 2 &&
              runs[2].tier == TIER_HOST);
    CU_ASSERT_EQUAL(prefix_index_runs(ix, 2, keys, 6, runs, 2), 2);
    CU_ASSERT_EQUAL(prefix_index_runs(ix, 1, keys, 6, runs, 6), 0);
    prefix_index_free(ix);
}

/* The bound on keys: full means refused, nothing half done, and room again
 * once something goes. */
static void test_bounds(void)
{
    struct prefix_index *ix = small_index(10);
    uint32_t blocks[4];
    uint64_t key = 5;

    for (uint64_t k = 1; k <= 10; k++)
        CU_ASSERT_EQUAL(prefix_index_stored(ix, 0, TIER_HOST, k - 1, k), 0);
    CU_ASSERT_EQUAL(prefix_index_stored(ix, 0, TIER_HOST, 10, 11), -ENOSPC);
    CU_ASSERT_EQUAL(prefix_index_removed(ix, 0, TIER_HOST, 10), 0);
    /* Block and unknown parent would need two. */
    CU_ASSERT_EQUAL(prefix_index_stored(ix, 0, TIER_HOST, 98, 99), -ENOSPC);
    CU_ASSERT_EQUAL(prefix_index_stats(ix).keys, 9);
    CU_ASSERT_EQUAL(prefix_index_stored(ix, 0, TIER_HOST, 9, 11), 0);
    CU_ASSERT(prefix_index_check(ix));
    prefix_index_match(ix, &key, 1, blocks);
    CU_ASSERT_EQUAL(blocks[0], 1); /* held, whatever its parent */
    prefix_index_free(ix);

    CU_ASSERT_PTR_NULL(small_index(0));
    CU_ASSERT_PTR_NULL(prefix_index_new(
        &(struct prefix_index_config){.max_instances = 40000, .max_keys = 1}));
    prefix_index_free(NULL);
}

int main(void)
{
    const char *seed_text = getenv("CONDUCTOR_SEED");

    seed = seed_text ? strtoull(seed_text, NULL, 0) : 20250219;
    CU_initialize_registry();
    CU_pSuite suite = CU_add_suite("prefix_index", NULL, NULL);
    CU_add_test(suite, "refusals", test_refusals);
    CU_add_test(suite, "tiers and runs", test_tiers_and_runs);
    CU_add_test(suite, "bounds", test_bounds);
    CU_add_test(suite, "equals a linear scan", test_equals_linear_scan);
    CU_basic_run_tests();
    unsigned failed = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
