/* Making room in a full index; sweeping the records of cleared instances. */
#include "conductor/core/index/pages.h"

/* A share counts four times against the places: a page may be half empty, and
 * half of its keys without a holder. */
#define PLACES_A_SHARE 4u

/* One page in PAGES_A_ROUND leaves per round. Eviction meets pages in any
 * order, so during a round this part of the pages may remain behind a page of
 * their chain that has left. */
#define PAGES_A_ROUND 32u
/* Pages sampled to find the ranks that leave. */
#define SAMPLES 512u
/* A round is fruitful if it changes more than one page in FRUITFUL. */
#define FRUITFUL 64u
#define PART_MAX 56u
#define PART_ALL 64u
#define INSTANCES_A_LOOK 4u

void evict_set_share(struct prefix_index *ix)
{
    ix->share = (uint64_t)ix->max_pages * PAGE_KEYS / PLACES_A_SHARE /
                (ix->n_active > 0 ? ix->n_active : 1);
}

/* Returns an instance's use of the index, in blocks. Its pages count in full:
 * otherwise single keys in pages of their own would be an advantage. */
static uint64_t usage(const struct indexed *of)
{
    uint64_t places = of->pages * PAGE_KEYS;

    return places > of->held ? places : of->held;
}

/* Returns the bound in blocks: instances that hold more give way. */
static uint64_t level(const struct prefix_index *ix)
{
    uint64_t most = ix->instances[ix->largest].held / PART_ALL * ix->part;

    return most > ix->share ? most : ix->share;
}

/* Returns whether a record may leave an unmatched page for `instance`. An
 * instance that gives way does so until the round ends: otherwise it might lose
 * only the heads of chains. */
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

/* As may_go(), and counts the blocks that leave. */
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
    for (unsigned t = 0; t < BLOCK_TIERS; t++) { /* drop it from each tier */
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

/* Merges a half-empty page with another. Returns the cost in looks; the page
 * may be free afterwards. */
static uint32_t pack(struct prefix_index *ix, uint32_t page)
{
    uint32_t n = ix->pages[page].n_keys;
    uint32_t into = ix->pack_page;
    uint32_t n_into = ix->pages[into].n_keys;
    uint32_t cost = 0, merged = 0;

    if (n == 0 || n > PAGE_KEYS / 2 || page == into)
        return 0;
    if (ix->n_dead > 0) { /* a dead record must not move behind the sweep */
        cost = page_filter(ix, page, is_dead, 0);
        n = ix->pages[page].n_keys;
    }
    if (n > 0 && n_into > 0 && n_into + n <= PAGE_KEYS && into != ix->kept_page)
        merged = page_merge(ix, into, page);
    if (n > 0 && merged == 0)
        ix->pack_page = page;
    return cost + merged;
}

/* Returns whether a record of a page may leave in the coming round. */
static bool page_may_go(const struct prefix_index *ix, struct page *page,
                        uint32_t instance)
{
    uint32_t n, r = 0;
    const struct record *records = page_records(ix, page, &n);

    while (r < n && !may_go(ix, &records[r], instance))
        r++;
    return r < n && !page->recent;
}

/* Estimates from a sample the rank from which on one page in PAGES_A_ROUND may
 * leave for `instance`; 0 = fewer pages than that may leave. */
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

/* Begins a round: the largest instances give way, and more of them if the last
 * round was not fruitful. Returns the cost in looks. */
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

/* Looks at the next page. Returns the cost in looks. */
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

/* Returns whether the page that needs room would itself soon leave. */
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

/* Frees the dead holders: all pages were swept, so no record names them. */
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
            CHECK(&ix->broken, of->unswept > 0);
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
