/* See id_map.h. */
#include "traces/id_map.h"

#include <errno.h>
#include <stdlib.h>

#include "traces/random.h"

struct slot {
    uint64_t id; /* ID_MAP_NONE = free */
    uint64_t value;
};

struct id_map {
    struct slot *slots;
    size_t slot_count; /* a power of two */
    size_t count;
    size_t limit;
};

static struct slot *slots_new(size_t count)
{
    struct slot *slots = malloc(count * sizeof slots[0]);

    for (size_t i = 0; slots && i < count; i++)
        slots[i].id = ID_MAP_NONE;
    return slots;
}

static size_t home(size_t slot_count, uint64_t id)
{
    return (size_t)random_mix(id) & (slot_count - 1);
}

/* Returns the slot of `id`, or the free slot for it. */
static struct slot *find(struct slot *slots, size_t slot_count, uint64_t id)
{
    size_t mask = slot_count - 1;
    size_t i = home(slot_count, id);

    while (slots[i].id != id && slots[i].id != ID_MAP_NONE)
        i = (i + 1) & mask;
    return &slots[i];
}

static int grow(struct id_map *map)
{
    size_t slot_count = map->slot_count * 2;
    struct slot *slots = slots_new(slot_count);

    if (!slots)
        return -ENOMEM;
    for (size_t i = 0; i < map->slot_count; i++)
        if (map->slots[i].id != ID_MAP_NONE)
            *find(slots, slot_count, map->slots[i].id) = map->slots[i];
    free(map->slots);
    map->slots = slots;
    map->slot_count = slot_count;
    return 0;
}

struct id_map *id_map_new(size_t limit)
{
    struct id_map *map = calloc(1, sizeof *map);

    if (!map)
        return NULL;
    map->slot_count = 1024;
    map->limit = limit;
    map->slots = slots_new(map->slot_count);
    if (!map->slots) {
        free(map);
        return NULL;
    }
    return map;
}

void id_map_free(struct id_map *map)
{
    if (map) {
        free(map->slots);
        free(map);
    }
}

void id_map_prefetch(const struct id_map *map, uint64_t id)
{
    __builtin_prefetch(&map->slots[home(map->slot_count, id)]);
}

const uint64_t *id_map_get(const struct id_map *map, uint64_t id)
{
    if (id == ID_MAP_NONE)
        return NULL;
    const struct slot *slot = find(map->slots, map->slot_count, id);
    return slot->id == id ? &slot->value : NULL;
}

int id_map_put(struct id_map *map, uint64_t id, uint64_t value)
{
    struct slot *slot = find(map->slots, map->slot_count, id);

    if (slot->id == id) {
        slot->value = value;
        return 0;
    }
    if (map->count >= map->limit)
        return -ENOSPC;
    if ((map->count + 1) * 3 > map->slot_count * 2) {
        int rc = grow(map);

        if (rc != 0)
            return rc;
        slot = find(map->slots, map->slot_count, id);
    }
    *slot = (struct slot){id, value};
    map->count++;
    return 0;
}
