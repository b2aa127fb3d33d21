/* The cached blocks of a node; see block_cache.h.
 *
 * Invariants: a used slot is in exactly one tier's list and in the chain of its
 * key; count[t] is the length of list t and at most capacity[t]. */
#include "sim/block_cache.h"

#include <errno.h>
#include <stdlib.h>

#define NONE BLOCK_CACHE_NONE
#define SLOTS_FIRST 256u

static uint32_t *head_of(const struct block_cache *cache, uint64_t key)
{
    uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15);

    return &cache->heads[(hash >> 32) & (cache->n_slots - 1)];
}

/* Doubles the slots and hashes all blocks again. */
static int grow(struct block_cache *cache)
{
    uint32_t n = cache->n_slots == 0 ? SLOTS_FIRST : cache->n_slots * 2;
    struct cached_block *slots;
    uint32_t *heads;

    if (n > UINT32_C(1) << 30)
        return -ENOMEM;
    heads = malloc(n * sizeof(*heads));
    if (!heads)
        return -ENOMEM;
    slots = realloc(cache->slots, n * sizeof(*slots));
    if (!slots) {
        free(heads);
        return -ENOMEM;
    }
    free(cache->heads);
    cache->slots = slots;
    cache->heads = heads;
    cache->n_slots = n;
    for (uint32_t i = 0; i < n; i++)
        heads[i] = NONE;
    /* The table grows only when every slot is in use. */
    for (uint32_t i = 0; i < cache->fresh; i++) {
        uint32_t *head = head_of(cache, slots[i].key);

        slots[i].next = *head;
        *head = i;
    }
    return 0;
}

struct block_cache *block_cache_new(const uint64_t *capacity_blocks,
                                    block_cache_moved_fn *moved, void *arg)
{
    struct block_cache *cache = calloc(1, sizeof(*cache));

    if (!cache)
        return NULL;
    cache->moved = moved;
    cache->arg = arg;
    cache->free_slot = NONE;
    for (unsigned t = 0; t < BLOCK_TIERS; t++) {
        cache->newest[t] = cache->oldest[t] = NONE;
        cache->capacity[t] = capacity_blocks[t];
    }
    if (grow(cache) < 0) {
        block_cache_free(cache);
        return NULL;
    }
    return cache;
}

void block_cache_free(struct block_cache *cache)
{
    if (!cache)
        return;
    free(cache->slots);
    free(cache->heads);
    free(cache);
}

uint32_t block_cache_find(const struct block_cache *cache, uint64_t key)
{
    uint32_t slot = *head_of(cache, key);

    while (slot != NONE && cache->slots[slot].key != key)
        slot = cache->slots[slot].next;
    return slot;
}

void block_cache_prefetch(const struct block_cache *cache, uint64_t key)
{
    __builtin_prefetch(head_of(cache, key));
}

struct cached_block *block_cache_at(struct block_cache *cache, uint32_t slot)
{
    return &cache->slots[slot];
}

static void list_add(struct block_cache *cache, uint32_t slot, unsigned tier)
{
    struct cached_block *b = &cache->slots[slot];

    b->tier = (uint8_t)tier;
    b->newer = NONE;
    b->older = cache->newest[tier];
    if (b->older != NONE)
        cache->slots[b->older].newer = slot;
    else
        cache->oldest[tier] = slot;
    cache->newest[tier] = slot;
    cache->count[tier]++;
}

static void list_remove(struct block_cache *cache, uint32_t slot)
{
    struct cached_block *b = &cache->slots[slot];

    if (b->newer != NONE)
        cache->slots[b->newer].older = b->older;
    else
        cache->newest[b->tier] = b->older;
    if (b->older != NONE)
        cache->slots[b->older].newer = b->newer;
    else
        cache->oldest[b->tier] = b->newer;
    cache->count[b->tier]--;
}

static void drop(struct block_cache *cache, uint32_t slot)
{
    struct cached_block *b = &cache->slots[slot];
    uint32_t *link = head_of(cache, b->key);

    while (*link != slot)
        link = &cache->slots[*link].next;
    *link = b->next;
    b->newer = cache->free_slot;
    cache->free_slot = slot;
}

/* Moves the oldest blocks down until every tier from this one on fits. */
static void make_fit(struct block_cache *cache, unsigned tier)
{
    for (unsigned t = tier; t < BLOCK_TIERS; t++) {
        while (cache->count[t] > cache->capacity[t]) {
            uint32_t slot = cache->oldest[t];
            unsigned to = t + 1;

            while (to < BLOCK_TIERS && cache->capacity[to] == 0)
                to++;
            list_remove(cache, slot);
            if (to < BLOCK_TIERS)
                list_add(cache, slot, to);
            cache->moved(cache->arg, &cache->slots[slot], t, to);
            if (to == BLOCK_TIERS)
                drop(cache, slot);
        }
    }
}

/* Returns the first tier that exists. */
static unsigned first_tier(const struct block_cache *cache)
{
    unsigned tier = 0;

    while (tier < BLOCK_TIERS && cache->capacity[tier] == 0)
        tier++;
    return tier;
}

void block_cache_touch(struct block_cache *cache, uint32_t slot)
{
    unsigned from = cache->slots[slot].tier;
    unsigned to = first_tier(cache);

    if (slot == cache->newest[to])
        return;
    list_remove(cache, slot);
    list_add(cache, slot, to);
    if (from == to)
        return;
    cache->moved(cache->arg, &cache->slots[slot], from, to);
    make_fit(cache, to);
}

void block_cache_drop(struct block_cache *cache, uint32_t slot)
{
    list_remove(cache, slot);
    cache->moved(cache->arg, &cache->slots[slot], cache->slots[slot].tier,
                 BLOCK_CACHE_NO_TIER);
    drop(cache, slot);
}

void block_cache_keep(struct block_cache *cache, uint32_t slot)
{
    unsigned tier = cache->slots[slot].tier;

    list_remove(cache, slot);
    list_add(cache, slot, tier);
}

int block_cache_place(struct block_cache *cache, uint64_t key, uint64_t parent,
                      uint64_t owner, bool ready)
{
    unsigned tier = first_tier(cache);
    uint32_t slot = cache->free_slot;
    uint32_t *head;

    if (tier == BLOCK_TIERS)
        return 0;
    if (slot == NONE && cache->fresh == cache->n_slots && grow(cache) < 0)
        return -ENOMEM;
    if (slot == NONE)
        slot = cache->fresh++;
    else
        cache->free_slot = cache->slots[slot].newer;
    head = head_of(cache, key);
    cache->slots[slot] = (struct cached_block){.key = key,
                                               .parent = parent,
                                               .owner = owner,
                                               .next = *head,
                                               .ready = ready};
    *head = slot;
    list_add(cache, slot, tier);
    cache->moved(cache->arg, &cache->slots[slot], BLOCK_CACHE_NO_TIER, tier);
    make_fit(cache, tier);
    return 0;
}

void block_cache_set_capacity(struct block_cache *cache, enum block_tier tier,
                              uint64_t capacity_blocks)
{
    cache->capacity[tier] = capacity_blocks;
    make_fit(cache, tier);
}
