/* Clears, counts of unindexed blocks, and read access. */
#include "conductor/core/index/pages.h"

void unindexed_forget(struct prefix_index *ix, struct indexed *of, uint64_t n)
{
    if (n > of->unindexed)
        n = of->unindexed;
    CHECK(&ix->broken, ix->n_unindexed >= n);
    of->unindexed -= n;
    ix->n_unindexed -= n;
}

void prefix_index_cleared(struct prefix_index *index, uint32_t instance)
{
    struct indexed *of;
    struct holder *holder;

    if (instance >= index->max_instances)
        return;
    of = &index->instances[instance];
    unindexed_forget(index, of, of->unindexed);
    of->telling = false;
    if (of->holder == HOLDER_NONE)
        return;
    index->n_active--;
    evict_set_share(index);
    holder = &index->holders[of->holder];
    if (of->pages == 0) {
        holder->state = HOLDER_FREE;
        index->n_spare_used -= of->unswept >= 2;
        index->free_holders[index->n_free_holders++] = of->holder;
    } else if (index->sweep_at != 0) {
        of->unswept++;
        holder->state = HOLDER_DYING;
        index->n_dying++;
    } else {
        of->unswept++;
        holder->state = HOLDER_DEAD;
        index->n_dead++;
    }
    CHECK(&index->broken, index->n_held >= of->held);
    index->n_held -= of->held;
    of->held = 0;
    of->pages = 0;
    of->holder = HOLDER_NONE;
}

/* Returns whether n more blocks of an instance would find room: in free pages,
 * each filled by half, or within its share of a full index. */
static bool has_room_for(const struct prefix_index *ix,
                         const struct indexed *of, uint64_t n)
{
    uint64_t free_pages = ix->max_pages - ix->n_pages;
    uint64_t pages = n * 2 / PAGE_KEYS + 1;

    if (ix->arena.used_units > ix->arena.n_units / 8 * 7)
        free_pages = 0;
    return pages <= free_pages || free_pages > ix->max_pages / 4 ||
           (ix->evicts && ix->n_active > 1 && of->held + n <= ix->share);
}

bool prefix_index_incomplete(const struct prefix_index *index,
                             uint32_t instance)
{
    const struct indexed *of = &index->instances[instance];
    uint64_t n;

    if (of->unindexed == 0 || of->held >= of->quota ||
        (of->holder == HOLDER_NONE && !holder_is_free(index, of)))
        return false;
    n = of->quota - of->held;
    return has_room_for(index, of, of->unindexed < n ? of->unindexed : n);
}

void prefix_index_told_again(struct prefix_index *index, uint32_t instance)
{
    struct indexed *of = &index->instances[instance];

    of->untold = (of->telling ? of->untold : 0) + of->unindexed;
    unindexed_forget(index, of, of->unindexed);
    of->telling = true;
}

void prefix_index_told(struct prefix_index *index, uint32_t instance,
                       bool whole)
{
    struct indexed *of = &index->instances[instance];

    /* Some earlier unindexed blocks may have been reported again: count all. */
    if (of->telling && !whole) {
        index->n_unindexed += of->untold;
        of->unindexed += of->untold;
    }
    of->telling = false;
}

uint64_t prefix_index_unindexed(const struct prefix_index *index,
                                uint32_t instance)
{
    return index->instances[instance].unindexed;
}

struct prefix_index_stats prefix_index_stats(const struct prefix_index *index)
{
    uint64_t page_bytes = sizeof(*index->pages) + sizeof(*index->keys);

    return (struct prefix_index_stats){
        .keys = index->n_keys,
        .holders = index->n_held,
        .unindexed = index->n_unindexed,
        .evicted = index->n_evicted,
        .pages = index->n_pages,
        .bytes = index->n_pages * page_bytes +
                 (uint64_t)((double)index->n_keys / KEYS_A_BUCKET *
                            sizeof(*index->buckets)) +
                 index->arena.used_units * sizeof(uint64_t),
        .bytes_max = (index->max_pages + UINT64_C(1)) * page_bytes +
                     index->max_buckets * sizeof(*index->buckets) +
                     index->arena.n_units * (sizeof(uint64_t)) +
                     index->arena.n_units / 16 + 1,
        .sweeping = index->n_dead > 0,
    };
}

const char *prefix_index_broken(struct prefix_index *index)
{
    return check_take(&index->broken);
}

void prefix_index_set_quota(struct prefix_index *index, uint32_t instance,
                            uint64_t max_blocks)
{
    if (instance < index->max_instances)
        index->instances[instance].quota = max_blocks;
}

unsigned prefix_index_tiers(const struct prefix_index *index, uint32_t instance,
                            uint64_t key)
{
    struct position at;
    const struct record *record;

    if (instance >= index->max_instances || key == 0 ||
        index->instances[instance].holder == HOLDER_NONE)
        return 0;
    at = table_find(index, key);
    if (at.page == 0)
        return 0;
    record = page_record(index, &index->pages[at.page],
                         index->instances[instance].holder);
    return record ? record_tiers(record, at.place) : 0;
}

uint64_t prefix_index_held(const struct prefix_index *index, uint32_t instance)
{
    return instance < index->max_instances ? index->instances[instance].held
                                           : 0;
}

uint32_t prefix_index_max_instances(const struct prefix_index *index)
{
    return index->max_instances;
}
