/* One open table of copies, of a fixed size: half of a table that grows. */
#ifndef CONDUCTOR_LINK_EVENTS_COPIES_HALF_H
#define CONDUCTOR_LINK_EVENTS_COPIES_HALF_H

#include "conductor/link/events/copies.h"

/* Slots that have a mark. */
#define COPIES_GROUP (UINT64_C(1) << 8)
#define COPIES_ROW (UINT64_C(1) << 14)

/* Makes an empty one of 1 << bits slots, a group at least. Returns 0 or
 * -ENOMEM. */
int half_init(struct copies_half *half, uint32_t bits);

/* Frees it: there is none then. */
void half_fini(struct copies_half *half);

/* How many slots it has; 0: there is none. */
static inline uint64_t half_slots(const struct copies_half *half)
{
    return half->slots ? UINT64_C(1) << half->bits : 0;
}

static inline uint64_t half_mask(const struct copies_half *half)
{
    return (UINT64_C(1) << half->bits) - 1;
}

/* Where a hash's entries begin. Both factors hold the seed, so that an engine
 * cannot choose hashes that fall together. */
static inline uint64_t half_home(const struct copies_half *half, uint64_t seed,
                                 uint64_t hash)
{
    unsigned __int128 product = (unsigned __int128)(hash ^ seed) *
                                (seed * UINT64_C(0x9e3779b97f4a7c15) | 1);

    return ((uint64_t)product ^ (uint64_t)(product >> 64)) >> (64 - half->bits);
}

static inline bool half_has(const struct copies_half *half,
                            const struct copies *entry)
{
    return (uintptr_t)entry - (uintptr_t)half->slots <
           half_slots(half) * sizeof(*entry);
}

static inline bool same_place(struct copy_place a, struct copy_place b)
{
    return a.tier == b.tier && a.group == b.group && a.rank == b.rank;
}

/* Writes an entry into a free slot. */
void half_put(struct copies_half *half, struct copies *slot,
              const struct copies *entry);

/* Frees an entry's slot; those behind it move up. */
void half_take(struct copies_half *half, uint64_t seed,
               const struct copies *entry);

/* How many slots from one on a search for these marks passes by; 0: it looks
 * at this one. */
uint64_t half_unmarked(const struct copies_half *half, uint64_t at,
                       uint32_t marks);

/* A search has come to a slot by such a step, or by one slot: what it has
 * looked at is marked anew. Returns at how much it looks for that. */
uint64_t half_passed(struct copies_half *half, uint64_t at, uint64_t step);

/* The mark of a rank and a tier. */
uint32_t half_mark(uint32_t rank, uint32_t tier);

/* Whether an entry is marked, and found. For tests. */
bool half_check(const struct copies_half *half, uint64_t seed, uint64_t at);

#endif
