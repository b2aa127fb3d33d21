/* A map of an engine's blocks, as tests drive it and look into it. */
#ifndef TESTS_UNIT_KV_MAP_TEST_H
#define TESTS_UNIT_KV_MAP_TEST_H

#include "conductor/link/events/map/state.h"

/* Takes all of a batch at once. */
static inline void kv_map_batch(struct kv_map *map, uint16_t rank,
                                const struct kv_batch *batch)
{
    kv_map_begin(map, rank, batch);
    while (kv_map_work(map, UINT32_MAX))
        ;
}

/* How many copies a rank has of a block in a tier, over its groups. */
static inline uint64_t kv_map_copies(const struct kv_map *map, uint64_t hash,
                                     enum block_tier tier, uint16_t rank)
{
    const struct copies *entry = copies_first(&map->copies, hash);
    uint64_t n = 0;

    for (; entry; entry = copies_next(&map->copies, entry))
        if (entry->place.tier == tier && entry->place.rank == rank)
            n += entry->count;
    return n;
}

#endif
