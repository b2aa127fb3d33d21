/* See lru.h. Slots form a ring through slot 0, which holds no block: after it
 * the most recently used block, before it the next one to evict. */
#include "tools/replay/study/sweep/lru.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/array.h"
#include "traces/id_map.h"

struct slot {
    uint64_t id;
    uint32_t older, newer;
};

struct sweep_lru {
    struct id_map *slots; /* of each id; 0 = evicted */
    struct slot *ring;    /* (n), slot 0 included */
    size_t n, room;
    uint64_t capacity;
};

struct sweep_lru *sweep_lru_new(uint64_t capacity, size_t ids)
{
    struct sweep_lru *lru = calloc(1, sizeof(*lru));

    if (!lru)
        return NULL;
    lru->capacity = capacity < UINT32_MAX ? capacity : UINT32_MAX - 1;
    lru->slots = id_map_new(ids);
    if (lru->slots && array_reserve(lru->ring, lru->room, 1) == 0) {
        lru->ring[0] = (struct slot){0};
        lru->n = 1;
        return lru;
    }
    sweep_lru_free(lru);
    return NULL;
}

void sweep_lru_free(struct sweep_lru *lru)
{
    if (!lru)
        return;
    id_map_free(lru->slots);
    free(lru->ring);
    free(lru);
}

static void take_out(struct sweep_lru *lru, uint32_t i)
{
    struct slot *ring = lru->ring;

    ring[ring[i].older].newer = ring[i].newer;
    ring[ring[i].newer].older = ring[i].older;
}

static void put_newest(struct sweep_lru *lru, uint32_t i)
{
    struct slot *ring = lru->ring;

    ring[i].older = ring[0].older;
    ring[i].newer = 0;
    ring[ring[i].older].newer = i;
    ring[0].older = i;
}

/* Finds a slot for a new block: an unused one, or the oldest block's. */
static int find_slot(struct sweep_lru *lru, uint32_t *slot)
{
    if (lru->n <= lru->capacity) {
        if (array_reserve(lru->ring, lru->room, lru->n + 1) != 0)
            return -ENOMEM;
        *slot = (uint32_t)lru->n++;
        return 0;
    }
    *slot = lru->ring[0].newer;
    take_out(lru, *slot);
    return id_map_put(lru->slots, lru->ring[*slot].id, 0);
}

static int use(struct sweep_lru *lru, uint64_t id, uint64_t *new_blocks)
{
    const uint64_t *found = id_map_get(lru->slots, id);
    uint32_t slot = found ? (uint32_t)*found : 0;
    int rc = 0;

    if (slot > 0) {
        take_out(lru, slot);
        put_newest(lru, slot);
        return 0;
    }
    if (!found) {
        rc = id_map_put(lru->slots, id, 0);
        if (rc != 0)
            return rc == -ENOSPC ? 0 : rc;
        ++*new_blocks;
    }
    rc = find_slot(lru, &slot);
    if (rc != 0)
        return rc;
    lru->ring[slot].id = id;
    put_newest(lru, slot);
    return id_map_put(lru->slots, id, slot);
}

int sweep_lru_use(struct sweep_lru *lru, const uint64_t *ids, size_t n,
                  size_t *leading, uint64_t *new_blocks)
{
    size_t i = 0;
    int rc = 0;

    for (; i < n; i++) {
        const uint64_t *slot = id_map_get(lru->slots, ids[i]);

        if (!slot || *slot == 0)
            break;
    }
    *leading = i;
    for (i = n; rc == 0 && i > 0; i--)
        rc = use(lru, ids[i - 1], new_blocks);
    return rc;
}
