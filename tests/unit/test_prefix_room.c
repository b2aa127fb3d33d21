/*
 * An index without room for all that is reported keeps beginnings: what it
 * holds of an instance is found, since a tail gives way before its head. Trees
 * of prompts that many instances share, at random, beside hostile instances,
 * against a plain table of who reported what. Environment: CONDUCTOR_SEED;
 * CONDUCTOR_CASES: percent of the operations.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/pages.h"
#include "tests/unit/cases.h"
#include "tests/unit/prefix_check.h"
#include "tests/unit/suite.h"

enum { MAX_NODES = 24000, MAX_INSTANCES = 24, FRAME = 256 };

static uint64_t seed;

/* One shape of random run. */
struct shape {
    const char *name;
    uint32_t nodes;
    uint32_t branch; /* of 1,000 nodes do not go on behind the one before */
    uint32_t root;   /* of these are first blocks */
    uint32_t instances, hostile; /* the last ones */
    uint64_t max_bytes;
    double found; /* at least, of what is indexed, on average */
};

/*
 * Of what is indexed nearly all is found. What is not: in a round of eviction
 * one page in 32 goes, in any sequence, so that up to as many are behind one
 * that has gone; and a page with the ends of several chains leaves as one. The
 * smaller the index and the shorter the stretches between branches, the more
 * such pages there are. A hostile instance mixes chains in its pages on
 * purpose: of these nothing is promised but that nobody matches too much.
 */
static const struct shape shapes[] = {
    {"one instance, chains", 20000, 2, 900, 1, 0, 200 << 10, 0.95},
    {"one instance, trees", 20000, 30, 100, 1, 0, 120 << 10, 0.95},
    {"few instances, trees", 20000, 30, 100, 4, 0, 150 << 10, 0.93},
    {"many share trees", 12000, 30, 100, 16, 0, 150 << 10, 0.93},
    {"many share bushes", 6000, 200, 100, 16, 0, 60 << 10, 0.8},
    {"hardly any room", 12000, 30, 100, 16, 0, 40 << 10, 0.7},
    {"beside hostile ones", 12000, 30, 100, 16, 3, 200 << 10, 0},
};
enum { N_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

struct world {
    const struct shape *shape;
    struct prefix_index *index;
    struct prefix_match match;
    uint64_t rng;
    uint32_t parent[MAX_NODES]; /* UINT32_MAX: none */
    uint64_t key[MAX_NODES];
    bool reported[MAX_INSTANCES][MAX_NODES];
};

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint32_t below(struct world *w, uint64_t n)
{
    return draw_below(&w->rng, n);
}

static struct world *world_new(const struct shape *shape, uint64_t from)
{
    struct world *w = calloc(1, sizeof(*w));
    struct prefix_index_config config = {.max_instances = shape->instances,
                                         .max_bytes = shape->max_bytes,
                                         .evicts = true,
                                         .seed = from};

    CU_ASSERT_PTR_NOT_NULL_FATAL(w);
    w->shape = shape;
    w->rng = from;
    w->index = prefix_index_new(&config);
    CU_ASSERT_PTR_NOT_NULL_FATAL(w->index);
    CU_ASSERT_EQUAL_FATAL(prefix_match_init(&w->match, shape->instances), 0);
    for (uint32_t v = 0; v < shape->nodes; v++) {
        w->key[v] = mix(v + 1) | 1;
        w->parent[v] = v - 1;
        if (v > 0 && below(w, 1000) < shape->branch)
            w->parent[v] =
                below(w, 1000) < shape->root ? UINT32_MAX : below(w, v);
    }
    return w;
}

static void world_free(struct world *w)
{
    CU_ASSERT(prefix_index_check(w->index));
    prefix_match_fini(&w->match);
    prefix_index_free(w->index);
    free(w);
}

static bool is_honest(const struct world *w, uint32_t i)
{
    return i < w->shape->instances - w->shape->hostile;
}

/* The nodes from a first block to v; returns their number. */
static uint32_t path_to(const struct world *w, uint32_t v, uint32_t *nodes)
{
    uint32_t n = 0, depth = 0;

    for (uint32_t up = v; up != UINT32_MAX; up = w->parent[up])
        depth++;
    CU_ASSERT_FATAL(depth <= MAX_NODES);
    for (uint32_t up = v; up != UINT32_MAX; up = w->parent[up])
        nodes[depth - ++n] = up;
    return n;
}

static void tell(struct world *w, uint32_t i, const uint32_t *nodes, uint32_t n,
                 uint64_t parent)
{
    uint64_t keys[FRAME];

    for (uint32_t k = 0; k < n; k++) {
        keys[k] = w->key[nodes[k]];
        w->reported[i][nodes[k]] = true;
    }
    (void)!prefix_index_stored(w->index, i, TIER_HOST, parent, keys, n);
}

/* It computes a prompt: what it does not hold of it, in one event or several.
 */
static void store(struct world *w, uint32_t i, uint32_t v)
{
    static uint32_t nodes[MAX_NODES];
    uint32_t n = path_to(w, v, nodes), at = 0, some;

    while (at < n && w->reported[i][nodes[at]])
        at++;
    for (; at < n; at += some) {
        some = 1 + below(w, FRAME);
        some = some < n - at ? some : n - at;
        tell(w, i, nodes + at, some, at > 0 ? w->key[nodes[at - 1]] : 0);
    }
}

/* It drops a block and all behind it, the last first. */
static void drop(struct world *w, uint32_t i, uint32_t v)
{
    static bool behind[MAX_NODES];
    uint64_t keys[MAX_NODES];
    size_t n = 0;

    memset(behind, 0, sizeof(behind));
    behind[v] = true;
    for (uint32_t x = v; x < w->shape->nodes; x++)
        behind[x] |= w->parent[x] != UINT32_MAX && behind[w->parent[x]];
    for (uint32_t x = w->shape->nodes; x-- > v;)
        if (behind[x] && w->reported[i][x]) {
            keys[n++] = w->key[x];
            w->reported[i][x] = false;
        }
    CU_ASSERT_EQUAL(prefix_index_removed(w->index, i, TIER_HOST, keys, n), 0);
}

/* What the shell does where room has returned: it asks for the inventory, which
 * a worker sends as it committed its blocks. */
static void heal(struct world *w, uint32_t i)
{
    if (!prefix_index_incomplete(w->index, i))
        return;
    prefix_index_told_again(w->index, i);
    for (uint32_t v = 0; v < w->shape->nodes; v++)
        if (w->reported[i][v])
            tell(w, i, &v, 1,
                 w->parent[v] == UINT32_MAX ? 0 : w->key[w->parent[v]]);
    prefix_index_told(w->index, i, true);
}

/* Single blocks behind any others, keys of nobody, blocks of many chains in one
 * event. */
static void lie(struct world *w, uint32_t i)
{
    uint32_t v = below(w, w->shape->nodes), nodes[16];
    uint64_t junk[16];

    switch (below(w, 3)) {
    case 0:
        tell(w, i, &v, 1, w->key[below(w, w->shape->nodes)]);
        break;
    case 1:
        for (uint32_t k = 0; k < 16; k++)
            junk[k] = mix(UINT64_MAX - below(w, 100000)) | 1;
        (void)!prefix_index_stored(w->index, i, TIER_HOST, w->key[v], junk, 16);
        break;
    default:
        for (uint32_t k = 0; k < 16; k++)
            nodes[k] = below(w, w->shape->nodes);
        tell(w, i, nodes, 16, 0);
    }
}

/* Nobody matches more than it reported, nor other than what is indexed. */
static void match(struct world *w, uint32_t v)
{
    static uint32_t nodes[MAX_NODES];
    static uint64_t keys[MAX_NODES];
    uint32_t n = path_to(w, v, nodes);

    for (uint32_t k = 0; k < n; k++)
        keys[k] = w->key[nodes[k]];
    prefix_index_match(w->index, keys, n, &w->match);
    for (uint32_t i = 0; i < w->shape->instances; i++) {
        uint32_t lead = 0;

        while (lead < n && prefix_index_tiers(w->index, i, keys[lead]) != 0) {
            CU_ASSERT_FATAL(w->reported[i][nodes[lead]]);
            lead++;
        }
        CU_ASSERT_EQUAL_FATAL(w->match.blocks[i], lead);
    }
}

/* The part that is found of all that is indexed of honest instances. */
static double found_of_indexed(const struct world *w)
{
    static bool found[MAX_NODES];
    uint64_t n = 0, n_found = 0;

    for (uint32_t i = 0; i < w->shape->instances; i++)
        for (uint32_t v = 0; v < w->shape->nodes && is_honest(w, i); v++) {
            uint32_t up = w->parent[v];
            bool indexed = prefix_index_tiers(w->index, i, w->key[v]) != 0;

            found[v] = indexed && (up == UINT32_MAX || found[up]);
            n += indexed;
            n_found += found[v];
        }
    return n > 0 ? (double)n_found / (double)n : 1;
}

static void operate(struct world *w)
{
    uint32_t i = below(w, w->shape->instances);
    uint32_t v = below(w, w->shape->nodes);
    uint32_t what = below(w, 1000);

    if (!is_honest(w, i) && what < 900) {
        lie(w, i);
    } else if (what < 600) {
        store(w, i, v);
    } else if (what < 700) {
        drop(w, i, v);
    } else if (what < 990) {
        match(w, v);
    } else if (what < 991) {
        prefix_index_cleared(w->index, i);
        memset(w->reported[i], 0, sizeof(w->reported[i]));
    } else {
        heal(w, i);
    }
    (void)prefix_index_work(w->index, 1000);
}

static void test_random(void)
{
    enum { A_CHECK = 50 };
    uint64_t checks = cases_of(4000) / A_CHECK;

    for (size_t s = 0; s < N_SHAPES; s++) {
        struct world *w = world_new(&shapes[s], seed + s);
        double sum = 0;

        for (uint64_t check = 0; check < checks; check++) {
            for (uint32_t op = 0; op < A_CHECK; op++)
                operate(w);
            sum += found_of_indexed(w);
        }
        printf("\n  %-20s %6llu blocks evicted, %.3f of the indexed found",
               w->shape->name,
               (unsigned long long)prefix_index_stats(w->index).evicted,
               sum / (double)checks);
        CU_ASSERT(sum >= w->shape->found * (double)checks);
        world_free(w);
    }
    printf("\n  ");
}

/* One instance with more blocks than there is room for, as its chains grow:
 * all that is indexed is found. */
static void all_is_found(uint32_t chains, uint32_t length, uint32_t step)
{
    enum { BLOCKS = 20000 };
    static uint64_t keys[BLOCKS];
    struct prefix_index *ix =
        prefix_index_new(&(struct prefix_index_config){.max_instances = 2,
                                                       .max_bytes = 320 << 10,
                                                       .evicts = true,
                                                       .seed = seed});
    struct prefix_match m = {0};
    uint32_t found = 0;

    CU_ASSERT_FATAL(ix && prefix_match_init(&m, 2) == 0);
    for (uint32_t k = 0; k < BLOCKS; k++)
        keys[k] = mix(k + 1) | 1;
    for (uint32_t at = 0; at < length; at += step)
        for (uint32_t c = 0; c < chains; c++)
            (void)!prefix_index_stored(ix, 0, TIER_HOST,
                                       at > 0 ? keys[c * length + at - 1] : 0,
                                       keys + c * length + at,
                                       step < length - at ? step : length - at);
    for (uint32_t c = 0; c < chains; c++) {
        prefix_index_match(ix, keys + c * length, length, &m);
        found += m.blocks[0];
    }
    CU_ASSERT_EQUAL(found, prefix_index_held(ix, 0));
    CU_ASSERT(found > 18000 && found < BLOCKS);
    CU_ASSERT(prefix_index_check(ix));
    prefix_match_fini(&m);
    prefix_index_free(ix);
}

static void test_a_tail_goes_first(void)
{
    all_is_found(1, 20000, 256);
    all_is_found(1, 20000, 20000);
    all_is_found(20, 1000, 256);
    all_is_found(200, 100, 10);
    all_is_found(200, 100, 4);
}

/* In an index that old conversations fill, a new one takes the room of those
 * that nobody asks for. Which are old is known from the first eviction on. */
static void test_new_chains_replace_old_ones(void)
{
    enum { CHAINS = 60, FILL = 20, LENGTH = 1000 };
    struct prefix_index *ix =
        prefix_index_new(&(struct prefix_index_config){.max_instances = 1,
                                                       .max_bytes = 320 << 10,
                                                       .evicts = true,
                                                       .seed = seed});
    struct prefix_match m = {0};
    uint64_t keys[LENGTH], asked[LENGTH];

    CU_ASSERT_FATAL(ix && prefix_match_init(&m, 1) == 0);
    for (uint32_t c = 0; c < CHAINS; c++) {
        for (uint32_t k = 0; k < LENGTH; k++)
            keys[k] = mix((uint64_t)c << 32 | (k + 1)) | 1;
        if (c == 0)
            memcpy(asked, keys, sizeof(asked));
        for (uint32_t at = 0; at < LENGTH; at += 250)
            (void)!prefix_index_stored(
                ix, 0, TIER_HOST, at > 0 ? keys[at - 1] : 0, keys + at, 250);
        prefix_index_match(ix, keys, LENGTH, &m);
        CU_ASSERT(m.blocks[0] == LENGTH || c < FILL);
        prefix_index_match(ix, asked, LENGTH, &m);
        CU_ASSERT(m.blocks[0] > LENGTH / 10 * 9);
    }
    prefix_match_fini(&m);
    prefix_index_free(ix);
}

static const struct suite_test tests[] = {
    {"a tail goes first", test_a_tail_goes_first},
    {"new chains replace old ones", test_new_chains_replace_old_ones},
    {"random", test_random},
};

int main(void)
{
    seed = cases_seed(4711);
    return SUITE_RUN("prefix_room", tests);
}
