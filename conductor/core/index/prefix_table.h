/*
 * The inside of the prefix index, shared by its files. Not for others.
 *
 * One entry a known block, found through a hash table of chains. Entries form
 * a forest: an entry is linked once a store has named its parent, and stays
 * linked to that parent as long as it lives.
 *
 *          8         4      4        4         4          8
 *   +-------------+------+--------+---------+--------+-----------------+
 *   | key         | next | parent | refs,   | digest | one record, or  |
 *   |             |      |        | flags   |        | where they are  |
 *   +-------------+------+--------+---------+--------+-----------------+
 *   record: | children 4 | instance 2 | tiers 1 | 0 |
 *
 * Two and more records of an entry stand in the arena, by instance.
 */
#ifndef CONDUCTOR_CORE_INDEX_PREFIX_TABLE_H
#define CONDUCTOR_CORE_INDEX_PREFIX_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/core/arena.h"
#include "conductor/core/index/prefix_index.h"

/* An instance's relation to a block: it holds it (tiers set), or holds
 * children of it, or both. A record with neither does not exist. */
struct record {
    uint32_t children; /* blocks it holds whose parent is this block */
    uint16_t instance;
    uint8_t tiers; /* bit 1 << tier; 0: a ghost, not held */
    uint8_t zero;
};

struct entry {
    uint64_t key;          /* 0: the entry is free */
    uint32_t next;         /* in the hash chain or the free list; 0 ends it */
    uint32_t parent;       /* if linked: its entry, 0 for a first block */
    uint32_t refs : 28;    /* entries linked to this one */
    uint32_t many : 1;     /* the records are in the arena */
    uint32_t linked : 1;   /* parent is known */
    uint32_t resolved : 1; /* digest is known */
    uint32_t : 1;
    uint32_t digest; /* sum of the mixed keys from the first block to here */
    union {
        struct record one; /* all 0: no record */
        struct {
            uint32_t at;
            uint16_t count;
            uint16_t held; /* of the count, those with tiers */
        } many_at;
    };
};

struct prefix_index {
    struct entry *entries; /* (max_keys + 1), 0 unused */
    uint32_t *heads;       /* (n_heads): first entry of a chain, 0: none */
    uint64_t *held;        /* (max_instances): blocks held */
    uint64_t *orphans;     /* (max_instances): held blocks that have a parent
                              which the instance does not hold */
    struct arena arena;
    uint64_t seed;
    uint32_t n_heads;
    uint32_t max_instances;
    uint32_t max_keys;
    uint32_t fresh;      /* entries from here on have never been used */
    uint32_t free_entry; /* first of the free list, 0: none */
    uint32_t n_open;     /* instances with orphans */
    uint64_t n_keys;
    uint64_t n_held_keys; /* entries that somebody holds */
    uint64_t n_holders;
};

static inline uint64_t table_hash(const struct prefix_index *ix, uint64_t key)
{
    return (key ^ ix->seed) * UINT64_C(0x9e3779b97f4a7c15);
}

static inline uint32_t table_bucket(const struct prefix_index *ix,
                                    uint64_t hash)
{
    return (uint32_t)(((hash >> 32) * ix->n_heads) >> 32);
}

/* A key's share in the digests of the blocks behind it. */
static inline uint32_t table_mix(const struct prefix_index *ix, uint64_t key)
{
    return (uint32_t)(table_hash(ix, key) >> 24);
}

/* The entry of a key, 0 if unknown. */
static inline uint32_t table_find(const struct prefix_index *ix, uint64_t key)
{
    uint32_t at = ix->heads[table_bucket(ix, table_hash(ix, key))];

    while (at != 0 && ix->entries[at].key != key)
        at = ix->entries[at].next;
    return at;
}

/* Takes an unlinked entry without records for an unknown key.
 * Returns it, or 0: max_keys reached. */
uint32_t table_add(struct prefix_index *ix, uint64_t key);

/* Frees an entry if nothing needs it, then its parent likewise, and so on. */
void table_collect(struct prefix_index *ix, uint32_t at);

/* Computes the digest of a linked entry if its line reaches a first block.
 * Returns whether it is known. Cost: O(unresolved ancestors). */
bool table_resolve(struct prefix_index *ix, uint32_t at);

/* The records of an entry, by instance, and their number. */
static inline const struct record *records_of(const struct prefix_index *ix,
                                              const struct entry *e, size_t *n)
{
    if (e->many) {
        *n = e->many_at.count;
        return arena_at(&ix->arena, e->many_at.at);
    }
    *n = e->one.tiers != 0 || e->one.children != 0;
    return &e->one;
}

/* The number of instances that hold the block of an entry. */
static inline uint32_t records_held(const struct entry *e)
{
    return e->many ? e->many_at.held : e->one.tiers != 0;
}

/* The record of an instance, NULL if none; valid until records of this entry
 * are added or dropped. Cost: O(log records). */
struct record *record_find(const struct prefix_index *ix, struct entry *e,
                           uint32_t instance);

/* The same, made if there is none (without children or tiers: the caller
 * fills or drops it). Returns NULL: no room. */
struct record *record_get(struct prefix_index *ix, struct entry *e,
                          uint32_t instance);

/* Drops the record of an instance if it says nothing any more. */
void record_drop_empty(struct prefix_index *ix, struct entry *e,
                       uint32_t instance);

#endif
