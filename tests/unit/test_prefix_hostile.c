/*
 * What a hostile instance says of keys, and what honest ones are found to hold
 * beside it: the faults of an index of linked blocks, and attacks on pages that
 * instances share. bench_index_faults has the times.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "conductor/core/index/pages.h"
#include "tests/unit/prefix_check.h"
#include "tests/unit/suite.h"

enum { FLEET = 32, CHAINS = 8, LENGTH = 256, STEP = 4, HOSTILE = FLEET };

struct rig {
    struct prefix_index *ix;
    struct prefix_match match;
    uint64_t junk; /* chains of its own that the hostile one made */
};

static uint64_t mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void chain_keys(uint64_t chain, uint64_t *keys, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        keys[k] = mix(chain << 32 | (k + 1)) | 1;
}

static void rig_init(struct rig *r, uint64_t max_bytes)
{
    memset(r, 0, sizeof(*r));
    r->ix = prefix_index_new(
        &(struct prefix_index_config){.max_instances = FLEET + 1,
                                      .max_bytes = max_bytes,
                                      .evicts = true,
                                      .seed = 4711});
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->ix);
    CU_ASSERT_EQUAL_FATAL(prefix_match_init(&r->match, FLEET + 1), 0);
}

static void rig_fini(struct rig *r)
{
    CU_ASSERT(prefix_index_check(r->ix));
    prefix_match_fini(&r->match);
    prefix_index_free(r->ix);
}

static int store(struct rig *r, uint32_t instance, uint64_t parent,
                 const uint64_t *keys, uint32_t n)
{
    return prefix_index_stored(r->ix, instance, TIER_HOST, parent, keys, n);
}

static uint32_t matched(struct rig *r, uint32_t instance, const uint64_t *keys,
                        uint32_t n)
{
    prefix_index_match(r->ix, keys, n, &r->match);
    return r->match.blocks[instance];
}

#define RIG_TEST(test, ...) \
    SUITE_TEST(test, struct rig, r, rig_init(r, __VA_ARGS__), rig_fini(r))

RIG_TEST(test_lies_about_parents, 1 << 20)
{
    uint64_t keys[16], other;

    chain_keys(1, keys, 16);
    chain_keys(2, &other, 1);
    CU_ASSERT_EQUAL(store(r, HOSTILE, other, keys + 8, 1), 0);
    for (uint32_t i = 4; i < 8; i++) /* a circle */
        CU_ASSERT_EQUAL(store(r, HOSTILE, keys[i + 1], keys + i, 1), 0);
    CU_ASSERT_EQUAL(store(r, 0, 0, keys, 16), 0);
    CU_ASSERT_EQUAL(matched(r, 0, keys, 16), 16);
    CU_ASSERT_EQUAL(matched(r, HOSTILE, keys, 16), 0);
    prefix_index_cleared(r->ix, HOSTILE);
    CU_ASSERT_EQUAL(matched(r, 0, keys, 16), 16);
}

static void test_keys_of_equal_bytes(void)
{
    static const uint64_t change[] = {
        UINT64_C(0x55) << 56, UINT64_C(0x55) << 32, UINT64_C(0x55) << 1};

    for (size_t c = 0; c < 3; c++) {
        struct rig r;
        uint64_t keys[21], like[21];

        rig_init(&r, 1 << 20);
        chain_keys(1, keys, 21);
        for (uint32_t i = 0; i < 21; i++)
            like[i] = i < 10 ? keys[i] ^ change[c] : keys[i];
        CU_ASSERT_EQUAL(store(&r, 0, 0, keys, 10), 0);
        CU_ASSERT_EQUAL(store(&r, HOSTILE, 0, like, 21), 0);
        CU_ASSERT_EQUAL(matched(&r, 0, keys, 21), 10);
        CU_ASSERT_EQUAL(matched(&r, HOSTILE, keys, 21), 0);
        rig_fini(&r);
    }
}

RIG_TEST(test_nothing_stays_for_dropped_blocks, 1 << 20)
{
    uint64_t keys[2000];

    chain_keys(1, keys, 2000);
    CU_ASSERT_EQUAL(store(r, 0, 0, keys, 2000), 0);
    CU_ASSERT_EQUAL(prefix_index_removed(r->ix, 0, TIER_HOST, keys, 1999), 0);
    CU_ASSERT(prefix_index_stats(r->ix).keys <= PAGE_KEYS);
    CU_ASSERT_EQUAL(prefix_index_held(r->ix, 0), 1);
}

RIG_TEST(test_clears_in_a_loop, 1 << 20)
{
    uint64_t keys[2];

    chain_keys(1, keys, 2);
    CU_ASSERT_EQUAL(store(r, 0, 0, keys, 2), 0);
    for (uint32_t i = 0; i < 10000; i++) {
        int rc = store(r, HOSTILE, 0, keys, 2);

        CU_ASSERT_EQUAL(rc, i < UNSWEPT_MAX ? 0 : -ENOSPC);
        prefix_index_cleared(r->ix, HOSTILE);
    }
    CU_ASSERT_EQUAL(store(r, 1, 0, keys, 2), 0);
    while (prefix_index_work(r->ix, 100))
        continue;
    CU_ASSERT_EQUAL(store(r, HOSTILE, 0, keys, 2), 0);
    CU_ASSERT_EQUAL(matched(r, HOSTILE, keys, 2), 2);
    CU_ASSERT_EQUAL(matched(r, 0, keys, 2), 2);
}

static uint32_t pages_with(const struct rig *r, uint32_t records)
{
    uint32_t n, count = 0;

    for (uint32_t page = 1; page < r->ix->fresh; page++)
        if (page_records(r->ix, &r->ix->pages[page], &n) && n == records)
            count++;
    return count;
}

/* Half-empty pages with records of a cleared instance cost what they cost,
 * though they cannot be put together. */
static void test_looks_beside_a_clear(void)
{
    enum { PAGES = 300, LOOKS = 2000 };
    struct rig r;
    uint64_t keys[4];
    uint32_t looks = LOOKS;

    rig_init(&r, 1 << 20);
    for (uint32_t c = 0; c < PAGES * 3; c++) {
        chain_keys(c / 3 + 1, keys, 4);
        CU_ASSERT_EQUAL(store(&r, c % 3, 0, keys, 4), 0);
    }
    prefix_index_cleared(r.ix, 2);
    while (arena_alloc(&r.ix->arena, ARENA_CLASS_MIN) != ARENA_NONE)
        continue;
    CU_ASSERT_EQUAL(pages_with(&r, 3), PAGES);
    CU_ASSERT(
        !evict(r.ix, 0, (struct page_use){0}, ARENA_CLASS_MAX + 1, &looks));
    CU_ASSERT(pages_with(&r, 3) >= PAGES - LOOKS / LOOKS_A_CHANGED_PAGE - 1);
    CU_ASSERT(pages_with(&r, 3) < PAGES);
    rig_fini(&r);
}

/* However many clear in a loop, an instance has room after a clear of its own.
 */
static void test_clears_of_many(void)
{
    const uint32_t n = 256, hostile = 220;
    struct prefix_index *ix =
        prefix_index_new(&(struct prefix_index_config){.max_instances = n,
                                                       .max_bytes = 1 << 20,
                                                       .evicts = true,
                                                       .seed = 4711});
    uint64_t keys[2];

    CU_ASSERT_PTR_NOT_NULL_FATAL(ix);
    for (uint32_t i = 0; i < n; i++) {
        chain_keys(i, keys, 2);
        for (uint32_t c = 0; c < (i < hostile ? 10 : 1); c++) {
            (void)!prefix_index_stored(ix, i, TIER_HOST, 0, keys, 2);
            prefix_index_cleared(ix, i);
        }
    }
    CU_ASSERT(prefix_index_check(ix));
    for (uint32_t i = hostile; i < n; i++) {
        chain_keys(i, keys, 2);
        CU_ASSERT_EQUAL(prefix_index_stored(ix, i, TIER_HOST, 0, keys, 2), 0);
        CU_ASSERT_EQUAL(prefix_index_held(ix, i), 2);
    }
    while (prefix_index_work(ix, 100))
        CU_ASSERT(prefix_index_check(ix));
    CU_ASSERT_EQUAL(prefix_index_stored(ix, 0, TIER_HOST, 0, keys, 2), 0);
    CU_ASSERT(prefix_index_check(ix));
    prefix_index_free(ix);
}

RIG_TEST(test_heals, 100000)
{
    uint64_t keys[1000];
    uint64_t missing;
    uint32_t n = 0;

    for (; !prefix_index_incomplete(r->ix, 0) && n < 100; n++) {
        if (n == 50) /* room returns */
            for (uint32_t i = 1; i <= FLEET; i++)
                prefix_index_cleared(r->ix, i);
        while (prefix_index_work(r->ix, 1000))
            continue;
        for (uint32_t i = 0; i <= FLEET && n < 50; i++) {
            chain_keys(1 + i, keys, 200);
            (void)!store(r, i, 0, keys, 200);
        }
    }
    CU_ASSERT_EQUAL(n, 51);
    /* An inventory that is given up changes no count. */
    missing = prefix_index_unindexed(r->ix, 0);
    CU_ASSERT(missing > 0);
    prefix_index_told_again(r->ix, 0);
    prefix_index_told(r->ix, 0, false);
    CU_ASSERT_EQUAL(prefix_index_unindexed(r->ix, 0), missing);
    CU_ASSERT_EQUAL(prefix_index_stats(r->ix).unindexed, missing);
    prefix_index_told_again(r->ix, 0);
    chain_keys(1, keys, 200);
    CU_ASSERT_EQUAL(store(r, 0, 0, keys, 200), 0);
    prefix_index_told(r->ix, 0, true);
    CU_ASSERT_EQUAL(prefix_index_unindexed(r->ix, 0), 0);
    CU_ASSERT(!prefix_index_incomplete(r->ix, 0));
    CU_ASSERT_EQUAL(matched(r, 0, keys, 200), 200);
}

/* What has no room during an inventory that is given up is missing, too. */
RIG_TEST(test_inventory_given_up, 1 << 20)
{
    uint64_t keys[200];

    prefix_index_set_quota(r->ix, 0, 10);
    chain_keys(1, keys, 200);
    CU_ASSERT_EQUAL(store(r, 0, 0, keys, 70), -ENOSPC);
    CU_ASSERT_EQUAL(prefix_index_unindexed(r->ix, 0), 60);
    prefix_index_told_again(r->ix, 0);
    CU_ASSERT_EQUAL(store(r, 0, 0, keys + 70, 61), -ENOSPC);
    prefix_index_told_again(r->ix, 0); /* and begun anew */
    CU_ASSERT_EQUAL(store(r, 0, 0, keys + 131, 50), -ENOSPC);
    prefix_index_told(r->ix, 0, false);
    CU_ASSERT_EQUAL(prefix_index_unindexed(r->ix, 0), 171);
    CU_ASSERT_EQUAL(prefix_index_stats(r->ix).unindexed, 171);
}

static size_t touched(const void *memory, size_t bytes)
{
    static unsigned char resident[(32 << 20) / 4096];
    uintptr_t from = (uintptr_t)memory & ~(uintptr_t)4095;
    size_t n = 0;

    CU_ASSERT_EQUAL_FATAL(mincore((void *)from, bytes, resident), 0);
    for (size_t i = 1; i < bytes / 4096; i++)
        n += resident[i] & 1;
    return n;
}

/* A table is not touched when it is made, whatever was in its memory before,
 * nor when it grows. */
static void test_table_untouched(void)
{
    enum { BYTES = 16 << 20, PAGE = 4096, HUGE = 512 };
    unsigned char *volatile used;
    unsigned char *table;

    /* From now on malloc() reuses large ones. */
    used = malloc(2 * BYTES - PAGE);
    CU_ASSERT_PTR_NOT_NULL_FATAL(used);
    used[0] = 1;
    free(used);
    used = malloc(BYTES + BYTES / 2);
    CU_ASSERT_PTR_NOT_NULL_FATAL(used);
    memset((void *)used, 1, BYTES + BYTES / 2);
    free(used);
    table = table_zeroed(BYTES / 8, 8);
    CU_ASSERT_PTR_NOT_NULL_FATAL(table);
    CU_ASSERT_EQUAL(touched(table, BYTES), 0);
    CU_ASSERT_EQUAL(table[0], 0);
    table[1] = 1;
    table = table_resized(table, BYTES / 8, BYTES / 4, 8);
    CU_ASSERT_PTR_NOT_NULL_FATAL(table);
    CU_ASSERT(touched(table, 2 * BYTES) <= HUGE);
    CU_ASSERT(table[1] == 1 && table[2 * BYTES - 1] == 0);
    table_free(table, BYTES / 4, 8);
    table = table_resized(NULL, 0, 2, 8);
    CU_ASSERT_PTR_NOT_NULL_FATAL(table);
    table[15] = 1;
    table = table_resized(table, 2, BYTES / 8, 8);
    CU_ASSERT_PTR_NOT_NULL_FATAL(table);
    CU_ASSERT(table[15] == 1 && table[16] == 0);
    table_free(table, BYTES / 8, 8);
    table_free(NULL, 1, 1);
}

/* --- a full index, and a hostile instance beside a fleet that grows ------ */

typedef void (*hostile_fn)(struct rig *r, const uint64_t *chain, uint32_t at);

static void fleet_chain(uint32_t instance, uint32_t c, uint64_t *keys)
{
    chain_keys(c == 0 ? 1 : 1000 + instance * CHAINS + c, keys, LENGTH);
}

/* The blocks that a fleet misses that is within its equal part. */
static uint32_t missed_beside(hostile_fn before, hostile_fn after)
{
    struct rig r;
    uint64_t keys[LENGTH];
    uint32_t missed = 0;

    rig_init(&r, 2 << 20);
    for (uint32_t at = 0; at < LENGTH; at += STEP)
        for (uint32_t n = 0; n < FLEET * CHAINS; n++) {
            fleet_chain(n / CHAINS, n % CHAINS, keys);
            if (before)
                before(&r, keys, at);
            (void)!store(&r, n / CHAINS, at > 0 ? keys[at - 1] : 0, keys + at,
                         STEP);
            if (after)
                after(&r, keys, at);
        }
    for (uint32_t n = 0; n < FLEET * CHAINS; n++) {
        fleet_chain(n / CHAINS, n % CHAINS, keys);
        missed += LENGTH - matched(&r, n / CHAINS, keys, LENGTH);
    }
    rig_fini(&r);
    return missed;
}

static void beside(hostile_fn before, hostile_fn after)
{
    CU_ASSERT_EQUAL(missed_beside(before, after), 0);
}

/* Its own keys behind the end of each chain, which others go on with. */
static void append(struct rig *r, const uint64_t *chain, uint32_t at)
{
    uint64_t junk[PAGE_KEYS];

    chain_keys(1000000 + ++r->junk, junk, PAGE_KEYS);
    (void)!store(r, HOSTILE, chain[at + STEP - 1], junk, PAGE_KEYS - 1);
}

/* The keys of others before they come, each in a page of its own. */
static void come_first(struct rig *r, const uint64_t *chain, uint32_t at)
{
    for (uint32_t k = STEP; k-- > 0;)
        (void)!store(r, HOSTILE, 0, chain + at + k, 1);
}

/* Single keys, each in a page of its own; the same again later. */
static void flood(struct rig *r, const uint64_t *chain, uint32_t at)
{
    uint64_t junk[64];

    (void)chain;
    (void)at;
    chain_keys(1000000 + ++r->junk % 4096, junk, 64);
    for (uint32_t k = 0; k < 64; k++)
        (void)!store(r, HOSTILE, 0, junk + k, 1);
}

static void flood_and_clear(struct rig *r, const uint64_t *chain, uint32_t at)
{
    flood(r, chain, at);
    prefix_index_cleared(r->ix, HOSTILE);
    (void)prefix_index_work(r->ix, 1000);
}

/* All keys of all, a page for each 16 chains, once. */
static void shuffle(struct rig *r)
{
    uint64_t keys[PAGE_KEYS][LENGTH], page[PAGE_KEYS];

    for (uint32_t n = 0; n < FLEET * CHAINS; n += PAGE_KEYS) {
        for (uint32_t i = 0; i < PAGE_KEYS; i++)
            fleet_chain((n + i) % FLEET, (n + i) / FLEET, keys[i]);
        for (uint32_t k = 0; k < LENGTH; k++) {
            for (uint32_t i = 0; i < PAGE_KEYS; i++)
                page[i] = keys[i][k];
            (void)!store(r, HOSTILE, 0, page, PAGE_KEYS);
        }
    }
}

static void shuffle_first(struct rig *r, const uint64_t *chain, uint32_t at)
{
    (void)chain;
    if (at == 0 && r->junk++ == 0)
        shuffle(r);
}

/* When all of them are there. */
static void shuffle_last(struct rig *r, const uint64_t *chain, uint32_t at)
{
    (void)chain;
    if (at == LENGTH - STEP && ++r->junk == FLEET * CHAINS)
        shuffle(r);
}

/* Pages in which 16 chains are mixed take a record for each of their blocks,
 * for which there is no room. */
static void test_shuffled(void)
{
    CU_ASSERT(missed_beside(shuffle_first, NULL) <
              FLEET * CHAINS * LENGTH / 20);
    beside(NULL, shuffle_last);
}

/* A chain takes its keys out of the pages of one that uses far too much, which
 * holds them as before. */
static void test_keys_are_gathered(void)
{
    enum { N = PAGE_KEYS };
    struct rig r;
    uint64_t keys[N][PAGE_KEYS], page[N];

    rig_init(&r, 20000);
    for (uint32_t i = 0; i < FLEET; i++) {
        chain_keys(100 + i, page, 1);
        CU_ASSERT_EQUAL(store(&r, i, 0, page, 1), 0);
    }
    for (uint32_t c = 0; c < N; c++)
        chain_keys(1 + c, keys[c], PAGE_KEYS);
    for (uint32_t k = 0; k < PAGE_KEYS; k++) {
        for (uint32_t c = 0; c < N; c++)
            page[c] = keys[c][k];
        CU_ASSERT_EQUAL(store(&r, HOSTILE, 0, page, N), 0);
    }
    CU_ASSERT_EQUAL(prefix_index_held(r.ix, HOSTILE), N * PAGE_KEYS);
    CU_ASSERT_EQUAL(store(&r, 0, 0, keys[0], PAGE_KEYS), 0);
    CU_ASSERT_EQUAL(matched(&r, 0, keys[0], PAGE_KEYS), PAGE_KEYS);
    CU_ASSERT_EQUAL(r.match.blocks[HOSTILE], PAGE_KEYS);
    CU_ASSERT_EQUAL(r.ix->instances[0].pages, 2);
    CU_ASSERT_EQUAL(prefix_index_held(r.ix, HOSTILE), N * PAGE_KEYS);
    CU_ASSERT_EQUAL(prefix_index_unindexed(r.ix, HOSTILE), 0);
    rig_fini(&r);
}

static void test_junk_in_their_pages(void)
{
    beside(NULL, append);
}

static void test_their_keys_first(void)
{
    beside(come_first, NULL);
}

static void test_floods(void)
{
    beside(NULL, flood);
}

static void test_floods_and_clears(void)
{
    beside(NULL, flood_and_clear);
}

RIG_TEST(test_another_tier_at_the_quota, 1 << 20)
{
    uint64_t keys[11];

    chain_keys(1, keys, 11);
    prefix_index_set_quota(r->ix, 0, 10);
    CU_ASSERT_EQUAL(store(r, 0, 0, keys, 10), 0);
    /* What it holds already takes no more of it; what is new does. */
    CU_ASSERT_EQUAL(store(r, 0, 0, keys, 10), 0);
    CU_ASSERT_EQUAL(
        prefix_index_stored(r->ix, 0, TIER_DISK, keys[7], keys + 8, 3),
        -ENOSPC);
    CU_ASSERT_EQUAL(prefix_index_unindexed(r->ix, 0), 1);
    CU_ASSERT_EQUAL(prefix_index_removed(r->ix, 0, TIER_HOST, keys + 8, 2), 0);
    CU_ASSERT_EQUAL(matched(r, 0, keys, 11), 10);
    CU_ASSERT_EQUAL(prefix_index_held(r->ix, 0), 10);
}

/* An evicted block stays missing until it is removed from all its tiers. */
RIG_TEST(test_evicted_from_two_tiers, 100000)
{
    uint64_t keys[200], others[200];
    uint64_t missing = 0;

    for (uint32_t c = 1; c <= 10; c++) {
        chain_keys(c, keys, 200);
        CU_ASSERT_EQUAL(store(r, 0, 0, keys, 200), 0);
        CU_ASSERT_EQUAL(prefix_index_stored(r->ix, 0, TIER_DISK, 0, keys, 200),
                        0);
    }
    for (uint32_t c = 0; c < 100; c++) {
        chain_keys(100 + c, others, 200);
        (void)!store(r, 1 + c % FLEET, 0, others, 200);
    }
    for (uint32_t c = 1; c <= 10; c++) {
        chain_keys(c, keys, 200);
        CU_ASSERT_EQUAL(prefix_index_removed(r->ix, 0, TIER_HOST, keys, 200),
                        0);
        for (uint32_t k = 0; k < 200; k++)
            missing += prefix_index_tiers(r->ix, 0, keys[k]) == 0;
    }
    CU_ASSERT(missing > 0);
    CU_ASSERT_EQUAL(prefix_index_unindexed(r->ix, 0), missing);
}

/* What had no room and is told again counts again, up to the next inventory:
 * no fewer blocks are counted than are missing, and then exactly those. */
RIG_TEST(test_told_twice, 1 << 20)
{
    uint64_t keys[30];

    chain_keys(1, keys, 30);
    prefix_index_set_quota(r->ix, 0, 10);
    for (uint32_t i = 1; i <= 3; i++) {
        CU_ASSERT_EQUAL(store(r, 0, 0, keys, 30), -ENOSPC);
        CU_ASSERT_EQUAL(prefix_index_held(r->ix, 0), 10);
        CU_ASSERT_EQUAL(prefix_index_unindexed(r->ix, 0), i * 20);
        CU_ASSERT_EQUAL(prefix_index_stats(r->ix).unindexed, i * 20);
    }
    prefix_index_told_again(r->ix, 0);
    CU_ASSERT_EQUAL(store(r, 0, 0, keys, 30), -ENOSPC);
    prefix_index_told(r->ix, 0, true);
    CU_ASSERT_EQUAL(prefix_index_unindexed(r->ix, 0), 20);
}

static uint64_t cost_of(struct rig *r, uint64_t chain)
{
    uint64_t keys[LENGTH], cost = prefix_index_room_cost(r->ix);

    chain_keys(chain, keys, LENGTH);
    (void)!store(r, 0, 0, keys, LENGTH);
    return prefix_index_room_cost(r->ix) - cost;
}

/* Looking for room is paid for: by nobody while there is some, and in a full
 * index of which nothing can leave to the last look. */
static void test_looks_have_a_cost(void)
{
    /* 4,096 looks of which the last may begin a round, eight a block. */
    enum { CHAINS_OF_ONE = 400, MOST = (4096 + 512 + (FLEET + 1) / 4) / 8 };
    struct rig r;
    uint64_t keys[LENGTH];
    uint64_t dearest = 0;

    rig_init(&r, 1 << 20);
    CU_ASSERT_EQUAL(cost_of(&r, 1), 0);
    while (prefix_index_unindexed(r.ix, 1) == 0) {
        chain_keys(1000 + ++r.junk, keys, LENGTH);
        (void)!store(&r, 1, 0, keys, LENGTH);
    }
    for (uint32_t c = 0; c < CHAINS_OF_ONE; c++) {
        uint64_t cost = cost_of(&r, 10 + c);

        if (cost > dearest)
            dearest = cost;
    }
    CU_ASSERT(dearest > 0 && dearest <= MOST);
    rig_fini(&r);
}

static void test_memory_is_bounded(void)
{
    for (uint64_t max = PREFIX_INDEX_BYTES_MIN; max < 1 << 24;
         max += max / 7 + 1) {
        struct rig r;

        rig_init(&r, max);
        CU_ASSERT(prefix_index_stats(r.ix).bytes_max <= max);
        rig_fini(&r);
    }
}

/* As the daemon's expected blocks: no event pays for a larger table. */
static void test_a_small_table_does_not_grow(void)
{
    enum { PAIRS = 1 << 18 };
    struct prefix_index *ix = prefix_index_new(
        &(struct prefix_index_config){.max_instances = 1,
                                      .max_bytes = 320u * PAIRS,
                                      .max_pairs = PAIRS,
                                      .grows = true,
                                      .seed = 1});
    uint32_t n_buckets;

    CU_ASSERT_PTR_NOT_NULL_FATAL(ix);
    n_buckets = ix->n_buckets;
    for (uint64_t key = 1; key <= PAIRS + 1; key++)
        CU_ASSERT_EQUAL(prefix_index_stored(ix, 0, TIER_HOST, key - 1, &key, 1),
                        0);
    CU_ASSERT_EQUAL(ix->n_buckets, n_buckets);
    prefix_index_free(ix);
}

/* Touching the table ends, changes nothing, and takes a step for each huge
 * page. */
static void test_touching(void)
{
    const uint64_t bytes = UINT64_C(64) << 20;
    struct prefix_index *ix = prefix_index_new(&(struct prefix_index_config){
        .max_instances = 2, .max_bytes = bytes, .seed = 1});
    struct prefix_match match = {0};
    uint64_t keys[100];
    uint32_t steps = 1;

    for (uint64_t i = 0; i < 100; i++)
        keys[i] = i + 1;
    CU_ASSERT_FATAL(prefix_match_init(&match, 2) == 0);
    CU_ASSERT(prefix_index_stored(ix, 1, TIER_DEVICE, 0, keys, 100) == 0);
    while (prefix_index_touch(ix))
        steps++;
    CU_ASSERT(steps >= bytes / 5 >> 21 && steps <= bytes >> 21);
    CU_ASSERT(!prefix_index_touch(ix));
    prefix_index_match(ix, keys, 100, &match);
    CU_ASSERT(match.blocks[1] == 100);
    CU_ASSERT(prefix_index_check(ix));
    prefix_match_fini(&match);
    prefix_index_free(ix);
}

static const struct suite_test tests[] = {
    {"touching", test_touching},
    {"lies about parents", test_lies_about_parents},
    {"keys of equal bytes", test_keys_of_equal_bytes},
    {"nothing stays", test_nothing_stays_for_dropped_blocks},
    {"clears in a loop", test_clears_in_a_loop},
    {"looks beside a clear", test_looks_beside_a_clear},
    {"clears of many", test_clears_of_many},
    {"another tier", test_another_tier_at_the_quota},
    {"heals", test_heals},
    {"an inventory given up", test_inventory_given_up},
    {"a table untouched", test_table_untouched},
    {"evicted", test_evicted_from_two_tiers},
    {"told twice", test_told_twice},
    {"looks have a cost", test_looks_have_a_cost},
    {"memory", test_memory_is_bounded},
    {"a table", test_a_small_table_does_not_grow},
    {"junk in their pages", test_junk_in_their_pages},
    {"their keys first", test_their_keys_first},
    {"shuffled", test_shuffled},
    {"keys are gathered", test_keys_are_gathered},
    {"floods", test_floods},
    {"floods and clears", test_floods_and_clears},
};
SUITE("prefix_hostile", tests)
