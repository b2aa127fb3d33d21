/* Checks the invariants of pages.h by counting anew. */
#include "tests/unit/prefix_check.h"

#include <stdlib.h>

#include "conductor/core/index/pages.h"

struct counted {
    uint64_t held, pages; /* by holder */
    uint32_t unswept;     /* by instance */
};

/* Checks that the table has a page's keys at their places, that its records are
 * sorted and within its places, and that its hash is right. */
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

/* Checks the counts of holders by state, and of spare ones: an instance's
 * holders beyond its first two. */
static bool check_holders(const struct prefix_index *ix, struct counted *of)
{
    uint32_t in_state[HOLDER_DYING + 1] = {0};
    uint32_t n_active = 0;
    uint32_t spare = 0;
    bool ok = true;

    for (uint32_t h = 0; h < ix->max_holders; h++) {
        const struct holder *holder = &ix->holders[h];

        in_state[holder->state]++;
        of[holder->instance].unswept += holder->state >= HOLDER_DEAD;
    }
    for (uint32_t i = 0; i < ix->max_instances; i++) {
        const struct indexed *in = &ix->instances[i];
        uint32_t live = in->holder != HOLDER_NONE;

        ok = ok && in->unswept == of[i].unswept;
        n_active += live;
        spare += in->unswept + live > 2 ? in->unswept + live - 2 : 0;
    }
    return ok && spare == ix->n_spare_used && n_active == ix->n_active &&
           in_state[HOLDER_LIVE] == ix->n_active &&
           in_state[HOLDER_FREE] == ix->n_free_holders &&
           in_state[HOLDER_DEAD] == ix->n_dead &&
           in_state[HOLDER_DYING] == ix->n_dying;
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
    bool ok = of && !ix->broken;

    for (uint32_t page = 1; ok && page < ix->fresh; page++) {
        if (ix->pages[page].n_keys == 0)
            continue;
        n_pages++;
        ok = check_page(ix, page, of, &n_keys);
    }
    ok = ok && n_keys == ix->n_keys && n_pages == ix->n_pages &&
         check_table(ix) && check_instances(ix, of) && check_holders(ix, of) &&
         arena_check(&ix->arena);
    free(of);
    return ok;
}
