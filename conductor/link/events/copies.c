/*
 * An open table with linear probing. What is taken out leaves no mark: those
 * behind it move up.
 *
 * Invariants:
 * 1. Between an entry's home and its slot no slot is free.
 * 2. At most 3/4 of the slots are in use.
 * 3. No two entries have the same hash and place; those of one hash have the
 *    same key and seed, or some of them no key yet.
 * 4. n and n_keyless count what is there.
 */
#include "conductor/link/events/copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/zeroed.h"

#define BITS_MIN 8u

/* Both factors hold the seed, so that an engine cannot choose hashes that fall
 * together. */
static uint64_t home_of(const struct copies_table *t, uint64_t hash)
{
    unsigned __int128 product = (unsigned __int128)(hash ^ t->seed) *
                                (t->seed * UINT64_C(0x9e3779b97f4a7c15) | 1);

    return ((uint64_t)product ^ (uint64_t)(product >> 64)) >> (64 - t->bits);
}

static uint64_t mask_of(const struct copies_table *t)
{
    return (UINT64_C(1) << t->bits) - 1;
}

static bool same_place(struct copy_place a, struct copy_place b)
{
    return a.tier == b.tier && a.group == b.group && a.rank == b.rank;
}

int copies_init(struct copies_table *t, uint64_t max, uint64_t seed)
{
    struct copies *slots = table_zeroed(1u << BITS_MIN, sizeof(*slots));

    if (!slots)
        return -ENOMEM;
    *t = (struct copies_table){
        .slots = slots, .bits = BITS_MIN, .max = max, .seed = seed};
    return 0;
}

void copies_fini(struct copies_table *t)
{
    free(t->slots);
    *t = (struct copies_table){0};
}

void copies_prefetch(const struct copies_table *t, uint64_t hash)
{
    __builtin_prefetch(&t->slots[home_of(t, hash)], 1);
}

static struct copies *from(const struct copies_table *t, uint64_t at,
                           uint64_t hash)
{
    for (;; at++) {
        struct copies *slot = &t->slots[at & mask_of(t)];

        if (slot->count == 0)
            return NULL;
        if (slot->hash == hash)
            return slot;
    }
}

struct copies *copies_first(const struct copies_table *t, uint64_t hash)
{
    return from(t, home_of(t, hash), hash);
}

struct copies *copies_next(const struct copies_table *t,
                           const struct copies *entry)
{
    return from(t, (uint64_t)(entry - t->slots) + 1, entry->hash);
}

struct copies *copies_find(const struct copies_table *t, uint64_t hash,
                           struct copy_place place)
{
    struct copies *entry = copies_first(t, hash);

    while (entry && !same_place(entry->place, place))
        entry = copies_next(t, entry);
    return entry;
}

static struct copies *free_slot(const struct copies_table *t, uint64_t hash)
{
    uint64_t at = home_of(t, hash);

    while (t->slots[at & mask_of(t)].count != 0)
        at++;
    return &t->slots[at & mask_of(t)];
}

static int grow(struct copies_table *t)
{
    struct copies *old = t->slots;
    uint64_t n = UINT64_C(1) << t->bits;
    struct copies *slots = table_zeroed(2 * n, sizeof(*slots));

    if (!slots)
        return -ENOMEM;
    t->slots = slots;
    t->bits++;
    for (uint64_t i = 0; i < n; i++)
        if (old[i].count != 0)
            *free_slot(t, old[i].hash) = old[i];
    free(old);
    return 0;
}

struct copies_look copies_look(const struct copies_table *t, uint64_t hash,
                               struct copy_place place)
{
    struct copies_look found = {0};

    for (uint64_t at = home_of(t, hash);; at++) {
        struct copies *slot = &t->slots[at & mask_of(t)];

        if (slot->count == 0) {
            found.room = slot;
            return found;
        }
        if (slot->hash != hash)
            continue;
        found.n++;
        if (same_place(slot->place, place))
            found.entry = slot;
        if (slot->key != 0 && !found.other)
            found.other = slot;
    }
}

struct copies *copies_add(struct copies_table *t, struct copies *room,
                          uint64_t hash, struct copy_place place, uint64_t key,
                          uint64_t seed)
{
    struct copies *slot = room;

    if (t->n >= t->max)
        return NULL;
    if (4 * (t->n + 1) > 3ull << t->bits) {
        if (grow(t))
            return NULL;
        slot = free_slot(t, hash);
    }
    *slot = (struct copies){
        .hash = hash, .key = key, .seed = seed, .count = 1, .place = place};
    t->n++;
    t->n_keyless += key == 0;
    return slot;
}

void copies_set_key(struct copies_table *t, struct copies *entry, uint64_t key,
                    uint64_t seed)
{
    t->n_keyless -= entry->key == 0 && key != 0;
    entry->key = key;
    entry->seed = seed;
}

void copies_remove(struct copies_table *t, struct copies *entry)
{
    uint64_t mask = mask_of(t), hole = (uint64_t)(entry - t->slots);

    t->n--;
    t->n_keyless -= entry->key == 0;
    for (uint64_t at = hole + 1;; at++) {
        struct copies *slot = &t->slots[at & mask];

        if (slot->count == 0)
            break;
        /* It may stand in the hole if that is not before its home. */
        if (((at - home_of(t, slot->hash)) & mask) >= ((at - hole) & mask)) {
            t->slots[hole & mask] = *slot;
            hole = at;
        }
    }
    t->slots[hole & mask].count = 0;
}

void copies_clear(struct copies_table *t)
{
    struct copies_table empty;

    if (copies_init(&empty, t->max, t->seed) == 0) {
        free(t->slots);
        *t = empty;
        return;
    }
    memset(t->slots, 0, sizeof(*t->slots) << t->bits);
    t->n = t->n_keyless = 0;
}

static bool check_entry(const struct copies_table *t, uint64_t at)
{
    const struct copies *entry = &t->slots[at], *other;

    for (uint64_t i = home_of(t, entry->hash); (i & mask_of(t)) != at; i++)
        if (t->slots[i & mask_of(t)].count == 0)
            return false;
    for (other = copies_next(t, entry); other; other = copies_next(t, other)) {
        if (other == entry || same_place(entry->place, other->place))
            return false;
        if (entry->key != 0 && other->key != 0 &&
            (entry->key != other->key || entry->seed != other->seed))
            return false;
    }
    return true;
}

bool copies_check(const struct copies_table *t)
{
    uint64_t n = 0, n_keyless = 0;

    for (uint64_t at = 0; at <= mask_of(t); at++) {
        if (t->slots[at].count == 0)
            continue;
        n++;
        n_keyless += t->slots[at].key == 0;
        if (!check_entry(t, at))
            return false;
    }
    return n == t->n && n_keyless == t->n_keyless && n <= t->max &&
           4 * n <= 3ull << t->bits;
}
