/* A hash table of copies of fixed size, with open addressing: half of a
 * copies_table. */
#ifndef CONDUCTOR_LINK_EVENTS_COPIES_HALF_H
#define CONDUCTOR_LINK_EVENTS_COPIES_HALF_H

#include "conductor/link/events/copies.h"

/* Slots under the mark of a group, and of a row. */
#define COPIES_GROUP (UINT64_C(1) << 8)
#define COPIES_ROW (UINT64_C(1) << 14)

/* Makes an empty half of 1 << bits slots, a group at least. Returns 0 or
 * -ENOMEM. */
int half_init(struct copies_half *half, uint32_t bits);

/* Frees the half's memory, and clears *half. */
void half_fini(struct copies_half *half);

/* Number of slots; 0 = no half. */
static inline uint64_t half_slots(const struct copies_half *half)
{
    return half->slots ? UINT64_C(1) << half->bits : 0;
}

static inline uint64_t half_mask(const struct copies_half *half)
{
    return (UINT64_C(1) << half->bits) - 1;
}

/* Returns the slot at which a hash's entries begin. Both factors hold the seed,
 * so that an engine cannot choose hashes that collide. */
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

/* Frees an entry's slot; entries after it move up. */
void half_take(struct copies_half *half, uint64_t seed,
               const struct copies *entry);

/* Returns how many slots from `at` on a search for these marks may skip; 0 = it
 * must look at this one. */
uint64_t half_unmarked(const struct copies_half *half, uint64_t at,
                       uint32_t marks);

/* Computes anew the marks of the group and row that a search has just passed,
 * on its way to slot `at` by a skip of `step` slots, or by one slot. Returns
 * the slots and marks looked at. */
uint64_t half_passed(struct copies_half *half, uint64_t at, uint64_t step);

/* The mark of a rank and a tier. */
uint32_t half_mark(uint32_t rank, uint32_t tier);

/* Returns whether an entry has its marks and can be found. For tests. */
bool half_check(const struct copies_half *half, uint64_t seed, uint64_t at);

#endif
