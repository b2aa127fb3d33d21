/* Adds copies: computes the keys of their blocks, and keeps events that wait
 * for their parent. */
#include <errno.h>
#include <string.h>

#include "conductor/core/index/block_key.h"
#include "conductor/link/events/map/state.h"

/* Adds a copy of a block with this key, 0 = unknown. Returns 0; -ENOSPC: no
 * room for it; -EEXIST: its hash has another key, or already all its parts. */
static int add_copy(struct kv_map *map, uint64_t hash, struct copy_place place,
                    uint64_t key, uint64_t seed)
{
    struct copies_look look = copies_look(&map->copies, hash, place);

    if (key != 0 && look.other && look.other->key != key)
        return -EEXIST;
    if (!look.entry && map->config.parts &&
        look.n >= (uint64_t)map->config.parts * BLOCK_TIERS)
        return -EEXIST;
    if (look.entry) {
        look.entry->count +=
            !map->config.parts && look.entry->count < UINT32_MAX;
    } else if (!copies_add(&map->copies, look.room, hash, place, key, seed)) {
        return -ENOSPC;
    } else if (!map->config.parts) {
        map->n_of[place.rank][place.tier]++;
    }
    map->stats.stored++;
    return 0;
}

/* Sets the key of a hash in its entries without one. Reports their tiers to the
 * index, except said_tiers, which the caller reports. */
void map_learn(struct kv_map *map, uint64_t hash, uint64_t parent_key,
               uint64_t key, uint64_t seed, unsigned said_tiers)
{
    struct copies *entry = copies_first(&map->copies, hash);

    for (; entry; entry = copies_next(&map->copies, entry)) {
        enum block_tier tier = entry->place.tier;

        if (entry->key != 0)
            continue;
        copies_set_key(&map->copies, entry, key, seed);
        if (!(said_tiers & BLOCK_TIER_BIT(tier)) &&
            map_has(map, hash, (uint8_t)tier))
            map_say_stored(map, tier, parent_key, &key, 1);
        said_tiers |= BLOCK_TIER_BIT(tier);
    }
}

/* The key of a hash; 0 = unknown. */
static uint64_t key_of(const struct kv_map *map, uint64_t hash, uint64_t *seed)
{
    uint64_t key = map_key(map, hash, seed);

    return key == 0 && map->config.key_of
               ? map->config.key_of(map->arg, hash, seed)
               : key;
}

/* Computes the keys of n blocks behind parent_key. */
static void piece_keys(const struct kv_map *map, uint64_t parent_key,
                       uint64_t seed, const uint32_t *tokens,
                       const uint64_t *extras, uint32_t n, uint64_t *keys)
{
    uint32_t size = map->block_tokens;

    if (!extras) {
        block_keys_continue(parent_key, tokens, (size_t)n * size, size, seed,
                            keys);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        block_keys_continue(parent_key, tokens + (size_t)i * size, size, size,
                            seed, &keys[i]);
        if (extras[i] != 0)
            keys[i] = block_key_with(keys[i], extras[i], seed);
        parent_key = keys[i];
    }
}

void map_unkept(struct kv_map *map, uint32_t n)
{
    map->stats.full += n;
    map->stats.unkept += n;
}

/* Adds a copy of a block in each of an event's groups. Returns 0 if one was
 * added, else as add_copy(). */
static int add_groups(struct kv_map *map, const struct kv_event *e,
                      uint16_t rank, uint64_t hash, uint64_t key, uint64_t seed)
{
    bool any = false;
    int rc = 0;

    for (uint64_t left = e->groups; left != 0 && rc != -EEXIST;
         left &= left - 1) {
        struct copy_place place = {.tier = (uint8_t)e->tier,
                                   .group = (uint8_t)__builtin_ctzll(left),
                                   .rank = rank};

        rc = add_copy(map, hash, place, key, seed);
        any |= rc == 0;
    }
    map->stats.contradictions += rc == -EEXIST;
    return any ? 0 : rc;
}

/* Blocks of an event, and the beginning of their chain. */
struct chain {
    const uint64_t *hashes, *extras;
    const uint32_t *tokens;
    uint32_t n;
    uint64_t parent_key, seed;
};

static void chain_advance(const struct kv_map *map, struct chain *chain,
                          uint32_t n)
{
    chain->hashes += n;
    if (chain->extras)
        chain->extras += n;
    chain->tokens += (size_t)n * map->block_tokens;
    chain->n -= n;
}

/* Stores a piece whose keys are known. Returns the number of blocks stored
 * before one failed. */
static uint32_t store_piece(struct kv_map *map, const struct kv_event *e,
                            uint16_t rank, const struct chain *chain,
                            const uint64_t *keys, uint32_t n)
{
    uint64_t parent_key = chain->parent_key;

    for (uint32_t i = 0; i < n; i++) {
        uint64_t hash = chain->hashes[i];
        int rc = add_groups(map, e, rank, hash, keys[i], chain->seed);

        if (rc == -ENOSPC)
            map_unkept(map, n - i);
        if (rc)
            return i;
        if (map->copies.n_keyless > 0)
            map_learn(map, hash, parent_key, keys[i], chain->seed,
                      BLOCK_TIER_BIT(e->tier));
        if (map->store && !map->recut && map->store->copies.n_keyless > 0)
            map_learn(map->store, hash, parent_key, keys[i], chain->seed, 0);
        parent_key = keys[i];
    }
    return n;
}

/* Reports a stored block to the index, unless a part of it is missing. */
static void say_block(struct kv_map *map, const struct kv_event *e,
                      uint64_t parent_key, uint64_t hash, uint64_t key)
{
    if (map->config.parts <= 1 || map_has(map, hash, (uint8_t)e->tier))
        map_say_stored(map, e->tier, parent_key, &key, 1);
}

/* Does the same for the first n blocks of a chain. */
static void say_chain(struct kv_map *map, const struct kv_event *e,
                      const struct chain *chain, const uint64_t *keys,
                      uint32_t n)
{
    if (map->config.parts <= 1) {
        map_say_stored(map, e->tier, chain->parent_key, keys, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        say_block(map, e, i ? keys[i - 1] : chain->parent_key, chain->hashes[i],
                  keys[i]);
}

/* Stores an event's blocks behind a known key; the first failure ends the
 * event. Returns whether none failed. */
static bool store_chain(struct kv_map *map, const struct kv_event *e,
                        uint16_t rank, const struct chain *chain)
{
    uint64_t keys[MAP_PIECE_BLOCKS];
    uint32_t done;

    for (uint32_t i = 0; i < chain->n; i++)
        copies_prefetch(&map->copies, chain->hashes[i]);
    piece_keys(map, chain->parent_key, chain->seed, chain->tokens,
               chain->extras, chain->n, keys);
    map_name(map, chain->parent_key, chain->seed, chain->tokens, chain->extras,
             keys, chain->n);
    done = store_piece(map, e, rank, chain, keys, chain->n);
    say_chain(map, e, chain, keys, done);
    return done == chain->n;
}

/* Sets the keys of a waiting event's blocks, now that its parent has a key. */
static void adopt(struct kv_map *map, struct chain chain)
{
    uint64_t keys[MAP_PIECE_BLOCKS], known, seed;

    piece_keys(map, chain.parent_key, chain.seed, chain.tokens, chain.extras,
               chain.n, keys);
    map_name(map, chain.parent_key, chain.seed, chain.tokens, chain.extras,
             keys, chain.n);
    for (uint32_t i = 0; i < chain.n; i++) {
        known = key_of(map, chain.hashes[i], &seed);
        if (known != 0 && known != keys[i]) {
            map->stats.contradictions++;
            return;
        }
        map_learn(map, chain.hashes[i], chain.parent_key, keys[i], chain.seed,
                  0);
        chain.parent_key = keys[i];
    }
}

/* Notes blocks that may have got keys: events waiting for them are next. */
static void say_parents(struct kv_map *map, const uint64_t *hashes, uint32_t n)
{
    memcpy(map->work.parents, hashes, n * sizeof(*hashes));
    map->work.n_parents = n;
    map->work.parent = 0;
}

/* Moves to `ready` an event whose parent's key is known; if no event waits for
 * this parent, goes to the next parent. */
static void take_ready(struct kv_map *map)
{
    struct map_work *w = &map->work;
    struct waiting_event *event = NULL;
    uint64_t seed, hash = w->parents[w->parent];

    if (map->waiting.n > 0 && key_of(map, hash, &seed) != 0)
        event = waiting_take(&map->waiting, hash);
    w->cost += 1 + map->waiting.n / (4 * WAITING_BUCKETS);
    if (event)
        TAILQ_INSERT_TAIL(&w->ready, event, by_age);
    else
        w->parent++;
}

bool map_adopt(struct kv_map *map)
{
    struct waiting_event *event = TAILQ_FIRST(&map->work.ready);
    struct chain chain;

    if (map->work.parent < map->work.n_parents) {
        take_ready(map);
        return true;
    }
    if (!event)
        return false;
    chain = (struct chain){.hashes = event->hashes,
                           .extras = event->extras,
                           .tokens = event->tokens,
                           .n = event->n_hashes};
    TAILQ_REMOVE(&map->work.ready, event, by_age);
    chain.parent_key = key_of(map, event->parent, &chain.seed);
    adopt(map, chain);
    if (map->recut)
        recut_settle(map->recut);
    map->work.cost += chain.n;
    say_parents(map, event->hashes, event->n_hashes);
    waiting_event_free(event);
    return true;
}

/* Adds copies of blocks one by one, each with the key of its hash, if known. */
static void store_unchained(struct kv_map *map, const struct kv_event *e,
                            uint16_t rank)
{
    for (uint32_t i = 0; i < e->n_hashes; i++) {
        uint64_t seed = 0, key = key_of(map, e->hashes[i], &seed);
        int rc;

        map->stats.unknown_copied += key == 0 && e->n_tokens == 0;
        rc = add_groups(map, e, rank, e->hashes[i], key, seed);
        if (rc == -ENOSPC)
            map_unkept(map, 1);
        if (rc == 0 && key != 0)
            say_block(map, e, 0, e->hashes[i], key);
    }
}

static uint64_t seed_of(const struct kv_map *map, const struct kv_event *e)
{
    char adapter[BLOCK_KEY_NAME_BYTES], salt[BLOCK_KEY_NAME_BYTES];

    block_key_name(e->adapter.bytes, e->adapter.n, adapter);
    block_key_name(e->salt.bytes, e->salt.n, salt);
    return block_key_seed(map->config.model, adapter, salt);
}

bool map_fits(struct kv_map *map, const struct kv_event *e)
{
    if (e->n_hashes == 0 || (e->n_tokens == 0 && !e->odd))
        return true;
    if (e->block_size != map->block_tokens &&
        (map->config.engine_tokens || !map_set_size(map, e->block_size))) {
        map->stats.wrong_size++;
        return false;
    }
    if (e->odd || e->n_tokens != (uint64_t)map->block_tokens * e->n_hashes) {
        map->stats.wrong_tokens++;
        return false;
    }
    return true;
}

/* Finds the key before the event's blocks. If its parent is unknown but its
 * first block is known, stores this block and continues behind it. Returns
 * false if neither is known. */
static bool find_parent(struct kv_map *map, const struct kv_event *e,
                        uint16_t rank, struct chain *chain)
{
    uint64_t key;
    int rc;

    if (!e->has_parent) {
        chain->seed = seed_of(map, e);
        return true;
    }
    chain->parent_key = key_of(map, e->parent, &chain->seed);
    if (chain->parent_key != 0)
        return true;
    key = key_of(map, e->hashes[0], &chain->seed);
    if (key == 0)
        return false;
    rc = add_groups(map, e, rank, e->hashes[0], key, chain->seed);
    if (rc == 0)
        say_block(map, e, 0, e->hashes[0], key);
    if (rc == -ENOSPC)
        map_unkept(map, 1);
    chain_advance(map, chain, 1);
    chain->parent_key = key;
    return true;
}

/* Stores the blocks of an event with tokens, or keeps the event until its
 * parent comes. Returns whether no block failed. */
static bool store_tokens(struct kv_map *map, const struct kv_event *e,
                         uint16_t rank)
{
    struct chain chain = {.hashes = e->hashes,
                          .extras = e->extras,
                          .tokens = e->tokens,
                          .n = e->n_hashes};
    bool well;

    if (!find_parent(map, e, rank, &chain)) {
        map->stats.waited++;
        store_unchained(map, e, rank);
        waiting_keep(&map->waiting, e);
        return true;
    }
    well = store_chain(map, e, rank, &chain);
    if (map->waiting.n > 0)
        say_parents(map, e->hashes, e->n_hashes);
    return well;
}

bool map_stored(struct kv_map *map, const struct kv_event *e, uint16_t rank)
{
    bool well = true;

    if (e->n_tokens == 0)
        store_unchained(map, e, rank);
    else
        well = store_tokens(map, e, rank);
    if (map->recut)
        recut_settle(map->recut);
    return well;
}
