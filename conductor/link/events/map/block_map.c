/* A map's life, and the removal of copies. stored.c adds copies, work.c goes
 * through a batch. */
#include "conductor/link/events/map/block_map.h"

#include <stdlib.h>
#include <string.h>

#include "conductor/link/events/map/state.h"

/* Hashes to prefetch ahead. */
#define AHEAD 8u

struct kv_map *kv_map_new(const struct kv_map_config *config,
                          const struct kv_map_sink *sink, void *arg)
{
    struct kv_map *map;

    if (config->block_tokens == 0 || config->max_blocks == 0)
        return NULL;
    map = calloc(1, sizeof(*map));
    if (!map)
        return NULL;
    map->config = *config;
    map->sink = *sink;
    map->arg = arg;
    map->block_tokens = config->block_tokens;
    waiting_init(&map->waiting, config->max_waiting_bytes);
    TAILQ_INIT(&map->work.ready);
    if (copies_init(&map->copies, config->max_blocks, config->seed) ||
        (config->engine_tokens && !map_set_size(map, config->engine_tokens))) {
        kv_map_free(map);
        return NULL;
    }
    return map;
}

bool map_set_size(struct kv_map *map, uint32_t block_tokens)
{
    const struct recut_config config = {
        .piece_tokens = block_tokens,
        .block_tokens = map->config.block_tokens,
        .max_pieces = map->config.max_blocks,
        .seed = map->config.seed,
    };
    struct recut *recut = NULL;

    if (map->copies.n > 0 || map->waiting.n > 0 || map->config.parts)
        return false;
    if (config.piece_tokens != config.block_tokens) {
        recut = recut_new(&config, &map->sink, map->arg);
        if (!recut)
            return false;
    }
    recut_free(map->recut);
    map->recut = recut;
    map->block_tokens = block_tokens;
    return true;
}

void kv_map_abandon(struct kv_map *map)
{
    struct waiting_event *event;

    while ((event = TAILQ_FIRST(&map->work.ready))) {
        TAILQ_REMOVE(&map->work.ready, event, by_age);
        waiting_event_free(event);
    }
    map->work = (struct map_work){0};
    TAILQ_INIT(&map->work.ready);
}

void kv_map_free(struct kv_map *map)
{
    if (!map)
        return;
    kv_map_abandon(map);
    waiting_fini(&map->waiting);
    copies_fini(&map->copies);
    recut_free(map->recut);
    free(map);
}

static void gone(struct kv_map *map, enum block_tier tier, uint64_t key)
{
    if (map->n_gone == MAP_PIECE_BLOCKS || map->gone_tier != tier)
        map_say_gone(map);
    map->gone_tier = tier;
    map->gone[map->n_gone++] = key;
}

bool map_has(const struct kv_map *map, uint64_t hash, uint8_t tier)
{
    const struct copies *entry = copies_first(&map->copies, hash);
    uint32_t missing = map->config.parts ? map->config.parts : 1;

    for (; entry; entry = copies_next(&map->copies, entry))
        if (entry->place.tier == tier && --missing == 0)
            return true;
    return false;
}

void map_remove_entry(struct kv_map *map, struct copies *entry)
{
    uint64_t hash = entry->hash, key = entry->key;
    uint8_t tier = entry->place.tier;
    bool said = map->config.parts <= 1 || map_has(map, hash, tier);

    if (!map->config.parts)
        map->n_of[entry->place.rank][tier]--;
    copies_remove(&map->copies, entry);
    if (key != 0 && said && !map_has(map, hash, tier))
        gone(map, tier, key);
}

static void remove_copy(struct kv_map *map, uint64_t hash,
                        struct copy_place place)
{
    struct copies *entry = copies_find(&map->copies, hash, place);

    if (!entry) {
        map->stats.unknown_removed++;
        map->stats.unkept -= map->stats.unkept > 0;
        return;
    }
    map->stats.removed++;
    if (entry->count > 1)
        entry->count--;
    else
        map_remove_entry(map, entry);
}

void map_removed(struct kv_map *map, const struct kv_event *e, uint16_t rank)
{
    for (uint32_t i = 0; i < e->n_hashes; i++) {
        if (i + AHEAD < e->n_hashes)
            copies_prefetch(&map->copies, e->hashes[i + AHEAD]);
        for (uint64_t left = e->groups; left != 0; left &= left - 1) {
            struct copy_place place = {.tier = (uint8_t)e->tier,
                                       .group = (uint8_t)__builtin_ctzll(left),
                                       .rank = rank};

            remove_copy(map, e->hashes[i], place);
        }
    }
}

uint32_t kv_map_engine_tokens(const struct kv_map *map)
{
    return map->block_tokens;
}

bool kv_map_incomplete(const struct kv_map *map)
{
    return map->stats.unkept > 0 &&
           map->copies.n + map->stats.unkept <= map->config.max_blocks;
}

struct kv_map_stats kv_map_stats(const struct kv_map *map)
{
    struct kv_map_stats stats = map->stats;

    stats.entries = map->copies.n;
    if (map->recut) {
        stats.full += recut_full(map->recut);
        stats.pieces = recut_pieces(map->recut);
    }
    stats.dropped = map->waiting.dropped;
    stats.waiting_events = map->waiting.n;
    stats.waiting_bytes = map->waiting.bytes;
    return stats;
}

void kv_map_follow(struct kv_map *engine, struct kv_map *store)
{
    engine->store = store;
}

uint64_t map_key(const struct kv_map *map, uint64_t hash, uint64_t *seed)
{
    const struct copies *entry = copies_first(&map->copies, hash);

    while (entry && entry->key == 0)
        entry = copies_next(&map->copies, entry);
    if (!entry)
        return 0;
    *seed = entry->seed;
    return entry->key;
}

uint64_t kv_map_key(const struct kv_map *map, uint64_t hash, uint64_t *seed)
{
    return map->recut ? 0 : map_key(map, hash, seed);
}

/* Whether the counts by rank and tier add up to all entries. */
static bool counted(const struct kv_map *map)
{
    uint64_t n = 0;

    for (uint32_t r = 0; r < KV_MAP_RANKS_MAX; r++)
        for (unsigned t = 0; t < BLOCK_TIERS; t++)
            n += map->n_of[r][t];
    return map->config.parts || n == map->copies.n;
}

bool kv_map_check(const struct kv_map *map)
{
    return copies_check(&map->copies) && counted(map) && map->n_gone == 0 &&
           (!map->recut || recut_check(map->recut)) &&
           map->waiting.bytes <= map->waiting.max_bytes;
}
