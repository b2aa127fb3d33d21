/*
 * A store that engines share: its map against a slow one, with an engine's map
 * beside it that knows the keys; and a match that goes on in a store against
 * counting. Environment: CONDUCTOR_SEED; CONDUCTOR_CASES percent of the runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/block_key.h"
#include "tests/unit/cases.h"
#include "tests/unit/kv_map_test.h"
#include "tests/unit/suite.h"

enum { BLOCKS = 40, PARTS_MAX = 3, SIZE = 4, INSTANCES = 5, CHAIN = 60 };

static uint64_t seed;

/* Blocks of one prompt, each behind the one before it. */
struct world {
    uint64_t rng;
    uint32_t parts;
    struct kv_map *engine, *store;
    uint64_t keys[BLOCKS], hashes[BLOCKS];
    uint32_t tokens[BLOCKS * SIZE];
    bool has[BLOCKS][BLOCK_TIERS][PARTS_MAX]; /* the store */
    bool engine_has[BLOCKS], named[BLOCKS];
    bool told[BLOCKS][BLOCK_TIERS]; /* to the index */
    uint32_t faults;
};

static uint32_t block_of(struct world *w, uint64_t key)
{
    uint32_t b = 0;

    while (b < BLOCKS && w->keys[b] != key)
        b++;
    w->faults += b == BLOCKS;
    return b % BLOCKS;
}

static void store_stored(void *arg, enum block_tier tier, uint64_t parent_key,
                         const uint64_t *keys, size_t n)
{
    struct world *w = arg;

    (void)parent_key;
    for (size_t i = 0; i < n; i++)
        w->told[block_of(w, keys[i])][tier] = true;
}

static void store_removed(void *arg, enum block_tier tier, const uint64_t *keys,
                          size_t n)
{
    struct world *w = arg;

    for (size_t i = 0; i < n; i++) {
        bool *told = &w->told[block_of(w, keys[i])][tier];

        w->faults += !*told;
        *told = false;
    }
}

static void store_cleared(void *arg)
{
    struct world *w = arg;

    memset(w->told, 0, sizeof(w->told));
}

static void no_stored(void *arg, enum block_tier tier, uint64_t parent_key,
                      const uint64_t *keys, size_t n)
{
    (void)arg;
    (void)tier;
    (void)parent_key;
    (void)keys;
    (void)n;
}

static void no_removed(void *arg, enum block_tier tier, const uint64_t *keys,
                       size_t n)
{
    (void)arg;
    (void)tier;
    (void)keys;
    (void)n;
}

static void no_cleared(void *arg)
{
    (void)arg;
}

static const struct kv_map_sink store_sink = {store_stored, store_removed,
                                              store_cleared};
static const struct kv_map_sink no_sink = {no_stored, no_removed, no_cleared};

static uint64_t key_of(void *arg, uint64_t hash, uint64_t *key_seed)
{
    const struct world *w = arg;

    return kv_map_key(w->engine, hash, key_seed);
}

static void send(struct kv_map *map, struct kv_event e)
{
    e.groups = 1;
    kv_map_batch(map, 0, &(struct kv_batch){.events = &e, .n_events = 1});
}

/* The engine stores the beginning of the prompt, or removes a block. */
static void engine_step(struct world *w)
{
    uint32_t n = 1 + draw_below(&w->rng, BLOCKS);

    if (draw_below(&w->rng, 3) == 0) {
        send(w->engine, (struct kv_event){.kind = KV_REMOVED,
                                          .hashes = &w->hashes[n - 1],
                                          .n_hashes = 1});
        w->engine_has[n - 1] = false;
        return;
    }
    for (uint32_t b = 0; b < n; b++) /* one copy at most */
        if (w->engine_has[b])
            send(w->engine, (struct kv_event){.kind = KV_REMOVED,
                                              .hashes = &w->hashes[b],
                                              .n_hashes = 1});
    send(w->engine, (struct kv_event){.kind = KV_STORED,
                                      .hashes = w->hashes,
                                      .n_hashes = n,
                                      .tokens = w->tokens,
                                      .n_tokens = n * SIZE,
                                      .block_size = SIZE});
    for (uint32_t b = 0; b < n; b++)
        w->engine_has[b] = true;
}

static void store_step(struct world *w)
{
    uint32_t b = draw_below(&w->rng, BLOCKS),
             part = draw_below(&w->rng, w->parts);
    enum block_tier tier = draw_below(&w->rng, BLOCK_TIERS);
    bool stores = draw_below(&w->rng, 5) < 3;

    if (draw_below(&w->rng, 200) == 0) {
        send(w->store, (struct kv_event){.kind = KV_CLEARED});
        memset(w->has, 0, sizeof(w->has));
        memset(w->named, 0, sizeof(w->named));
        return;
    }
    send(w->store, (struct kv_event){.kind = stores ? KV_STORED : KV_REMOVED,
                                     .tier = tier,
                                     .has_tier = tier != TIER_DISK,
                                     .unknown_medium = tier == TIER_DISK,
                                     .part = (uint16_t)(100 + part),
                                     .hashes = &w->hashes[b],
                                     .n_hashes = 1});
    w->has[b][tier][part] = stores;
}

/* A block has a name once the store and the engine have had it together, as
 * long as the store has anything of it. */
static void check(struct world *w)
{
    for (uint32_t b = 0; b < BLOCKS; b++) {
        uint32_t any = 0;

        for (uint32_t t = 0; t < BLOCK_TIERS; t++)
            for (uint32_t p = 0; p < w->parts; p++)
                any += w->has[b][t][p];
        w->named[b] = any > 0 && (w->named[b] || w->engine_has[b]);
        for (uint32_t t = 0; t < BLOCK_TIERS; t++) {
            uint32_t n = 0;

            for (uint32_t p = 0; p < w->parts; p++)
                n += w->has[b][t][p];
            CU_ASSERT_EQUAL_FATAL(w->told[b][t], w->named[b] && n == w->parts);
        }
    }
    CU_ASSERT_EQUAL_FATAL(w->faults, 0);
    CU_ASSERT_FATAL(kv_map_check(w->store) && kv_map_check(w->engine));
}

static void one_world(uint64_t number)
{
    struct world w = {.rng = seed + number};
    struct kv_map_config config = {.model = "m",
                                   .block_tokens = SIZE,
                                   .max_blocks = 10000,
                                   .max_waiting_bytes = 1000,
                                   .seed = number};

    w.parts = 1 + draw_below(&w.rng, PARTS_MAX);
    for (uint32_t i = 0; i < BLOCKS * SIZE; i++)
        w.tokens[i] = draw_below(&w.rng, 1000);
    for (uint32_t b = 0; b < BLOCKS; b++)
        w.hashes[b] = 1 + (uint64_t)b * 7919;
    (void)block_keys_compute(w.tokens, BLOCKS * SIZE, SIZE,
                             block_key_seed("m", "", ""), w.keys);
    w.engine = kv_map_new(&config, &no_sink, &w);
    config.parts = w.parts;
    config.key_of = key_of;
    w.store = kv_map_new(&config, &store_sink, &w);
    CU_ASSERT_FATAL(w.engine && w.store);
    kv_map_follow(w.engine, w.store);
    for (int step = 0; step < 300; step++) {
        if (draw_below(&w.rng, 4) == 0)
            engine_step(&w);
        else
            store_step(&w);
        check(&w);
    }
    kv_map_free(w.engine);
    kv_map_free(w.store);
}

static void test_map(void)
{
    for (uint32_t i = 0; i < cases_of(100); i++)
        one_world(i);
}

/* The leading blocks that an instance or the store has, counted; the tiers of
 * the last of them. */
static void test_match(void)
{
    uint64_t rng = seed, keys[CHAIN];
    struct prefix_match match;

    CU_ASSERT_FATAL(prefix_match_init(&match, INSTANCES + 1) == 0);
    for (uint32_t i = 0; i < CHAIN; i++)
        keys[i] = 1000 + i;
    for (uint32_t run = 0; run < cases_of(500); run++) {
        struct prefix_index *index =
            prefix_index_new(&(struct prefix_index_config){
                .max_instances = INSTANCES + 1, .max_bytes = 1u << 18});
        uint32_t own[INSTANCES + 1];

        CU_ASSERT_FATAL(!!index);
        for (uint32_t i = 0; i <= INSTANCES; i++) {
            own[i] = draw_below(&rng, 2) ? draw_below(&rng, CHAIN) : 0;
            (void)!prefix_index_stored(index, i, draw_below(&rng, 2), 0, keys,
                                       own[i]);
        }
        prefix_index_match(index, keys, CHAIN, &match);
        for (uint32_t i = 0; i < INSTANCES; i++)
            prefix_match_share(&match, i, INSTANCES, TIER_DISK);
        for (uint32_t i = 0; i < INSTANCES; i++) {
            const struct prefix_run *last = &match.runs[match.last_run[i]];
            bool longer = own[INSTANCES] > own[i];

            CU_ASSERT_EQUAL(match.blocks[i], longer ? own[INSTANCES] : own[i]);
            CU_ASSERT_EQUAL(last->end_block, match.blocks[i]);
            if (!longer)
                continue;
            CU_ASSERT_EQUAL(last->first_block, own[i]);
            CU_ASSERT_EQUAL(last->tiers, BLOCK_TIER_BIT(TIER_DISK));
            CU_ASSERT_EQUAL(match.runs[last->before].end_block, own[i]);
        }
        prefix_index_free(index);
    }
    prefix_match_fini(&match);
}

/* More parts of one block than a block has are not kept: each would be looked
 * at for the next one. */
static void test_too_many_parts(void)
{
    enum { PARTS = 2, MANY = 100 };
    struct kv_map_config config = {
        .model = "m", .block_tokens = SIZE, .max_blocks = 1000, .parts = PARTS};
    struct kv_map *map = kv_map_new(&config, &no_sink, NULL);
    uint64_t hash = 7;

    for (uint16_t part = 0; part < MANY; part++)
        send(map, (struct kv_event){.kind = KV_STORED,
                                    .part = part,
                                    .hashes = &hash,
                                    .n_hashes = 1});
    CU_ASSERT_EQUAL(kv_map_stats(map).entries, BLOCK_TIERS * PARTS);
    CU_ASSERT_EQUAL(kv_map_stats(map).contradictions,
                    MANY - BLOCK_TIERS * PARTS);
    CU_ASSERT_EQUAL(kv_map_stats(map).unkept, 0);
    CU_ASSERT(kv_map_check(map));
    kv_map_free(map);
}

static const struct suite_test tests[] = {
    {"its map, against a slow one", test_map},
    {"a match that goes on in it", test_match},
    {"too many parts", test_too_many_parts},
};

int main(void)
{
    seed = cases_seed(4711);
    return SUITE_RUN("shared_store", tests);
}
