/* Bookkeeping of a write-back cache: which host blocks have a page on the card,
 * and which of their rows it holds. Pure: it copies nothing; page_cache_take()
 * returns the rows to write back first.
 *
 *   rows of a block:   0 ........ rows(layer) ........ block_tokens
 *                      on the card   not on the card
 *                        [dirty): on the card only
 *
 * Invariants (page_cache_check): a block has at most one page; a page is in
 * the map exactly if it has a block; dirty rows are on the card in every
 * layer.
 *
 * Used under one lock. */
#ifndef WORKERS_ENGINE_CUDA_PAGE_CACHE_H
#define WORKERS_ENGINE_CUDA_PAGE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#define PAGE_NONE UINT32_MAX

struct page_cache;

/* Rows of an evicted page that exist on the card only. */
struct page_dirty {
    void *block; /* NULL = none */
    uint32_t page;
    uint32_t from_slot;
    uint32_t to_slot;
};

struct page_cache_counts {
    uint32_t pages;
    uint32_t mapped;       /* pages with a block */
    uint32_t lent;         /* pages lent or held */
    uint64_t evicted;      /* since the cache was made */
    uint64_t written_back; /* evicted with dirty rows */
};

/* Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct page_cache *page_cache_new(uint32_t pages, uint32_t layers,
                                                uint32_t block_tokens);
/* NULL is a no-op. */
void page_cache_free(struct page_cache *c);

/* Returns the page of `block`, or PAGE_NONE. O(1). */
uint32_t page_cache_find(const struct page_cache *c, const void *block);

/* Returns the page of `block`; else a free page, or the least recently used one
 * that is not pinned and whose uploads are complete (ticket <= over). A new
 * page has no rows yet; if dirty->block is set, write those rows back before
 * writing to the page. Returns PAGE_NONE if none is left; with `clean`, evicts
 * no dirty page. */
uint32_t page_cache_take(struct page_cache *c, void *block, uint64_t over,
                         bool clean, struct page_dirty *dirty);

/* Keep a page, or end that. Pins do not count: one unpin undoes all. Unpinning
 * frees a page that was forgotten meanwhile. */
void page_cache_pin(struct page_cache *c, uint32_t page);
void page_cache_unpin(struct page_cache *c, uint32_t page);
/* Returns whether a page is pinned. */
bool page_cache_pinned(const struct page_cache *c, uint32_t page);

/* Lends the page of `block` to a reader of all of it: the page keeps its rows
 * until page_cache_give_back(), once per call. Returns PAGE_NONE if rows are
 * missing or dirty, an upload after ticket `over` is pending, or the page was
 * forgotten. */
uint32_t page_cache_lend(struct page_cache *c, const void *block,
                         uint64_t over);
/* Lends to a writer a page that was just taken. */
void page_cache_hold(struct page_cache *c, uint32_t page);
void page_cache_give_back(struct page_cache *c, uint32_t page);

/* Frees the page of a block whose contents change, dirty or not. Returns
 * whether the block had a page. */
bool page_cache_forget(struct page_cache *c, const void *block);

/* Returns how many leading rows of a layer are on the card. */
uint32_t page_cache_rows(const struct page_cache *c, uint32_t page,
                         uint32_t layer);
/* Sets the leading rows on the card of layers [from_layer, to_layer) to
 * `rows`. */
void page_cache_set_rows(struct page_cache *c, uint32_t page,
                         uint32_t from_layer, uint32_t to_layer, uint32_t rows);

/* Notes that `slot` was written on the card only; rows up to it are on the
 * card. */
void page_cache_set_dirty(struct page_cache *c, uint32_t page, uint32_t slot);

/* Marks rows from `slot` on as not on the card, in every layer. */
void page_cache_cut(struct page_cache *c, uint32_t page, uint32_t slot);

/* Returns the last ticket that copies to the page, even if evicted since. */
uint64_t page_cache_ticket(const struct page_cache *c, uint32_t page);
/* Notes that a copy to the page is pending until this ticket completes. */
void page_cache_set_ticket(struct page_cache *c, uint32_t page,
                           uint64_t ticket);

/* Finds the next page with dirty rows from page `from` on, and marks it clean.
 * Returns false if there is none. */
bool page_cache_clean(struct page_cache *c, uint32_t from,
                      struct page_dirty *dirty);

/* Writes the counters. */
void page_cache_counts(const struct page_cache *c,
                       struct page_cache_counts *counts);

/* Asserts the invariants. O(pages). */
void page_cache_check(const struct page_cache *c);

#endif
