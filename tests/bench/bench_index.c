/*
 * What the prefix index costs: bytes a block, events a second, microseconds a
 * match. Prints a table; measures and judges nothing. Run it alone:
 *   build/tests/bench/bench_index [BLOCKS [--memory]]
 * 4,000,000 blocks unless told; --memory: bytes and events alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "conductor/core/index/prefix_index.h"

enum { CHAIN = 128, ROUNDS = 2000 };

static uint64_t resident_bytes(void)
{
    unsigned long long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f || fscanf(f, "%llu %llu", &size, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return resident * 4096;
}

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench_index: %s failed\n", what);
    exit(1);
}

static void chain_keys(uint64_t chain, uint64_t *keys, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        keys[k] = mix(chain * 4096 + k + 1) | 1;
}

static struct prefix_index *make(uint32_t instances, uint64_t max_bytes)
{
    struct prefix_index *ix = prefix_index_new(&(struct prefix_index_config){
        .max_instances = instances, .max_bytes = max_bytes, .seed = 1});

    must(ix, "prefix_index_new");
    return ix;
}

/* Stores or removes all chains for the instances from `first` on; returns
 * millions of blocks a second. */
static double all_chains(struct prefix_index *ix, uint64_t blocks,
                         uint32_t length, uint32_t first, bool store)
{
    uint64_t keys[CHAIN];
    double spent = 0;

    for (uint64_t c = 0; c < blocks / length; c++) {
        uint32_t instance = first + (uint32_t)(c % 64);
        double begin;

        chain_keys(c, keys, length);
        begin = now_s();
        if (store)
            must(prefix_index_stored(ix, instance, TIER_HOST, 0, keys,
                                     length) == 0,
                 "prefix_index_stored");
        else
            must(prefix_index_removed(ix, instance, TIER_HOST, keys, length) ==
                     0,
                 "prefix_index_removed");
        spent += now_s() - begin;
    }
    return (double)blocks / spent / 1e6;
}

static void bench_events(uint64_t blocks, uint32_t length)
{
    uint64_t bytes = blocks * (length < 16 ? 60 : 19) + (1u << 20);
    uint64_t before = resident_bytes();
    struct prefix_index *ix = make(128, bytes);
    double first, second, removed;
    uint64_t one, two;
    double begin;

    first = all_chains(ix, blocks, length, 0, true);
    one = resident_bytes() - before;
    printf("%llu blocks in chains of %u: %.2f bytes a block (%.2f counted)\n",
           (unsigned long long)blocks, length, (double)one / (double)blocks,
           (double)prefix_index_stats(ix).bytes / (double)blocks);
    second = all_chains(ix, blocks, length, 64, true);
    two = resident_bytes() - before;
    printf("  a second holder: %.2f bytes a block\n",
           (double)(two - one) / (double)blocks);
    removed = all_chains(ix, blocks, length, 64, false);
    printf("  stored %.1f M/s, second holders %.1f M/s, removed %.1f M/s, ",
           first, second, removed);
    printf("last holders removed %.1f M/s, ",
           all_chains(ix, blocks / 2, length, 0, false));
    printf("stored again %.1f M/s\n",
           all_chains(ix, blocks / 2, length, 0, true));
    begin = now_s();
    for (uint32_t i = 0; i < 128; i++)
        prefix_index_cleared(ix, i);
    printf("  128 instances cleared in %.1f us, ", (now_s() - begin) * 1e6);
    begin = now_s();
    first = 0;
    for (bool more = true; more;) {
        double slice = now_s();

        more = prefix_index_work(ix, 4096);
        slice = now_s() - slice;
        first = slice > first ? slice : first;
    }
    printf("swept in %.1f ms, the longest slice %.0f us\n",
           (now_s() - begin) * 1e3, first * 1e6);
    prefix_index_free(ix);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Matches prompts of `length` blocks, each another chain out of n. */
static void time_match(struct prefix_index *ix, const char *name,
                       uint64_t n_chains, uint32_t length, uint32_t expected)
{
    static double us[ROUNDS];
    static uint64_t keys[1024];
    struct prefix_match match;

    must(prefix_match_init(&match, prefix_index_max_instances(ix)) == 0,
         "prefix_match_init");
    for (uint32_t i = 0; i < ROUNDS; i++) {
        double begin;

        chain_keys(mix(i) % n_chains, keys, length);
        begin = now_s();
        prefix_index_match(ix, keys, length, &match);
        us[i] = (now_s() - begin) * 1e6;
        must(match.n_holders == expected || expected == 0, "the match");
    }
    qsort(us, ROUNDS, sizeof(us[0]), by_size);
    printf("  %-52s %6.2f %6.2f\n", name, us[ROUNDS / 2],
           us[ROUNDS * 99 / 100]);
    prefix_match_fini(&match);
}

/* `chains` chains of `length`, each held by every (128 / holders)th of 128
 * instances; a hole in one of them if told. */
static void bench_holders(const char *name, uint32_t holders, bool hole)
{
    enum { LENGTH = 256, CHAINS = 64 };
    struct prefix_index *ix = make(128, 256u << 20);
    uint64_t keys[LENGTH];

    for (uint64_t c = 0; c < CHAINS; c++) {
        chain_keys(c, keys, LENGTH);
        for (uint32_t i = 0; i < 128; i += 128 / holders)
            must(prefix_index_stored(ix, i, TIER_HOST, 0, keys, LENGTH) == 0,
                 "prefix_index_stored");
        if (hole && c == 0)
            must(prefix_index_removed(ix, 0, TIER_HOST, keys + 3, 1) == 0,
                 "prefix_index_removed");
    }
    time_match(ix, name, CHAINS, LENGTH, 0);
    prefix_index_free(ix);
}

/* 1,024 holders that end at 256 depths. */
static void bench_depths(void)
{
    enum { LENGTH = 256 };
    struct prefix_index *ix = make(1024, 64u << 20);
    uint64_t keys[LENGTH];

    chain_keys(0, keys, LENGTH);
    for (uint32_t i = 0; i < 1024; i++)
        must(prefix_index_stored(ix, i, TIER_HOST, 0, keys, i / 4 + 1) == 0,
             "prefix_index_stored");
    time_match(ix, "1,024 holders that end at 256 depths", 1, LENGTH, 1024);
    prefix_index_free(ix);
}

/* Prompts whose blocks come `step` at a time, in turn with those of others. */
static void bench_large(const char *name, uint64_t blocks, uint32_t step)
{
    enum { LENGTH = 512, MIXED = 64 };
    struct prefix_index *ix = make(1000, blocks * 22);
    static uint64_t keys[MIXED][LENGTH];
    uint64_t chains = blocks / LENGTH / MIXED * MIXED;

    for (uint64_t c = 0; c < chains; c += MIXED) {
        for (uint32_t m = 0; m < MIXED; m++)
            chain_keys(c + m, keys[m], LENGTH);
        for (uint32_t k = 0; k < LENGTH; k += step)
            for (uint32_t m = 0; m < MIXED; m++)
                must(prefix_index_stored(ix, (uint32_t)((c + m) % 1000),
                                         TIER_HOST, k > 0 ? keys[m][k - 1] : 0,
                                         keys[m] + k, step) == 0,
                     "prefix_index_stored");
    }
    time_match(ix, name, chains, LENGTH, 1);
    prefix_index_free(ix);
}

int main(int argc, char **argv)
{
    uint64_t blocks = argc > 1 ? strtoull(argv[1], NULL, 10) : 4000000;

    if (blocks < 100000 || argc > 3 ||
        (argc == 3 && strcmp(argv[2], "--memory") != 0)) {
        fprintf(stderr, "usage: bench_index [BLOCKS [--memory]]    (100000 "
                        "blocks or more)\n");
        return 2;
    }
    bench_events(blocks, CHAIN);
    bench_events(blocks / 4, 5);
    if (argc == 3)
        return 0;
    printf("a match, us:                                              p50    "
           "p99\n");
    bench_holders("256 blocks, 128 of 128 hold them", 128, false);
    bench_holders("256 blocks, 64 of 128 hold them", 64, false);
    bench_holders("256 blocks, 1 of 128 holds them", 1, false);
    bench_holders("256 blocks, 128 of 128, and one hole", 128, true);
    bench_depths();
    bench_large("512 blocks, 1,000 instances, cold", blocks * 5 / 2, 512);
    bench_large("the same, 4 blocks of 64 prompts in turn", blocks * 5 / 2, 4);
    return 0;
}
