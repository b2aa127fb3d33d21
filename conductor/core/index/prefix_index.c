/* Block events. prefix_index.h defines them, pages.h the layout. */
#include "conductor/core/index/prefix_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/pages.h"

/* Buckets that a growing table begins with. */
#define BUCKETS_FIRST (UINT32_C(1) << 15)
/* Part of the memory for the records of pages with several holders. */
#define RECORDS_PERCENT 20u
/* Keys whose buckets are prefetched. */
#define AHEAD 16u
/* Most looks of one event to make room: each takes some nanoseconds. */
#define EVICT_LOOKS 4096u
/* Looks that take as long as storing a block. */
#define LOOKS_A_BLOCK 8u

/* Divides the memory. Returns whether the bounds are in range. */
static bool size_parts(struct prefix_index *ix,
                       const struct prefix_index_config *config,
                       uint64_t *record_units)
{
    double page_bytes = sizeof(struct page) + PAGE_KEYS * sizeof(uint64_t) +
                        PAGE_KEYS / KEYS_A_BUCKET * sizeof(struct bucket);
    uint64_t for_records = config->max_bytes / 100 * RECORDS_PERCENT;
    /* Page 0 and the last bucket come on top of these. */
    double pages =
        ((double)(config->max_bytes - for_records) - sizeof(struct bucket)) /
            page_bytes -
        1;

    if (config->max_instances == 0 ||
        config->max_instances > PREFIX_INDEX_INSTANCES_MAX ||
        config->max_bytes < PREFIX_INDEX_BYTES_MIN || pages >= 1u << 28)
        return false;
    ix->max_pages = (uint32_t)pages;
    ix->max_keys = ((uint64_t)ix->max_pages + 1) * PAGE_KEYS;
    /* A page has no more dead keys than pairs: see tidy(). */
    if (config->max_pairs > 0 && 2 * config->max_pairs < ix->max_keys)
        ix->max_keys = 2 * config->max_pairs;
    ix->max_buckets = (uint32_t)((double)ix->max_keys / KEYS_A_BUCKET) + 1;
    ix->n_buckets = ix->max_buckets;
    if (config->grows && ix->max_buckets > 2 * BUCKETS_FIRST)
        ix->n_buckets = BUCKETS_FIRST;
    while (ix->position_bits < 32 && (uint64_t)(ix->max_pages + 1) * PAGE_KEYS >
                                         UINT64_C(1) << ix->position_bits)
        ix->position_bits++;
    /* The arena takes a bit for each two units. */
    *record_units = (for_records - 1) * 16 / (16 * sizeof(uint64_t) + 1);
    return true;
}

static void set_free_holders(struct prefix_index *ix)
{
    for (uint32_t h = ix->max_holders; h-- > 0;)
        ix->free_holders[ix->n_free_holders++] = (uint16_t)h;
    for (uint32_t i = 0; i < ix->max_instances; i++) {
        ix->instances[i].holder = HOLDER_NONE;
        ix->instances[i].quota = UINT64_MAX;
    }
}

struct prefix_index *prefix_index_new(const struct prefix_index_config *config)
{
    struct prefix_index *ix = calloc(1, sizeof(*ix));
    uint64_t record_units;

    if (!ix)
        return NULL;
    if (!size_parts(ix, config, &record_units)) {
        free(ix);
        return NULL;
    }
    ix->secret = key_secret_of(config->seed);
    for (unsigned tiers = 0; tiers <= BLOCK_TIERS_ALL; tiers++)
        ix->in_tiers[tiers] = record_word_of(0, tiers, UINT16_MAX);
    ix->fresh = 1;
    ix->evicts = config->evicts;
    ix->max_instances = config->max_instances;
    ix->max_holders = prefix_holders_max(config->max_instances);
    ix->keys = table_zeroed((size_t)ix->max_pages + 1, sizeof(*ix->keys));
    ix->pages = table_zeroed((size_t)ix->max_pages + 1, sizeof(*ix->pages));
    ix->buckets = table_zeroed(ix->max_buckets, sizeof(*ix->buckets));
    ix->instances = calloc(ix->max_instances, sizeof(*ix->instances));
    ix->holders = calloc(ix->max_holders, sizeof(*ix->holders));
    ix->free_holders = calloc(ix->max_holders, sizeof(*ix->free_holders));
    if (!ix->keys || !ix->pages || !ix->buckets || !ix->instances ||
        !ix->holders || !ix->free_holders ||
        arena_init(&ix->arena, record_units) < 0) {
        prefix_index_free(ix);
        return NULL;
    }
    set_free_holders(ix);
    return ix;
}

void prefix_index_free(struct prefix_index *index)
{
    if (!index)
        return;
    arena_fini(&index->arena);
    free(index->free_holders);
    free(index->holders);
    free(index->instances);
    table_free(index->buckets, index->max_buckets, sizeof(*index->buckets));
    table_free(index->pages, (size_t)index->max_pages + 1,
               sizeof(*index->pages));
    table_free(index->keys, (size_t)index->max_pages + 1, sizeof(*index->keys));
    free(index);
}

static bool in_range(const struct prefix_index *ix, uint32_t instance,
                     enum block_tier tier)
{
    return instance < ix->max_instances && (unsigned)tier < BLOCK_TIERS;
}

/* Returns the holder of an instance, a new one if it has none. HOLDER_NONE =
 * the records of its last clears must be swept first. */
static uint32_t holder_of(struct prefix_index *ix, uint32_t instance)
{
    struct indexed *of = &ix->instances[instance];

    if (of->holder != HOLDER_NONE)
        return of->holder;
    if (!holder_is_free(ix, of))
        return HOLDER_NONE;
    ix->n_spare_used += of->unswept >= 2;
    of->holder = ix->free_holders[--ix->n_free_holders];
    ix->holders[of->holder] =
        (struct holder){.instance = instance, .state = HOLDER_LIVE};
    ix->n_active++;
    evict_set_share(ix);
    return of->holder;
}

/* A chain being stored: places of one page are gathered, and written when the
 * chain comes to another page. */
struct store {
    struct prefix_index *ix;
    uint32_t instance;
    uint32_t holder;
    enum block_tier tier;
    uint64_t parent;         /* key before the first; 0 = none, or used */
    uint64_t before, behind; /* keys around the present one; 0 = none */
    struct position last;    /* position of the key before; page 0 = unknown */
    uint32_t page;           /* page with gathered places; 0 = none */
    unsigned mask;           /* gathered places of `page` */
    bool grew;               /* the page got new keys */
    uint32_t looks;          /* looks left for eviction */
    int rc;
};

static void not_indexed(struct store *s, uint64_t n)
{
    s->ix->instances[s->instance].unindexed += n;
    s->ix->n_unindexed += n;
    s->rc = -ENOSPC;
}

/* Enters the gathered places; evicts other records if the arena is full. */
static int hold(struct store *s)
{
    struct prefix_index *ix = s->ix;
    int rc = page_hold(ix, s->page, s->holder, s->tier, s->mask);
    bool room;

    if (rc == 0 || !ix->evicts)
        return rc;
    ix->kept_page = s->page;
    room = evict(ix, s->instance, ix->pages[s->page].use,
                 page_class_for_another(&ix->pages[s->page]), &s->looks);
    ix->kept_page = 0;
    return room ? page_hold(ix, s->page, s->holder, s->tier, s->mask) : rc;
}

/* Returns the page_use of a new page that begins with the key being stored. */
static struct page_use use_behind(const struct store *s)
{
    struct page *p = &s->ix->pages[s->last.page];
    const struct record *held;
    struct page_use use = p->use;

    if (s->before == 0)
        return page_used(s->ix, 0);
    held = s->last.page != 0 ? page_record(s->ix, p, s->holder) : NULL;
    if (!held || (record_any(held) >> s->last.place & 1u) == 0)
        return page_orphan(s->ix);
    use.depth = (uint16_t)(use.depth + (use.depth < UINT16_MAX));
    return use;
}

/* Writes the gathered places. Returns whether there was room for them. */
static bool flush(struct store *s)
{
    struct page *p = &s->ix->pages[s->page];
    bool held = true;

    if (s->page == 0)
        return true;
    if (s->grew)
        page_rehash(s->ix, s->page);
    if (hold(s) < 0) {
        not_indexed(s, places_count(s->mask));
        if (!p->many_records && record_any(&p->one) == 0)
            page_free(s->ix, s->page);
        s->last.page = 0;
        held = false;
    } else if (s->ix->instances[s->instance].held <= s->ix->share) {
        /* Keeps the page for a round, so that a prompt can match it. Pages of
         * instances above their share may leave at once. */
        p->recent = 1;
    }
    s->page = 0;
    s->mask = 0;
    s->grew = false;
    return held;
}

/* Gives a new key a place behind the last one, or in a page of its own. */
static bool append(struct store *s, uint64_t key)
{
    struct prefix_index *ix = s->ix;
    struct position at = {s->last.page, s->last.place + 1};

    if (ix->n_keys >= ix->max_keys)
        return false;
    if (table_is_crowded(ix))
        table_grow(ix);
    if (at.page == 0 || at.place == PAGE_KEYS ||
        ix->pages[at.page].n_keys != at.place) {
        struct page_use use;

        if (!flush(s))
            return false;
        use = use_behind(s);
        at = (struct position){page_alloc(ix), 0};
        if (at.page == 0 && ix->evicts &&
            evict(ix, s->instance, use, 0, &s->looks))
            at.page = page_alloc(ix);
        if (at.page == 0)
            return false;
        ix->pages[at.page].use = use;
    }
    ix->keys[at.page][at.place] = key;
    ix->pages[at.page].n_keys++;
    table_insert(ix, key, at);
    s->page = at.page;
    s->grew = true;
    s->last = at;
    return true;
}

static bool is_next(const struct store *s, uint64_t key)
{
    return s->last.page != 0 &&
           s->last.place + 1 < s->ix->pages[s->last.page].n_keys &&
           s->ix->keys[s->last.page][s->last.place + 1] == key;
}

/* Finds or makes the place of a key, and gathers it. */
static void store_one(struct store *s, uint64_t key)
{
    struct position at = {s->last.page, s->last.place + 1};
    struct record moved = {0};

    if (!is_next(s, key)) {
        at = table_find(s->ix, key);
        if (at.page != 0 && at.page != s->page && at.page != s->last.page &&
            gather_may(s->ix, at, s->last, s->holder, s->before, s->behind)) {
            moved = gather_out(s->ix, at);
            at.page = 0;
        }
    }
    if (at.page == 0) {
        if (s->parent != 0)
            s->last = table_find(s->ix, s->parent);
        s->parent = 0;
        if (!append(s, key)) {
            s->last.page = 0;
            gather_in(s->ix, s->last, &moved);
            not_indexed(s, 1);
            return;
        }
        gather_in(s->ix, s->last, &moved);
    } else {
        uint32_t looks = s->looks;

        if (at.page != s->page && !flush(s)) {
            not_indexed(s, 1);
            return;
        }
        if (s->looks != looks) { /* eviction may have moved the key */
            store_one(s, key);
            return;
        }
        s->parent = 0;
        s->page = at.page;
        s->last = at;
    }
    s->mask |= 1u << s->last.place;
}

/* Returns whether the quota is used up and a key is new to the instance.
 * Storing a held block in another tier uses no quota. */
static bool quota_is_used(struct store *s, uint64_t key)
{
    const struct indexed *of = &s->ix->instances[s->instance];

    if (of->held + places_count(s->mask) < of->quota)
        return false;
    flush(s);
    return of->held >= of->quota &&
           prefix_index_tiers(s->ix, s->instance, key) == 0;
}

/* Returns whether a key follows one that had no room, so that no match would
 * reach it. If all blocks had room so far, its predecessor may still come. */
static bool is_behind_unindexed(const struct store *s, uint64_t key)
{
    const struct indexed *of = &s->ix->instances[s->instance];

    return s->last.page == 0 && s->before != 0 && of->unindexed > 0 &&
           prefix_index_tiers(s->ix, s->instance, s->before) == 0 &&
           prefix_index_tiers(s->ix, s->instance, key) == 0;
}

uint64_t prefix_index_room_cost(const struct prefix_index *index)
{
    return index->n_looks / LOOKS_A_BLOCK;
}

int prefix_index_stored(struct prefix_index *index, uint32_t instance,
                        enum block_tier tier, uint64_t parent_key,
                        const uint64_t *keys, size_t n)
{
    struct store s = {.ix = index,
                      .instance = instance,
                      .tier = tier,
                      .parent = parent_key,
                      .looks = EVICT_LOOKS};
    size_t i = 0;

    if (!in_range(index, instance, tier))
        return -EINVAL;
    s.holder = holder_of(index, instance);
    if (s.holder == HOLDER_NONE) {
        not_indexed(&s, n);
        return s.rc;
    }
    prefix_index_prefetch(index, keys, n < AHEAD ? n : AHEAD);
    for (; i < n && keys[i] != 0; i++) {
        if (i + AHEAD < n)
            table_prefetch(index, keys[i + AHEAD]);
        s.before = i > 0 ? keys[i - 1] : parent_key;
        s.behind = i + 1 < n ? keys[i + 1] : 0;
        if (quota_is_used(&s, keys[i]) || is_behind_unindexed(&s, keys[i])) {
            not_indexed(&s, 1);
            s.last.page = 0;
        } else {
            store_one(&s, keys[i]);
        }
    }
    flush(&s);
    return i < n ? -EINVAL : s.rc;
}

/* Returns the position of the next key to be removed: next to the last one, or
 * by the table. */
static struct position find_near(const struct prefix_index *ix,
                                 struct position last, uint64_t key)
{
    if (last.page != 0) {
        const uint64_t *keys = ix->keys[last.page];

        if (last.place + 1 < ix->pages[last.page].n_keys &&
            keys[last.place + 1] == key)
            return (struct position){last.page, last.place + 1};
        if (last.place > 0 && keys[last.place - 1] == key)
            return (struct position){last.page, last.place - 1};
    }
    return table_find(ix, key);
}

int prefix_index_removed(struct prefix_index *index, uint32_t instance,
                         enum block_tier tier, const uint64_t *keys, size_t n)
{
    struct position last = {0, 0};
    uint64_t held = 0;
    unsigned mask = 0;
    uint32_t holder;

    if (!in_range(index, instance, tier))
        return -EINVAL;
    holder = index->instances[instance].holder;
    for (size_t i = 0; i < n && holder != HOLDER_NONE; i++) {
        struct position at;

        if (i + AHEAD < n)
            table_prefetch(index, keys[i + AHEAD]);
        at = keys[i] != 0 ? find_near(index, last, keys[i])
                          : (struct position){0, 0};
        if (at.page != last.page && last.page != 0) {
            held += page_drop(index, last.page, holder, tier, mask);
            mask = 0;
        }
        if (at.page != 0)
            mask |= 1u << at.place;
        last = at;
    }
    if (last.page != 0)
        held += page_drop(index, last.page, holder, tier, mask);
    /* During an inventory the removed block may not be reported yet; then it is
     * not counted as unindexed. */
    if (!index->instances[instance].telling)
        unindexed_forget(index, &index->instances[instance], n - held);
    return 0;
}
