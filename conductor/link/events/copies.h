/* The inside of a kv_map: the table of copies. It grows a little at a time, and
 * finds a rank's entries in a tier without looking at the rest. */
#ifndef CONDUCTOR_LINK_EVENTS_COPIES_H
#define CONDUCTOR_LINK_EVENTS_COPIES_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/core/index/prefix_index.h"

/* Where copies of a block are. */
struct copy_place {
    uint8_t tier, group;
    uint16_t rank;
};

/* Copies of one block in one place; half a cache line. */
struct copies {
    uint64_t hash;  /* the engine's */
    uint64_t key;   /* ours; 0 = not known yet */
    uint64_t seed;  /* of the key, and of the keys after it */
    uint32_t count; /* 0 = the slot is free */
    struct copy_place place;
};

/*
 *   slots   |........|........|........|........| ... 1 << bits
 *   groups  |  mark  |  mark  |  mark  |  mark  |     of 256 slots each
 *   rows    |       mark      |       mark      |     of 64 groups each
 *
 * A mark has a bit for each rank and tier (32 bits, so pairs may share one). A
 * bit is set if such an entry is below, and may stay set when the entry has
 * gone.
 */
struct copies_half {
    struct copies *slots; /* NULL = no half */
    uint32_t *groups, *rows;
    uint32_t bits;
};

struct copies_table {
    struct copies_half now, old; /* entries move from `old` to `now`, a few with
                                    each one added */
    uint64_t moved;              /* leading slots of `old` that are empty */
    uint64_t n, max;             /* entries, and their limit */
    uint64_t n_keyless;
    uint64_t seed;
};

/* Makes an empty table for up to max entries. Returns 0 or -ENOMEM. */
int copies_init(struct copies_table *t, uint64_t max, uint64_t seed);
void copies_fini(struct copies_table *t);

/* Prefetches the hash's slot. */
void copies_prefetch(const struct copies_table *t, uint64_t hash);

/* Return the first entry of a hash, in any place, and the next one; NULL =
 * none. Valid until the table changes. */
struct copies *copies_first(const struct copies_table *t, uint64_t hash);
struct copies *copies_next(const struct copies_table *t,
                           const struct copies *entry);

/* Returns the entry of a hash in a place, or NULL. */
struct copies *copies_find(const struct copies_table *t, uint64_t hash,
                           struct copy_place place);

/* Entries of a hash, as found by copies_look(). */
struct copies_look {
    struct copies *entry; /* of hash and place; NULL = none */
    struct copies *other; /* first entry of the hash with a key; NULL = none */
    struct copies *room;  /* where a missing entry would go */
    uint32_t n;           /* entries of the hash */
};

/* Finds both entries in one search; valid until the table changes. */
struct copies_look copies_look(const struct copies_table *t, uint64_t hash,
                               struct copy_place place);

/* Adds an entry that is not there yet, with a count of 1. Returns it, or NULL:
 * the table is full, or out of memory.
 *   room  from copies_look() for the same hash. */
struct copies *copies_add(struct copies_table *t, struct copies *room,
                          uint64_t hash, struct copy_place place, uint64_t key,
                          uint64_t seed);

/* Sets an entry's key. */
void copies_set_key(struct copies_table *t, struct copies *entry, uint64_t key,
                    uint64_t seed);

/* Removes an entry. Others may move. */
void copies_remove(struct copies_table *t, struct copies *entry);

/*
 * Continues a search for an entry of a rank in any of these tiers. Add no
 * entries between two calls.
 *   at     where to continue; 0 = at the beginning. Left at the entry found,
 *          where the next search begins.
 *   tiers  BLOCK_TIER_BIT() of each.
 *   looks  raised by the slots and marks looked at; the search ends at
 *          max_looks, or some hundreds later.
 * Returns the entry; or NULL: none so far, or, with *looks < max_looks, none at
 * all.
 */
struct copies *copies_seek(struct copies_table *t, uint64_t *at, uint16_t rank,
                           unsigned tiers, uint64_t *looks, uint64_t max_looks);

/* Removes all entries and frees their memory. */
void copies_clear(struct copies_table *t);

/* Returns the sum of all counts. For tests. Cost: O(slots). */
uint64_t copies_counted(const struct copies_table *t);

/* Checks the invariants at the top of copies.c. For tests. */
bool copies_check(const struct copies_table *t);

#endif
