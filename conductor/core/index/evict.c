/* Making room: what leaves a full index, and what cleared instances left. */
#include "conductor/core/index/pages.h"

/* Of the places that there may be, what an instance's share is a part of: pages
 * may be half empty, and half of their keys dead. */
#define PLACES_A_SHARE 4u

/* A round in which one page of so many changes was worth it. */
#define FRUITFUL 16u
#define PART_MAX 56u
#define PART_ALL 64u
#define INSTANCES_A_LOOK 8u

void evict_set_share(struct prefix_index *ix)
{
    ix->share = (uint64_t)ix->max_pages * PAGE_KEYS / PLACES_A_SHARE /
                (ix->n_active > 0 ? ix->n_active : 1);
}

/* What an instance uses, in blocks: its pages count in full, so that nobody has
 * an advantage from single keys in pages of their own. */
static uint64_t usage(const struct indexed *of)
{
    uint64_t places = of->pages * PAGE_KEYS;

    return places > of->held ? places : of->held;
}

/* Instances that hold more blocks give way. */
static uint64_t level(const struct prefix_index *ix)
{
    uint64_t most = ix->instances[ix->largest].held / PART_ALL * ix->part;

    return most > ix->share ? most : ix->share;
}

/* Whether a record leaves a page that nobody matched, for `instance`. */
static bool gives_way(struct prefix_index *ix, const struct record *record,
                      uint32_t instance)
{
    const struct holder *h = &ix->holders[record->holder];
    struct indexed *of = &ix->instances[h->instance];

    if (h->state != HOLDER_LIVE)
        return true;
    if (of->held <= level(ix) ||
        (h->instance != instance && of->held < usage(&ix->instances[instance])))
        return false;
    ix->n_evicted += places_count(record_any(record));
    for (unsigned t = 0; t < BLOCK_TIERS; t++) { /* it is removed from each */
        ix->n_unindexed += places_count(record->held[t]);
        of->unindexed += places_count(record->held[t]);
    }
    return true;
}

static bool is_dead(struct prefix_index *ix, const struct record *record,
                    uint32_t unused)
{
    (void)unused;
    return ix->holders[record->holder].state != HOLDER_LIVE;
}

/* Puts a page that is half empty together with another. Returns what it cost;
 * the page may be free now. */
static uint32_t pack(struct prefix_index *ix, uint32_t page)
{
    uint32_t n = ix->pages[page].n_keys;
    uint32_t into = ix->pack_page;
    uint32_t n_into = ix->pages[into].n_keys;
    uint32_t cost = 0, merged = 0;

    if (n == 0 || n > PAGE_KEYS / 2 || page == into)
        return 0;
    if (ix->n_dead > 0) { /* no record may slip behind the sweep */
        cost = page_filter(ix, page, is_dead, 0);
        n = ix->pages[page].n_keys;
    }
    if (n > 0 && n_into > 0 && n_into + n <= PAGE_KEYS && into != ix->kept_page)
        merged = page_merge(ix, into, page);
    if (n > 0 && merged == 0)
        ix->pack_page = page;
    return cost + merged;
}

/* Begins a round: the largest give way, or more than before if they had little
 * to give. Returns what it cost. */
static uint32_t begin_round(struct prefix_index *ix)
{
    for (uint32_t i = 0; i < ix->max_instances; i++)
        if (ix->instances[i].held > ix->instances[ix->largest].held)
            ix->largest = i;
    if (ix->part == 0 || ix->changed > ix->max_pages / FRUITFUL)
        ix->part = PART_MAX;
    else
        ix->part -= ix->part / 4;
    ix->hand = 0;
    ix->changed = 0;
    return ix->max_instances / INSTANCES_A_LOOK;
}

/* Looks at the next page. Returns what it cost. */
static uint32_t evict_next(struct prefix_index *ix, uint32_t instance)
{
    uint32_t cost = 1;
    struct page *page;

    if (ix->part == 0 || ix->hand == ix->max_pages)
        cost += begin_round(ix);
    page = &ix->pages[++ix->hand];
    if (ix->hand == ix->kept_page)
        return cost;
    cost += pack(ix, ix->hand);
    if (page->n_keys > 0 && !page->recent)
        cost += page_filter(ix, ix->hand, gives_way, instance);
    ix->changed += cost > LOOKS_A_CHANGED_PAGE;
    page->recent = 0;
    return cost;
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
        uint32_t cost = evict_next(ix, instance);

        ix->n_looks += cost;
        *looks -= cost < *looks ? cost : *looks;
    }
    return has_room(ix, size_class);
}

/* All pages were looked at: the dead holders have no record left. */
static void sweep_ended(struct prefix_index *ix)
{
    ix->sweep_at = 0;
    ix->n_dead = 0;
    for (uint32_t h = 0; h < ix->max_holders; h++) {
        struct holder *holder = &ix->holders[h];

        if (holder->state == HOLDER_DEAD) {
            struct indexed *of = &ix->instances[holder->instance];

            holder->state = HOLDER_FREE;
            ix->n_spare_used -= of->unswept + (of->holder != HOLDER_NONE) > 2;
            of->unswept--;
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
