/* The inside of a kv_map: the table of copies. It grows by and by, and finds
 * what a rank has in a tier without a look at the rest. */
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
    uint64_t key;   /* ours; 0: not known yet */
    uint64_t seed;  /* of the key, and of those behind it */
    uint32_t count; /* 0: the slot is free */
    struct copy_place place;
};

/*
 *   slots   |........|........|........|........| ... 1 << bits
 *   groups  |  mark  |  mark  |  mark  |  mark  |     of 256 slots each
 *   rows    |       mark      |       mark      |     of 64 groups each
 *
 * A mark has a bit for each rank and tier (of 32, which several may share): it
 * is set if an entry of these stands there, and perhaps when none does any
 * more.
 */
struct copies_half {
    struct copies *slots; /* NULL: there is none */
    uint32_t *groups, *rows;
    uint32_t bits;
};

struct copies_table {
    struct copies_half now, old; /* what is in `old` goes to `now`, with each
                                    entry that is added some */
    uint64_t moved;              /* slots of `old` that are free for good */
    uint64_t n, max;             /* slots in use */
    uint64_t n_keyless;
    uint64_t seed;
};

/* Makes an empty table for up to `max`. Returns 0 or -ENOMEM. */
int copies_init(struct copies_table *t, uint64_t max, uint64_t seed);
void copies_fini(struct copies_table *t);

/* Asks the memory for the hash's slot before it is needed. */
void copies_prefetch(const struct copies_table *t, uint64_t hash);

/* The first entry of a hash, with whatever place, and the next one of the
 * same hash. Return NULL: none. Good until the table changes. */
struct copies *copies_first(const struct copies_table *t, uint64_t hash);
struct copies *copies_next(const struct copies_table *t,
                           const struct copies *entry);

/* The entry of a hash in a place, or NULL. */
struct copies *copies_find(const struct copies_table *t, uint64_t hash,
                           struct copy_place place);

/* What a table has of a hash and a place. */
struct copies_look {
    struct copies *entry; /* of both; NULL: none */
    struct copies *other; /* the first of the hash that has a key; NULL: none */
    struct copies *room;  /* where an entry of both would stand */
    uint32_t n;           /* entries of the hash */
};

/* Looks once for all of that; good until the table changes. */
struct copies_look copies_look(const struct copies_table *t, uint64_t hash,
                               struct copy_place place);

/* Adds an entry, which is not there yet, with a count of 1. Returns it, or
 * NULL: the table is full, or out of memory.
 *   room  of copies_look() for the same hash. */
struct copies *copies_add(struct copies_table *t, struct copies *room,
                          uint64_t hash, struct copy_place place, uint64_t key,
                          uint64_t seed);

/* Says an entry's key. */
void copies_set_key(struct copies_table *t, struct copies *entry, uint64_t key,
                    uint64_t seed);

/* Takes an entry out. Others may move. */
void copies_remove(struct copies_table *t, struct copies *entry);

/*
 * Goes on looking for an entry of a rank in one of some tiers. None may be
 * added meanwhile.
 *   at     where to go on; 0: at the beginning. Then at the entry that was
 *          found: the next search looks there again.
 *   tiers  BLOCK_TIER_BIT() of each.
 *   looks  how many slots and marks were looked at, counted up; it ends at
 *          max_looks, or some hundreds later.
 * Returns the entry, or NULL: none yet, or, below max_looks, none any more.
 */
struct copies *copies_seek(struct copies_table *t, uint64_t *at, uint16_t rank,
                           unsigned tiers, uint64_t *looks, uint64_t max_looks);

/* Takes all out, and gives the memory back. */
void copies_clear(struct copies_table *t);

/* The sum of all counts. For tests. Cost: O(slots). */
uint64_t copies_counted(const struct copies_table *t);

/* Checks the invariants at the top of copies.c. For tests. */
bool copies_check(const struct copies_table *t);

#endif
