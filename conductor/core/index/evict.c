/* Making room: what leaves a full index, and what cleared instances left. */
#include "conductor/core/index/pages.h"

void evict_set_share(struct prefix_index *ix)
{
    ix->share = ix->max_pages / (ix->n_active > 0 ? ix->n_active : 1);
}

/* Whether a record leaves a page that nobody matched, for `instance`. */
static bool gives_way(struct prefix_index *ix, const struct record *record,
                      uint32_t instance)
{
    const struct holder *h = &ix->holders[record->holder];
    struct indexed *of = &ix->instances[h->instance];
    uint32_t n = places_count(record_any(record));

    if (h->state != HOLDER_LIVE)
        return true;
    if (of->pages < ix->share ||
        (of->pages == ix->share && h->instance != instance))
        return false;
    ix->n_evicted += n;
    ix->n_unindexed += n;
    of->unindexed += n;
    return true;
}

static bool has_room(const struct prefix_index *ix, uint32_t size_class)
{
    return size_class == 0 ? ix->free_page != 0
                           : arena_has_room(&ix->arena, size_class);
}

bool evict(struct prefix_index *ix, uint32_t instance, uint32_t size_class,
           uint32_t *looks)
{
    while (*looks > 0 && !has_room(ix, size_class)) {
        struct page *page;
        uint32_t cost = 1;

        ix->hand = ix->hand < ix->max_pages ? ix->hand + 1 : 1;
        page = &ix->pages[ix->hand];
        if (page->recent)
            page->recent = 0;
        else if (ix->hand != ix->kept_page)
            cost = page_filter(ix, ix->hand, gives_way, instance);
        *looks -= cost < *looks ? cost : *looks;
    }
    return has_room(ix, size_class);
}

static bool is_dead(struct prefix_index *ix, const struct record *record,
                    uint32_t unused)
{
    (void)unused;
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
            ix->instances[holder->instance].unswept--;
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
    for (uint32_t i = 0; i < max_pages && index->sweep_at < index->fresh;)
        i += page_filter(index, index->sweep_at++, is_dead, 0);
    if (index->sweep_at >= index->fresh)
        sweep_ended(index);
    return index->n_dead > 0;
}
