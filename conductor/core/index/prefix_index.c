/*
 * The prefix index: block events in, the forest of known blocks kept exact.
 * What is asked of it is in prefix_match.c.
 *
 * Invariants (prefix_index_check asserts them):
 *   1. held(i, b) <=> b has a record of i with tiers != 0.
 *   2. record(i, b).children = |{c : parent(c) = b, held(i, c)}|; a record
 *      with neither tiers nor children does not exist.
 *   3. orphans[i] = |{c : held(i, c), parent(c) != 0, !held(i, parent(c))}|
 *      = the sum of the children of i's ghost records.
 *   4. A held entry is linked. refs(b) = |{c : linked(c), parent(c) = b}|.
 *      An entry with neither records nor refs does not exist.
 *   5. Links never change and form no cycle, so a digest stays right as long
 *      as its entry lives.
 * From 3: an instance without orphans that holds b holds every ancestor of b.
 */
#include "conductor/core/index/prefix_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/prefix_table.h"

#define KEYS_MAX ((1u << 28) - 2) /* refs and n_heads have room for that */

struct prefix_index *prefix_index_new(const struct prefix_index_config *config)
{
    uint64_t shared = config->max_shared;
    struct prefix_index *ix;

    if (config->max_instances == 0 ||
        config->max_instances > PREFIX_INDEX_INSTANCES_MAX ||
        config->max_keys == 0 || config->max_keys > KEYS_MAX)
        return NULL;
    if (shared == 0)
        shared = 4 * (uint64_t)config->max_keys;
    ix = calloc(1, sizeof(*ix));
    if (!ix)
        return NULL;
    ix->seed = config->seed;
    ix->max_instances = config->max_instances;
    ix->max_keys = config->max_keys;
    ix->n_heads = config->max_keys;
    ix->fresh = 1;
    ix->entries = calloc((size_t)ix->max_keys + 1, sizeof(*ix->entries));
    ix->heads = calloc(ix->n_heads, sizeof(*ix->heads));
    ix->held = calloc(ix->max_instances, sizeof(*ix->held));
    ix->orphans = calloc(ix->max_instances, sizeof(*ix->orphans));
    if (!ix->entries || !ix->heads || !ix->held || !ix->orphans ||
        arena_init(&ix->arena, shared) < 0) {
        prefix_index_free(ix);
        return NULL;
    }
    return ix;
}

void prefix_index_free(struct prefix_index *index)
{
    if (!index)
        return;
    arena_fini(&index->arena);
    free(index->orphans);
    free(index->held);
    free(index->heads);
    free(index->entries);
    free(index);
}

uint32_t table_add(struct prefix_index *ix, uint64_t key)
{
    uint32_t *head = &ix->heads[table_bucket(ix, table_hash(ix, key))];
    uint32_t at = ix->free_entry;

    if (at != 0)
        ix->free_entry = ix->entries[at].next;
    else if (ix->fresh <= ix->max_keys)
        at = ix->fresh++;
    else
        return 0;
    ix->entries[at] = (struct entry){.key = key, .next = *head};
    *head = at;
    ix->n_keys++;
    return at;
}

static void table_unlink(struct prefix_index *ix, uint32_t at)
{
    struct entry *e = &ix->entries[at];
    uint32_t *link = &ix->heads[table_bucket(ix, table_hash(ix, e->key))];

    while (*link != at)
        link = &ix->entries[*link].next;
    *link = e->next;
    *e = (struct entry){.next = ix->free_entry};
    ix->free_entry = at;
    ix->n_keys--;
}

void table_collect(struct prefix_index *ix, uint32_t at)
{
    while (at != 0) {
        struct entry *e = &ix->entries[at];
        uint32_t parent = e->linked ? e->parent : 0;

        if (e->refs != 0 || e->many || e->one.tiers != 0 ||
            e->one.children != 0)
            return;
        table_unlink(ix, at);
        if (parent != 0)
            ix->entries[parent].refs--;
        at = parent;
    }
}

static void orphans_change(struct prefix_index *ix, uint32_t instance,
                           uint64_t plus, uint64_t minus)
{
    uint64_t before = ix->orphans[instance];
    uint64_t after = before + plus - minus;

    ix->orphans[instance] = after;
    if (before == 0 && after != 0)
        ix->n_open++;
    else if (before != 0 && after == 0)
        ix->n_open--;
}

/* Whether the line of ancestors of `at`, itself included, ends in `target`.
 * A resolved entry's line ends in a first block, which is linked. */
static bool line_ends_in(const struct prefix_index *ix, uint32_t at,
                         uint32_t target)
{
    while (at != 0 && ix->entries[at].linked && !ix->entries[at].resolved)
        at = ix->entries[at].parent;
    return at == target;
}

static void link_entry(struct prefix_index *ix, uint32_t at, uint32_t parent)
{
    struct entry *e = &ix->entries[at];

    e->linked = 1;
    e->parent = parent;
    if (parent == 0) {
        e->digest = table_mix(ix, e->key);
        e->resolved = 1;
        return;
    }
    struct entry *p = &ix->entries[parent];

    p->refs++;
    if (p->resolved) {
        e->digest = p->digest + table_mix(ix, e->key);
        e->resolved = 1;
    }
}

/* Enters the holding into records that exist, on a linked entry. */
static void hold(struct prefix_index *ix, uint32_t at, struct record *record,
                 struct record *parent_record, unsigned bit)
{
    struct entry *e = &ix->entries[at];
    uint32_t instance = record->instance;

    if (records_held(e) == 0)
        ix->n_held_keys++;
    record->tiers = (uint8_t)bit;
    if (e->many)
        e->many_at.held++;
    ix->held[instance]++;
    ix->n_holders++;
    orphans_change(ix, instance, 0, record->children);
    if (parent_record) {
        parent_record->children++;
        if (parent_record->tiers == 0)
            orphans_change(ix, instance, 1, 0);
    }
}

/* Takes the holding back: the record has no tier left but `bit`. */
static void unhold(struct prefix_index *ix, uint32_t at, struct record *record)
{
    struct entry *e = &ix->entries[at];
    uint32_t instance = record->instance;

    record->tiers = 0;
    if (e->many)
        e->many_at.held--;
    if (records_held(e) == 0)
        ix->n_held_keys--;
    ix->held[instance]--;
    ix->n_holders--;
    orphans_change(ix, instance, record->children, 0);
    record_drop_empty(ix, e, instance);
    if (e->parent != 0) {
        struct entry *p = &ix->entries[e->parent];
        struct record *parent_record = record_find(ix, p, instance);

        parent_record->children--;
        if (parent_record->tiers == 0)
            orphans_change(ix, instance, 0, 1);
        record_drop_empty(ix, p, instance);
    }
    table_collect(ix, at);
}

/* Stores a block that the instance does not hold yet. `at` and `parent` are
 * entries, or 0 if there is none so far. Returns the block's entry through
 * `at`. */
static int store_new(struct prefix_index *ix, uint32_t instance, unsigned bit,
                     uint64_t parent_key, uint32_t parent, uint64_t key,
                     uint32_t *at)
{
    struct record *parent_record = NULL;
    struct record *record;
    int error = -ENOSPC;

    if (parent_key != 0 && parent == 0) {
        parent = table_add(ix, parent_key);
        if (parent == 0)
            return -ENOSPC;
    }
    if (*at == 0)
        *at = table_add(ix, key);
    if (*at == 0)
        goto drop_parent;
    if (!ix->entries[*at].linked && line_ends_in(ix, parent, *at)) {
        error = -EINVAL;
        goto drop_entry;
    }
    if (parent != 0) {
        parent_record = record_get(ix, &ix->entries[parent], instance);
        if (!parent_record)
            goto drop_entry;
    }
    record = record_get(ix, &ix->entries[*at], instance);
    if (!record)
        goto drop_parent_record;
    if (!ix->entries[*at].linked)
        link_entry(ix, *at, parent);
    hold(ix, *at, record, parent_record, bit);
    return 0;

drop_parent_record:
    if (parent != 0)
        record_drop_empty(ix, &ix->entries[parent], instance);
drop_entry:
    table_collect(ix, *at);
drop_parent:
    table_collect(ix, parent);
    return error;
}

/* prefix_index_stored() with the parent's entry, if it is known (else 0), and
 * the block's entry as a result. */
static int store_block(struct prefix_index *ix, uint32_t instance, unsigned bit,
                       uint64_t parent_key, uint32_t parent, uint64_t key,
                       uint32_t *at)
{
    if (key == 0 || key == parent_key)
        return -EINVAL;
    *at = table_find(ix, key);
    if (*at != 0 && ix->entries[*at].linked) {
        struct entry *e = &ix->entries[*at];

        if (ix->entries[e->parent].key != parent_key)
            return -EEXIST;
        struct record *record = record_find(ix, e, instance);

        if (record && record->tiers != 0) {
            record->tiers |= (uint8_t)bit;
            return 0;
        }
        parent = e->parent;
    }
    if (parent == 0 && parent_key != 0)
        parent = table_find(ix, parent_key);
    return store_new(ix, instance, bit, parent_key, parent, key, at);
}

int prefix_index_stored(struct prefix_index *index, uint32_t instance,
                        enum block_tier tier, uint64_t parent_key, uint64_t key)
{
    uint32_t at;

    if (instance >= index->max_instances || (unsigned)tier >= BLOCK_TIERS)
        return -EINVAL;
    return store_block(index, instance, 1u << tier, parent_key, 0, key, &at);
}

/* Fetches the head of a later key's hash chain into the cache. */
static void prefetch_ahead(const struct prefix_index *ix, const uint64_t *keys,
                           size_t n, size_t i)
{
    enum { AHEAD = 8 };

    if (n - i > AHEAD)
        __builtin_prefetch(
            &ix->heads[table_bucket(ix, table_hash(ix, keys[i + AHEAD]))]);
}

int prefix_index_stored_chain(struct prefix_index *index, uint32_t instance,
                              enum block_tier tier, uint64_t parent_key,
                              const uint64_t *keys, size_t n, size_t *n_done)
{
    uint32_t parent = 0;
    uint32_t at = 0;
    size_t i;
    int error = 0;

    if (instance >= index->max_instances || (unsigned)tier >= BLOCK_TIERS) {
        error = -EINVAL;
        n = 0;
    }
    for (i = 0; i < n; i++) {
        prefetch_ahead(index, keys, n, i);
        error = store_block(index, instance, 1u << tier, parent_key, parent,
                            keys[i], &at);
        if (error < 0)
            break;
        parent = at;
        parent_key = keys[i];
    }
    if (n_done)
        *n_done = i;
    return error;
}

int prefix_index_removed(struct prefix_index *index, uint32_t instance,
                         enum block_tier tier, uint64_t key)
{
    if (instance >= index->max_instances || (unsigned)tier >= BLOCK_TIERS)
        return -EINVAL;
    uint32_t at = table_find(index, key);

    if (at == 0 || key == 0)
        return 0;
    struct record *record = record_find(index, &index->entries[at], instance);
    unsigned bit = 1u << tier;

    if (!record || (record->tiers & bit) == 0)
        return 0;
    if (record->tiers == bit)
        unhold(index, at, record);
    else
        record->tiers &= (uint8_t)~bit;
    return 0;
}

int prefix_index_removed_keys(struct prefix_index *index, uint32_t instance,
                              enum block_tier tier, const uint64_t *keys,
                              size_t n)
{
    int error = 0;

    for (size_t i = 0; i < n && error == 0; i++) {
        prefetch_ahead(index, keys, n, i);
        error = prefix_index_removed(index, instance, tier, keys[i]);
    }
    return error;
}

void prefix_index_cleared(struct prefix_index *index, uint32_t instance)
{
    if (instance >= index->max_instances)
        return;
    for (uint32_t at = 1; at < index->fresh && index->held[instance] > 0;
         at++) {
        if (index->entries[at].key == 0)
            continue;
        struct record *record =
            record_find(index, &index->entries[at], instance);

        if (record && record->tiers != 0)
            unhold(index, at, record);
    }
}
