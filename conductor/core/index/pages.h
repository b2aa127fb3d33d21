/*
 * The inside of the prefix index. Not for others.
 *
 * Blocks stand in pages of 16 keys, in the order in which they came along a
 * chain. For each instance that holds some of a page there is one record with
 * a mask of held places for each tier. A table finds a key's page and place.
 *
 *   keys[page]:   | key 0 | key 1 | ... | key 15 |            16 x 8 bytes
 *
 *      8 bytes   8                 4       1        1       2
 *   +----------+-----------------+-------+--------+-------+----------+
 *   | hash     | one record, or  | use,  | n_keys | flags | removals |
 *   |          | where they are  | next  |        |       |          |
 *   |          |                 | free  |        |       |          |
 *   +----------+-----------------+-------+--------+-------+----------+
 *   record: | holder 2 | held in device 2 | host 2 | disk 2 |
 *
 *   bucket of the table: | passed 4 | 15 x (tag, page, place) 4 |   64 bytes
 *
 * A holder is what an instance is called inside: a cleared instance gets a new
 * holder at once, and the records of the old one are swept later.
 *
 * Invariants:
 *   1. a key of the table stands in one place of one page, and each of a page's
 *      n_keys places has its key in the table;
 *   2. a page in use has a record, and each record holds some place below
 *      n_keys; records stand by holder;
 *   3. hash = XOR of page_token(holder, tiers) over the records that hold all
 *      n_keys places in the same tiers;
 *   4. instance i's held = places in records of its holder, of any tier, and
 *      its pages = those records;
 *   5. passed = keys that stand in a later bucket than their own and whose way
 *      there leads over this one;
 *   6. unswept = holders of the instance that are dead or dying; n_spare_used =
 *      what instances have beyond two holders each, the live one included.
 */
#ifndef CONDUCTOR_CORE_INDEX_PAGES_H
#define CONDUCTOR_CORE_INDEX_PAGES_H

#include "conductor/core/arena.h"
#include "conductor/core/index/key_hash.h"
#include "conductor/core/index/prefix_index.h"
#include "conductor/core/index/zeroed.h"

#define PAGE_KEYS 16u
#define BUCKET_SLOTS 15u
#define HOLDER_NONE UINT16_MAX
#define POSITION_NONE 0u

struct record {
    uint16_t holder;
    uint16_t held[BLOCK_TIERS]; /* places, by tier */
};
_Static_assert(sizeof(struct record) == 8, "a match reads it as one word");

/* When a page was last matched, and where: page_rank() compares. */
struct page_use {
    uint16_t round; /* of eviction */
    uint16_t depth; /* pages of its chain in front of it */
};

struct page {
    uint64_t hash;
    union {
        struct record one; /* all 0: none */
        struct {
            uint32_t at; /* in the arena */
            uint16_t n;
            uint16_t size_class;
        } many;
    };
    union {
        struct page_use use;
        uint32_t next_free; /* while it is free; 0: the last */
    };
    uint8_t n_keys;
    uint8_t many_records : 1;
    uint8_t recent : 1; /* matched since the hand of eviction passed */
    uint8_t : 6;
    uint16_t removals; /* since dead places were counted */
};

struct bucket {
    uint32_t passed;
    uint32_t slot[BUCKET_SLOTS]; /* tag << position_bits | position; 0: free */
};

enum holder_state {
    HOLDER_FREE,
    HOLDER_LIVE,
    HOLDER_DEAD,  /* its records are being swept */
    HOLDER_DYING, /* died during a sweep: the next one's */
};

struct holder {
    uint32_t instance;
    uint8_t state; /* enum holder_state */
};

/* What the index knows of an instance. */
struct indexed {
    uint64_t held;      /* blocks */
    uint64_t pages;     /* that have a record of it */
    uint64_t quota;     /* of blocks */
    uint64_t unindexed; /* blocks that had no room since it was last clear */
    uint64_t untold;    /* of these, when the inventory under way began */
    uint16_t holder;    /* HOLDER_NONE: it holds nothing */
    uint16_t unswept;   /* holders that it had and that are not swept yet */
    bool telling;       /* an inventory is under way */
    bool gives_way;     /* in this round of eviction */
};

struct prefix_index {
    uint64_t (*keys)[PAGE_KEYS]; /* (max_pages + 1), 0 unused */
    struct page *pages;          /* likewise */
    struct bucket *buckets;      /* (n_buckets) */
    struct indexed *instances;   /* (max_instances) */
    struct holder *holders;      /* (n_holders_max) */
    uint16_t *free_holders;      /* stack */
    struct arena arena;
    struct key_secret secret;
    bool evicts;
    uint32_t max_instances;
    uint32_t max_pages;
    uint64_t max_keys; /* that the table has room for */
    size_t touched;    /* bytes of them, by prefix_index_touch() */
    uint32_t n_buckets;
    uint32_t max_buckets; /* reserved */
    uint32_t position_bits;
    uint32_t max_holders;
    uint32_t n_free_holders;
    uint32_t n_spare_used; /* beyond two of an instance */
    uint32_t n_dead;       /* holders to be swept now */
    uint32_t n_dying;
    uint32_t sweep_at; /* the next page to be swept, 0: no sweep is under way */
    uint32_t fresh;    /* pages from here on have never been used */
    uint32_t free_page;
    uint32_t hand;      /* of eviction */
    uint16_t round;     /* of it, counted */
    uint32_t cold;      /* pages of this rank or more go in it */
    uint32_t changed;   /* pages in its round */
    uint32_t largest;   /* instance, when the round began */
    uint32_t part;      /* of 64 of what it holds now: those with more give way;
                           0: there was no round yet */
    uint32_t kept_page; /* that eviction passes by: it is being written */
    uint32_t pack_page; /* has room for the keys of others */
    uint32_t n_active;  /* instances that hold something */
    uint64_t share;     /* blocks that nobody takes from any of them */
    uint64_t n_pages;
    uint64_t n_keys;
    uint64_t n_held;
    uint64_t n_unindexed;
    uint64_t n_evicted;
    uint64_t n_looks; /* of eviction */
};

/* Every instance has two holders of its own: one that lives, and a cleared one
 * that was not swept yet. Beyond these there are spare ones, for whoever is
 * first to clear again, and at most UNSWEPT_MAX cleared ones of one instance:
 * one that clears in a loop takes no other's. */
#define SPARE_HOLDERS 512u
#define UNSWEPT_MAX 8u

static inline uint32_t prefix_holders_max(uint32_t max_instances)
{
    return 2 * max_instances + SPARE_HOLDERS;
}

/* Whether an instance may have another holder. */
static inline bool holder_is_free(const struct prefix_index *ix,
                                  const struct indexed *of)
{
    return of->unswept < 2 ||
           (of->unswept < UNSWEPT_MAX && ix->n_spare_used < SPARE_HOLDERS);
}

/* A key's place. */
struct position {
    uint32_t page; /* 0: unknown */
    uint32_t place;
};

/* A record's share in its page's hash. */
static inline uint64_t page_token(const struct prefix_index *ix,
                                  uint32_t holder, unsigned tiers)
{
    uint64_t z = ix->secret.at[0] ^
                 ((uint64_t)holder << 3 | tiers) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The records of a page, by holder, and their number. */
static inline struct record *page_records(const struct prefix_index *ix,
                                          struct page *page, uint32_t *n)
{
    if (page->many_records) {
        *n = page->many.n;
        return arena_at(&ix->arena, page->many.at);
    }
    *n = page->n_keys > 0 ? 1 : 0;
    return &page->one;
}

/* The number of places in a mask. */
static inline uint32_t places_count(unsigned mask)
{
    mask -= mask >> 1 & 0x5555u;
    mask = (mask & 0x3333u) + (mask >> 2 & 0x3333u);
    mask = (mask + (mask >> 4)) & 0x0f0fu;
    return (mask + (mask >> 8)) & 0x1fu;
}

/* Places that a record holds in any tier. */
static inline unsigned record_any(const struct record *record)
{
    return (unsigned)(record->held[TIER_DEVICE] | record->held[TIER_HOST] |
                      record->held[TIER_DISK]);
}

/* The tiers in which a record holds a place. */
static inline unsigned record_tiers(const struct record *record, uint32_t place)
{
    unsigned device = record->held[TIER_DEVICE] >> place & 1u;
    unsigned host = record->held[TIER_HOST] >> place & 1u;
    unsigned disk = record->held[TIER_DISK] >> place & 1u;

    return device << TIER_DEVICE | host << TIER_HOST | disk << TIER_DISK;
}

/* The tiers of a record that holds all n_keys places in the same ones; 0 for
 * others. */
unsigned record_uniform(const struct record *record, uint32_t n_keys);

/* The place of a key, page 0 if it has none. */
struct position table_find(const struct prefix_index *ix, uint64_t key);

/* Enters a key that stands at a position; there is room for all. */
void table_insert(struct prefix_index *ix, uint64_t key, struct position at);

/* Takes the key out that stands at a position. */
void table_remove(struct prefix_index *ix, uint64_t key, struct position at);

/* Keys in a bucket, on average: in a full index, and where a table grows. */
#define KEYS_A_BUCKET 13.0
#define KEYS_CROWDED 8u

static inline bool table_is_crowded(const struct prefix_index *ix)
{
    return ix->n_buckets < ix->max_buckets &&
           ix->n_keys >= (uint64_t)KEYS_CROWDED * ix->n_buckets;
}

/* Uses twice as many buckets, or all that there are. */
void table_grow(struct prefix_index *ix);

/* The key moved within its page. */
void table_move(struct prefix_index *ix, uint64_t key, struct position from,
                struct position to);

/* Brings a key's bucket nearer. gcc takes a function that does nothing but
 * prefetch for one that does nothing, and leaves its calls out, unless it is
 * inlined before. */
__attribute__((always_inline)) static inline void
table_prefetch(const struct prefix_index *ix, uint64_t key)
{
    uint64_t hash = key_hash(&ix->secret, key);

    __builtin_prefetch(&ix->buckets[(hash >> 32) * ix->n_buckets >> 32]);
}

/* A page without keys or records, or 0: none is left. */
uint32_t page_alloc(struct prefix_index *ix);

/* More rounds are not told apart. */
#define AGE_MAX 0x7fffu

/*
 * Pages leave a full index from the highest rank down: first those not matched
 * for the most rounds, of these the deepest. A prompt that matches a page also
 * matches all in front of it, and a new page is as old as the one in front; so
 * along a chain the rank never falls, and its tail goes before its head.
 */
static inline uint32_t page_rank(const struct prefix_index *ix,
                                 struct page_use use)
{
    uint32_t age = (uint16_t)(ix->round - use.round);

    return (age < AGE_MAX ? age : AGE_MAX) << 16 | use.depth;
}

/* Rank of a page behind a page that is not indexed: no match reaches it, so
 * it is evicted first. */
static inline struct page_use page_orphan(const struct prefix_index *ix)
{
    return (struct page_use){(uint16_t)(ix->round - AGE_MAX), UINT16_MAX};
}

/* Rank of a page that is matched now; `depth`: its distance, in pages, from the
 * chain's first page. */
static inline struct page_use page_used(const struct prefix_index *ix,
                                        uint32_t depth)
{
    return (struct page_use){
        ix->round, (uint16_t)(depth < UINT16_MAX ? depth : UINT16_MAX)};
}

/* Frees a page whose records are gone; its keys leave the table. */
void page_free(struct prefix_index *ix, uint32_t page);

/* Computes the hash anew. O(records). */
void page_rehash(struct prefix_index *ix, uint32_t page);

/* The record of a holder, NULL if there is none. */
struct record *page_record(const struct prefix_index *ix, struct page *page,
                           uint32_t holder);

/* A holder holds places of a page in a tier: those of `mask`.
 * Returns 0, or -ENOSPC with nothing changed. */
[[nodiscard]] int page_hold(struct prefix_index *ix, uint32_t page,
                            uint32_t holder, enum block_tier tier,
                            unsigned mask);

/* It holds them no more in that tier. Frees the page if nobody holds any, and
 * compacts it where half of its places are dead. Returns how many of them it
 * held in any tier. */
uint32_t page_drop(struct prefix_index *ix, uint32_t page, uint32_t holder,
                   enum block_tier tier, unsigned mask);

/* What it costs to change a page, in looks at one from which nothing goes: its
 * keys leave the table, or move. */
#define LOOKS_A_CHANGED_PAGE 127u
#define RECORDS_A_LOOK 4u

/* Takes records out of a page for which `goes` says so; frees the page if none
 * is left. What leaves is taken off its instance, if it still has one.
 *   arg  is handed to `goes`.
 * Returns what it cost, in looks. */
uint32_t page_filter(struct prefix_index *ix, uint32_t page,
                     bool (*goes)(struct prefix_index *ix,
                                  const struct record *record, uint32_t arg),
                     uint32_t arg);

/* The size class in the arena of the records of a page with one more. */
uint32_t page_class_for_another(const struct page *page);

/* Frees a page whose keys are elsewhere, or gone. */
void page_release(struct prefix_index *ix, uint32_t page);

/* Gives the arena back what fewer records do not need; there are many. */
void page_shrink(struct prefix_index *ix, struct page *p);

/* Counts what a holder's instance has gained or lost, if it still has one. */
void page_count(struct prefix_index *ix, uint32_t holder, int pages,
                int64_t blocks);

/* Moves the keys of a page behind those of another, which has room for them,
 * and frees it. Returns what it cost, in looks; 0: there was no room for the
 * records, and nothing changed. */
[[nodiscard]] uint32_t page_merge(struct prefix_index *ix, uint32_t into,
                                  uint32_t page);

/*
 * Makes room in a full index: goes round all pages, puts half-empty ones
 * together, and takes out of those that were not matched since the last round
 * what belongs to instances that hold nearly as much as the largest, more than
 * their share, and nearly as much as the one that needs the room uses. In one
 * round only the part of these pages with the highest ranks goes. A round that
 * finds little lowers what is nearly as much.
 *   instance    that needs the room.
 *   use         of the page that needs it: a page that would be among the first
 *               to go gets none.
 *   size_class  of records in the arena that need room, 0: a page does.
 *   looks       in, out: how many pages may be looked at; the next call goes on
 *               where this one ends.
 * Returns whether there is room now.
 */
bool evict(struct prefix_index *ix, uint32_t instance, struct page_use use,
           uint32_t size_class, uint32_t *looks);

/*
 * A key may leave a page that one instance alone is in, and take a place in its
 * chain: an instance that uses more than four equal parts could else choose
 * pages for the keys of others that cost them a record each.
 *   last            the place of the key before it, page 0: none is known.
 *   before, behind  the keys around it in the event of `holder`, 0: none.
 */
bool gather_may(const struct prefix_index *ix, struct position at,
                struct position last, uint32_t holder, uint64_t before,
                uint64_t behind);

/* Takes the key out; returns who held it, in bit 0 of each tier. */
struct record gather_out(struct prefix_index *ix, struct position at);

/* Those that held the key hold it at its new place; page 0: it has none. */
void gather_in(struct prefix_index *ix, struct position at,
               const struct record *out);

/* n unindexed blocks of an instance, if there are as many, do not matter any
 * more. */
void unindexed_forget(struct prefix_index *ix, struct indexed *of, uint64_t n);

/* The number of instances that hold something has changed. */
void evict_set_share(struct prefix_index *ix);

#endif
