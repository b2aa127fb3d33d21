/* The invariants of pages.h, counted anew. */
#include <stdlib.h>

#include "conductor/core/index/pages.h"

struct counted {
    uint64_t held, pages;
};

/* A page's keys are in the table where they stand, its records in order and
 * within its places, its hash as it should be. */
static bool check_page(struct prefix_index *ix, uint32_t page,
                       struct counted *of, uint64_t *n_keys)
{
    struct page *p = &ix->pages[page];
    uint32_t n;
    const struct record *records = page_records(ix, p, &n);
    uint64_t hash = p->hash;
    bool ok = n > 0;

    for (uint32_t k = 0; k < p->n_keys; k++) {
        struct position at = table_find(ix, ix->keys[page][k]);

        ok = ok && at.page == page && at.place == k;
    }
    for (uint32_t r = 0; r < n; r++) {
        unsigned any = record_any(&records[r]);

        ok = ok && any != 0 && any >> p->n_keys == 0 &&
             (r == 0 || records[r - 1].holder < records[r].holder) &&
             ix->holders[records[r].holder].state != HOLDER_FREE;
        of[records[r].holder].held += places_count(any);
        of[records[r].holder].pages++;
    }
    page_rehash(ix, page);
    *n_keys += p->n_keys;
    return ok && p->hash == hash;
}

static bool check_instances(const struct prefix_index *ix,
                            const struct counted *of)
{
    uint64_t held = 0;
    bool ok = true;

    for (uint32_t i = 0; i < ix->max_instances; i++) {
        const struct indexed *in = &ix->instances[i];

        held += in->held;
        if (in->holder == HOLDER_NONE)
            ok = ok && in->held == 0 && in->pages == 0;
        else
            ok = ok && ix->holders[in->holder].instance == i &&
                 ix->holders[in->holder].state == HOLDER_LIVE &&
                 of[in->holder].held == in->held &&
                 of[in->holder].pages == in->pages;
    }
    return ok && held == ix->n_held;
}

static bool check_table(const struct prefix_index *ix)
{
    uint64_t n = 0;

    for (uint32_t b = 0; b < ix->n_buckets; b++)
        for (uint32_t s = 0; s < BUCKET_SLOTS; s++)
            n += ix->buckets[b].slot[s] != 0;
    return n == ix->n_keys;
}

bool prefix_index_check(const struct prefix_index *index)
{
    struct prefix_index *ix = (struct prefix_index *)(uintptr_t)index;
    struct counted *of = calloc(ix->max_holders, sizeof(*of));
    uint64_t n_keys = 0;
    uint64_t n_pages = 0;
    bool ok = of != 0;

    for (uint32_t page = 1; ok && page < ix->fresh; page++) {
        if (ix->pages[page].n_keys == 0)
            continue;
        n_pages++;
        ok = check_page(ix, page, of, &n_keys);
    }
    ok = ok && n_keys == ix->n_keys && n_pages == ix->n_pages &&
         check_table(ix) && check_instances(ix, of) && arena_check(&ix->arena);
    free(of);
    return ok;
}
