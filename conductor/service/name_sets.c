/* See name_sets.h. */
#include "conductor/service/name_sets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int name_sets_init(struct name_sets *sets, uint32_t n_slots)
{
    *sets = (struct name_sets){.n_slots = n_slots};
    sets->all = calloc(NAME_SETS_MAX, sizeof(struct name_set *));
    return sets->all ? 0 : -ENOMEM;
}

void name_sets_fini(struct name_sets *sets)
{
    for (size_t i = 0; i < sets->n; i++)
        free(sets->all[i]);
    free(sets->all);
    *sets = (struct name_sets){0};
}

bool name_set_has(const struct name_set *set, uint32_t slot)
{
    return set->engines[slot / 64] >> slot % 64 & 1u;
}

/* Compares a set's name with name[0..n), which may hold NULs; as memcmp(). */
static int compare(const struct name_set *set, const char *name, size_t n)
{
    size_t own = strlen(set->name.name);
    int order = memcmp(set->name.name, name, own < n ? own : n);

    return order ? order : (own > n) - (own < n);
}

/* Returns the index of a name, or where it would be inserted. */
static size_t place_of(const struct name_sets *sets, const char *name, size_t n)
{
    size_t low = 0, high = sets->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (compare(sets->all[middle], name, n) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct name_set *name_sets_find(const struct name_sets *sets, const char *name,
                                size_t n)
{
    size_t at = place_of(sets, name, n);

    return at < sets->n && compare(sets->all[at], name, n) == 0 ? sets->all[at]
                                                                : NULL;
}

/* Frees the set that has had no engine for the longest time and that no request
 * names. Returns whether there was one. */
static bool forget_one(struct name_sets *sets)
{
    size_t oldest = sets->n;

    for (size_t i = 0; i < sets->n; i++) {
        const struct name_set *set = sets->all[i];

        if (set->name.n_engines == 0 && set->n_requests == 0 &&
            (oldest == sets->n || set->lost < sets->all[oldest]->lost))
            oldest = i;
    }
    if (oldest == sets->n)
        return false;
    free(sets->all[oldest]);
    memmove(&sets->all[oldest], &sets->all[oldest + 1],
            (--sets->n - oldest) * sizeof(struct name_set *));
    return true;
}

/* Returns the set of a name, created if needed; NULL = no room. */
static struct name_set *get(struct name_sets *sets, const char *name)
{
    struct name_set *set = name_sets_find(sets, name, strlen(name));
    size_t words = (sets->n_slots + 63) / 64, at;

    if (set)
        return set;
    if (sets->n < NAME_SETS_MAX || forget_one(sets))
        set = calloc(1, sizeof(*set) + words * sizeof(set->engines[0]));
    if (!set) {
        sets->n_dropped++;
        return NULL;
    }
    snprintf(set->name.name, sizeof(set->name.name), "%s", name);
    set->lost = ++sets->n_lost;
    at = place_of(sets, name, strlen(name));
    memmove(&sets->all[at + 1], &sets->all[at],
            (sets->n++ - at) * sizeof(struct name_set *));
    sets->all[at] = set;
    return set;
}

static void lose(struct name_sets *sets, struct name_set *set, uint32_t slot)
{
    set->engines[slot / 64] &= ~(UINT64_C(1) << slot % 64);
    set->changed = true;
    if (--set->name.n_engines == 0)
        set->lost = ++sets->n_lost;
}

#define NO_SLOT UINT32_MAX

/* Adds names to the engine in a slot; NO_SLOT = only makes them known. A name
 * that any engine lists as an adapter is one from then on: its blocks then
 * match under no other name. */
static void take(struct name_sets *sets, uint32_t slot,
                 const struct engine_names *names, bool adapters)
{
    for (uint8_t i = 0; names && i < names->n; i++) {
        struct name_set *set = get(sets, engine_names_at(names, i));

        if (!set)
            continue;
        set->name.adapter =
            adapters || (set->name.n_engines > 0 && set->name.adapter);
        if (slot == NO_SLOT || name_set_has(set, slot))
            continue;
        set->engines[slot / 64] |= UINT64_C(1) << slot % 64;
        set->name.n_engines++;
        set->changed = true;
    }
}

void name_sets_know(struct name_sets *sets, const struct engine_names *aliases,
                    const struct engine_names *adapters)
{
    take(sets, NO_SLOT, aliases, false);
    take(sets, NO_SLOT, adapters, true);
}

void name_sets_take(struct name_sets *sets, uint32_t slot,
                    const struct engine_names *aliases,
                    const struct engine_names *adapters)
{
    for (size_t i = 0; i < sets->n; i++) {
        struct name_set *set = sets->all[i];

        if (name_set_has(set, slot) &&
            !(aliases && engine_names_have(aliases, set->name.name)) &&
            !(adapters && engine_names_have(adapters, set->name.name)))
            lose(sets, set, slot);
    }
    take(sets, slot, aliases, false);
    take(sets, slot, adapters, true);
}
