/* Pages and their records; pages.h draws them. */
#include "conductor/core/index/pages.h"

#include <errno.h>
#include <string.h>

static unsigned all_places(uint32_t n_keys)
{
    return (1u << n_keys) - 1;
}

unsigned record_uniform(const struct record *record, uint32_t n_keys)
{
    unsigned all = all_places(n_keys);
    unsigned tiers = 0;

    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        if (record->held[t] == all)
            tiers |= BLOCK_TIER_BIT(t);
        else if (record->held[t] != 0)
            return 0;
    return tiers;
}

static uint64_t share_in_hash(const struct prefix_index *ix,
                              const struct record *record, uint32_t n_keys)
{
    unsigned tiers = record_uniform(record, n_keys);

    return tiers != 0 ? page_token(ix, record->holder, tiers) : 0;
}

void page_rehash(struct prefix_index *ix, uint32_t page)
{
    struct page *p = &ix->pages[page];
    uint32_t n;
    const struct record *records = page_records(ix, p, &n);

    p->hash = 0;
    for (uint32_t r = 0; r < n; r++)
        p->hash ^= share_in_hash(ix, &records[r], p->n_keys);
}

uint32_t page_alloc(struct prefix_index *ix)
{
    uint32_t page = ix->free_page;

    if (page != 0)
        ix->free_page = ix->pages[page].next_free;
    else if (ix->fresh <= ix->max_pages)
        page = ix->fresh++;
    else
        return 0;
    memset(&ix->pages[page], 0, sizeof(struct page));
    ix->n_pages++;
    return page;
}

void page_release(struct prefix_index *ix, uint32_t page)
{
    struct page *p = &ix->pages[page];

    CHECK(&ix->broken, ix->n_pages > 0);
    if (p->many_records)
        arena_free(&ix->arena, p->many.at, p->many.size_class);
    memset(p, 0, sizeof(*p));
    p->next_free = ix->free_page;
    ix->free_page = page;
    ix->n_pages--;
}

void page_free(struct prefix_index *ix, uint32_t page)
{
    const struct page *p = &ix->pages[page];

    for (uint32_t k = 0; k < p->n_keys; k++)
        table_prefetch(ix, ix->keys[page][k]);
    for (uint32_t k = 0; k < p->n_keys; k++)
        table_remove(ix, ix->keys[page][k], (struct position){page, k});
    page_release(ix, page);
}

/* Returns the number of records whose holder is below `holder`. */
static uint32_t place_of(const struct record *records, uint32_t n,
                         uint32_t holder)
{
    uint32_t low = 0;

    while (n > 0) {
        uint32_t half = n / 2;

        if (records[low + half].holder < holder) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return low;
}

static bool one_is_used(const struct page *p)
{
    return !p->many_records && record_any(&p->one) != 0;
}

struct record *page_record(const struct prefix_index *ix, struct page *page,
                           uint32_t holder)
{
    struct record *records;
    uint32_t n, at;

    if (!page->many_records)
        return one_is_used(page) && page->one.holder == holder ? &page->one
                                                               : NULL;
    records = page_records(ix, page, &n);
    at = place_of(records, n, holder);
    return at < n && records[at].holder == holder ? &records[at] : NULL;
}

uint32_t page_class_for_another(const struct page *page)
{
    return arena_class_of(page->many_records ? page->many.n + UINT64_C(1) : 2);
}

/* Makes room for another record: moves a page's only record to the arena, or
 * its many to a larger block. */
static int make_room(struct prefix_index *ix, struct page *p)
{
    uint32_t n = p->many_records ? p->many.n : 1;
    uint32_t size_class = page_class_for_another(p);
    uint32_t at;

    if (p->many_records && n < (1u << p->many.size_class))
        return 0;
    at = arena_alloc(&ix->arena, size_class);
    if (at == ARENA_NONE)
        return -ENOSPC;
    if (p->many_records) {
        memcpy(arena_at(&ix->arena, at), arena_at(&ix->arena, p->many.at),
               n * sizeof(struct record));
        arena_free(&ix->arena, p->many.at, p->many.size_class);
    } else {
        memcpy(arena_at(&ix->arena, at), &p->one, sizeof(struct record));
    }
    p->many.at = at;
    p->many.n = (uint16_t)n;
    p->many.size_class = (uint16_t)size_class;
    p->many_records = 1;
    return 0;
}

/* Adds a record without places; the caller fills it. */
static struct record *add_record(struct prefix_index *ix, struct page *p,
                                 uint32_t holder)
{
    struct record *records;
    uint32_t at;

    if (!p->many_records && !one_is_used(p)) {
        memset(&p->one, 0, sizeof(p->one));
        p->one.holder = (uint16_t)holder;
        return &p->one;
    }
    if (make_room(ix, p) < 0)
        return NULL;
    records = arena_at(&ix->arena, p->many.at);
    at = place_of(records, p->many.n, holder);
    memmove(&records[at + 1], &records[at],
            (p->many.n - at) * sizeof(*records));
    memset(&records[at], 0, sizeof(*records));
    records[at].holder = (uint16_t)holder;
    p->many.n++;
    return &records[at];
}

void page_shrink(struct prefix_index *ix, struct page *p)
{
    struct record *records = arena_at(&ix->arena, p->many.at);

    if (p->many.n == 1) {
        struct record last = records[0];

        arena_free(&ix->arena, p->many.at, p->many.size_class);
        p->many_records = 0;
        p->one = last;
    } else if (4u * p->many.n <= 1u << p->many.size_class) {
        uint32_t size_class = arena_class_of(2u * p->many.n);

        arena_shrink(&ix->arena, p->many.at, p->many.size_class, size_class);
        p->many.size_class = (uint16_t)size_class;
    }
}

void page_count(struct prefix_index *ix, uint32_t holder, int pages,
                int64_t blocks)
{
    uint32_t instance = ix->holders[holder].instance;
    struct indexed *of;

    if (ix->holders[holder].state != HOLDER_LIVE)
        return;
    of = &ix->instances[instance];
    CHECK(&ix->broken, (int64_t)of->pages >= -pages);
    CHECK(&ix->broken, (int64_t)of->held >= -blocks);
    of->pages = (uint64_t)((int64_t)of->pages + pages);
    of->held = (uint64_t)((int64_t)of->held + blocks);
    ix->n_held = (uint64_t)((int64_t)ix->n_held + blocks);
}

int page_hold(struct prefix_index *ix, uint32_t page, uint32_t holder,
              enum block_tier tier, unsigned mask)
{
    struct page *p = &ix->pages[page];
    struct record *record = page_record(ix, p, holder);
    bool added = !record;
    unsigned before;

    if (added)
        record = add_record(ix, p, holder);
    if (!record)
        return -ENOSPC;
    before = record_any(record);
    p->hash ^= share_in_hash(ix, record, p->n_keys);
    record->held[tier] = (uint16_t)(record->held[tier] | mask);
    p->hash ^= share_in_hash(ix, record, p->n_keys);
    page_count(ix, holder, added,
               (int64_t)places_count(record_any(record) & ~before));
    return 0;
}

/* Returns a mask of places without the dead ones. */
static unsigned squeeze(unsigned mask, unsigned live)
{
    unsigned out = 0;
    uint32_t to = 0;

    for (; live != 0; live &= live - 1, to++)
        out |= (mask >> __builtin_ctz(live) & 1u) << to;
    return out;
}

/* Removes the dead places of a page. */
static void compact(struct prefix_index *ix, uint32_t page, unsigned live)
{
    struct page *p = &ix->pages[page];
    uint64_t *keys = ix->keys[page];
    uint32_t n, to = 0;
    struct record *records = page_records(ix, p, &n);

    for (uint32_t k = 0; k < p->n_keys; k++) {
        if ((live >> k & 1u) == 0) {
            table_remove(ix, keys[k], (struct position){page, k});
            continue;
        }
        if (to != k)
            table_move(ix, keys[k], (struct position){page, k},
                       (struct position){page, to});
        keys[to++] = keys[k];
    }
    p->n_keys = (uint8_t)to;
    for (uint32_t r = 0; r < n; r++)
        for (unsigned t = 0; t < BLOCK_TIERS; t++)
            records[r].held[t] = (uint16_t)squeeze(records[r].held[t], live);
    page_rehash(ix, page);
}

/* Compacts a page if half of its places are dead. Checks this only after as
 * many removals as the page has records: O(1) per removal. */
static void tidy(struct prefix_index *ix, uint32_t page, uint32_t removed)
{
    struct page *p = &ix->pages[page];
    uint32_t n;
    const struct record *records = page_records(ix, p, &n);
    unsigned live = 0;

    if (p->removals + removed < n) {
        p->removals = (uint16_t)(p->removals + removed);
        return;
    }
    p->removals = 0;
    for (uint32_t r = 0; r < n; r++)
        live |= record_any(&records[r]);
    if (2 * places_count(live) <= p->n_keys)
        compact(ix, page, live);
}

static void remove_record(struct prefix_index *ix, struct page *p,
                          struct record *record)
{
    struct record *records;

    if (!p->many_records) {
        memset(&p->one, 0, sizeof(p->one));
        return;
    }
    records = arena_at(&ix->arena, p->many.at);
    p->many.n--;
    memmove(record, record + 1,
            (size_t)(records + p->many.n - record) * sizeof(*record));
    page_shrink(ix, p);
}

uint32_t page_drop(struct prefix_index *ix, uint32_t page, uint32_t holder,
                   enum block_tier tier, unsigned mask)
{
    struct page *p = &ix->pages[page];
    struct record *record = page_record(ix, p, holder);
    unsigned before, after;

    if (!record)
        return 0;
    before = record_any(record);
    p->hash ^= share_in_hash(ix, record, p->n_keys);
    record->held[tier] = (uint16_t)(record->held[tier] & ~mask);
    p->hash ^= share_in_hash(ix, record, p->n_keys);
    after = record_any(record);
    page_count(ix, holder, after == 0 ? -1 : 0,
               (int64_t)places_count(after) - (int64_t)places_count(before));
    if (after == 0)
        remove_record(ix, p, record);
    if (!p->many_records && !one_is_used(p))
        page_free(ix, page);
    else
        tidy(ix, page, places_count(before & ~after));
    return places_count(before & mask);
}

uint32_t page_filter(struct prefix_index *ix, uint32_t page,
                     bool (*goes)(struct prefix_index *ix,
                                  const struct record *record, uint32_t arg),
                     uint32_t arg)
{
    struct page *p = &ix->pages[page];
    uint32_t n, kept = 0;
    struct record *records = page_records(ix, p, &n);
    uint32_t looks = 1 + n / RECORDS_A_LOOK;

    if (!p->many_records && !one_is_used(p))
        return looks;
    for (uint32_t r = 0; r < n; r++)
        if (goes(ix, &records[r], arg))
            page_count(ix, records[r].holder, -1,
                       -(int64_t)places_count(record_any(&records[r])));
        else
            records[kept++] = records[r];
    if (kept == n)
        return looks;
    looks += LOOKS_A_CHANGED_PAGE;
    if (kept == 0) {
        page_free(ix, page);
        return looks;
    }
    p->many.n = (uint16_t)kept;
    page_shrink(ix, p);
    page_rehash(ix, page);
    tidy(ix, page, n);
    return looks;
}
