/*
 * The prefix index against a linear scan: five million random events from
 * honest and hostile instances: wrong parents, circles, keys that differ in a
 * few bits only, floods of one bucket, removals of what was never stored,
 * clears in between, instances that come back or tell their inventory again,
 * more blocks than a quota or than there is room for. Environment:
 * CONDUCTOR_SEED; CONDUCTOR_CASES: percent of the five million.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/pages.h"
#include "tests/unit/cases.h"
#include "tests/unit/prefix_check.h"
#include "tests/unit/suite.h"

enum { MAX_DEPTH = 96, MAX_NODES = 20000, MAX_INSTANCES = 64 };

static uint64_t seed;

/* How the keys of a world look. */
enum key_kind {
    KEYS_RANDOM,
    KEYS_LOW,
    KEYS_MIDDLE,
    KEYS_HIGH,
    KEYS_ONE_BUCKET,
};

/* One shape of random run. */
struct shape {
    const char *name;
    uint32_t nodes, depth, instances;
    uint64_t max_bytes; /* 0: room for all */
    uint64_t quota;     /* of each instance, 0: none */
    uint32_t messy;     /* of 256 instances, store and drop at random */
    uint32_t lies;      /* of 256 messy stores name a random parent */
    enum key_kind keys; /* differ in these bits only */
    bool evicts;
    bool greedy; /* again and again one instance is alone */
};

static const struct shape shapes[] = {
    {"orderly", 4000, 64, 24, 0, 0, 0, 0, KEYS_RANDOM, false, false},
    {"some messy", 4000, 64, 24, 0, 0, 24, 0, KEYS_RANDOM, false, false},
    {"all messy", 1500, 24, 12, 0, 0, 256, 0, KEYS_LOW, false, false},
    {"many holders", 300, 90, 64, 0, 0, 8, 0, KEYS_RANDOM, false, false},
    {"liars", 1000, 24, 12, 0, 0, 128, 100, KEYS_HIGH, false, false},
    {"one liar in order", 3000, 64, 16, 0, 0, 16, 200, KEYS_MIDDLE, false,
     false},
    {"one bucket", 600, 24, 12, 0, 0, 64, 8, KEYS_ONE_BUCKET, false, false},
    {"quotas", 2000, 48, 16, 0, 300, 64, 8, KEYS_RANDOM, false, false},
    {"tight", 20000, 48, 16, 24000, 0, 64, 8, KEYS_RANDOM, false, false},
    {"tight, evicting", 20000, 48, 16, 24000, 0, 64, 8, KEYS_RANDOM, true,
     false},
    {"evicting records", 60, 48, 64, 24000, 0, 64, 8, KEYS_RANDOM, true, false},
    {"one comes first", 20000, 48, 64, 300000, 0, 16, 8, KEYS_RANDOM, true,
     true},
};
enum { N_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

/* The slow truth: what each instance reported, as a tier mask for each node of
 * a random forest. path_nodes[v] lists the nodes from a first block to v. */
struct world {
    const struct shape *shape;
    struct prefix_index *index;
    struct prefix_match match;
    uint64_t rng;
    bool exact;                 /* all that is reported is indexed */
    uint32_t parent[MAX_NODES]; /* UINT32_MAX: none */
    uint32_t depth[MAX_NODES];  /* path length */
    uint32_t path_nodes[MAX_NODES][MAX_DEPTH];
    uint64_t key[MAX_NODES];
    uint8_t tiers[MAX_INSTANCES][MAX_NODES];
    bool messy[MAX_INSTANCES];
    uint64_t ops, refused, matches;
};

static uint32_t below(struct world *w, uint64_t n)
{
    return (uint32_t)(draw_u64(&w->rng) % n);
}

static uint64_t make_key(struct world *w, uint32_t v)
{
    static const uint64_t base = UINT64_C(0x5a5a5a5a5a5a5a5a);

    switch (w->shape->keys) {
    case KEYS_LOW:
        return (base & ~UINT64_C(0xffff)) | (v + 1);
    case KEYS_MIDDLE:
        return (base & ~(UINT64_C(0xffff) << 24)) | (uint64_t)(v + 1) << 24;
    case KEYS_HIGH:
        return (base >> 16) | (uint64_t)(v + 1) << 48;
    case KEYS_ONE_BUCKET:
        for (;;) {
            uint64_t key = draw_u64(&w->rng) | 1;

            if ((key_hash(&w->index->secret, key) >> 32) *
                        w->index->n_buckets >>
                    32 ==
                0)
                return key;
        }
    default:
        return draw_u64(&w->rng) | 1;
    }
}

static struct world *world_new(const struct shape *shape, uint64_t from)
{
    struct world *w = calloc(1, sizeof(*w));
    struct prefix_index_config config = {
        .max_instances = shape->instances,
        .max_bytes = shape->max_bytes ? shape->max_bytes : UINT64_C(8) << 20,
        .evicts = shape->evicts,
        .seed = from,
    };

    w->shape = shape;
    w->rng = from;
    w->exact = shape->max_bytes == 0 && shape->quota == 0;
    w->index = prefix_index_new(&config);
    CU_ASSERT_PTR_NOT_NULL_FATAL(w->index);
    CU_ASSERT_EQUAL_FATAL(prefix_match_init(&w->match, shape->instances), 0);
    for (uint32_t v = 0; v < shape->nodes; v++) {
        /* Mostly the node before, so that long chains come about. */
        uint32_t up = v == 0 || below(w, 40) == 0 ? UINT32_MAX
                      : below(w, 4) == 0          ? below(w, v)
                                                  : v - 1;

        if (up != UINT32_MAX && w->depth[up] == shape->depth)
            up = UINT32_MAX;
        w->parent[v] = up;
        w->key[v] = make_key(w, v);
        w->depth[v] = up == UINT32_MAX ? 1 : w->depth[up] + 1;
        if (up != UINT32_MAX)
            memcpy(w->path_nodes[v], w->path_nodes[up],
                   w->depth[up] * sizeof(uint32_t));
        w->path_nodes[v][w->depth[v] - 1] = v;
    }
    for (uint32_t i = 0; i < shape->instances; i++) {
        w->messy[i] = below(w, 256) < shape->messy;
        if (shape->quota != 0)
            prefix_index_set_quota(w->index, i, shape->quota);
    }
    return w;
}

static void world_free(struct world *w)
{
    prefix_match_fini(&w->match);
    prefix_index_free(w->index);
    free(w);
}

/* What counts as held: what was reported, or, where not all of it has room,
 * what the index says to hold of it. */
static unsigned held(const struct world *w, uint32_t i, uint32_t v)
{
    unsigned tiers = prefix_index_tiers(w->index, i, w->key[v]);

    CU_ASSERT_EQUAL(tiers & ~(unsigned)w->tiers[i][v], 0);
    if (w->exact)
        CU_ASSERT_EQUAL(tiers, w->tiers[i][v]);
    return tiers;
}

static void store(struct world *w, uint32_t i, uint32_t v)
{
    enum block_tier tier = (enum block_tier)below(w, BLOCK_TIERS);
    bool lie = w->messy[i] && below(w, 256) < w->shape->lies;
    uint64_t keys[MAX_DEPTH];
    uint32_t from = w->messy[i] ? w->depth[v] - 1 : below(w, w->depth[v]);
    uint64_t parent = 0;
    size_t n = 0;
    int rc;

    /* An orderly one holds what is in front, or stores it now. */
    while (!w->messy[i] && from > 0 &&
           w->tiers[i][w->path_nodes[v][from - 1]] == 0)
        from--;
    if (from > 0)
        parent = w->key[w->path_nodes[v][from - 1]];
    if (lie) /* any parent, or a circle: the chain's end is in front of it */
        parent = w->key[below(w, 2) == 0 ? v : below(w, w->shape->nodes)];
    for (uint32_t d = from; d < w->depth[v]; d++) {
        uint32_t node = w->path_nodes[v][d];

        keys[n++] = w->key[node];
        w->tiers[i][node] = (uint8_t)(w->tiers[i][node] | 1u << tier);
    }
    rc = prefix_index_stored(w->index, i, tier, parent, keys, n);
    if (w->exact)
        CU_ASSERT_EQUAL_FATAL(rc, 0);
    w->refused += rc != 0;
}

static void drop(struct world *w, uint32_t i, uint32_t v)
{
    enum block_tier tier = (enum block_tier)below(w, BLOCK_TIERS);
    uint64_t keys[MAX_DEPTH];
    size_t n = 0;
    uint32_t to = below(w, w->depth[v]);

    /* The deepest first, or any of them. */
    for (uint32_t d = w->depth[v]; d-- > to;) {
        uint32_t node = w->path_nodes[v][d];

        if (w->messy[i] && below(w, 2) == 0)
            continue;
        keys[n++] = w->key[node];
        w->tiers[i][node] =
            (uint8_t)(w->tiers[i][node] & ~(1u << (unsigned)tier));
    }
    CU_ASSERT_EQUAL_FATAL(prefix_index_removed(w->index, i, tier, keys, n), 0);
}

/* Instance i reports all that it holds, in any sequence, and drops some of it
 * meanwhile. */
static void tell_all(struct world *w, uint32_t i)
{
    uint32_t first = below(w, w->shape->nodes);

    prefix_index_told_again(w->index, i);
    for (uint32_t n = 0; n < w->shape->nodes; n++) {
        uint32_t v = (first + n) % w->shape->nodes;
        uint32_t gone = below(w, w->shape->nodes);
        uint64_t parent = w->parent[v] == UINT32_MAX ? 0 : w->key[w->parent[v]];

        for (unsigned t = 0; t < BLOCK_TIERS; t++) {
            if ((w->tiers[i][v] >> t & 1) != 0)
                w->refused +=
                    prefix_index_stored(w->index, i, (enum block_tier)t, parent,
                                        &w->key[v], 1) != 0;
            if (n % 64 == 0 && (w->tiers[i][gone] >> t & 1) != 0) {
                w->tiers[i][gone] = (uint8_t)(w->tiers[i][gone] & ~(1u << t));
                CU_ASSERT_EQUAL(prefix_index_removed(w->index, i,
                                                     (enum block_tier)t,
                                                     &w->key[gone], 1),
                                0);
            }
        }
    }
    prefix_index_told(w->index, i, true);
    if (prefix_index_unindexed(w->index, i) > 0)
        return;
    for (uint32_t v = 0; v < w->shape->nodes; v++)
        CU_ASSERT_EQUAL_FATAL(prefix_index_tiers(w->index, i, w->key[v]),
                              w->tiers[i][v]);
}

/* The runs that the match tells of an instance equal the scan. */
static void check_runs(struct world *w, uint32_t i, uint32_t v, uint32_t blocks)
{
    uint32_t end = blocks, behind = 0;

    for (uint32_t r = w->match.last_run[i]; r != 0;
         r = w->match.runs[r].before) {
        const struct prefix_run *run = &w->match.runs[r];

        CU_ASSERT_EQUAL_FATAL(run->end_block, end);
        CU_ASSERT_FATAL(run->first_block < end);
        while (end > run->first_block)
            CU_ASSERT_EQUAL_FATAL(run->tiers,
                                  held(w, i, w->path_nodes[v][--end]));
        behind++;
    }
    CU_ASSERT_EQUAL(end, 0);
    CU_ASSERT_EQUAL(w->match.runs[w->match.last_run[i]].n_runs, behind);
}

static void match(struct world *w, uint32_t v)
{
    uint64_t keys[MAX_DEPTH + 4];
    uint32_t n = w->depth[v];
    uint32_t n_holders = 0;

    for (uint32_t d = 0; d < n; d++)
        keys[d] = w->key[w->path_nodes[v][d]];
    for (uint32_t more = below(w, 5); more > 0; more--)
        keys[n++] = below(w, 2) == 0 ? draw_u64(&w->rng) | 1
                                     : w->key[below(w, w->shape->nodes)];
    n = below(w, 8) == 0 ? below(w, n + 1) : n;
    prefix_index_match(w->index, keys, n, &w->match);
    w->matches++;
    for (uint32_t i = 0; i < w->shape->instances; i++) {
        uint32_t lead = 0, runs = 0;
        unsigned last = 0;

        while (lead < n && lead < w->depth[v]) {
            unsigned tiers = held(w, i, w->path_nodes[v][lead]);

            runs += tiers != last;
            last = tiers;
            if (tiers == 0 || runs > PREFIX_RUNS_MAX)
                break;
            lead++;
        }
        /* Behind the node's own path, other keys may follow by chance. */
        if (lead == w->depth[v] && n > lead)
            CU_ASSERT_FATAL(w->match.blocks[i] >= lead)
        else
            CU_ASSERT_EQUAL_FATAL(w->match.blocks[i], lead);
        if (w->match.blocks[i] <= w->depth[v])
            check_runs(w, i, v, w->match.blocks[i]);
        n_holders += w->match.blocks[i] > 0;
    }
    CU_ASSERT_EQUAL(w->match.n_holders, n_holders);
}

static void clear(struct world *w, uint32_t i)
{
    prefix_index_cleared(w->index, i);
    memset(w->tiers[i], 0, sizeof(w->tiers[i]));
}

static void operate(struct world *w)
{
    uint32_t i = below(w, w->shape->instances);
    uint32_t v = below(w, w->shape->nodes);
    uint32_t what = below(w, 1000);

    if (w->shape->greedy && w->ops % 20000 < 4000) {
        for (uint32_t other = 1;
             w->ops % 20000 == 0 && other < w->shape->instances; other++)
            clear(w, other);
        i = 0;
        what = 2 + below(w, 600); /* hardly drops any, and clears none */
    }
    w->ops++;
    if (what < 1) {
        prefix_index_cleared(w->index, i);
        if (below(w, 4) == 0)
            tell_all(w, i); /* it comes back with what it had */
        else
            memset(w->tiers[i], 0, sizeof(w->tiers[i]));
    } else if (what < 2 && below(w, 4) == 0) {
        tell_all(w, i);
    } else if (what < 480) {
        store(w, i, v);
    } else if (what < 900) {
        drop(w, i, v);
    } else if (what < 920) {
        match(w, v);
    } else {
        (void)prefix_index_work(w->index, below(w, 2000));
    }
}

static void test_random(void)
{
    uint64_t total = cases_of(5 * 1000 * 1000);

    for (size_t s = 0; s < N_SHAPES; s++) {
        struct world *w = world_new(&shapes[s], seed + s);

        while (w->ops < total / N_SHAPES) {
            operate(w);
            if (w->ops % 65536 == 0)
                CU_ASSERT_FATAL(prefix_index_check(w->index));
        }
        CU_ASSERT(prefix_index_check(w->index));
        CU_ASSERT(w->exact || w->refused > 0 ||
                  prefix_index_stats(w->index).evicted > 0);
        printf("\n  %-18s %9llu operations, %7llu matches, %6llu refused",
               w->shape->name, (unsigned long long)w->ops,
               (unsigned long long)w->matches, (unsigned long long)w->refused);
        world_free(w);
    }
    printf("\n  ");
}

static const struct suite_test tests[] = {
    {"random", test_random},
};

int main(void)
{
    seed = cases_seed(4711);
    return SUITE_RUN("prefix_index", tests);
}
