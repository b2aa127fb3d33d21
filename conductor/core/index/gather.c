/* Takes keys out of pages that an instance far above its share laid out. */
#include "conductor/core/index/pages.h"

/* Four equal parts, as a share is a quarter of one: see evict_set_share(). */
#define SHARES_TOO_MANY 16u

static bool has_room_behind(const struct prefix_index *ix, struct position last)
{
    return last.page != 0 && last.place + 1 < PAGE_KEYS &&
           ix->pages[last.page].n_keys == last.place + 1;
}

/* Returns whether an event's chain contradicts a page's sequence of keys. */
static bool is_out_of_place(const struct prefix_index *ix, struct position at,
                            struct position last, uint64_t before,
                            uint64_t behind)
{
    const uint64_t *keys = ix->keys[at.page];
    bool ends = at.place + 1 == ix->pages[at.page].n_keys;

    if (at.place > 0 && keys[at.place - 1] == before)
        return false;
    if (behind != 0 && !ends)
        return keys[at.place + 1] != behind;
    return at.place > 0 ? before != 0 : has_room_behind(ix, last);
}

bool gather_may(const struct prefix_index *ix, struct position at,
                struct position last, uint32_t holder, uint64_t before,
                uint64_t behind)
{
    const struct page *p = &ix->pages[at.page];
    const struct holder *owner = &ix->holders[p->one.holder];

    return ix->evicts && !p->many_records && p->one.holder != holder &&
           owner->state == HOLDER_LIVE &&
           ix->instances[owner->instance].held / SHARES_TOO_MANY > ix->share &&
           is_out_of_place(ix, at, last, before, behind);
}

/* Removes a key without holder from a page with one record; the page's last key
 * takes its place. */
static void drop_place(struct prefix_index *ix, struct position at)
{
    struct page *p = &ix->pages[at.page];
    uint64_t *keys = ix->keys[at.page];
    struct position last = {at.page, p->n_keys - 1u};

    table_remove(ix, keys[at.place], at);
    if (at.place != last.place)
        table_move(ix, keys[last.place], last, at);
    keys[at.place] = keys[last.place];
    for (unsigned t = 0; t < BLOCK_TIERS; t++) {
        unsigned held = p->one.held[t];

        p->one.held[t] = (uint16_t)((held & ~(1u << last.place)) |
                                    (held >> last.place & 1u) << at.place);
    }
    p->n_keys--;
    page_rehash(ix, at.page);
}

struct record gather_out(struct prefix_index *ix, struct position at)
{
    struct page *p = &ix->pages[at.page];
    struct record out = {.holder = p->one.holder};
    uint64_t key = ix->keys[at.page][at.place];

    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        out.held[t] = (uint16_t)((unsigned)p->one.held[t] >> at.place & 1u);
    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        if (out.held[t] != 0)
            page_drop(ix, at.page, out.holder, (enum block_tier)t,
                      1u << at.place);
    at = table_find(ix, key);
    if (at.page != 0)
        drop_place(ix, at);
    return out;
}

void gather_in(struct prefix_index *ix, struct position at,
               const struct record *out)
{
    for (unsigned t = 0; t < BLOCK_TIERS; t++) {
        struct indexed *of = &ix->instances[ix->holders[out->holder].instance];

        if (out->held[t] == 0 ||
            (at.page != 0 &&
             page_hold(ix, at.page, out->holder, (enum block_tier)t,
                       1u << at.place) == 0))
            continue;
        of->unindexed++;
        ix->n_unindexed++;
        ix->n_evicted++;
    }
}
