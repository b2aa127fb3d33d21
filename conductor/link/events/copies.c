/*
 * A table of two halves (copies_half.c). A half that is too small becomes the
 * old one, and its entries move to the new one, a few with each entry added.
 *
 * Invariants:
 * 1. The entries of both halves fill at most 3/4 of the new half's slots.
 * 2. No two entries have the same hash and place; all entries of a hash have
 *    the same key and seed, or no key yet.
 * 3. n and n_keyless count the entries, and those without a key.
 * 4. The old half's slots below `moved` are free; it is gone before the new one
 *    is full.
 */
#include "conductor/link/events/copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/link/events/copies_half.h"

#define BITS_MIN 8u
/* Slots of the old half to look at for each entry added. They are enough: the
 * new half takes 3/4 as many entries as the old one has slots before it grows,
 * and an old slot is looked at twice at most. */
#define MOVES 4u
/* Slots to prefetch ahead. */
#define AHEAD 8u

int copies_init(struct copies_table *t, uint64_t max, uint64_t seed)
{
    struct copies_table empty = {.max = max, .seed = seed};

    if (half_init(&empty.now, BITS_MIN))
        return -ENOMEM;
    *t = empty;
    return 0;
}

void copies_fini(struct copies_table *t)
{
    half_fini(&t->now);
    half_fini(&t->old);
    *t = (struct copies_table){0};
}

void copies_prefetch(const struct copies_table *t, uint64_t hash)
{
    __builtin_prefetch(&t->now.slots[half_home(&t->now, t->seed, hash)], 1);
    if (t->old.slots)
        __builtin_prefetch(&t->old.slots[half_home(&t->old, t->seed, hash)], 1);
}

static struct copies *from(const struct copies_half *half, uint64_t at,
                           uint64_t hash)
{
    for (;; at++) {
        struct copies *slot = &half->slots[at & half_mask(half)];

        if (slot->count == 0)
            return NULL;
        if (slot->hash == hash)
            return slot;
    }
}

/* The hash's first entry in the new half. */
static struct copies *first_now(const struct copies_table *t, uint64_t hash)
{
    return from(&t->now, half_home(&t->now, t->seed, hash), hash);
}

struct copies *copies_first(const struct copies_table *t, uint64_t hash)
{
    struct copies *entry = NULL;

    if (t->old.slots)
        entry = from(&t->old, half_home(&t->old, t->seed, hash), hash);
    return entry ? entry : first_now(t, hash);
}

struct copies *copies_next(const struct copies_table *t,
                           const struct copies *entry)
{
    const struct copies_half *half =
        half_has(&t->old, entry) ? &t->old : &t->now;
    struct copies *next =
        from(half, (uint64_t)(entry - half->slots) + 1, entry->hash);

    return next || half == &t->now ? next : first_now(t, entry->hash);
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
    uint64_t at = half_home(&t->now, t->seed, hash);

    while (t->now.slots[at & half_mask(&t->now)].count != 0)
        at++;
    return &t->now.slots[at & half_mask(&t->now)];
}

/* Moves some entries to the new half. */
static void move_some(struct copies_table *t)
{
    struct copies_half *old = &t->old;

    copies_prefetch(t, old->slots[(t->moved + AHEAD) & half_mask(old)].hash);
    for (uint32_t i = 0; i < MOVES; i++) {
        struct copies *slot = &old->slots[t->moved];

        if (slot->count != 0) {
            half_put(&t->now, free_slot(t, slot->hash), slot);
            half_take(old, t->seed, slot);
        } else if (++t->moved == half_slots(old)) {
            half_fini(old);
            return;
        }
    }
}

/* Makes a new half of twice as many slots. */
static int grow(struct copies_table *t)
{
    struct copies_half now;

    if (t->old.slots || half_init(&now, t->now.bits + 1))
        return -ENOMEM;
    t->old = t->now;
    t->now = now;
    t->moved = 0;
    return 0;
}

/* Searches one half; `room` becomes the slot where the search ends. */
static void look_in(const struct copies_half *half, uint64_t at, uint64_t hash,
                    struct copy_place place, struct copies_look *found)
{
    for (;; at++) {
        struct copies *slot = &half->slots[at & half_mask(half)];

        if (slot->count == 0) {
            found->room = slot;
            return;
        }
        if (slot->hash != hash)
            continue;
        found->n++;
        if (same_place(slot->place, place))
            found->entry = slot;
        if (slot->key != 0 && !found->other)
            found->other = slot;
    }
}

struct copies_look copies_look(const struct copies_table *t, uint64_t hash,
                               struct copy_place place)
{
    struct copies_look found = {0};

    if (t->old.slots)
        look_in(&t->old, half_home(&t->old, t->seed, hash), hash, place,
                &found);
    look_in(&t->now, half_home(&t->now, t->seed, hash), hash, place, &found);
    return found;
}

struct copies *copies_add(struct copies_table *t, struct copies *room,
                          uint64_t hash, struct copy_place place, uint64_t key,
                          uint64_t seed)
{
    struct copies *slot = room;

    if (t->n >= t->max)
        return NULL;
    if (4 * (t->n + 1) > 3ull << t->now.bits) {
        if (grow(t))
            return NULL;
        slot = free_slot(t, hash);
    }
    half_put(&t->now, slot,
             &(struct copies){.hash = hash,
                              .key = key,
                              .seed = seed,
                              .count = 1,
                              .place = place});
    t->n++;
    t->n_keyless += key == 0;
    if (t->old.slots)
        move_some(t);
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
    t->n--;
    t->n_keyless -= entry->key == 0;
    half_take(half_has(&t->old, entry) ? &t->old : &t->now, t->seed, entry);
}

static bool is_of(const struct copies *slot, uint16_t rank, unsigned tiers)
{
    return slot->count != 0 && slot->place.rank == rank &&
           (tiers & BLOCK_TIER_BIT(slot->place.tier));
}

struct copies *copies_seek(struct copies_table *t, uint64_t *at, uint16_t rank,
                           unsigned tiers, uint64_t *looks, uint64_t max_looks)
{
    uint64_t n_old = half_slots(&t->old), end = n_old + half_slots(&t->now);
    uint32_t marks = 0;

    for (unsigned tier = 0; tier < BLOCK_TIERS; tier++)
        if (tiers & BLOCK_TIER_BIT(tier))
            marks |= half_mark(rank, tier);
    while (*at < end && *looks < max_looks) {
        struct copies_half *half = *at < n_old ? &t->old : &t->now;
        uint64_t i = *at < n_old ? *at : *at - n_old;
        uint64_t n = half_unmarked(half, i, marks);

        if (n == 0 && is_of(&half->slots[i], rank, tiers))
            return &half->slots[i];
        n += n == 0;
        *at += n;
        *looks += 1 + half_passed(half, i + n, n);
    }
    return NULL;
}

void copies_clear(struct copies_table *t)
{
    struct copies_table empty;

    half_fini(&t->old);
    if (copies_init(&empty, t->max, t->seed) == 0) {
        half_fini(&t->now);
        *t = empty;
        return;
    }
    memset(t->now.slots, 0, sizeof(*t->now.slots) << t->now.bits);
    t->n = t->n_keyless = 0;
}

static bool check_entry(const struct copies_table *t,
                        const struct copies_half *half, uint64_t at)
{
    const struct copies *entry = &half->slots[at], *other;

    if (!half_check(half, t->seed, at))
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

/* Checks a half's entries, and counts them. */
static bool check_half(const struct copies_table *t,
                       const struct copies_half *half, uint64_t *n,
                       uint64_t *n_keyless)
{
    for (uint64_t at = 0; at < half_slots(half); at++) {
        if (half->slots[at].count == 0)
            continue;
        ++*n;
        *n_keyless += half->slots[at].key == 0;
        if ((half == &t->old && at < t->moved) || !check_entry(t, half, at))
            return false;
    }
    return true;
}

uint64_t copies_counted(const struct copies_table *t)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < half_slots(&t->old); i++)
        n += t->old.slots[i].count;
    for (uint64_t i = 0; i < half_slots(&t->now); i++)
        n += t->now.slots[i].count;
    return n;
}

bool copies_check(const struct copies_table *t)
{
    uint64_t n = 0, n_keyless = 0;

    return check_half(t, &t->old, &n, &n_keyless) &&
           check_half(t, &t->now, &n, &n_keyless) && n == t->n &&
           n_keyless == t->n_keyless && n <= t->max &&
           4 * n <= 3ull << t->now.bits;
}
