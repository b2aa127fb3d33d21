/* Calls to the index, in the order of the changes. */
#include "conductor/link/events/map/state.h"

void map_say_gone(struct kv_map *map)
{
    if (map->n_gone > 0 && map->recut)
        recut_removed(map->recut, map->gone_tier, map->gone, map->n_gone);
    else if (map->n_gone > 0)
        map->sink.removed(map->arg, map->gone_tier, map->gone, map->n_gone);
    map->n_gone = 0;
}

void map_say_stored(struct kv_map *map, enum block_tier tier,
                    uint64_t parent_key, const uint64_t *keys, size_t n)
{
    map_say_gone(map);
    if (n > 0 && map->recut)
        recut_stored(map->recut, tier, keys, n);
    else if (n > 0)
        map->sink.stored(map->arg, tier, parent_key, keys, n);
}

void map_name(struct kv_map *map, uint64_t parent_key, uint64_t seed,
              const uint32_t *tokens, const uint64_t *extras,
              const uint64_t *keys, uint32_t n)
{
    if (!map->recut)
        return;
    map_say_gone(map);
    recut_name(map->recut, parent_key, seed, tokens, extras, keys, n);
}
