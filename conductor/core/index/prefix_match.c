/*
 * Matches in the prefix index.
 *
 * Nested sets: an instance without orphans that holds a block holds all its
 * ancestors. If the ancestors of keys[d], as stored, are keys[0 .. d-1] as a
 * set, the closed holders of keys[d] are therefore among those of keys[c] for
 * every c < d. A position is called verified when its entry's digest, the sum
 * of the mixed keys of its line, equals that of the query up to there. Then
 * equal numbers of closed holders at two verified positions mean equal sets,
 * and no prefix ends between them: bisecting over the depth finds all ends.
 *
 * Digests only differ from the query's if a worker named a wrong parent or
 * two prompts collide; then, and for instances with orphans, the prompt is
 * walked block by block.
 */
#include <string.h>

#include "conductor/core/index/prefix_index.h"
#include "conductor/core/index/prefix_table.h"

bool table_resolve(struct prefix_index *ix, uint32_t at)
{
    struct entry *entries = ix->entries;
    uint32_t sum = 0;
    uint32_t top = at;

    while (entries[top].linked && !entries[top].resolved) {
        sum += table_mix(ix, entries[top].key);
        top = entries[top].parent; /* a first block is resolved at once */
    }
    if (!entries[top].resolved)
        return false;
    sum += entries[top].digest;
    while (!entries[at].resolved) {
        entries[at].digest = sum;
        entries[at].resolved = 1;
        sum -= table_mix(ix, entries[at].key);
        at = entries[at].parent;
    }
    return true;
}

/* One match under way. */
struct search {
    struct prefix_index *ix;
    const uint64_t *keys;
    uint32_t *blocks;
    bool mismatch; /* a position did not verify: walk instead */
};

/* A verified position: the entry there and the query's digest up to it. */
struct probe {
    size_t depth; /* position in keys */
    uint32_t at;
    uint32_t digest;
};

static bool is_closed(const struct prefix_index *ix, uint32_t instance)
{
    return ix->orphans[instance] == 0;
}

/* The instances without orphans that hold the block of an entry. */
static uint32_t closed_holders(const struct prefix_index *ix, uint32_t at)
{
    const struct entry *e = &ix->entries[at];
    const struct record *records;
    uint32_t count = 0;
    size_t n;

    if (ix->n_open == 0)
        return records_held(e);
    records = records_of(ix, e, &n);
    for (size_t i = 0; i < n; i++)
        count += records[i].tiers != 0 && is_closed(ix, records[i].instance);
    return count;
}

static void write_closed(const struct search *s, const struct probe *p)
{
    const struct record *records;
    size_t n;

    records = records_of(s->ix, &s->ix->entries[p->at], &n);
    for (size_t i = 0; i < n; i++)
        if (records[i].tiers != 0 && is_closed(s->ix, records[i].instance))
            s->blocks[records[i].instance] = (uint32_t)p->depth + 1;
}

/* table_find(), trying an entry first: blocks of a chain that were stored in
 * one go have neighbouring entries, and a right guess saves a cache miss. */
static uint32_t find_near(const struct prefix_index *ix, uint64_t key,
                          uint64_t guess)
{
    const uint32_t *head = &ix->heads[table_bucket(ix, table_hash(ix, key))];

    __builtin_prefetch(head);
    if (guess < ix->fresh && ix->entries[guess].key == key && key != 0)
        return (uint32_t)guess;
    return table_find(ix, key);
}

/*
 * Looks at a position beyond a verified one (from->at 0: before the first).
 * Returns whether it is verified, then *to is that. to->at is its entry, 0 if
 * unknown, in either case.
 */
static bool probe_at(struct search *s, const struct probe *from, size_t depth,
                     struct probe *to)
{
    struct prefix_index *ix = s->ix;
    size_t first = from->at == 0 ? 0 : from->depth + 1;
    uint32_t digest = from->digest;
    uint32_t at = find_near(ix, s->keys[depth],
                            from->at == 0 ? UINT64_MAX
                                          : from->at + (depth - from->depth));

    to->at = s->keys[depth] == 0 ? 0 : at;
    if (to->at == 0)
        return false;
    for (size_t i = first; i <= depth; i++)
        digest += table_mix(ix, s->keys[i]);
    to->depth = depth;
    to->digest = digest;
    return (ix->entries[at].resolved || table_resolve(ix, at)) &&
           ix->entries[at].digest == digest;
}

/* Finds a verified position whose successor is not, or the last one. Without
 * lies that is the deepest block of the prompt that is known with its line.
 * Returns false if not even the first is verified. */
static bool find_frontier(struct search *s, size_t n, struct probe *deepest)
{
    struct probe here = {0};
    struct probe next;
    size_t beyond = n; /* not verified, or the end */
    size_t depth = n - 1;

    if (!probe_at(s, &here, 0, &next)) {
        s->mismatch = next.at != 0 && closed_holders(s->ix, next.at) > 0;
        return false;
    }
    here = next;
    while (here.depth + 1 < beyond) {
        if (probe_at(s, &here, depth, &next)) {
            here = next;
        } else {
            beyond = depth;
            /* Known and held, but under other ancestors than the query's. */
            if (next.at != 0 && closed_holders(s->ix, next.at) > 0)
                s->mismatch = true;
        }
        depth = here.depth + (beyond - here.depth) / 2;
    }
    *deepest = here;
    return true;
}

/* Finds the ends of prefixes in low .. high - 1, both verified, shallow ones
 * first, so that a deeper end overwrites what was written before. */
static void find_ends(struct search *s, const struct probe *low,
                      const struct probe *high)
{
    if (closed_holders(s->ix, low->at) == closed_holders(s->ix, high->at))
        return;
    if (high->depth == low->depth + 1) {
        write_closed(s, low);
        return;
    }
    struct probe mid;

    if (!probe_at(s, low, low->depth + (high->depth - low->depth) / 2, &mid)) {
        s->mismatch = true;
        return;
    }
    find_ends(s, low, &mid);
    find_ends(s, &mid, high);
}

/* The plain walk, for instances with orphans, or for all. */
static void walk(const struct prefix_index *ix, const uint64_t *keys, size_t n,
                 bool all, uint32_t *blocks)
{
    uint32_t at = 0;

    for (size_t depth = 0; depth < n && keys[depth] != 0; depth++) {
        const struct record *records;
        uint32_t alive = 0;
        size_t n_records;

        at =
            find_near(ix, keys[depth], at == 0 ? UINT64_MAX : (uint64_t)at + 1);
        if (at == 0)
            return;
        records = records_of(ix, &ix->entries[at], &n_records);
        for (size_t i = 0; i < n_records; i++) {
            uint32_t instance = records[i].instance;

            if (records[i].tiers == 0 || blocks[instance] != depth ||
                (!all && is_closed(ix, instance)))
                continue;
            blocks[instance]++;
            alive++;
        }
        if (alive == 0)
            return;
    }
}

void prefix_index_match(struct prefix_index *index, const uint64_t *keys,
                        size_t n, uint32_t *blocks)
{
    struct search s = {.ix = index, .keys = keys, .blocks = blocks};
    size_t bytes = index->max_instances * sizeof(*blocks);
    struct probe first, deepest;

    memset(blocks, 0, bytes);
    if (n == 0)
        return;
    if (find_frontier(&s, n, &deepest) && !s.mismatch) {
        struct probe none = {0};

        if (probe_at(&s, &none, 0, &first))
            find_ends(&s, &first, &deepest);
        write_closed(&s, &deepest);
    }
    if (s.mismatch)
        memset(blocks, 0, bytes);
    if (s.mismatch || index->n_open > 0)
        walk(index, keys, n, s.mismatch, blocks);
}

size_t prefix_index_runs(const struct prefix_index *index, uint32_t instance,
                         const uint64_t *keys, size_t n,
                         struct prefix_run *runs, size_t max_runs)
{
    size_t n_runs = 0;

    for (size_t depth = 0; depth < n; depth++) {
        unsigned tiers = prefix_index_tiers(index, instance, keys[depth]);
        enum block_tier best = TIER_DEVICE;

        if (tiers == 0)
            break;
        while ((tiers >> best & 1) == 0)
            best++;
        if (n_runs > 0 && runs[n_runs - 1].tier == best) {
            runs[n_runs - 1].n_blocks++;
            continue;
        }
        if (n_runs == max_runs)
            break;
        runs[n_runs++] = (struct prefix_run){(uint32_t)depth, 1, best};
    }
    return n_runs;
}

unsigned prefix_index_tiers(const struct prefix_index *index, uint32_t instance,
                            uint64_t key)
{
    uint32_t at = key == 0 ? 0 : table_find(index, key);
    const struct record *record;

    if (at == 0)
        return 0;
    record = record_find(index, &index->entries[at], instance);
    return !record ? 0 : record->tiers;
}

uint64_t prefix_index_held(const struct prefix_index *index, uint32_t instance)
{
    return instance < index->max_instances ? index->held[instance] : 0;
}

uint32_t prefix_index_max_instances(const struct prefix_index *index)
{
    return index->max_instances;
}

struct prefix_index_stats prefix_index_stats(const struct prefix_index *index)
{
    uint64_t fixed =
        sizeof(*index) + index->n_heads * sizeof(*index->heads) +
        index->max_instances * (sizeof(*index->held) + sizeof(*index->orphans));

    return (struct prefix_index_stats){
        .keys = index->n_keys,
        .ghosts = index->n_keys - index->n_held_keys,
        .holders = index->n_holders,
        .bytes = fixed + index->n_keys * sizeof(struct entry) +
                 index->arena.used_units * sizeof(uint64_t),
        .bytes_max = fixed +
                     ((uint64_t)index->max_keys + 1) * sizeof(struct entry) +
                     index->arena.n_units * (sizeof(uint64_t)) +
                     index->arena.n_units / 2,
        .open_instances = index->n_open,
    };
}
