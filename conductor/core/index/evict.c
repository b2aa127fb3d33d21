/* Making room: what leaves a full index, and what cleared instances left. */
#include "conductor/core/index/pages.h"

/* Pages that one call looks at: each costs some nanoseconds. */
#define EVICT_PAGES 4096u
/* A page that becomes free takes its keys out of the table, and counts as so
 * many that are only looked at. */
#define PAGES_A_FREED_ONE 127u

static bool is_over_share(struct prefix_index *ix, const struct record *record)
{
    const struct holder *h = &ix->holders[record->holder];
    const struct indexed *of = &ix->instances[h->instance];
    uint32_t n_active = ix->n_active > 0 ? ix->n_active : 1;

    if (h->state != HOLDER_LIVE)
        return true;
    if (of->pages <= ix->max_pages / n_active)
        return false;
    ix->n_evicted += places_count(record_any(record));
    ix->n_unindexed += places_count(record_any(record));
    ix->instances[h->instance].unindexed += places_count(record_any(record));
    return true;
}

bool evict_pages(struct prefix_index *ix)
{
    for (uint32_t i = 0; i < EVICT_PAGES && ix->free_page == 0; i++) {
        ix->hand = ix->hand < ix->max_pages ? ix->hand + 1 : 1;
        if (ix->pages[ix->hand].recent)
            ix->pages[ix->hand].recent = 0;
        else
            page_filter(ix, ix->hand, is_over_share);
    }
    return ix->free_page != 0;
}

static bool is_dead(struct prefix_index *ix, const struct record *record)
{
    return ix->holders[record->holder].state != HOLDER_LIVE;
}

/* All pages were looked at: the dead holders have no record left. */
static void sweep_ended(struct prefix_index *ix)
{
    ix->sweep_at = 0;
    ix->n_dead = 0;
    for (uint32_t h = 0; h < ix->max_holders; h++) {
        struct holder *holder = &ix->holders[h];

        if (holder->state == HOLDER_DEAD) {
            holder->state = HOLDER_FREE;
            ix->free_holders[ix->n_free_holders++] = (uint16_t)h;
        } else if (holder->state == HOLDER_DYING) {
            holder->state = HOLDER_DEAD;
            ix->n_dead++;
        }
    }
    ix->n_dying = 0;
}

bool prefix_index_work(struct prefix_index *index, uint32_t max_pages)
{
    if (index->n_dead == 0)
        return false;
    if (index->sweep_at == 0)
        index->sweep_at = 1;
    for (uint32_t i = 0; i < max_pages && index->sweep_at < index->fresh; i++) {
        uint64_t n_pages = index->n_pages;

        page_filter(index, index->sweep_at++, is_dead);
        if (index->n_pages < n_pages)
            i += PAGES_A_FREED_ONE;
    }
    if (index->sweep_at >= index->fresh)
        sweep_ended(index);
    return index->n_dead > 0;
}
