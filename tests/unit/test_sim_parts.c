/* The simulator's parts: the event heap, the cache of a node, the links. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "sim/block_cache.h"
#include "sim/copies.h"
#include "sim/links.h"
#include "tests/unit/cases.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

/* Whether order and places are right. */
static bool heap_is_right(const struct heap *heap)
{
    uint32_t placed = 0;

    for (uint32_t i = 0; i < heap->n; i++) {
        const struct heap_entry *e = &heap->entries[i];
        const struct heap_entry *up = &heap->entries[i > 0 ? (i - 1) / 4 : 0];
        bool late = up->at != e->at       ? up->at > e->at
                    : up->rank != e->rank ? up->rank > e->rank
                                          : up->id > e->id;

        if (late || heap->places[e->id] != i)
            return false;
    }
    for (uint32_t id = 0; id < heap->capacity; id++)
        placed += heap->places[id] != UINT32_MAX;
    return placed == heap->n;
}

/* Against an array that is searched. */
static void test_heap(void)
{
    enum { N = 50 };
    struct heap heap = {0};
    int64_t at[N];
    struct random_state random;

    random_init(&random, seed_or(1));
    for (int i = 0; i < N; i++)
        at[i] = -1;
    CU_ASSERT_PTR_NULL(heap_first(&heap));
    CU_ASSERT_EQUAL(heap_reserve(&heap, 10), 0);
    CU_ASSERT_EQUAL(heap_reserve(&heap, N), 0);
    for (int round = 0; round < 20000; round++) {
        uint32_t id = random_below(&random, N);
        const struct heap_entry *first;
        int best = -1;

        if (random_below(&random, 3) == 0) {
            at[id] = -1;
            heap_remove(&heap, id);
        } else {
            at[id] = random_below(&random, 20);
            heap_set(&heap, id, id % 2, at[id]);
        }
        for (int i = 0; i < N; i++)
            if (at[i] >= 0 && (best < 0 || at[i] < at[best] ||
                               (at[i] == at[best] && i % 2 < best % 2)))
                best = i;
        first = heap_first(&heap);
        if ((!first) != (best < 0) || (first && first->id != (uint32_t)best)) {
            printf("seed %llu\n", (unsigned long long)seed_or(1));
            CU_FAIL_FATAL("another event is first");
        }
    }
    CU_ASSERT(heap_is_right(&heap));
    heap_fini(&heap);
}

/* What the cache reports: the holders of each block, as an index would believe.
 */
enum { KEYS = 60 };
struct told {
    int tier[KEYS]; /* BLOCK_CACHE_NO_TIER: nowhere */
    int wrong;
};

static void on_moved(void *arg, const struct cached_block *block, unsigned from,
                     unsigned to)
{
    struct told *told = arg;

    told->wrong += told->tier[block->key] != (int)from;
    told->tier[block->key] = (int)to;
}

/* The obvious cache: an array by age, newest first. */
struct slow_cache {
    uint64_t keys[BLOCK_TIERS][KEYS];
    size_t n[BLOCK_TIERS];
    size_t capacity[BLOCK_TIERS];
};

static void slow_remove(struct slow_cache *c, uint64_t key)
{
    for (int t = 0; t < BLOCK_TIERS; t++)
        for (size_t i = 0; i < c->n[t]; i++)
            if (c->keys[t][i] == key) {
                memmove(&c->keys[t][i], &c->keys[t][i + 1],
                        (c->n[t] - i - 1) * sizeof(uint64_t));
                c->n[t]--;
                return;
            }
}

static void slow_put(struct slow_cache *c, int t, uint64_t key)
{
    while (t < BLOCK_TIERS && c->capacity[t] == 0)
        t++;
    if (t == BLOCK_TIERS)
        return;
    memmove(&c->keys[t][1], &c->keys[t][0], c->n[t] * sizeof(uint64_t));
    c->keys[t][0] = key;
    c->n[t]++;
    while (c->n[t] > c->capacity[t]) {
        uint64_t oldest = c->keys[t][--c->n[t]];

        slow_put(c, t + 1, oldest);
    }
}

static int slow_tier(const struct slow_cache *c, uint64_t key)
{
    for (int t = 0; t < BLOCK_TIERS; t++)
        for (size_t i = 0; i < c->n[t]; i++)
            if (c->keys[t][i] == key)
                return t;
    return BLOCK_CACHE_NO_TIER;
}

static uint64_t cache_count(const struct block_cache *cache)
{
    uint64_t n = 0;

    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        n += cache->count[t];
    return n;
}

static bool tier_is_right(const struct block_cache *cache, unsigned tier)
{
    uint32_t older = BLOCK_CACHE_NONE;
    uint64_t n = 0;

    for (uint32_t s = cache->oldest[tier]; s != BLOCK_CACHE_NONE;
         s = cache->slots[s].newer) {
        const struct cached_block *b = &cache->slots[s];

        if (b->older != older || b->tier != tier ||
            block_cache_find(cache, b->key) != s || ++n > cache->n_slots)
            return false;
        older = s;
    }
    return older == cache->newest[tier] && n == cache->count[tier] &&
           n <= cache->capacity[tier];
}

/* Whether lists, chains and counts agree. */
static bool cache_is_right(const struct block_cache *cache)
{
    uint64_t n_free = 0;

    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        if (!tier_is_right(cache, t))
            return false;
    for (uint32_t s = cache->free_slot; s != BLOCK_CACHE_NONE;
         s = cache->slots[s].newer)
        n_free++;
    return cache_count(cache) + n_free == cache->fresh;
}

static void check_cache(const uint64_t *capacity, uint64_t random_seed)
{
    struct told told = {.wrong = 0};
    struct slow_cache slow = {0};
    struct block_cache *cache = block_cache_new(capacity, on_moved, &told);
    struct random_state random;

    CU_ASSERT_PTR_NOT_NULL_FATAL(cache);
    random_init(&random, random_seed);
    for (int t = 0; t < BLOCK_TIERS; t++)
        slow.capacity[t] = capacity[t];
    for (int k = 0; k < KEYS; k++)
        told.tier[k] = BLOCK_CACHE_NO_TIER;
    for (int round = 0; round < 5000; round++) {
        uint64_t key = random_below(&random, KEYS);
        uint32_t slot = block_cache_find(cache, key);

        if (slot != BLOCK_CACHE_NONE)
            block_cache_touch(cache, slot);
        else
            CU_ASSERT_EQUAL_FATAL(block_cache_place(cache, key, 0, 7, true), 0);
        slow_remove(&slow, key);
        slow_put(&slow, 0, key);
        if (round == 3000 && capacity[0] > 2) {
            block_cache_set_capacity(cache, TIER_DEVICE, 2);
            slow.capacity[0] = 2;
            while (slow.n[0] > 2) {
                uint64_t oldest = slow.keys[0][--slow.n[0]];

                slow_put(&slow, 1, oldest);
            }
        }
        for (uint64_t k = 0; k < KEYS; k++)
            if (told.tier[k] != slow_tier(&slow, k) || told.wrong > 0) {
                printf("seed %llu, round %d\n", (unsigned long long)random_seed,
                       round);
                CU_FAIL_FATAL("the cache differs from the obvious one");
            }
    }
    CU_ASSERT(cache_is_right(cache));
    block_cache_free(cache);
}

static void test_cache(void)
{
    const uint64_t one[] = {7, 0, 0};
    const uint64_t three[] = {3, 5, 9};
    const uint64_t outer[] = {4, 0, 6};
    const uint64_t none[] = {0, 0, 0};

    check_cache(one, seed_or(1));
    check_cache(three, seed_or(1));
    check_cache(outer, seed_or(1));
    check_cache(none, seed_or(1));
    block_cache_free(NULL);
}

static void on_moved_count(void *arg, const struct cached_block *block,
                           unsigned from, unsigned to)
{
    uint64_t *n_gone = arg;

    (void)block;
    (void)from;
    *n_gone += to == BLOCK_CACHE_NO_TIER;
}

/* Grows beyond its first slots and finds everything again. */
static void test_cache_grows(void)
{
    const uint64_t capacity[] = {3000, 0, 0};
    uint64_t n_gone = 0;
    struct block_cache *cache =
        block_cache_new(capacity, on_moved_count, &n_gone);

    CU_ASSERT_PTR_NOT_NULL_FATAL(cache);
    for (uint64_t k = 1; k <= 5000; k++)
        CU_ASSERT_EQUAL_FATAL(block_cache_place(cache, k << 32, 0, k, false),
                              0);
    CU_ASSERT_EQUAL(n_gone, 2000);
    CU_ASSERT_EQUAL(cache_count(cache), 3000);
    for (uint64_t k = 1; k <= 5000; k++)
        CU_ASSERT_EQUAL(block_cache_find(cache, k << 32) != BLOCK_CACHE_NONE,
                        k > 2000);
    uint32_t slot = block_cache_find(cache, UINT64_C(4000) << 32);
    CU_ASSERT_EQUAL(block_cache_at(cache, slot)->owner, 4000);
    CU_ASSERT_FALSE(block_cache_at(cache, slot)->ready);
    CU_ASSERT(cache_is_right(cache));
    block_cache_free(cache);
}

/* Where blocks are placed at dispatch, both indexes know the stored blocks, and
 * neither knows the blocks that they evicted. */
static void test_stored_expected(void)
{
    const struct prefix_index_config config = {.max_instances = 1,
                                               .max_bytes = 1 << 20,
                                               .max_pairs = 1024,
                                               .grows = true,
                                               .seed = seed_or(1)};
    uint64_t keys[] = {11, 12, 13, 21, 22, 23};
    static struct sim_node node;
    static struct sim sim = {.nodes = &node,
                             .n_nodes = 1,
                             .cluster = {.prefix_cache = true,
                                         .prefill_nodes = 1,
                                         .block_tokens = 16}};

    node.sim = &sim;
    node.has.tiers[TIER_DEVICE].capacity_tokens = 4 * 16;
    sim.index = prefix_index_new(&config);
    sim.expected = prefix_index_new(&config);
    CU_ASSERT_FATAL(sim.index && sim.expected && sim_copies_init(&sim) == 0);
    for (int i = 0; i < 2; i++) {
        const struct sim_request r = {.keys = keys + 3 * i, .n_keys = 3};

        sim_copies_store(&sim, &node, &r, 0, 3);
    }
    for (int i = 0; i < 6; i++) {
        bool held = block_cache_find(node.cache, keys[i]) != BLOCK_CACHE_NONE;

        CU_ASSERT_EQUAL(held, i >= 2);
        CU_ASSERT_EQUAL(prefix_index_tiers(sim.index, 0, keys[i]) > 0, held);
        CU_ASSERT_EQUAL(prefix_index_tiers(sim.expected, 0, keys[i]) > 0, held);
    }
    sim_copies_fini(&sim);
    prefix_index_free(sim.expected);
    prefix_index_free(sim.index);
}

struct links_rig {
    struct heap heap;
    struct sim_links *links;
};

static void links_setup(struct links_rig *r, bool shared)
{
    memset(r, 0, sizeof(*r));
    CU_ASSERT_EQUAL_FATAL(heap_reserve(&r->heap, 4), 0);
    r->links = links_new(&(struct links_config){.heap = &r->heap,
                                                .first_id = 4,
                                                .n_nodes = 4,
                                                .bytes_per_s = 1e6,
                                                .shared = shared});
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->links);
}

static void links_teardown(struct links_rig *r)
{
    links_free(r->links);
    heap_fini(&r->heap);
}

/* The next transfer must be `kind`, and end then. */
static void expect_end(struct links_rig *r, int kind, int64_t at_us)
{
    const struct heap_entry *first = heap_first(&r->heap);
    struct links_end end;

    CU_ASSERT_PTR_NOT_NULL_FATAL(first);
    CU_ASSERT_EQUAL(first->at, at_us);
    CU_ASSERT_EQUAL(first->rank, LINKS_RANK);
    end = links_finish(r->links, first->id, first->at);
    CU_ASSERT_EQUAL(end.kind, kind);
}

#define LINKS_TEST(test)                                        \
    SUITE_TEST(test, struct links_rig, r, links_setup(r, true), \
               links_teardown(r))

/* A byte a microsecond. Two that leave node 0 at once have half of it each;
 * one that comes later to a busy receiver shares with it there. */
LINKS_TEST(test_links_shared)
{
    CU_ASSERT_EQUAL(links_start(r->links, 0, 1, 100, 1, NULL, 0), 0);
    CU_ASSERT_EQUAL(links_start(r->links, 0, 2, 400, 2, NULL, 0), 0);
    CU_ASSERT_EQUAL(links_start(r->links, 3, 0, 50, 3, NULL, 0), 0);
    /* 3 is alone in its direction: 50. 1 ends at 200; then 2 has 300 left and
     * the whole link, until 4 comes to its receiver at 300: 200 left. */
    expect_end(r, 3, 50);
    expect_end(r, 1, 200);
    CU_ASSERT_EQUAL(links_start(r->links, 1, 2, 50, 4, NULL, 300), 0);
    expect_end(r, 4, 400);
    expect_end(r, 2, 550);
    CU_ASSERT_PTR_NULL(heap_first(&r->heap));
}

/* One behind others stands while they use either of its ends; then it runs at
 * its own rate at most. */
LINKS_TEST(test_links_behind)
{
    CU_ASSERT_EQUAL(links_start_behind(r->links, 0, 1, 100, 0.5e6, 1, NULL, 0),
                    0);
    CU_ASSERT_EQUAL(links_start(r->links, 0, 2, 60, 2, NULL, 100), 0);
    expect_end(r, 2, 160); /* it has all of its link */
    CU_ASSERT_EQUAL(links_start(r->links, 3, 1, 40, 3, NULL, 170), 0);
    expect_end(r, 3, 210);
    /* 50 bytes until 100, 5 until 170: 45 to go. Two of them share. */
    CU_ASSERT_EQUAL(links_start_behind(r->links, 0, 3, 1000, 1e6, 4, NULL, 210),
                    0);
    expect_end(r, 1, 300);
    expect_end(r, 4, 1255); /* 45 bytes by then */
    CU_ASSERT_PTR_NULL(heap_first(&r->heap));
}

static void test_links_unshared(void)
{
    struct links_rig r;

    links_setup(&r, false);
    CU_ASSERT_EQUAL(links_start(r.links, 0, 1, 100, 1, NULL, 0), 0);
    CU_ASSERT_EQUAL(links_start(r.links, 0, 1, 400, 2, NULL, 0), 0);
    CU_ASSERT_EQUAL(links_delay(r.links, 3, NULL, 0, 70), 0);
    CU_ASSERT_EQUAL(links_start(r.links, 0, 1, 0, 4, NULL, 20), 0);
    expect_end(&r, 4, 20);
    expect_end(&r, 3, 70);
    expect_end(&r, 1, 100);
    expect_end(&r, 2, 400);
    links_teardown(&r);
    links_free(NULL);
}

/* Whatever comes and goes, nothing is sent faster than its links allow, and
 * all of it arrives: total bytes over total time of a busy link. */
LINKS_TEST(test_links_conserve)
{
    struct random_state random;
    int64_t now_us = 0;
    double sent = 0;
    int n = 0;

    random_init(&random, seed_or(1));
    for (int i = 0; i < 300; i++) {
        uint32_t to = 1 + random_below(&random, 3);
        double bytes = 1 + random_below(&random, 10000);

        sent += bytes;
        CU_ASSERT_EQUAL(links_start(r->links, 0, to, bytes, 1, NULL, now_us),
                        0);
    }
    while (heap_first(&r->heap)) {
        struct heap_entry first = *heap_first(&r->heap);

        CU_ASSERT(first.at >= now_us);
        now_us = first.at;
        (void)links_finish(r->links, first.id, now_us);
        n++;
    }
    CU_ASSERT_EQUAL(n, 300);
    /* Node 0 was busy all the time. Ends are rounded to microseconds. */
    CU_ASSERT_DOUBLE_EQUAL((double)now_us, sent, 300);
}

static const struct suite_test tests[] = {
    {"heap", test_heap},
    {"cache", test_cache},
    {"cache grows", test_cache_grows},
    {"stored and expected", test_stored_expected},
    {"links shared", test_links_shared},
    {"links behind", test_links_behind},
    {"links unshared", test_links_unshared},
    {"links conserve", test_links_conserve},
};
SUITE("sim_parts", tests)
