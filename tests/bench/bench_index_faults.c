/*
 * Faults that an index of linked blocks had, each as a scenario with a figure,
 * and what a hostile instance can do to the answers and times of honest ones.
 * Prints a table; judges nothing (test_prefix_hostile does). Run it alone:
 *   build/tests/bench/bench_index_faults
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "conductor/core/index/pages.h"

enum { HONEST, LIAR, INSTANCES = 128, MANY = 64000, FRAME = 256 };

static void chain_keys(uint64_t chain, uint64_t *keys, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        keys[k] = mix(chain << 32 | (k + 1)) | 1;
}

/* --- the index, as the daemon uses it ---------------------------------- */

struct rig {
    struct prefix_index *ix;
    struct prefix_match match;
    int refused; /* the worst that an event of the honest instance met */
};

static struct rig *rig_new(uint64_t max_bytes)
{
    struct rig *r = calloc(1, sizeof(*r));

    r->ix = prefix_index_new(
        &(struct prefix_index_config){.max_instances = INSTANCES,
                                      .max_bytes = max_bytes,
                                      .evicts = true,
                                      .seed = 4711});
    if (!r->ix || prefix_match_init(&r->match, INSTANCES) < 0)
        abort();
    return r;
}

static void rig_free(struct rig *r)
{
    prefix_match_fini(&r->match);
    prefix_index_free(r->ix);
    free(r);
}

/* One event; the daemon takes 256 keys at once. */
static void store(struct rig *r, uint32_t instance, uint64_t parent,
                  const uint64_t *keys, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += FRAME) {
        uint32_t some = n - i < FRAME ? n - i : FRAME;
        int rc = prefix_index_stored(r->ix, instance, TIER_HOST, parent,
                                     keys + i, some);

        if (rc == -EINVAL && instance == HONEST)
            r->refused++;
        parent = keys[i + some - 1];
    }
}

static void drop(struct rig *r, uint32_t instance, const uint64_t *keys,
                 uint32_t n)
{
    (void)!prefix_index_removed(r->ix, instance, TIER_HOST, keys, n);
}

static uint32_t match(struct rig *r, uint32_t instance, const uint64_t *keys,
                      uint32_t n)
{
    prefix_index_match(r->ix, keys, n, &r->match);
    return r->match.blocks[instance];
}

/* Keys that fall into one bucket of an index with another seed: whoever
 * chooses them cannot know this one's. */
static void chosen_keys(uint64_t *keys, uint32_t n)
{
    struct prefix_index *guess = prefix_index_new(&(struct prefix_index_config){
        .max_instances = INSTANCES, .max_bytes = 32u << 20, .seed = 1});
    uint64_t key = 1;

    for (uint32_t i = 0; i < n; key++)
        if ((key_hash(&guess->secret, key) >> 32) * 1024 >> 32 == 0)
            keys[i++] = key;
    prefix_index_free(guess);
}

/* Clears; returns the longest time in which nothing else could be done. */
static double clear(struct rig *r, uint32_t instance)
{
    double longest = now_s();

    prefix_index_cleared(r->ix, instance);
    longest = now_s() - longest;
    for (bool more = true; more;) {
        double slice = now_s();

        more = prefix_index_work(r->ix, 4096);
        slice = now_s() - slice;
        longest = slice > longest ? slice : longest;
    }
    return longest;
}

static uint64_t known_keys(const struct rig *r)
{
    return prefix_index_stats(r->ix).keys;
}

/* What the daemon does when room has returned. Returns whether it asks. */
static bool asks_again(struct rig *r, uint32_t instance)
{
    if (!prefix_index_incomplete(r->ix, instance))
        return false;
    prefix_index_told_again(r->ix, instance);
    return true;
}

/* --- faults ------------------------------------------------------------ */

static void row(const char *name, const char *format, double a, double b)
{
    printf("  %-56s ", name);
    printf(format, a, b);
    printf("\n");
}

static void wrong_parent(void)
{
    struct rig *r = rig_new(8 << 20);
    uint64_t keys[16], other[1];
    uint32_t before;

    chain_keys(1, keys, 16);
    chain_keys(2, other, 1);
    store(r, LIAR, other[0], keys + 8, 1);
    store(r, HONEST, 0, keys, 16);
    before = match(r, HONEST, keys, 16);
    (void)clear(r, LIAR);
    store(r, HONEST, 0, keys, 16);
    row("a wrong parent: of 16 blocks; when the liar is gone", "%.0f; %.0f",
        before, match(r, HONEST, keys, 16));
    rig_free(r);
}

static void circle(void)
{
    struct rig *r = rig_new(8 << 20);
    uint64_t keys[16];

    chain_keys(1, keys, 16);
    for (uint32_t i = 4; i < 8; i++)
        store(r, LIAR, keys[i + 1], keys + i, 1);
    store(r, HONEST, 0, keys, 16);
    row("a circle: of 16 blocks; events refused", "%.0f; %.0f",
        match(r, HONEST, keys, 16), r->refused);
    rig_free(r);
}

static void top_byte(void)
{
    struct rig *r = rig_new(8 << 20);
    uint64_t keys[21], like[21];

    chain_keys(1, keys, 21);
    for (uint32_t i = 0; i < 21; i++)
        like[i] = i < 10 ? keys[i] ^ UINT64_C(0x55) << 56 : keys[i];
    store(r, HONEST, 0, keys, 10);
    store(r, LIAR, 0, like, 21);
    row("keys that differ in the top byte: honest of 10; liar of 0",
        "%.0f; %.0f", match(r, HONEST, keys, 21), match(r, LIAR, keys, 21));
    rig_free(r);
}

static void unknown_root(void)
{
    struct rig *r = rig_new(32 << 20);
    static uint64_t keys[MANY + 1];
    double begin;

    chain_keys(1, keys, MANY + 1);
    begin = now_s();
    store(r, HONEST, keys[0], keys + 1, MANY);
    row("64,000 blocks behind an unknown root, ms", "%.1f",
        (now_s() - begin) * 1e3, 0);
    rig_free(r);
}

static void full_and_room_again(void)
{
    struct rig *r = rig_new(1 << 20);
    static uint64_t all[MANY];
    uint32_t before;

    for (uint32_t i = LIAR; i < LIAR + 20; i++) {
        chain_keys(i, all, 8000);
        store(r, i, 0, all, 8000);
    }
    chain_keys(1000, all, 12000);
    for (uint32_t at = 0; at < 12000; at += 1000)
        store(r, HONEST, 0, all + at, 1000);
    before = 0;
    for (uint32_t at = 0; at < 12000; at += 1000)
        before += match(r, HONEST, all + at, 1000);
    for (uint32_t i = LIAR; i < LIAR + 20; i++)
        (void)clear(r, i);
    if (asks_again(r, HONEST))
        for (uint32_t at = 0; at < 12000; at += 1000)
            store(r, HONEST, 0, all + at, 1000);
    uint32_t healed = 0;
    for (uint32_t at = 0; at < 12000; at += 1000)
        healed += match(r, HONEST, all + at, 1000);
    row("a full index, of 12,000 blocks; when room returned", "%.0f; %.0f",
        before, healed);
    rig_free(r);
}

static void ghosts(void)
{
    struct rig *r = rig_new(32 << 20);
    static uint64_t keys[100000];

    chain_keys(1, keys, 100000);
    store(r, HONEST, 0, keys, 100000);
    for (uint32_t at = 0; at < 99999; at += FRAME)
        drop(r, HONEST, keys + at, at + FRAME < 99999 ? FRAME : 99999 - at);
    row("one block held behind 99,999 dropped: keys kept", "%.0f",
        (double)known_keys(r), 0);
    rig_free(r);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median of 2,000 matches, us; the 99th of 100 in *p99. */
static double median_us(struct rig *r, const uint64_t *keys, uint32_t n,
                        double *p99)
{
    enum { ROUNDS = 2000 };
    static double us[ROUNDS];

    for (uint32_t i = 0; i < ROUNDS; i++) {
        double begin = now_s();

        (void)match(r, HONEST, keys, n);
        us[i] = (now_s() - begin) * 1e6;
    }
    qsort(us, ROUNDS, sizeof(us[0]), by_size);
    *p99 = us[ROUNDS * 99 / 100];
    return us[ROUNDS / 2];
}

/* 128 holders of a prompt of 256 blocks, and of another. */
static struct rig *many_holders(uint64_t *keys)
{
    struct rig *r = rig_new(64 << 20);
    uint64_t other[256];

    chain_keys(1, keys, 256);
    chain_keys(2, other, 256);
    for (uint32_t i = 0; i < INSTANCES; i++) {
        store(r, i, 0, keys, 256);
        store(r, i, 0, other, 256);
    }
    return r;
}

static void one_hole(void)
{
    uint64_t keys[256], other[256];
    struct rig *r = many_holders(keys);
    double p99, whole = median_us(r, keys, 256, &p99);

    chain_keys(2, other, 256);
    drop(r, LIAR, other + 3, 1);
    row("a match of 128 holders, p50 us; with a hole elsewhere", "%.2f; %.2f",
        whole, median_us(r, keys, 256, &p99));
    drop(r, LIAR, keys + 3, 1);
    row("  with a hole in the same prompt, p50 us", "%.2f",
        median_us(r, keys, 256, &p99), 0);
    rig_free(r);
}

static void one_bucket(void)
{
    struct rig *r = rig_new(32 << 20);
    static uint64_t keys[MANY];
    double begin;

    chosen_keys(keys, MANY);
    begin = now_s();
    for (uint32_t i = 0; i < MANY; i++)
        store(r, LIAR, 0, keys + i, 1);
    row("64,000 keys chosen for one bucket, us each", "%.2f",
        (now_s() - begin) * 1e6 / MANY, 0);
    rig_free(r);
}

static void clear_of_many(void)
{
    enum { BLOCKS = 10000000 };
    struct rig *r = rig_new(UINT64_C(280) << 20);
    uint64_t keys[1024];

    for (uint64_t c = 0; c < BLOCKS / 1024; c++) {
        chain_keys(c + 1, keys, 1024);
        store(r, HONEST, 0, keys, 1024);
    }
    row("10 M blocks cleared: longest time without a turn, ms", "%.3f",
        clear(r, HONEST) * 1e3, 0);
    rig_free(r);
}

/* --- a hostile instance ------------------------------------------------ */

enum { FLEET = 32, CHAINS = 8, LENGTH = 256, STEP = 4, HOSTILE = FLEET };

/* What a hostile instance says around a step of a chain. */
typedef void (*hostile_fn)(struct rig *r, const uint64_t *chain, uint32_t at);

static void fleet_chain(uint32_t instance, uint32_t c, uint64_t *keys)
{
    chain_keys(c == 0 ? 1 : 1000 + instance * CHAINS + c, keys, LENGTH);
}

/* The prompts of a fleet grow by a few blocks at a time: one for all, and some
 * of its own for each. */
static void fleet_grows(struct rig *r, hostile_fn before, hostile_fn after)
{
    uint64_t keys[LENGTH];

    for (uint32_t at = 0; at < LENGTH; at += STEP)
        for (uint32_t i = 0; i < FLEET; i++)
            for (uint32_t c = 0; c < CHAINS; c++) {
                fleet_chain(i, c, keys);
                if (before)
                    before(r, keys, at);
                store(r, i, at > 0 ? keys[at - 1] : 0, keys + at, STEP);
                if (after)
                    after(r, keys, at);
            }
}

/* Blocks of the fleet that it does not find. */
static uint64_t fleet_misses(struct rig *r)
{
    uint64_t keys[LENGTH], missing = 0;

    for (uint32_t i = 0; i < FLEET; i++)
        for (uint32_t c = 0; c < CHAINS; c++) {
            fleet_chain(i, c, keys);
            missing += LENGTH - match(r, i, keys, LENGTH);
        }
    return missing;
}

static void report(const char *name, struct rig *r)
{
    uint64_t shared[LENGTH], own[LENGTH];
    double p99_shared, p99_own, p50_shared, p50_own;

    fleet_chain(0, 0, shared);
    fleet_chain(3, 5, own);
    p50_shared = median_us(r, shared, LENGTH, &p99_shared);
    p50_own = median_us(r, own, LENGTH, &p99_own);
    printf("  %-36s %6.2f %6.2f %8.2f %6.2f %8.1f %8llu\n", name, p50_shared,
           p99_shared, p50_own, p99_own,
           (double)prefix_index_stats(r->ix).bytes /
               (FLEET * (CHAINS - 1) * LENGTH + LENGTH),
           (unsigned long long)fleet_misses(r));
}

static uint64_t junk_from;

/* Its own keys behind the last key of each chain. */
static void appends(struct rig *r, const uint64_t *chain, uint32_t at)
{
    uint64_t junk[PAGE_KEYS];

    chain_keys(1000000 + ++junk_from, junk, PAGE_KEYS);
    store(r, HOSTILE, chain[at + STEP - 1], junk, PAGE_KEYS - 1);
}

/* Keys of others before they come, each in a page of its own. */
static void comes_first(struct rig *r, const uint64_t *chain, uint32_t at)
{
    for (uint32_t k = STEP; k-- > 0;)
        store(r, HOSTILE, 0, chain + at + k, 1);
}

/* Keys of others before they come, each page with those of 16 chains. */
static void shuffles(struct rig *r, const uint64_t *chain, uint32_t at)
{
    uint64_t keys[FLEET][LENGTH], page[PAGE_KEYS];

    if (at > 0 || junk_from++ > 0)
        return;
    (void)chain;
    for (uint32_t c = 0; c < CHAINS; c++)
        for (uint32_t from = 0; from < FLEET; from += PAGE_KEYS) {
            for (uint32_t i = 0; i < PAGE_KEYS; i++)
                fleet_chain(from + i, c, keys[i]);
            for (uint32_t k = 0; k < LENGTH; k++) {
                for (uint32_t i = 0; i < PAGE_KEYS; i++)
                    page[i] = keys[i][k];
                store(r, HOSTILE, 0, page, PAGE_KEYS);
            }
        }
}

/* All of it, with a hole near the front. */
static void with_a_hole(struct rig *r, const uint64_t *chain, uint32_t at)
{
    store(r, HOSTILE, 0, chain + at, STEP);
    if (at == 0)
        drop(r, HOSTILE, chain + 3, 1);
}

/* All of it, in other tiers from page to page. */
static void in_two_tiers(struct rig *r, const uint64_t *chain, uint32_t at)
{
    store(r, HOSTILE, 0, chain + at, STEP);
    if (at / PAGE_KEYS % 2 == 0)
        (void)!prefix_index_stored(r->ix, HOSTILE, TIER_DISK, 0, chain + at,
                                   STEP);
}

static void floods(struct rig *r, const uint64_t *chain, uint32_t at)
{
    uint64_t junk[64];

    (void)chain;
    (void)at;
    chain_keys(1000000 + ++junk_from, junk, 64);
    for (uint32_t k = 0; k < 64; k++)
        store(r, HOSTILE, 0, junk + k, 1);
}

/* The same blocks again and again, so that they look recent. */
static void insists(struct rig *r, const uint64_t *chain, uint32_t at)
{
    uint64_t junk[1024];

    floods(r, chain, at);
    chain_keys(7, junk, 1024);
    store(r, HOSTILE, 0, junk, 1024);
}

static void clears(struct rig *r, const uint64_t *chain, uint32_t at)
{
    floods(r, chain, at);
    prefix_index_cleared(r->ix, HOSTILE);
    (void)prefix_index_work(r->ix, 64);
}

static void attack(const char *name, uint64_t max_bytes, hostile_fn before,
                   hostile_fn after)
{
    struct rig *r = rig_new(max_bytes);

    junk_from = 0;
    fleet_grows(r, before, after);
    report(name, r);
    rig_free(r);
}

static void hostile(void)
{
    enum { ROOM = 32 << 20, TIGHT = 2 << 20 };

    printf("\na fleet of %d beside a hostile instance:\n"
           "  %-36s %14s %16s %8s %8s\n"
           "  %-36s %6s %6s %8s %6s %8s %8s\n",
           FLEET, "", "one for all", "one of its own", "bytes a", "blocks",
           "a match of 256 blocks, us", "p50", "p99", "p50", "p99", "block",
           "missed");
    attack("nobody hostile", ROOM, NULL, NULL);
    attack("appends junk to each chain's end", ROOM, NULL, appends);
    attack("stores their keys first", ROOM, comes_first, NULL);
    attack("stores them first, shuffled", ROOM, shuffles, NULL);
    attack("holds all but one block", ROOM, NULL, with_a_hole);
    attack("holds all, in changing tiers", ROOM, NULL, in_two_tiers);
    attack("floods", ROOM, NULL, floods);
    attack("full index, nobody hostile", TIGHT, NULL, NULL);
    attack("full index: floods", TIGHT, NULL, floods);
    attack("full index: stores the same again", TIGHT, NULL, insists);
    attack("full index: clears again and again", TIGHT, NULL, clears);
    attack("full index: appends junk", TIGHT, NULL, appends);
    attack("full index: stores their keys first", TIGHT, comes_first, NULL);
    attack("full index: the same, shuffled", TIGHT, shuffles, NULL);
}

int main(void)
{
    printf("faults of linked blocks:\n");
    wrong_parent();
    circle();
    top_byte();
    unknown_root();
    full_and_room_again();
    ghosts();
    one_hole();
    one_bucket();
    clear_of_many();
    hostile();
    return 0;
}
