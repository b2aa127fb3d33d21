/*
 * What the core costs: hashing, load plans, decisions. bench_index has the
 * prefix index.
 * Beside each figure stands the floor or goal that was set for this kind of
 * machine (2-core EPYC virtual machine). Never fails on a time.
 * With an argument: the decisions alone; with a second one, those whose name
 * contains it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "conductor/core/index/block_key.h"
#include "conductor/core/index/prefix_index.h"
#include "conductor/core/plan/load_plan.h"
#include "conductor/core/schedule/schedule.h"

enum { CHAIN = 128, BATCH = 32, ROUNDS = 20000, PROMPT_TOKENS = 131072 };

static uint64_t rng_state = 1;
static const char *only = ""; /* what the names of measured decisions contain */

static uint64_t rng(void)
{
    uint64_t z = rng_state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
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

/* A cluster to decide in. */
struct world {
    struct cost_model cost;
    struct pool_config config;
    struct estimate_model model;
    struct pool *pool;
    struct prefix_index *index;
    struct scheduler *scheduler;
    int64_t slo_ttft_us; /* of requests; 0: none */
    int64_t step_us;     /* from one request to the next */
};

static void world_init(struct world *w, uint32_t instances)
{
    memset(w, 0, sizeof(*w));
    w->cost = (struct cost_model){.prefill = {500, 10, 0.001, 0.002},
                                  .decode = {1000, 100, 0.01},
                                  .range = {1, 200000, 200000, 64, 1000000}};
    w->config = pool_config_default;
    w->config.max_instances = instances;
    w->model = (struct estimate_model){.cost = &w->cost,
                                       .block_tokens = 512,
                                       .kv_bytes_per_token = 327680,
                                       .layers = 80};
}

/* Makes it, and its instances: all prefill and decode, or one each in turn. */
static void world_make(struct world *w, const char *policy, bool both)
{
    const struct schedule_config how = {.policy =
                                            schedule_policy_by_name(policy)};
    uint32_t id;

    w->pool = pool_new(&w->config);
    w->index = prefix_index_new(
        &(struct prefix_index_config){.max_instances = w->config.max_instances,
                                      .max_bytes = 64u << 20,
                                      .seed = 1});
    if (!w->pool || !w->index)
        abort();
    for (uint32_t i = 0; i < w->config.max_instances; i++) {
        unsigned role = i % 2 ? ROLE_DECODE : ROLE_PREFILL;

        must(pool_add(w->pool,
                      &(struct pool_instance_config){
                          .role = both ? ROLE_BOTH : role,
                          .kv_capacity_tokens = 3000000,
                          .link_bytes_per_s = 1e11,
                          .tier_bytes_per_s = {[TIER_DISK] = 3e9}},
                      &id));
        must(pool_set_health(w->pool, id, HEALTH_READY));
    }
    w->scheduler = scheduler_new(&how, &w->model, w->pool, w->index);
    if (!w->scheduler)
        abort();
}

static void world_fini(struct world *w)
{
    scheduler_free(w->scheduler);
    pool_free(w->pool);
    prefix_index_free(w->index);
}

/* An instance stores a chain, from a block on, on its disk. */
static void store_chain(struct world *w, uint32_t i, uint64_t chain,
                        uint32_t disk_from)
{
    uint64_t keys[CHAIN];

    chain_keys(chain, keys);
    must(prefix_index_stored(w->index, i, TIER_HOST, 0, keys, disk_from));
    if (disk_from < CHAIN)
        must(prefix_index_stored(w->index, i, TIER_DISK, keys[disk_from - 1],
                                 keys + disk_from, CHAIN - disk_from));
}

/* Decides on requests of one of so many chains. */
static void time_decisions(struct world *w, const char *name, uint64_t chains,
                           int64_t slo_tbt_us, enum schedule_verdict verdict,
                           const char *aim)
{
    static double times[2000];
    struct schedule_decision decision;
    uint64_t keys[CHAIN];

    if (!strstr(name, only))
        return;
    for (size_t r = 0; r < 2000; r++) {
        struct schedule_request request = {.request_id = r + 1000000,
                                           .keys = keys,
                                           .n_keys = CHAIN,
                                           .n_tokens = CHAIN * 512 + 7,
                                           .max_output_tokens = 100,
                                           .slo_ttft_us = w->slo_ttft_us,
                                           .slo_tbt_us = slo_tbt_us,
                                           .now_us = (int64_t)r * w->step_us};

        chain_keys(rng() % chains, keys);
        double from = now_s();
        schedule_decide(w->scheduler, &request, &decision);
        schedule_price(w->scheduler, &request, &decision);
        times[r] = now_s() - from;
        must(decision.verdict == verdict ? 0 : -1);
    }
    latency(name, times, 2000, aim);
}

/* `busy`: queues of different lengths and engines of different speeds. */
static void bench_decide(uint32_t instances, const char *policy, bool busy)
{
    struct world w;
    char name[80];

    world_init(&w, instances);
    w.config.max_waiting = 32;
    w.config.max_decodes = 64;
    world_make(&w, policy, false);
    for (uint32_t i = 0; i < instances; i++) {
        uint32_t id = pool_at(w.pool, i)->id;

        for (uint64_t r = 0; r < 4 && i % 2 == 0; r++)
            must(pool_prefill_accept(
                w.pool, id,
                &(struct pool_prefill_request){
                    .request_id = r,
                    .predicted_us =
                        busy ? 1000 + (int64_t)(rng() % 1000000) : 1000}));
        if (busy && i % 2 == 0)
            must(pool_prefill_done(w.pool, id, 0, (int64_t)(rng() % 1000000),
                                   0));
        for (uint64_t c = 0; c < 8; c++)
            store_chain(&w, i, rng() % 4096, CHAIN / 2);
    }
    snprintf(name, sizeof(name), "decide, %s, %u%s, 128 blocks", policy,
             instances, busy ? " busy" : "");
    time_decisions(
        &w, name, 4096, 0, SCHEDULE_ACCEPT,
        instances == 1000 && !busy ? "goal 3 at p99 with 1,000 estimates" : "");
    world_fini(&w);
}

/* 1,000 instances hold the same chain, from a block on on their disks. */
static void bench_same_blocks(const char *policy, uint32_t disk_from,
                              bool waiting)
{
    struct world w;
    char name[80];

    world_init(&w, 1000);
    w.config.max_waiting = 32;
    w.config.max_decodes = 64;
    world_make(&w, policy, true);
    for (uint32_t i = 0; i < 1000; i++) {
        store_chain(&w, i, 0, disk_from);
        for (uint64_t r = 0; r < 4 && waiting; r++)
            must(pool_prefill_accept(
                w.pool, pool_at(w.pool, i)->id,
                &(struct pool_prefill_request){
                    .request_id = r,
                    .predicted_us = 1000 + (int64_t)rng() % 1000}));
    }
    snprintf(name, sizeof(name), "decide, %s, 1000 share 128%s%s", policy,
             disk_from < CHAIN ? ", half on disk" : "",
             waiting ? ", busy" : "");
    time_decisions(&w, name, 1, 0, SCHEDULE_ACCEPT, "goal 100");
    world_fini(&w);
}

/* 1,000 aggregated instances, each with decodes and a queue: all hold the same
 * chain, half of it on their disks, or each some chains of its own. */
static void bench_coupled(const char *policy, bool share, int64_t slo_tbt_us)
{
    struct world w;
    char name[80];

    world_init(&w, 1000);
    w.config.max_waiting = 32;
    w.config.max_decodes = 64;
    w.model.coupled = true;
    w.model.step_tokens = 8192;
    w.slo_ttft_us = 600000000;
    w.step_us = 500;
    world_make(&w, policy, true);
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t id = pool_at(w.pool, i)->id;

        for (uint64_t c = 0; c < 8; c++)
            store_chain(&w, i, share ? 0 : rng() % 4096, CHAIN / 2);
        for (uint64_t r = 0; r < 4; r++)
            must(pool_prefill_accept(
                w.pool, id,
                &(struct pool_prefill_request){
                    .request_id = r,
                    .predicted_us = 1000 + (int64_t)(rng() % 1000000)}));
        for (uint64_t r = 0; r < 8; r++) {
            must(pool_decode_accept(w.pool, id, 100 + r,
                                    100 + (int64_t)(rng() % 10000),
                                    100 + (int64_t)(rng() % 1000)));
            must(pool_decode_likely(w.pool, id, 100 + r, 400));
        }
    }
    snprintf(name, sizeof(name), "decide, %s, 1000 coupled busy%s%s", policy,
             share ? ", share 128" : "", slo_tbt_us > 0 ? ", TBT" : "");
    time_decisions(&w, name, share ? 1 : 4096, slo_tbt_us, SCHEDULE_ACCEPT,
                   "goal 100");
    world_fini(&w);
}

/* 500 wait at each of some instances; the oldest is still loading. */
static void bench_long_queues(uint32_t instances, const char *policy,
                              const char *order)
{
    struct world w;
    char name[80];

    world_init(&w, instances);
    w.config.order = queue_order_by_name(order);
    world_make(&w, policy, true);
    for (uint32_t i = 0; i < instances; i++)
        for (uint64_t r = 0; r < 500; r++)
            must(pool_prefill_accept(
                w.pool, pool_at(w.pool, i)->id,
                &(struct pool_prefill_request){
                    .request_id = r,
                    .ready_at_us = r == 0 ? 5000000 : 0,
                    .loading_until_us = r < 2 ? 4000000 : 0,
                    .predicted_us = 1000 + (int64_t)(rng() % 100000)}));
    for (uint32_t i = 0; i < 8; i++)
        store_chain(&w, i % instances, i, CHAIN / 2);
    snprintf(name, sizeof(name), "decide, %s, %s, 500 at each of %u", policy,
             order, instances);
    time_decisions(&w, name, 8, 0, SCHEDULE_ACCEPT,
                   instances == 16 ? "goal 50" : "");
    world_fini(&w);
}

/* 1,000 decodes on each of 16, and each step too long for a request. */
static void bench_reject(const char *policy)
{
    struct world w;
    char name[80];

    world_init(&w, 16);
    world_make(&w, policy, true);
    for (uint32_t i = 0; i < 16; i++)
        for (uint64_t r = 0; r < 1000; r++)
            must(pool_decode_accept(w.pool, pool_at(w.pool, i)->id, r,
                                    100 + (int64_t)(rng() % 100),
                                    100 + (int64_t)(rng() % 1000)));
    snprintf(name, sizeof(name), "reject, %s, 1000 decodes at each of 16",
             policy);
    time_decisions(&w, name, 1, 3000, SCHEDULE_REJECT_TBT, "");
    world_fini(&w);
}

/* What the next of 500 costs to pick: by deadline in time, and hopelessly late.
 */
static void bench_pick(bool late)
{
    enum { N = 500 };
    const struct queue_order *order = queue_order_by_name("shortest_first");
    static struct queue_item items[N];
    static double times[2000];
    uint64_t sum = 0;

    for (uint64_t i = 0; i < N; i++)
        items[i] = (struct queue_item){
            .arrival_seq = i,
            .arrived_us = (int64_t)i * 1000,
            .cost_us = 1000 + (int64_t)(rng() % 100000),
            .deadline_us = (int64_t)i * 1000 + (late ? 3000000 : 30000000)};
    for (size_t r = 0; r < 2000; r++) {
        double from = now_s();

        sum += (uint64_t)queue_pick(order, items, N, N * 1000);
        times[r] = now_s() - from;
    }
    latency(late ? "pick, shortest_first, 500, most of them late"
                 : "pick, shortest_first, 500",
            times, 2000, "");
    if (sum == 0)
        puts("");
}

static void bench_cases(const char *policy)
{
    bench_decide(16, policy, false);
    bench_decide(16, policy, true);
    bench_decide(1000, policy, false);
    bench_decide(1000, policy, true);
    bench_same_blocks(policy, CHAIN, false);
    bench_same_blocks(policy, CHAIN, true);
    bench_same_blocks(policy, CHAIN / 2, false);
    bench_same_blocks(policy, CHAIN / 2, true);
    bench_coupled(policy, false, 0);
    bench_coupled(policy, true, 0);
    bench_coupled(policy, false, 600000000);
    bench_long_queues(16, policy, "fifo");
    bench_long_queues(16, policy, "uncached_first");
    bench_long_queues(16, policy, "shortest_first");
    bench_reject(policy);
}

int main(int argc, char **argv)
{
    if (argc > 2)
        only = argv[2];
    if (argc == 1) {
        bench_hash();
        bench_load_plan(1);
        bench_load_plan(2);
        bench_load_plan(4);
        bench_load_plan(LOAD_PLAN_SOURCES_MAX);
    }
    bench_cases("global_cache");
    bench_cases("plan");
    bench_pick(false);
    bench_pick(true);
    return 0;
}
