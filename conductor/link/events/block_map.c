/* What an engine's events change: copies go, and all is forgotten. stored.c
 * has how they come. */
#include "conductor/link/events/block_map.h"

#include <stdlib.h>
#include <string.h>

#include "conductor/link/events/map_state.h"

/* How far ahead memory is asked for. */
#define AHEAD_EVENTS 8u

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

void kv_map_free(struct kv_map *map)
{
    if (!map)
        return;
    waiting_clear(&map->waiting);
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

/* Takes an entry out; the index hears of it if it was the tier's last. */
static void entry_remove(struct kv_map *map, struct copies *entry)
{
    uint64_t hash = entry->hash, key = entry->key;
    uint8_t tier = entry->place.tier;
    bool said = map->config.parts <= 1 || map_has(map, hash, tier);

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
        return;
    }
    map->stats.removed++;
    if (entry->count > 1)
        entry->count--;
    else
        entry_remove(map, entry);
}

static void removed(struct kv_map *map, const struct kv_event *e, uint16_t rank)
{
    for (uint32_t i = 0; i < e->n_hashes; i++) {
        if (i + AHEAD_EVENTS < e->n_hashes)
            copies_prefetch(&map->copies, e->hashes[i + AHEAD_EVENTS]);
        for (uint64_t left = e->groups; left != 0; left &= left - 1) {
            struct copy_place place = {.tier = (uint8_t)e->tier,
                                       .group = (uint8_t)__builtin_ctzll(left),
                                       .rank = rank};

            remove_copy(map, e->hashes[i], place);
        }
    }
}

void kv_map_clear(struct kv_map *map)
{
    map->n_gone = 0;
    waiting_clear(&map->waiting);
    copies_clear(&map->copies);
    if (map->recut)
        recut_clear(map->recut);
    map->sink.cleared(map->arg);
}

/* Takes out what a rank has, in one tier or in all. What moves up into a slot
 * is looked at again. */
static void clear_part(struct kv_map *map, uint16_t rank, bool one_tier,
                       enum block_tier tier)
{
    struct copies *entry = map->copies.slots;
    struct copies *end = entry + (UINT64_C(1) << map->copies.bits);

    for (; entry < end; entry++)
        while (entry->count != 0 && entry->place.rank == rank &&
               (!one_tier || entry->place.tier == tier))
            entry_remove(map, entry);
    map_say_gone(map);
}

void kv_map_clear_rank(struct kv_map *map, uint16_t rank)
{
    if (!map->several_ranks && rank == map->rank) {
        kv_map_clear(map);
        return;
    }
    waiting_clear(&map->waiting);
    clear_part(map, rank, false, TIER_DEVICE);
}

static void cleared(struct kv_map *map, const struct kv_event *e, uint16_t rank)
{
    map->stats.cleared++;
    if (map->config.parts)
        kv_map_clear(map);
    else if (e->has_tier)
        clear_part(map, rank, true, e->tier);
    else
        kv_map_clear_rank(map, rank);
}

static void take_event(struct kv_map *map, struct kv_event e, uint16_t rank)
{
    if (map->config.parts) {
        rank = e.part;
        e.tier = e.has_tier ? e.tier : TIER_DISK;
    } else if (e.unknown_medium) {
        map->stats.other_media++;
        return;
    }
    if (e.kind == KV_CLEARED) {
        cleared(map, &e, rank);
        return;
    }
    if (e.windowed)
        map->windowed_groups |= e.groups;
    e.groups &= ~map->windowed_groups;
    if (e.groups == 0)
        map->stats.windowed++;
    else if (e.kind == KV_REMOVED)
        removed(map, &e, rank);
    else
        map_stored(map, &e, rank);
}

void kv_map_batch(struct kv_map *map, uint16_t rank,
                  const struct kv_batch *batch)
{
    map->several_ranks |= map->heard && rank != map->rank;
    if (!map->heard)
        map->rank = rank;
    map->heard = true;
    for (uint32_t i = 0; i < batch->n_events; i++) {
        uint32_t ahead = i + AHEAD_EVENTS;

        if (ahead < batch->n_events && batch->events[ahead].n_hashes > 0)
            copies_prefetch(&map->copies, batch->events[ahead].hashes[0]);
        take_event(map, batch->events[i], rank);
    }
    map_say_gone(map);
}

struct kv_map_stats kv_map_stats(const struct kv_map *map)
{
    struct kv_map_stats stats = map->stats;

    stats.entries = map->copies.n;
    stats.engine_tokens = map->block_tokens;
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

uint64_t kv_map_copies(const struct kv_map *map, uint64_t hash,
                       enum block_tier tier, uint16_t rank)
{
    const struct copies *entry = copies_first(&map->copies, hash);
    uint64_t n = 0;

    for (; entry; entry = copies_next(&map->copies, entry))
        if (entry->place.tier == tier && entry->place.rank == rank)
            n += entry->count;
    return n;
}

bool kv_map_check(const struct kv_map *map)
{
    return copies_check(&map->copies) && map->n_gone == 0 &&
           (!map->recut || recut_check(map->recut)) &&
           map->waiting.bytes <= map->waiting.max_bytes;
}
