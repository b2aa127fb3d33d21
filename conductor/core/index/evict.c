/* Making room: what leaves a full index, and what cleared instances left. */
#include "conductor/core/index/pages.h"

/* Of the places that there may be, what an instance's share is a part of: pages
 * may be half empty, and half of their keys dead. */
#define PLACES_A_SHARE 4u

/* One page in so many goes in a round. The hand comes to them in any sequence,
 * so meanwhile up to as many may be behind one that has gone. */
#define PAGES_A_ROUND 32u
/* Pages that are looked at to tell which ranks these have. */
#define SAMPLES 512u
/* A round in which one page of so many changes was worth it. */
#define FRUITFUL 64u
#define PART_MAX 56u
#define PART_ALL 64u
#define INSTANCES_A_LOOK 4u

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

/* Whether a record may leave a page that nobody matched, for `instance`. Those
 * that give way in a round do so to its end: else some would lose the heads of
 * chains alone. */
static bool may_go(const struct prefix_index *ix, const struct record *record,
                   uint32_t instance)
{
    const struct holder *h = &ix->holders[record->holder];
    uint64_t used = usage(&ix->instances[instance]);

    return h->state != HOLDER_LIVE ||
           (ix->instances[h->instance].gives_way &&
            (h->instance == instance ||
             ix->instances[h->instance].held >= used / PART_ALL * PART_MAX));
}

/* The same, and counts what leaves. */
static bool gives_way(struct prefix_index *ix, const struct record *record,
                      uint32_t instance)
{
    const struct holder *h = &ix->holders[record->holder];
    struct indexed *of = &ix->instances[h->instance];

    if (!may_go(ix, record, instance))
        return false;
    if (h->state != HOLDER_LIVE)
        return true;
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

/* Whether something of a page may go in the round that begins. */
static bool page_may_go(const struct prefix_index *ix, struct page *page,
                        uint32_t instance)
{
    uint32_t n, r = 0;
    const struct record *records = page_records(ix, page, &n);

    while (r < n && !may_go(ix, &records[r], instance))
        r++;
    return r < n && !page->recent;
}

/* Estimates, from a sample, the rank above which one page in PAGES_A_ROUND may
 * go for `instance`; 0: fewer may go at all. */
static uint32_t rank_of_coldest(const struct prefix_index *ix,
                                uint32_t instance)
{
    uint32_t n = ix->max_pages < SAMPLES ? ix->max_pages : SAMPLES;
    uint32_t most = (n + PAGES_A_ROUND - 1) / PAGES_A_ROUND;
    uint32_t coldest[SAMPLES / PAGES_A_ROUND]; /* (most), falling */
    uint32_t found = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct page *page = &ix->pages[1 + (uint64_t)i * ix->max_pages / n];
        uint32_t rank = page_rank(ix, page->use);
        uint32_t at = found;

        if (page->n_keys == 0 || (found == most && rank <= coldest[most - 1]) ||
            !page_may_go(ix, page, instance))
            continue;
        if (found < most)
            found++;
        else
            at--;
        for (; at > 0 && coldest[at - 1] < rank; at--)
            coldest[at] = coldest[at - 1];
        coldest[at] = rank;
    }
    return found < most ? 0 : coldest[most - 1];
}

/* Begins a round: the largest give way, or more than before if they had little
 * to give. Returns what it cost. */
static uint32_t begin_round(struct prefix_index *ix, uint32_t instance)
{
    for (uint32_t i = 0; i < ix->max_instances; i++)
        if (ix->instances[i].held > ix->instances[ix->largest].held)
            ix->largest = i;
    if (ix->part == 0 || ix->changed > ix->max_pages / FRUITFUL)
        ix->part = PART_MAX;
    else
        ix->part -= ix->part / 4;
    for (uint32_t i = 0; i < ix->max_instances; i++)
        ix->instances[i].gives_way = ix->instances[i].held > level(ix);
    ix->hand = 0;
    ix->changed = 0;
    ix->round++;
    ix->cold = rank_of_coldest(ix, instance);
    return ix->max_instances / INSTANCES_A_LOOK + SAMPLES;
}

/* Looks at the next page. Returns what it cost. */
static uint32_t evict_next(struct prefix_index *ix, uint32_t instance)
{
    uint32_t rank, cost = 1;
    struct page *page;

    if (ix->part == 0 || ix->hand == ix->max_pages)
        return begin_round(ix, instance);
    page = &ix->pages[++ix->hand];
    rank = page_rank(ix, page->use);
    if (ix->hand == ix->kept_page)
        return cost;
    if (page->n_keys > 0 && rank >> 16 == AGE_MAX)
        page->use.round = (uint16_t)(ix->round - AGE_MAX);
    if (page->n_keys > 0 && !page->recent && rank >= ix->cold)
        cost += page_filter(ix, ix->hand, gives_way, instance);
    cost += pack(ix, ix->hand);
    ix->changed += cost > LOOKS_A_CHANGED_PAGE;
    page->recent = 0;
    return cost;
}

static bool has_room(const struct prefix_index *ix, uint32_t size_class)
{
    return size_class == 0 ? ix->free_page != 0
                           : arena_has_room(&ix->arena, size_class);
}

/* Whether the page that needs room would be among the first to go. */
static bool goes_itself(const struct prefix_index *ix, uint32_t instance,
                        struct page_use use)
{
    return ix->cold > 0 && page_rank(ix, use) >= ix->cold &&
           ix->instances[instance].gives_way;
}

bool evict(struct prefix_index *ix, uint32_t instance, struct page_use use,
           uint32_t size_class, uint32_t *looks)
{
    while (*looks > 0 && !has_room(ix, size_class) &&
           !goes_itself(ix, instance, use)) {
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
