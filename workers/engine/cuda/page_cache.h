/* Which host blocks have a page on the card, and which of their rows are there:
 * the bookkeeping of a write-back cache. Pure: it copies nothing, and tells the
 * caller that asks for a page what must be written back first.
 *
 *   rows of a block:   0 ........ rows(layer) ........ block_tokens
 *                      on the card   not on the card
 *                        [dirty): on the card only
 *
 * Invariants (page_cache_check): a block has at most one page; a page that is
 * used or free has no other state than the map says; dirty rows are on the
 * card in every layer.
 *
 * Used under one lock.
 */
#ifndef WORKERS_ENGINE_CUDA_PAGE_CACHE_H
#define WORKERS_ENGINE_CUDA_PAGE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#define PAGE_NONE UINT32_MAX

struct page_cache;

/* Rows that exist on the card only, of a page that is to be given away. */
struct page_dirty {
    void *block; /* NULL: none */
    uint32_t page;
    uint32_t from_slot;
    uint32_t to_slot;
};

struct page_cache_counts {
    uint32_t pages;
    uint32_t mapped;       /* pages with a block */
    uint32_t lent;         /* pages that others use */
    uint64_t evicted;      /* since the cache was made */
    uint64_t written_back; /* of these, with dirty rows */
};

/* Returns it owned, or NULL without memory. */
[[nodiscard]] struct page_cache *page_cache_new(uint32_t pages, uint32_t layers,
                                                uint32_t block_tokens);
/* NULL is a no-op. */
void page_cache_free(struct page_cache *c);

/* The page of `block`, or PAGE_NONE. O(1). */
uint32_t page_cache_find(const struct page_cache *c, const void *block);

/* The page of `block`, a free one, or that of the least recently used block
 * that is not pinned and has no upload under way (up to ticket `over`). Rows of
 * a new page are all missing. If *dirty is set then, these rows must be written
 * back before the page is written to. Returns PAGE_NONE if there is none; with
 * `clean`, a dirty page is not given away either. */
uint32_t page_cache_take(struct page_cache *c, void *block, uint64_t over,
                         bool clean, struct page_dirty *dirty);

/* A pinned page stays. Pinning it twice is pinning it once. Unpinning drops
 * what was forgotten meanwhile. */
void page_cache_pin(struct page_cache *c, uint32_t page);
void page_cache_unpin(struct page_cache *c, uint32_t page);
/* Whether a page is pinned. */
bool page_cache_pinned(const struct page_cache *c, uint32_t page);

/* The page of `block` is lent to somebody who reads all of it: it stays, with
 * its rows, until page_cache_give_back(), once for each time. PAGE_NONE: some
 * rows are not there, or there only, or an upload beyond ticket `over` is under
 * way, or it was forgotten. */
uint32_t page_cache_lend(struct page_cache *c, const void *block,
                         uint64_t over);
/* The same for somebody who writes to a page that was just taken. */
void page_cache_hold(struct page_cache *c, uint32_t page);
void page_cache_give_back(struct page_cache *c, uint32_t page);

/* The block's contents change: its page is free, dirty or not. Returns whether
 * it had one. */
bool page_cache_forget(struct page_cache *c, const void *block);

/* Rows of a layer that are on the card, from the first on. */
uint32_t page_cache_rows(const struct page_cache *c, uint32_t page,
                         uint32_t layer);
/* Layers [from_layer, to_layer) of a page have so many rows on the card now. */
void page_cache_set_rows(struct page_cache *c, uint32_t page,
                         uint32_t from_layer, uint32_t to_layer, uint32_t rows);

/* Slot `slot` was written on the card only; rows up to it are there. */
void page_cache_set_dirty(struct page_cache *c, uint32_t page, uint32_t slot);

/* Rows from `slot` on are not on the card, in no layer. */
void page_cache_cut(struct page_cache *c, uint32_t page, uint32_t slot);

/* The last ticket that copies to the page, even if it was given away since. */
uint64_t page_cache_ticket(const struct page_cache *c, uint32_t page);
/* A copy to the page is under way until this ticket is done. */
void page_cache_set_ticket(struct page_cache *c, uint32_t page,
                           uint64_t ticket);

/* The next page with dirty rows from page `from` on, which counts as clean
 * afterwards. False: there is none. */
bool page_cache_clean(struct page_cache *c, uint32_t from,
                      struct page_dirty *dirty);

/* What there is, and what was done so far. */
void page_cache_counts(const struct page_cache *c,
                       struct page_cache_counts *counts);

/* Asserts the invariants. O(pages). */
void page_cache_check(const struct page_cache *c);

#endif
