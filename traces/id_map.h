/*
 * A bounded hash map from block id to a 64-bit value. Open addressing, linear
 * probing, a power of two of slots, at most 2/3 full.
 */
#ifndef TRACES_ID_MAP_H
#define TRACES_ID_MAP_H

#include <stddef.h>
#include <stdint.h>

/* Not an id: marks a free slot. */
#define ID_MAP_NONE UINT64_MAX

struct id_map;

/*
 * Makes an empty map for at most `limit` ids (16 bytes a slot, 24 to 48 bytes
 * an id once grown). Returns it owned, or NULL: out of memory.
 */
[[nodiscard]] struct id_map *id_map_new(size_t limit);

/* Frees the map; NULL is a no-op. */
void id_map_free(struct id_map *map);

/* Prefetches the slot of `id` into the CPU cache, for a look-up soon. */
void id_map_prefetch(const struct id_map *map, uint64_t id);

/* Returns the value of `id`, borrowed until the next id_map_put, or NULL. */
const uint64_t *id_map_get(const struct id_map *map, uint64_t id);

/*
 * Adds `id` or replaces its value; `id` is not ID_MAP_NONE. Returns 0, -ENOSPC
 * when the map holds its limit, or -ENOMEM; unchanged on error. O(1) amortised.
 */
[[nodiscard]] int id_map_put(struct id_map *map, uint64_t id, uint64_t value);

#endif
