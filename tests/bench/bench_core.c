/*
 * What the core costs: hashing, index events, matches, decisions, memory.
 * Beside each figure stands the floor or goal that was set for this kind of
 * machine (2-core EPYC virtual machine). Never fails on a time.
 * Usage: bench_core [MILLIONS_OF_KEYS, default 4]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "conductor/core/index/block_key.h"
#include "conductor/core/index/prefix_index.h"
#include "conductor/core/plan/load_plan.h"
#include "conductor/core/schedule/schedule.h"

enum { CHAIN = 128, BATCH = 32, ROUNDS = 20000, PROMPT_TOKENS = 131072 };

static uint64_t rng_state = 1;

static uint64_t rng(void)
{
    uint64_t z = rng_state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static void row(const char *what, double value, const char *unit,
                const char *aim)
{
    printf("%-52s %10.2f %-8s %s\n", what, value, unit, aim);
}

static void latency(const char *what, double *s, size_t n, const char *aim)
{
    char name[80];

    qsort(s, n, sizeof(*s), compare);
    snprintf(name, sizeof(name), "%s, p50", what);
    row(name, s[n / 2] * 1e6, "us", aim);
    snprintf(name, sizeof(name), "%s, p99", what);
    row(name, s[n - n / 100 - 1] * 1e6, "us", "");
}

static void bench_hash(void)
{
    static const char *const aims[] = {
        "floor 32 (AVX-512), goal 40", "", "floor 10.2 (AVX-512), goal 15",
        "floor 7.8 (AVX-512)", "floor 7.0 (AVX-512)"};
    static const uint32_t sizes[] = {16, 64, 128, 256, 512};
    uint32_t *tokens = malloc(PROMPT_TOKENS * sizeof(*tokens));
    uint64_t *keys = malloc(PROMPT_TOKENS / 16 * sizeof(*keys));
    uint64_t sum = 0;

    if (!tokens || !keys)
        abort();
    for (size_t i = 0; i < PROMPT_TOKENS; i++)
        tokens[i] = (uint32_t)rng();
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        double times[201];
        char name[80];

        for (size_t r = 0; r < 201; r++) {
            double from = now_s();

            sum += block_keys_compute(tokens, PROMPT_TOKENS, sizes[s], r, keys);
            times[r] = now_s() - from;
            sum += keys[0];
        }
        qsort(times, 201, sizeof(*times), compare);
        snprintf(name, sizeof(name), "hash 128k tokens, %u a block, median",
                 sizes[s]);
        row(name, times[100] * 1e6, "us", aims[s]);
    }
    if (sum == 0)
        puts("");
    free(keys);
    free(tokens);
}

/* Chain c, block b. */
static uint64_t key_of(uint64_t c, uint64_t b)
{
    uint64_t z = (c * CHAIN + b + 1) * UINT64_C(0xd6e8feb86659fd93);

    return z ^ (z >> 32);
}

static void chain_keys(uint64_t c, uint64_t *keys)
{
    for (uint64_t b = 0; b < CHAIN; b++)
        keys[b] = key_of(c, b);
}

static void must(int error)
{
    if (error < 0) {
        fprintf(stderr, "bench_core: error %d\n", error);
        exit(1);
    }
}

static void store_chains(struct prefix_index *ix, uint32_t first_instance,
                         uint64_t from, uint64_t to)
{
    uint64_t keys[CHAIN];

    for (uint64_t c = from; c < to; c++) {
        chain_keys(c, keys);
        for (size_t b = 0; b < CHAIN; b += BATCH)
            must(prefix_index_stored_chain(
                ix, first_instance + (uint32_t)(c % 64), TIER_HOST,
                b == 0 ? 0 : keys[b - 1], keys + b, BATCH, NULL));
    }
}

static void bench_match(struct prefix_index *ix, uint64_t n_chains,
                        uint32_t unknown, const char *what, const char *aim)
{
    uint32_t *blocks = calloc(prefix_index_max_instances(ix), sizeof(*blocks));
    double *times = malloc(ROUNDS * sizeof(*times));
    uint64_t keys[2 * CHAIN];

    if (!times || !blocks)
        abort();
    for (size_t r = 0; r < ROUNDS; r++) {
        chain_keys(rng() % n_chains, keys);
        for (size_t i = 0; i < unknown; i++)
            keys[CHAIN - 1 - i] = rng();
        double from = now_s();
        prefix_index_match(ix, keys, CHAIN, blocks);
        times[r] = now_s() - from;
    }
    latency(what, times, ROUNDS, aim);
    free(times);
    free(blocks);
}

static void bench_index(uint64_t n_keys)
{
    uint64_t n_chains = n_keys / CHAIN;
    struct prefix_index *ix = prefix_index_new(
        &(struct prefix_index_config){.max_instances = 128,
                                      .max_keys = (uint32_t)n_keys,
                                      .max_shared = 2 * n_keys + (1u << 17),
                                      .seed = 1});
    struct prefix_index_stats one, two;

    if (!ix)
        abort();
    double from = now_s();
    store_chains(ix, 0, 0, n_chains);
    double filled = now_s();
    one = prefix_index_stats(ix);
    row("store, new blocks, chains of 32 in order",
        (double)one.keys / (filled - from) / 1e6, "M/s",
        "floor 54, goal 15 mixed");
    row("memory, one holder, at the bound of keys",
        (double)(one.bytes) / (double)one.keys, "B/block", "smg 26.9, goal 16");
    bench_match(ix, n_chains, 0, "match 128 of 128 blocks, 1 holder",
                "floor 0.23, goal 0.25");
    bench_match(ix, n_chains, 64, "match 64 of 128 blocks, 1 holder", "");
    bench_match(ix, n_chains, 127, "match 1 of 128 blocks, 1 holder", "");

    from = now_s();
    store_chains(ix, 64, 0, n_chains);
    row("store, a second holder", (double)one.keys / (now_s() - from) / 1e6,
        "M/s", "");
    two = prefix_index_stats(ix);
    row("memory, each further holder",
        (double)(two.bytes - one.bytes) / (double)(two.holders - one.holders),
        "B/holder", "goal 0.5 as runs");
    bench_match(ix, n_chains, 0, "match 128 of 128 blocks, 2 holders",
                "smg 7.6 worst p99");

    from = now_s();
    for (uint64_t i = 0; i < n_keys; i += BATCH) {
        /* Chains at random, leaf first. */
        uint64_t c = (i / CHAIN) * UINT64_C(2654435761) % n_chains;
        uint64_t keys[BATCH];

        for (uint64_t k = 0; k < BATCH; k++)
            keys[k] = key_of(c, CHAIN - 1 - (i + k) % CHAIN);
        must(prefix_index_removed_keys(ix, 64 + (uint32_t)(c % 64), TIER_HOST,
                                       keys, BATCH));
    }
    row("remove, leaf first, batches of 32",
        (double)n_keys / (now_s() - from) / 1e6, "M/s",
        "floor 17 (random order)");
    from = now_s();
    prefix_index_cleared(ix, 0);
    row("clear one instance of 64", (now_s() - from) * 1e3, "ms", "");
    prefix_index_free(ix);
}

/* 256 blocks, every one of many holders leaves at its own depth. */
static void bench_staircase(uint32_t holders)
{
    struct prefix_index *ix =
        prefix_index_new(&(struct prefix_index_config){.max_instances = holders,
                                                       .max_keys = 1000,
                                                       .max_shared = 1u << 21,
                                                       .seed = 1});
    uint32_t *blocks = calloc(holders, sizeof(*blocks));
    uint64_t keys[2 * CHAIN];
    double times[1000];
    char name[80];

    if (!ix || !blocks)
        abort();
    for (size_t b = 0; b < 2 * CHAIN; b++)
        keys[b] = rng() | 1;
    for (uint32_t i = 0; i < holders; i++)
        must(prefix_index_stored_chain(ix, i, TIER_HOST, 0, keys,
                                       1 + i % (2 * CHAIN), NULL));
    for (size_t r = 0; r < 1000; r++) {
        double from = now_s();

        prefix_index_match(ix, keys, 2 * CHAIN, blocks);
        times[r] = now_s() - from;
    }
    snprintf(name, sizeof(name), "match 256 blocks, %u holders, 256 depths",
             holders);
    latency(name, times, 1000, holders == 1024 ? "floor 0.84 of bit work" : "");
    free(blocks);
    prefix_index_free(ix);
}

/* Plans of 16k to 128k cached tokens at around the rate that splits them. */
static void bench_load_plan(size_t n_sources)
{
    struct cost_model cost = {.prefill = {500, 40, 0.0006, 0.0012}};
    struct load_source sources[LOAD_PLAN_SOURCES_MAX];
    static double times[ROUNDS];
    char name[80];

    for (size_t r = 0; r < ROUNDS; r++) {
        struct load_plan_request request = {
            .cost = &cost,
            .cost_ratio = 1.0,
            .n_tokens = 16384 + (int64_t)(rng() % (PROMPT_TOKENS - 16384)),
            .block_tokens = 256,
            .block_bytes = 256 * 131072,
            .layers = 32,
            .step_tokens = 512,
            .sources = sources,
            .n_sources = n_sources,
            .modes = LOAD_MODE_ALL,
        };
        struct load_plan plan;

        request.usable_blocks = (uint32_t)(request.n_tokens - 1) / 256;
        for (size_t i = 0; i < n_sources; i++)
            sources[i] = (struct load_source){
                .to_block =
                    i == 0 ? request.usable_blocks : (uint32_t)(rng() % 512),
                .bytes_per_s = 1e9 + (double)(rng() % 4000000000),
                .free_at_us = (int64_t)(rng() % 100000),
                .by_layer = i % 2 == 0,
            };
        double from = now_s();
        must(load_plan_make(&request, &plan));
        times[r] = now_s() - from;
    }
    snprintf(name, sizeof(name), "load plan, %zu sources", n_sources);
    latency(name, times, ROUNDS, n_sources <= 2 ? "goal 1 to 2" : "");
}

/* `busy`: queues of different lengths and engines of different speeds. */
static void bench_decide(uint32_t instances, const char *policy, bool busy)
{
    struct cost_model cost = {.prefill = {500, 10, 0.001, 0.002},
                              .decode = {1000, 100, 0.01},
                              .range = {1, 200000, 200000, 64, 1000000}};
    struct pool_config config = pool_config_default;
    struct prefix_index *ix = prefix_index_new(&(struct prefix_index_config){
        .max_instances = instances, .max_keys = 1u << 20, .seed = 1});
    struct estimate_model model = {.cost = &cost,
                                   .block_tokens = 512,
                                   .kv_bytes_per_token = 327680,
                                   .layers = 80};
    struct schedule_decision decision;
    double times[2000];
    uint64_t keys[CHAIN];
    char name[80];

    config.max_instances = instances;
    config.max_waiting = 32;
    config.max_decodes = 64;
    struct pool *pool = pool_new(&config);
    if (!pool || !ix)
        abort();
    for (uint32_t i = 0; i < instances; i++) {
        uint32_t id;

        must(pool_add(pool,
                      &(struct pool_instance_config){
                          .role = i % 2 ? ROLE_DECODE : ROLE_PREFILL,
                          .kv_capacity_tokens = 3000000,
                          .link_bytes_per_s = 1e11,
                          .tier_bytes_per_s = {[TIER_DISK] = 3e9}},
                      &id));
        must(pool_set_health(pool, id, HEALTH_READY));
        for (uint64_t r = 0; r < 4 && i % 2 == 0; r++)
            must(pool_prefill_accept(
                pool, id,
                &(struct pool_prefill_request){
                    .request_id = r,
                    .predicted_us =
                        busy ? 1000 + (int64_t)(rng() % 1000000) : 1000}));
        if (busy && i % 2 == 0)
            must(pool_prefill_done(pool, id, 0, (int64_t)(rng() % 1000000), 0));
        for (uint64_t c = 0; c < 8; c++) {
            chain_keys(rng() % 4096, keys);
            must(prefix_index_stored_chain(ix, i, TIER_HOST, 0, keys, CHAIN / 2,
                                           NULL));
            must(prefix_index_stored_chain(ix, i, TIER_DISK,
                                           keys[CHAIN / 2 - 1],
                                           keys + CHAIN / 2, CHAIN / 2, NULL));
        }
    }
    struct schedule_config how = {.policy = schedule_policy_by_name(policy)};
    struct scheduler *s = scheduler_new(&how, &model, pool, ix);
    if (!s)
        abort();
    for (size_t r = 0; r < 2000; r++) {
        struct schedule_request request = {.request_id = r + 10,
                                           .keys = keys,
                                           .n_keys = CHAIN,
                                           .n_tokens = CHAIN * 512 + 7,
                                           .max_output_tokens = 100};

        chain_keys(rng() % 4096, keys);
        double from = now_s();
        schedule_decide(s, &request, &decision);
        times[r] = now_s() - from;
    }
    snprintf(name, sizeof(name), "decide, %s, %u%s, 128 blocks", policy,
             instances, busy ? " busy" : "");
    latency(name, times, 2000,
            instances == 1000 && !busy ? "goal 3 at p99 with 1,000 estimates"
                                       : "");
    scheduler_free(s);
    pool_free(pool);
    prefix_index_free(ix);
}

int main(int argc, char **argv)
{
    double millions = argc > 1 ? atof(argv[1]) : 4.0;

    if (!(millions >= 0.01 && millions <= 200.0)) {
        fprintf(stderr,
                "bench_core: MILLIONS_OF_KEYS must be 0.01..200, "
                "is %s\n",
                argv[1]);
        return 2;
    }
    bench_hash();
    bench_staircase(64);
    bench_staircase(1024);
    bench_load_plan(1);
    bench_load_plan(2);
    bench_load_plan(4);
    bench_load_plan(LOAD_PLAN_SOURCES_MAX);
    for (int busy = 0; busy < 2; busy++) {
        bench_decide(16, "global_cache", busy);
        bench_decide(16, "plan", busy);
        bench_decide(1000, "global_cache", busy);
        bench_decide(1000, "plan", busy);
    }
    printf("-- index of %.2f million blocks\n", millions);
    bench_index((uint64_t)(millions * 1e6) / CHAIN * CHAIN);
    return 0;
}
