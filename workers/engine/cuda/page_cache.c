/* The table of pages and their rows. See page_cache.h. */
#include "workers/engine/cuda/page_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

struct page {
    void *block;          /* NULL = free */
    TAILQ_ENTRY(page) by; /* list `free` or `lru` */
    uint64_t ticket;
    uint32_t dirty_from, dirty_to;
    bool pinned;
    bool forgotten; /* while pinned or lent */
    uint32_t lent;
};

TAILQ_HEAD(page_list, page);

struct page_cache {
    uint32_t n_pages, layers, block_tokens;
    uint32_t n_slots;      /* of the map: a power of two */
    uint32_t *map;         /* [n_slots] pages by block, open addressing */
    uint16_t *rows;        /* [n_pages][layers] */
    struct page *pages;    /* [n_pages] */
    struct page_list free; /* most recently freed last */
    struct page_list lru;  /* least recently used first */
    struct page_cache_counts counts;
};

static uint32_t slot_of(const struct page_cache *c, const void *block)
{
    uint64_t h = (uint64_t)(uintptr_t)block * UINT64_C(0x9e3779b97f4a7c15);

    return (uint32_t)(h >> 32) & (c->n_slots - 1);
}

static uint32_t index_of(const struct page_cache *c, const struct page *p)
{
    return (uint32_t)(p - c->pages);
}

/* Returns the slot of the block, or the free slot for it. */
static uint32_t map_seek(const struct page_cache *c, const void *block)
{
    uint32_t s = slot_of(c, block);

    while (c->map[s] != PAGE_NONE && c->pages[c->map[s]].block != block)
        s = (s + 1) & (c->n_slots - 1);
    return s;
}

/* Frees a slot, and moves back entries that its hole would hide. */
static void map_remove(struct page_cache *c, const void *block)
{
    uint32_t hole = map_seek(c, block);
    uint32_t mask = c->n_slots - 1;

    for (uint32_t s = (hole + 1) & mask; c->map[s] != PAGE_NONE;
         s = (s + 1) & mask) {
        uint32_t home = slot_of(c, c->pages[c->map[s]].block);

        if (((s - home) & mask) >= ((s - hole) & mask)) {
            c->map[hole] = c->map[s];
            hole = s;
        }
    }
    c->map[hole] = PAGE_NONE;
}

struct page_cache *page_cache_new(uint32_t pages, uint32_t layers,
                                  uint32_t block_tokens)
{
    struct page_cache *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->n_pages = pages;
    c->layers = layers;
    c->block_tokens = block_tokens;
    for (c->n_slots = 16; c->n_slots < 2 * (uint64_t)pages; c->n_slots *= 2)
        ;
    c->map = malloc(c->n_slots * sizeof(*c->map));
    c->rows = calloc((size_t)pages * layers, sizeof(*c->rows));
    c->pages = calloc(pages, sizeof(*c->pages));
    if (!c->map || !c->rows || !c->pages) {
        page_cache_free(c);
        return NULL;
    }
    memset(c->map, 0xff, c->n_slots * sizeof(*c->map));
    TAILQ_INIT(&c->free);
    TAILQ_INIT(&c->lru);
    for (uint32_t i = 0; i < pages; i++)
        TAILQ_INSERT_TAIL(&c->free, &c->pages[i], by);
    c->counts.pages = pages;
    return c;
}

void page_cache_free(struct page_cache *c)
{
    if (!c)
        return;
    free(c->map);
    free(c->rows);
    free(c->pages);
    free(c);
}

uint32_t page_cache_find(const struct page_cache *c, const void *block)
{
    return c->map[map_seek(c, block)];
}

/* Makes a mapped page free. */
static void drop(struct page_cache *c, struct page *p)
{
    map_remove(c, p->block);
    TAILQ_REMOVE(&c->lru, p, by);
    TAILQ_INSERT_TAIL(&c->free, p, by);
    p->block = NULL;
    p->dirty_from = p->dirty_to = 0;
    p->forgotten = false;
    c->counts.mapped--;
}

/* Frees the least recently used page that may be evicted. */
static struct page *evict(struct page_cache *c, uint64_t over, bool clean,
                          struct page_dirty *dirty)
{
    struct page *p;

    TAILQ_FOREACH(p, &c->lru, by)
    {
        if (!p->pinned && p->lent == 0 && p->ticket <= over &&
            (!clean || p->dirty_from == p->dirty_to))
            break;
    }
    if (!p)
        return NULL;
    c->counts.evicted++;
    if (p->dirty_from < p->dirty_to) {
        *dirty = (struct page_dirty){p->block, index_of(c, p), p->dirty_from,
                                     p->dirty_to};
        c->counts.written_back++;
    }
    drop(c, p);
    return p;
}

uint32_t page_cache_take(struct page_cache *c, void *block, uint64_t over,
                         bool clean, struct page_dirty *dirty)
{
    uint32_t s = map_seek(c, block);
    struct page *p;

    dirty->block = NULL;
    if (c->map[s] != PAGE_NONE) {
        p = &c->pages[c->map[s]];
        TAILQ_REMOVE(&c->lru, p, by);
        TAILQ_INSERT_TAIL(&c->lru, p, by);
        return index_of(c, p);
    }
    p = TAILQ_FIRST(&c->free);
    if (!p)
        p = evict(c, over, clean, dirty);
    if (!p)
        return PAGE_NONE;
    TAILQ_REMOVE(&c->free, p, by);
    TAILQ_INSERT_TAIL(&c->lru, p, by);
    p->block = block;
    c->map[map_seek(c, block)] = index_of(c, p);
    c->counts.mapped++;
    page_cache_set_rows(c, index_of(c, p), 0, c->layers, 0);
    return index_of(c, p);
}

void page_cache_pin(struct page_cache *c, uint32_t page)
{
    c->pages[page].pinned = true;
}

void page_cache_unpin(struct page_cache *c, uint32_t page)
{
    c->pages[page].pinned = false;
    if (c->pages[page].forgotten && c->pages[page].lent == 0)
        drop(c, &c->pages[page]);
}

void page_cache_hold(struct page_cache *c, uint32_t page)
{
    c->counts.lent += c->pages[page].lent++ == 0;
}

uint32_t page_cache_lend(struct page_cache *c, const void *block, uint64_t over)
{
    uint32_t page = page_cache_find(c, block);

    if (page == PAGE_NONE)
        return PAGE_NONE;
    const struct page *p = &c->pages[page];
    if (p->forgotten || p->ticket > over || p->dirty_from < p->dirty_to)
        return PAGE_NONE;
    for (uint32_t l = 0; l < c->layers; l++)
        if (page_cache_rows(c, page, l) < c->block_tokens)
            return PAGE_NONE;
    page_cache_hold(c, page);
    return page;
}

void page_cache_give_back(struct page_cache *c, uint32_t page)
{
    struct page *p = &c->pages[page];

    c->counts.lent -= p->lent-- == 1;
    if (p->lent == 0 && p->forgotten && !p->pinned)
        drop(c, p);
}

bool page_cache_pinned(const struct page_cache *c, uint32_t page)
{
    return c->pages[page].pinned;
}

bool page_cache_forget(struct page_cache *c, const void *block)
{
    uint32_t page = page_cache_find(c, block);

    if (page == PAGE_NONE)
        return false;
    if (c->pages[page].pinned || c->pages[page].lent > 0)
        c->pages[page].forgotten = true;
    else
        drop(c, &c->pages[page]);
    return true;
}

uint32_t page_cache_rows(const struct page_cache *c, uint32_t page,
                         uint32_t layer)
{
    return c->rows[(size_t)page * c->layers + layer];
}

void page_cache_set_rows(struct page_cache *c, uint32_t page,
                         uint32_t from_layer, uint32_t to_layer, uint32_t rows)
{
    for (uint32_t l = from_layer; l < to_layer; l++)
        c->rows[(size_t)page * c->layers + l] = (uint16_t)rows;
}

void page_cache_set_dirty(struct page_cache *c, uint32_t page, uint32_t slot)
{
    struct page *p = &c->pages[page];

    if (p->dirty_from == p->dirty_to || slot < p->dirty_from)
        p->dirty_from = slot;
    p->dirty_to = slot + 1;
    page_cache_set_rows(c, page, 0, c->layers, slot + 1);
}

void page_cache_cut(struct page_cache *c, uint32_t page, uint32_t slot)
{
    struct page *p = &c->pages[page];

    for (uint32_t l = 0; l < c->layers; l++)
        if (page_cache_rows(c, page, l) > slot)
            page_cache_set_rows(c, page, l, l + 1, slot);
    if (p->dirty_to > slot)
        p->dirty_to = slot;
    if (p->dirty_from >= p->dirty_to)
        p->dirty_from = p->dirty_to = 0;
}

uint64_t page_cache_ticket(const struct page_cache *c, uint32_t page)
{
    return c->pages[page].ticket;
}

void page_cache_set_ticket(struct page_cache *c, uint32_t page, uint64_t ticket)
{
    c->pages[page].ticket = ticket;
}

bool page_cache_clean(struct page_cache *c, uint32_t from,
                      struct page_dirty *dirty)
{
    for (uint32_t i = from; i < c->n_pages; i++) {
        struct page *p = &c->pages[i];

        if (p->dirty_from == p->dirty_to)
            continue;
        *dirty = (struct page_dirty){p->block, i, p->dirty_from, p->dirty_to};
        p->dirty_from = p->dirty_to = 0;
        return true;
    }
    return false;
}

void page_cache_counts(const struct page_cache *c,
                       struct page_cache_counts *counts)
{
    *counts = c->counts;
}

void page_cache_check(const struct page_cache *c)
{
    const struct page *p;
    uint32_t mapped = 0;
    uint32_t unmapped = 0;
    uint32_t in_map = 0;
    uint32_t lent = 0;

    TAILQ_FOREACH(p, &c->lru, by)
    {
        uint32_t i = index_of(c, p);

        assert(p->block && page_cache_find(c, p->block) == i);
        assert(p->dirty_from <= p->dirty_to && p->dirty_to <= c->block_tokens);
        assert(!p->forgotten || p->pinned || p->lent > 0);
        lent += p->lent > 0;
        for (uint32_t l = 0; l < c->layers; l++)
            assert(p->dirty_to <= page_cache_rows(c, i, l));
        mapped++;
    }
    TAILQ_FOREACH(p, &c->free, by)
    {
        assert(!p->block && !p->pinned && p->lent == 0 &&
               p->dirty_from == p->dirty_to);
        unmapped++;
    }
    for (uint32_t s = 0; s < c->n_slots; s++)
        in_map += c->map[s] != PAGE_NONE;
    assert(mapped == c->counts.mapped && mapped == in_map);
    assert(lent == c->counts.lent);
    assert(mapped + unmapped == c->n_pages);
}
