/* The invariants at the top of prefix_index.c, counted again from nothing but
 * the records and the links. */
#include <stdlib.h>

#include "conductor/core/index/prefix_index.h"
#include "conductor/core/index/prefix_table.h"

struct recount {
    uint32_t *refs;     /* by entry */
    uint64_t *held;     /* by instance */
    uint64_t *orphans;  /* by instance */
    uint64_t *children; /* by instance: held blocks with a parent */
    uint64_t *claimed;  /* by instance: sum of children in its records */
    uint64_t keys, held_keys, holders, units;
};

/* The instance's held blocks, counted at their parents: invariants 1 to 3. */
static bool check_records(const struct prefix_index *ix, struct recount *r,
                          uint32_t at)
{
    struct entry *e = &ix->entries[at];
    const struct record *records;
    uint32_t held = 0;
    size_t n;

    records = records_of(ix, e, &n);
    if (e->many)
        r->units += UINT64_C(1) << arena_class_of(n);
    for (size_t i = 0; i < n; i++) {
        uint32_t instance = records[i].instance;

        if (records[i].tiers == 0 && records[i].children == 0)
            return false;
        if (i > 0 && records[i - 1].instance >= instance)
            return false;
        r->claimed[instance] += records[i].children;
        if (records[i].tiers == 0) {
            r->orphans[instance] += records[i].children;
            continue;
        }
        held++;
        r->held[instance]++;
        if (!e->linked)
            return false;
        if (e->parent == 0)
            continue;
        r->children[instance]++;
        if (!record_find(ix, &ix->entries[e->parent], instance))
            return false;
    }
    r->holders += held;
    r->held_keys += held > 0;
    return held == records_held(e) && (!e->many || n > 1);
}

static bool check_entry(const struct prefix_index *ix, struct recount *r,
                        uint32_t at)
{
    const struct entry *e = &ix->entries[at];
    uint32_t steps = 0;
    size_t n;

    if (table_find(ix, e->key) != at || !check_records(ix, r, at))
        return false;
    (void)records_of(ix, e, &n);
    if (n == 0 && e->refs == 0)
        return false;
    if (e->linked && e->parent != 0)
        r->refs[e->parent]++;
    for (uint32_t up = at; up != 0 && ix->entries[up].linked;
         up = ix->entries[up].parent)
        if (steps++ > ix->max_keys)
            return false;
    if (e->resolved) {
        uint32_t above = e->parent == 0 ? 0 : ix->entries[e->parent].digest;
        bool known = e->parent == 0 || ix->entries[e->parent].resolved;

        return known && e->digest == above + table_mix(ix, e->key);
    }
    return true;
}

static bool check_all(const struct prefix_index *ix, struct recount *r)
{
    uint32_t open = 0;

    for (uint32_t at = 1; at < ix->fresh; at++) {
        if (ix->entries[at].key == 0)
            continue;
        r->keys++;
        if (!check_entry(ix, r, at))
            return false;
    }
    for (uint32_t at = 1; at < ix->fresh; at++)
        if (ix->entries[at].key != 0 && ix->entries[at].refs != r->refs[at])
            return false;
    for (uint32_t i = 0; i < ix->max_instances; i++) {
        if (r->held[i] != ix->held[i] || r->orphans[i] != ix->orphans[i] ||
            r->children[i] != r->claimed[i])
            return false;
        open += r->orphans[i] > 0;
    }
    return open == ix->n_open && r->keys == ix->n_keys &&
           r->held_keys == ix->n_held_keys && r->holders == ix->n_holders &&
           r->units == ix->arena.used_units && arena_check(&ix->arena);
}

bool prefix_index_check(const struct prefix_index *index)
{
    uint32_t n = index->max_instances;
    uint64_t *counts = calloc(4 * (size_t)n, sizeof(*counts));
    struct recount r = {
        .refs = calloc(index->fresh, sizeof(*r.refs)),
        .held = counts,
        .orphans = counts + n,
        .children = counts + 2 * (size_t)n,
        .claimed = counts + 3 * (size_t)n,
    };
    bool ok = counts && r.refs && check_all(index, &r);

    free(r.refs);
    free(counts);
    return ok;
}
