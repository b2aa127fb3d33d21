/*
 * The inside of the prefix index, for files of this folder only.
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
 *   |          | arena position  | next  |        |       |          |
 *   |          |                 | free  |        |       |          |
 *   +----------+-----------------+-------+--------+-------+----------+
 *   record: | holder 2 | held in device 2 | host 2 | disk 2 |
 *
 *   bucket of the table: | passed 4 | 15 x (tag, page, place) 4 |   64 bytes
 *
 * Records name an instance by its holder: a cleared instance gets a new holder
 * at once, and the records of the old one are swept later.
 *
 * Invariants:
 *   1. a key of the table stands in one place of one page, and each of a page's
 *      n_keys places has its key in the table;
 *   2. a page in use has a record, and each record holds a place, all of them
 *      below n_keys; records are sorted by holder;
 *   3. hash = XOR of page_token(holder, tiers) over the records that hold all
 *      n_keys places in the same tiers;
 *   4. an instance's held = places in its holder's records, in any tier, and
 *      its pages = number of these records;
 *   5. passed = keys that found this bucket full and stand in a later one;
 *   6. unswept = holders of the instance that are dead or dying; n_spare_used =
 *      sum over instances of their holders beyond two, the live one included.
 */
#ifndef CONDUCTOR_CORE_INDEX_PAGES_H
#define CONDUCTOR_CORE_INDEX_PAGES_H

#include "base/check.h"
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
    uint16_t held[BLOCK_TIERS]; /* mask of held places, by tier */
};

/* A record as one word, as a match compares it. With another tier it is wider,
 * or a page has 12 keys. */
typedef uint64_t record_word;
_Static_assert(sizeof(struct record) == sizeof(record_word) &&
                   __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "record_word_of()");

/* When a page was last matched, and how deep in its chain: page_rank(). */
struct page_use {
    uint16_t round; /* of eviction */
    uint16_t depth; /* pages before it in its chain */
};

struct page {
    uint64_t hash;
    union {
        struct record one; /* all 0 = none */
        struct {
            uint32_t at; /* position in the arena */
            uint16_t n;
            uint16_t size_class;
        } many;
    };
    union {
        struct page_use use;
        uint32_t next_free; /* of a free page: the next free page; 0 = none */
    };
    uint8_t n_keys;
    uint8_t many_records : 1;
    uint8_t recent : 1; /* matched since eviction last passed it */
    uint8_t : 6;
    uint16_t removals; /* since dead places were counted */
};

struct bucket {
    uint32_t passed;
    uint32_t slot[BUCKET_SLOTS]; /* tag << position_bits | position; 0 = free */
};

enum holder_state {
    HOLDER_FREE,
    HOLDER_LIVE,
    HOLDER_DEAD,  /* cleared: the present or next sweep removes records */
    HOLDER_DYING, /* cleared during a sweep: the next one removes them */
};

struct holder {
    uint32_t instance;
    uint8_t state; /* enum holder_state */
};

/* Index data of one instance. */
struct indexed {
    uint64_t held;      /* indexed blocks */
    uint64_t pages;     /* pages with a record of the instance */
    uint64_t quota;     /* most indexed blocks */
    uint64_t unindexed; /* blocks without room since a clear or inventory */
    uint64_t untold;    /* unindexed at the start of the present inventory */
    uint16_t holder;    /* HOLDER_NONE = the instance holds nothing */
    uint16_t unswept;   /* earlier holders of the instance not yet swept */
    bool telling;       /* an inventory is under way */
    bool gives_way;     /* its records may leave in this eviction round */
};

struct prefix_index {
    uint64_t (*keys)[PAGE_KEYS]; /* (max_pages + 1), 0 unused */
    struct page *pages;          /* (max_pages + 1), 0 unused */
    struct bucket *buckets;      /* (n_buckets) */
    struct indexed *instances;   /* (max_instances) */
    struct holder *holders;      /* (n_holders_max) */
    uint16_t *free_holders;      /* stack */
    struct arena arena;
    struct key_secret secret;
    /* Records without a holder, of all places in the tiers of a mask. */
    record_word in_tiers[1u << BLOCK_TIERS];
    const char *broken; /* CHECK() */
    bool evicts;
    uint32_t max_instances;
    uint32_t max_pages;
    uint64_t max_keys; /* keys that the table has room for */
    size_t touched;    /* bytes of the table, by prefix_index_touch() */
    uint32_t n_buckets;
    uint32_t max_buckets; /* reserved */
    uint32_t position_bits;
    uint32_t max_holders;
    uint32_t n_free_holders;
    uint32_t n_spare_used; /* holders beyond two of an instance */
    uint32_t n_dead;       /* holders in HOLDER_DEAD */
    uint32_t n_dying;
    uint32_t sweep_at; /* the next page to sweep; 0 = no sweep is under way */
    uint32_t fresh;    /* pages from here on have never been used */
    uint32_t free_page;
    uint32_t hand;      /* page that eviction looked at last */
    uint16_t round;     /* number of the present eviction round */
    uint32_t cold;      /* lowest rank that leaves in this round */
    uint32_t changed;   /* pages changed in this round */
    uint32_t largest;   /* instance with the most blocks at its start */
    uint32_t part;      /* instances with more than part/64 of the blocks of
                           `largest` give way; 0 = no round has begun yet */
    uint32_t kept_page; /* page being written, which eviction skips */
    uint32_t pack_page; /* page with free places, to be filled by merging */
    uint32_t n_active;  /* instances that hold blocks */
    uint64_t share;     /* blocks that eviction leaves to each of these */
    uint64_t n_pages;
    uint64_t n_keys;
    uint64_t n_held;
    uint64_t n_unindexed;
    uint64_t n_evicted;
    uint64_t n_looks; /* eviction work so far, in pages looked at */
};

/* Every instance has two holders of its own: a live one, and a cleared one that
 * is not swept yet. Instances that clear more often share the spare holders, at
 * most UNSWEPT_MAX unswept ones each: an instance that clears in a loop takes
 * nothing from the others. */
#define SPARE_HOLDERS 512u
#define UNSWEPT_MAX 8u

static inline uint32_t prefix_holders_max(uint32_t max_instances)
{
    return 2 * max_instances + SPARE_HOLDERS;
}

/* Returns whether an instance may take another holder. */
static inline bool holder_is_free(const struct prefix_index *ix,
                                  const struct indexed *of)
{
    return of->unswept < 2 ||
           (of->unswept < UNSWEPT_MAX && ix->n_spare_used < SPARE_HOLDERS);
}

/* A key's place. */
struct position {
    uint32_t page; /* 0 = none */
    uint32_t place;
};

/* Returns the token of a uniform record, for its page's hash. */
static inline uint64_t page_token(const struct prefix_index *ix,
                                  uint32_t holder, unsigned tiers)
{
    uint64_t z = ix->secret.at[0] ^
                 ((uint64_t)holder << 3 | tiers) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Returns the records of a page, sorted by holder, and their number. */
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

/* Returns the mask of places that a record holds in any tier. */
static inline unsigned record_any(const struct record *record)
{
    unsigned any = 0;

#pragma GCC unroll 8
    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        any |= record->held[t];
    return any;
}

/* Returns the tiers in which a record holds a place. */
static inline unsigned record_tiers(const struct record *record, uint32_t place)
{
    unsigned tiers = 0;

#pragma GCC unroll 8
    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        tiers |= (record->held[t] >> place & 1u) << t;
    return tiers;
}

/* Returns a holder's record with the places `mask` in each of the tiers. Not
 * through a struct: stored in parts and loaded whole, it stalls. */
static inline record_word record_word_of(uint32_t holder, unsigned tiers,
                                         unsigned mask)
{
    record_word word = holder;

#pragma GCC unroll 8
    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        word |= (record_word)(-(tiers >> t & 1u) & mask) << 16 * (t + 1);
    return word;
}

/* Returns the tiers of a uniform record (all n_keys places in the same tiers),
 * 0 for any other. */
unsigned record_uniform(const struct record *record, uint32_t n_keys);

/* Returns the position of a key; page 0 = the key is not in the table. */
struct position table_find(const struct prefix_index *ix, uint64_t key);

/* Enters a new key at a position; the table has room for all pages' keys. */
void table_insert(struct prefix_index *ix, uint64_t key, struct position at);

/* Removes the key at a position. */
void table_remove(struct prefix_index *ix, uint64_t key, struct position at);

/* Keys per bucket on average: in a full index, and when a table grows. */
#define KEYS_A_BUCKET 13.0
#define KEYS_CROWDED 8u

static inline bool table_is_crowded(const struct prefix_index *ix)
{
    return ix->n_buckets < ix->max_buckets &&
           ix->n_keys >= (uint64_t)KEYS_CROWDED * ix->n_buckets;
}

/* Doubles the buckets in use, up to max_buckets. */
void table_grow(struct prefix_index *ix);

/* Records that a key moved to another position. */
void table_move(struct prefix_index *ix, uint64_t key, struct position from,
                struct position to);

/* Prefetches a key's bucket. Always inlined: otherwise gcc takes a function
 * that only prefetches for one without effect, and removes the calls. */
__attribute__((always_inline)) static inline void
table_prefetch(const struct prefix_index *ix, uint64_t key)
{
    uint64_t hash = key_hash(&ix->secret, key);

    __builtin_prefetch(&ix->buckets[(hash >> 32) * ix->n_buckets >> 32]);
}

/* Takes a page without keys or records. Returns 0 if none is left. */
uint32_t page_alloc(struct prefix_index *ix);

/* Highest age of a page, in rounds; older pages have this age. */
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

/* Returns the use of a page behind one that is not indexed: no match reaches
 * it, so it has the highest rank and is evicted first. */
static inline struct page_use page_orphan(const struct prefix_index *ix)
{
    return (struct page_use){(uint16_t)(ix->round - AGE_MAX), UINT16_MAX};
}

/* Returns the use of a page matched now, `depth` pages behind the first page of
 * its chain. */
static inline struct page_use page_used(const struct prefix_index *ix,
                                        uint32_t depth)
{
    return (struct page_use){
        ix->round, (uint16_t)(depth < UINT16_MAX ? depth : UINT16_MAX)};
}

/* Frees a page whose records are gone; its keys leave the table. */
void page_free(struct prefix_index *ix, uint32_t page);

/* Computes a page's hash anew. O(records). */
void page_rehash(struct prefix_index *ix, uint32_t page);

/* Returns the record of a holder, NULL if there is none. */
struct record *page_record(const struct prefix_index *ix, struct page *page,
                           uint32_t holder);

/* Records that a holder holds the places `mask` of a page in a tier.
 * Returns 0, or -ENOSPC with nothing changed. */
[[nodiscard]] int page_hold(struct prefix_index *ix, uint32_t page,
                            uint32_t holder, enum block_tier tier,
                            unsigned mask);

/* Records that a holder no longer holds the places `mask` in a tier. Frees the
 * page if no record is left, compacts it if half of its places have no holder.
 * Returns how many of these places it held in any tier. */
uint32_t page_drop(struct prefix_index *ix, uint32_t page, uint32_t holder,
                   enum block_tier tier, unsigned mask);

/* Cost in looks of changing a page: its keys leave the table or move. Looking
 * at a page costs 1. */
#define LOOKS_A_CHANGED_PAGE 127u
#define RECORDS_A_LOOK 4u

/* Removes the records of a page for which goes() is true, and frees the page if
 * none is left. Lowers the counts of their instances, if the holder is live.
 *   arg  is handed to goes().
 * Returns the cost in looks. */
uint32_t page_filter(struct prefix_index *ix, uint32_t page,
                     bool (*goes)(struct prefix_index *ix,
                                  const struct record *record, uint32_t arg),
                     uint32_t arg);

/* Returns the arena's size class for a page's records and one more. */
uint32_t page_class_for_another(const struct page *page);

/* Frees a page whose keys have left the table or have moved to another page. */
void page_release(struct prefix_index *ix, uint32_t page);

/* Gives back arena memory that a page with many_records no longer needs. */
void page_shrink(struct prefix_index *ix, struct page *p);

/* Adds to the counts of a holder's instance, if the holder is live. */
void page_count(struct prefix_index *ix, uint32_t holder, int pages,
                int64_t blocks);

/* Appends the keys of `page` to `into`, which has room for them, and frees
 * `page`. Returns the cost in looks; 0 = the arena had no room for the records,
 * and nothing changed. */
[[nodiscard]] uint32_t page_merge(struct prefix_index *ix, uint32_t into,
                                  uint32_t page);

/*
 * Makes room in a full index: goes round all pages and merges half-empty ones.
 * From pages that no prompt matched since the last round and that have the
 * highest ranks, it removes the records of instances that give way: they hold
 * more than their share, nearly as much as the largest instance, and nearly as
 * much as the instance that needs the room uses. A round that finds little
 * lowers the bound that the largest instance sets.
 *   instance    needs the room.
 *   use         of the page that needs room: a page that would be among the
 *               first to leave gets none.
 *   size_class  of the records that need arena memory; 0 = a page is needed.
 *   looks       in, out: pages that may still be looked at; the next call goes
 *               on where this one ends.
 * Returns whether there is room now.
 */
bool evict(struct prefix_index *ix, uint32_t instance, struct page_use use,
           uint32_t size_class, uint32_t *looks);

/*
 * Returns whether a key may move from a page with one record to the chain that
 * `holder` stores. Otherwise an instance that uses more than four equal parts
 * could spread the keys of others over pages that cost a record each.
 *   last            position of the key before it; page 0 = none is known.
 *   before, behind  the keys around it in the event of `holder`; 0 = none.
 */
bool gather_may(const struct prefix_index *ix, struct position at,
                struct position last, uint32_t holder, uint64_t before,
                uint64_t behind);

/* Takes the key out. Returns its holder, with bit 0 set in the key's tiers. */
struct record gather_out(struct prefix_index *ix, struct position at);

/* Records that holder at the key's new position; page 0 = it was evicted. */
void gather_in(struct prefix_index *ix, struct position at,
               const struct record *out);

/* Lowers an instance's count of unindexed blocks by n, at most to 0. */
void unindexed_forget(struct prefix_index *ix, struct indexed *of, uint64_t n);

/* Computes `share` anew, after n_active has changed. */
void evict_set_share(struct prefix_index *ix);

#endif
