/* Knows which units of a load were asked for, and which came. */
#include "workers/load/units.h"

#include <errno.h>
#include <stdlib.h>

static bool is_set(const uint64_t *map, uint32_t i)
{
    return map[i / 64] >> i % 64 & 1;
}

/* Sets bit i to `to`. Returns the change of the number of set bits. */
static uint32_t put(uint64_t *map, uint32_t i, bool to)
{
    uint32_t was = is_set(map, i);

    map[i / 64] ^= (uint64_t)(was != to) << i % 64;
    return to - was;
}

int load_units_init(struct load_units *u, uint32_t n, uint32_t layers,
                    bool by_layer)
{
    uint32_t units = by_layer ? layers : 1;
    size_t words = (size_t)n * units / 64 + 1;

    *u = (struct load_units){.by_layer = by_layer, .layers = units, .n = n};
    u->asked = calloc(words, sizeof(*u->asked));
    u->came = calloc(words, sizeof(*u->came));
    if (u->asked && u->came)
        return 0;
    load_units_fini(u);
    return -ENOMEM;
}

void load_units_fini(struct load_units *u)
{
    free(u->asked);
    free(u->came);
}

void load_units_begin(struct load_units *u, uint32_t first)
{
    u->first = first;
    u->n -= first;
}

uint32_t load_units_block(const struct load_units *u, uint32_t unit)
{
    return u->first + (u->by_layer ? unit % u->n : u->n - 1 - unit);
}

static uint32_t unit_of(const struct load_units *u, uint32_t b, uint32_t layer)
{
    uint32_t i = b - u->first;

    return u->by_layer ? layer * u->n + i : u->n - 1 - i;
}

uint32_t load_units_next(struct load_units *u, uint32_t from, uint32_t to)
{
    uint32_t end = u->n * u->layers;

    while (u->cursor < end && is_set(u->asked, u->cursor))
        u->cursor++;
    for (uint32_t i = u->cursor; i < end; i++) {
        uint32_t b = load_units_block(u, i);

        if (b >= from && b < to && !is_set(u->asked, i))
            return i;
    }
    return LOAD_UNIT_NONE;
}

void load_units_set(struct load_units *u, uint32_t unit, enum load_unit state)
{
    u->n_asked += put(u->asked, unit, state != UNIT_WANTED);
    u->n_came += put(u->came, unit, state == UNIT_CAME);
    if (state == UNIT_WANTED && unit < u->cursor)
        u->cursor = unit;
    if (state != UNIT_CAME && unit < u->gate)
        u->gate = unit;
}

void load_units_forget(struct load_units *u, uint32_t b)
{
    for (uint32_t layer = 0; layer < u->layers; layer++)
        load_units_set(u, unit_of(u, b, layer), UNIT_WANTED);
}

uint32_t load_units_count(const struct load_units *u, uint32_t b,
                          enum load_unit state)
{
    uint32_t n = 0;

    for (uint32_t layer = 0; layer < u->layers; layer++) {
        uint32_t i = unit_of(u, b, layer);

        n += is_set(u->asked, i) == (state != UNIT_WANTED) &&
             is_set(u->came, i) == (state == UNIT_CAME);
    }
    return n;
}

uint32_t load_units_gate(struct load_units *u, uint32_t end)
{
    while (u->gate < u->n * u->layers &&
           (load_units_block(u, u->gate) >= end || is_set(u->came, u->gate)))
        u->gate++;
    return u->gate / u->n;
}
