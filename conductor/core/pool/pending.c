/* Counted chains: a table of counts, beside a prefix index for matches. */
#include "conductor/core/pool/pending.h"

#include <errno.h>
#include <stdlib.h>

#include "conductor/core/index/prefix_index.h"

/* Index memory per pair: enough even if each key has a page of its own. */
#define BLOCK_BYTES 320u
/* Keys whose slots are prefetched. */
#define AHEAD 8u
/* Keys removed from the index by one call. */
#define DROPPED 64u
/* Slots of a growing table at first: a small table is faster. */
#define SLOTS_FIRST (UINT32_C(1) << 14)

struct pending *pending_new(uint32_t max_instances, uint32_t max_blocks,
                            bool grows, uint64_t seed)
{
    struct prefix_index_config config = {
        .max_instances = max_instances,
        .max_bytes =
            (uint64_t)max_blocks * BLOCK_BYTES + PREFIX_INDEX_BYTES_MIN,
        .max_pairs = (uint64_t)max_blocks + 16,
        .grows = grows,
        .seed = seed};
    uint32_t n_slots = 2, first = 2;
    struct pending *pending;

    if (max_blocks == 0 || max_blocks > UINT32_C(1) << 28)
        return NULL;
    while (n_slots < 2 * max_blocks)
        n_slots *= 2;
    while (first < n_slots && (!grows || first < SLOTS_FIRST))
        first *= 2;
    pending = calloc(1, sizeof(*pending));
    if (!pending)
        return NULL;
    pending->max_blocks = max_blocks;
    pending->mask = first - 1;
    pending->secret = key_secret_of(seed);
    pending->index = prefix_index_new(&config);
    pending->slots = calloc(n_slots, sizeof(*pending->slots));
    pending->n_of = calloc(max_instances, sizeof(*pending->n_of));
    if (!pending->index || !pending->slots || !pending->n_of) {
        pending_free(pending);
        return NULL;
    }
    return pending;
}

void pending_free(struct pending *pending)
{
    if (!pending)
        return;
    free(pending->n_of);
    free(pending->slots);
    prefix_index_free(pending->index);
    free(pending);
}

static uint32_t home(const struct pending *pending, uint32_t instance,
                     uint64_t key)
{
    /* A different home for the same key of each instance. */
    uint64_t own = key + instance * UINT64_C(0x9e3779b97f4a7c15);

    return (uint32_t)key_hash(&pending->secret, own) & pending->mask;
}

uint32_t pending_find(const struct pending *pending, uint32_t instance,
                      uint64_t key)
{
    uint32_t at = home(pending, instance, key);

    while (pending->slots[at].count != 0 &&
           (pending->slots[at].key != key ||
            pending->slots[at].instance != instance))
        at = (at + 1) & pending->mask;
    return at;
}

static void erase(struct pending *pending, uint32_t hole)
{
    struct pending_slot *slots = pending->slots;
    uint32_t mask = pending->mask;

    for (uint32_t at = (hole + 1) & mask; slots[at].count != 0;
         at = (at + 1) & mask) {
        uint32_t from = home(pending, slots[at].instance, slots[at].key);

        /* An entry never moves in front of its home. */
        if (((at - from) & mask) < ((at - hole) & mask))
            continue;
        slots[hole] = slots[at];
        hole = at;
    }
    slots[hole].count = 0;
    pending->n_used--;
}

/* Doubles the slots in use; the upper half is empty so far. A pair's new home
 * is its old one, or that plus the old number of slots. */
static void grow(struct pending *pending)
{
    struct pending_slot *slots = pending->slots;
    uint32_t n = pending->mask + 1;
    uint32_t first = 0;

    pending->mask = 2 * n - 1;
    /* Begins behind an empty slot, so that each pair moves before those behind
     * it and finds its way free. */
    while (slots[first].count != 0)
        first++;
    for (uint32_t i = 1; i <= n; i++) {
        struct pending_slot slot = slots[(first + i) & (n - 1)];

        if (slot.count == 0)
            continue;
        slots[(first + i) & (n - 1)].count = 0;
        slots[pending_find(pending, slot.instance, slot.key)] = slot;
    }
}

static void prefetch(const struct pending *pending, uint32_t instance,
                     uint64_t key)
{
    __builtin_prefetch(&pending->slots[home(pending, instance, key)]);
}

/* Indexes keys [from, to) of a chain. */
static int index_run(struct pending *pending, uint32_t instance,
                     const uint64_t *keys, size_t from, size_t to)
{
    if (from == to)
        return 0;
    return prefix_index_stored(pending->index, instance, TIER_DEVICE,
                               from == 0 ? 0 : keys[from - 1], keys + from,
                               to - from);
}

int pending_add(struct pending *pending, uint32_t instance,
                const uint64_t *keys, size_t n)
{
    size_t i, from = 0; /* keys [from, i) are new and not indexed yet */
    int error = 0;

    for (i = 0; i < n && i < AHEAD; i++)
        prefetch(pending, instance, keys[i]);
    for (i = 0; i < n && error == 0; i++) {
        uint32_t at = pending_find(pending, instance, keys[i]);

        if (i + AHEAD < n)
            prefetch(pending, instance, keys[i + AHEAD]);
        if (pending->slots[at].count > 0) {
            pending->slots[at].count++;
            error = index_run(pending, instance, keys, from, i);
            from = i + 1;
        } else if (pending->n_used == pending->max_blocks) {
            error = -ENOSPC;
            break;
        } else {
            if (2 * pending->n_used > pending->mask) {
                grow(pending);
                at = pending_find(pending, instance, keys[i]);
            }
            pending->slots[at] = (struct pending_slot){keys[i], instance, 1};
            pending->n_used++;
            pending->n_of[instance]++;
        }
    }
    if (error == 0)
        error = index_run(pending, instance, keys, from, i);
    if (error < 0)
        pending_drop(pending, instance, keys, i);
    return error;
}

void pending_drop(struct pending *pending, uint32_t instance,
                  const uint64_t *keys, size_t n)
{
    uint64_t gone[DROPPED];
    size_t n_gone = 0;

    while (n > 0) {
        uint32_t at = pending_find(pending, instance, keys[--n]);

        if (n >= AHEAD)
            prefetch(pending, instance, keys[n - AHEAD]);
        if (pending->slots[at].count > 0 && --pending->slots[at].count == 0) {
            erase(pending, at);
            pending->n_of[instance]--;
            gone[n_gone++] = keys[n];
        }
        /* Cannot fail: pending_add() checked the instance. */
        if (n_gone == DROPPED || n == 0) {
            prefix_index_removed(pending->index, instance, TIER_DEVICE, gone,
                                 n_gone);
            n_gone = 0;
        }
    }
}

void pending_match(struct pending *pending, const uint64_t *keys, size_t n,
                   struct prefix_match *match)
{
    prefix_index_match(pending->index, keys, n, match);
}
