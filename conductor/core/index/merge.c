/* Merges two half-empty pages into one. */
#include "conductor/core/index/pages.h"

/* Merges two pages' records by holder; the places of b move up by n_keys.
 * Returns the number of records. */
static uint32_t merge_records(struct prefix_index *ix, struct record *out,
                              const struct record *a, uint32_t n_a,
                              const struct record *b, uint32_t n_b,
                              uint32_t n_keys)
{
    const struct record *end_a = a + n_a, *end_b = b + n_b;
    struct record *at = out;

    while (a < end_a || b < end_b) {
        bool from_a = a < end_a && (b == end_b || a->holder <= b->holder);
        bool from_b = b < end_b && (a == end_a || b->holder <= a->holder);

        *at = from_a ? *a++ : (struct record){.holder = b->holder};
        if (from_b) {
            for (unsigned t = 0; t < BLOCK_TIERS; t++)
                at->held[t] = (uint16_t)(at->held[t] | b->held[t] << n_keys);
            b++;
        }
        if (from_a && from_b)
            page_count(ix, at->holder, -1, 0);
        at++;
    }
    return (uint32_t)(at - out);
}

uint32_t page_merge(struct prefix_index *ix, uint32_t into, uint32_t page)
{
    struct page *p = &ix->pages[into], *q = &ix->pages[page];
    uint32_t n_p, n_q, n;
    const struct record *of_p = page_records(ix, p, &n_p);
    const struct record *of_q = page_records(ix, q, &n_q);
    uint32_t size_class = arena_class_of((uint64_t)n_p + n_q);
    uint32_t at = arena_alloc(&ix->arena, size_class);

    if (at == ARENA_NONE)
        return 0;
    n = merge_records(ix, arena_at(&ix->arena, at), of_p, n_p, of_q, n_q,
                      p->n_keys);
    if (p->many_records)
        arena_free(&ix->arena, p->many.at, p->many.size_class);
    p->many.at = at;
    p->many.n = (uint16_t)n;
    p->many.size_class = (uint16_t)size_class;
    p->many_records = 1;
    page_shrink(ix, p);
    for (uint32_t k = 0; k < q->n_keys; k++) {
        struct position to = {into, p->n_keys + k};

        ix->keys[into][to.place] = ix->keys[page][k];
        table_move(ix, ix->keys[page][k], (struct position){page, k}, to);
    }
    p->n_keys = (uint8_t)(p->n_keys + q->n_keys);
    p->recent |= q->recent;
    if (page_rank(ix, q->use) > page_rank(ix, p->use))
        p->use = q->use;
    page_release(ix, page);
    page_rehash(ix, into);
    return LOOKS_A_CHANGED_PAGE + (n_p + n_q) / RECORDS_A_LOOK;
}
