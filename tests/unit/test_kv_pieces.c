/*
 * A batch that is taken in pieces: no piece is long, the index and the map
 * agree between any two, and in the end it is as if it was taken at once.
 * Environment: CONDUCTOR_SEED; CONDUCTOR_CASES percent of the runs.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/cases.h"
#include "tests/unit/kv_map_test.h"
#include "tests/unit/suite.h"

enum { MANY = 5000, PIECE = 64, HASHES = 300, LENGTH_MAX = 200 };

static uint64_t seed;

static uint32_t below(uint64_t *rng, uint32_t n)
{
    return (uint32_t)(draw_u64(rng) % n);
}

/* What the sink was told: now in total, and which keys it should have. */
struct told {
    uint64_t stored, removed;
    struct {
        uint64_t key;
        unsigned tiers;
    } has[4 * HASHES]; /* key 0: free; only if `keeps` */
    bool keeps;
};

static void tell(struct told *t, enum block_tier tier, uint64_t key, bool is)
{
    uint32_t i = (uint32_t)(key % (4 * HASHES));

    while (t->has[i].key != 0 && t->has[i].key != key)
        i = (i + 1) % (4 * HASHES);
    t->has[i].key = key;
    t->has[i].tiers &= ~BLOCK_TIER_BIT(tier);
    t->has[i].tiers |= is ? BLOCK_TIER_BIT(tier) : 0;
}

static void on_stored(void *arg, enum block_tier tier, uint64_t parent_key,
                      const uint64_t *keys, size_t n)
{
    struct told *t = arg;

    (void)parent_key;
    t->stored += n;
    for (size_t i = 0; i < n && t->keeps; i++)
        tell(t, tier, keys[i], true);
}

static void on_removed(void *arg, enum block_tier tier, const uint64_t *keys,
                       size_t n)
{
    struct told *t = arg;

    t->removed += n;
    for (size_t i = 0; i < n && t->keeps; i++)
        tell(t, tier, keys[i], false);
}

static void on_cleared(void *arg)
{
    struct told *t = arg;

    memset(t->has, 0, sizeof(t->has));
}

static const struct kv_map_sink sink = {on_stored, on_removed, on_cleared};

static struct kv_map *map_new(struct told *t)
{
    return kv_map_new(&(struct kv_map_config){.model = "m",
                                              .block_tokens = 1,
                                              .max_blocks = 1u << 20,
                                              .max_waiting_bytes = 1u << 22,
                                              .seed = 5},
                      &sink, t);
}

/* Takes a batch in pieces, none of which tells much. Returns their number. */
static uint32_t take(struct kv_map *map, struct told *t,
                     const struct kv_event *events, uint32_t n)
{
    struct kv_batch batch = {.events = events, .n_events = n};
    uint32_t pieces = 0;
    bool more = true;

    kv_map_begin(map, 0, &batch);
    while (more) {
        uint64_t before = t->stored + t->removed;

        more = kv_map_work(map, PIECE);
        CU_ASSERT_FATAL(t->stored + t->removed - before <= 2 * PIECE);
        CU_ASSERT_FATAL(kv_map_check(map));
        pieces++;
    }
    return pieces;
}

static void test_no_piece_is_long(void)
{
    static uint64_t hashes[MANY];
    static uint32_t tokens[MANY];
    static struct kv_event each[MANY];
    struct told t = {0};
    struct kv_map *map = map_new(&t);
    struct kv_event all = {.kind = KV_STORED,
                           .groups = 1,
                           .hashes = hashes,
                           .tokens = tokens,
                           .n_hashes = MANY,
                           .n_tokens = MANY,
                           .block_size = 1};

    for (uint32_t i = 0; i < MANY; i++) {
        hashes[i] = i + 1;
        tokens[i] = i;
    }
    CU_ASSERT(take(map, &t, &all, 1) >= MANY / PIECE / 2);
    CU_ASSERT(t.stored == MANY);
    all.kind = KV_REMOVED;
    CU_ASSERT(take(map, &t, &all, 1) >= MANY / PIECE / 2);
    CU_ASSERT(t.removed == MANY);
    /* Each waits for the one behind it; the last one frees all of them. */
    for (uint32_t i = 0; i < MANY; i++)
        each[i] = (struct kv_event){.kind = KV_STORED,
                                    .groups = 1,
                                    .hashes = &hashes[MANY - 1 - i],
                                    .tokens = &tokens[MANY - 1 - i],
                                    .n_hashes = 1,
                                    .n_tokens = 1,
                                    .block_size = 1,
                                    .has_parent = i < MANY - 1,
                                    .parent = MANY - 1 - i};
    CU_ASSERT(take(map, &t, each, MANY - 1) >= MANY / PIECE / 2);
    CU_ASSERT(t.stored == MANY);
    CU_ASSERT(kv_map_stats(map).waiting_events == MANY - 1);
    CU_ASSERT(take(map, &t, &each[MANY - 1], 1) >= MANY / PIECE / 2);
    CU_ASSERT(t.stored == 2 * MANY);
    CU_ASSERT(kv_map_stats(map).waiting_events == 0);
    /* A clear of one tier looks at all. */
    all = (struct kv_event){.kind = KV_CLEARED, .has_tier = true};
    CU_ASSERT(take(map, &t, &all, 1) >= MANY / PIECE / 2);
    CU_ASSERT(t.removed == 2 * MANY);
    CU_ASSERT(kv_map_stats(map).entries == 0);
    kv_map_free(map);
}

/* Stores blocks of a rank, from a hash on. */
static void fill(struct kv_map *map, uint16_t rank, uint64_t from)
{
    static uint64_t hashes[MANY];
    static uint32_t tokens[MANY];
    struct kv_event e = {.kind = KV_STORED,
                         .groups = 1,
                         .hashes = hashes,
                         .tokens = tokens,
                         .n_hashes = MANY,
                         .n_tokens = MANY,
                         .block_size = 1};

    for (uint32_t i = 0; i < MANY; i++)
        hashes[i] = tokens[i] = (uint32_t)from + i;
    kv_map_batch(map, rank, &(struct kv_batch){.events = &e, .n_events = 1});
}

/* Clears of a tier, or of a rank, that has nothing look at nothing. */
static void test_clears_of_nothing_cost_nothing(void)
{
    static struct kv_event clears[MANY];
    struct told t = {0};
    struct kv_map *map = map_new(&t);
    uint64_t cost;

    for (uint32_t i = 0; i < MANY; i++)
        clears[i] = (struct kv_event){
            .kind = KV_CLEARED, .has_tier = true, .tier = TIER_HOST};
    fill(map, 0, 1);
    CU_ASSERT(take(map, &t, clears, MANY) <= MANY / PIECE + 2);
    fill(map, 1, 1 + MANY);
    CU_ASSERT(take(map, &t, clears, MANY) <= MANY / PIECE + 2);
    cost = map->work.cost;
    kv_map_clear_rank(map, 2);
    CU_ASSERT_EQUAL(map->work.cost, cost);
    CU_ASSERT_EQUAL(kv_map_stats(map).entries, 2 * MANY);
    CU_ASSERT_EQUAL(kv_map_stats(map).entries, 2 * MANY);
    kv_map_free(map);
}

/* Takes a batch of a rank. Returns what that cost. */
static uint64_t cost_of(struct kv_map *map, uint16_t rank,
                        const struct kv_event *events, uint32_t n)
{
    const struct kv_batch batch = {.events = events, .n_events = n};
    uint64_t cost = 0;
    bool more = true;

    kv_map_begin(map, rank, &batch);
    while (more) {
        more = kv_map_work(map, PIECE);
        cost += map->work.cost;
    }
    return cost;
}

/* A rank of several goes in pieces, before what it says next; others stay. */
static void test_a_rank_goes_in_pieces(void)
{
    const uint64_t hash = UINT64_C(1) << 40;
    struct told t = {0};
    struct kv_map *map = map_new(&t);
    struct kv_event e = {.kind = KV_STORED,
                         .groups = 1,
                         .hashes = &hash,
                         .tokens = (const uint32_t[]){7},
                         .n_hashes = 1,
                         .n_tokens = 1,
                         .block_size = 1};
    uint32_t pieces = 0;
    bool more = true;

    fill(map, 0, 1);
    fill(map, 1, 1 + MANY);
    fill(map, 2, 1 + 2 * MANY);
    kv_map_clear_rank(map, 1);
    kv_map_clear_rank(map, 2);
    CU_ASSERT(kv_map_forgets(map));
    CU_ASSERT_EQUAL(t.removed, 0);
    kv_map_begin(map, 1,
                 &(struct kv_batch){.events = &e, .n_events = 1, .rank = 1});
    for (; more; pieces++) {
        uint64_t before = t.removed;

        more = kv_map_work(map, PIECE);
        CU_ASSERT_FATAL(t.removed - before <= 2 * PIECE);
        CU_ASSERT_FATAL(kv_map_check(map));
    }
    CU_ASSERT(pieces >= MANY / PIECE);
    CU_ASSERT(!kv_map_forgets(map));
    CU_ASSERT_EQUAL(kv_map_stats(map).entries, MANY + 1);
    CU_ASSERT_EQUAL(kv_map_copies(map, hash, TIER_DEVICE, 1), 1);
    CU_ASSERT_EQUAL(kv_map_copies(map, 7, TIER_DEVICE, 0), 1);
    /* What waited is freed in pieces. */
    e.has_parent = true;
    e.parent = UINT64_C(1) << 50;
    e.hashes = &e.parent;
    for (uint32_t i = 0; i < 100; i++)
        (void)cost_of(map, 1, &e, 1);
    CU_ASSERT_EQUAL(kv_map_stats(map).waiting_events, 100);
    kv_map_clear(map);
    CU_ASSERT_EQUAL(kv_map_stats(map).waiting_events, 0);
    CU_ASSERT(kv_map_forgets(map));
    CU_ASSERT(kv_map_work(map, 10) && kv_map_forgets(map));
    CU_ASSERT(!kv_map_work(map, PIECE) && !kv_map_forgets(map));
    kv_map_free(map);
}

/* Stores and clears in turn cost what they change, whatever else there is: of
 * another tier, or of another rank. */
static void test_stores_and_clears_in_turn(void)
{
    enum { OTHERS = 40, PAIRS = 1000, PAIR_COST = 64 };
    static struct kv_event pairs[2 * PAIRS];
    uint64_t hash = UINT64_C(1) << 40;
    uint32_t token = 7;
    struct told t = {0};
    struct kv_map *map = map_new(&t);

    for (uint32_t i = 0; i < 2 * PAIRS; i++)
        pairs[i] = (struct kv_event){.kind = i % 2 ? KV_CLEARED : KV_STORED,
                                     .tier = TIER_HOST,
                                     .has_tier = true,
                                     .groups = 1,
                                     .hashes = &hash,
                                     .tokens = &token,
                                     .n_hashes = i % 2 ? 0 : 1,
                                     .n_tokens = i % 2 ? 0 : 1,
                                     .block_size = 1};
    for (uint32_t i = 0; i < OTHERS; i++)
        fill(map, 0, 1 + (uint64_t)i * MANY);
    CU_ASSERT(cost_of(map, 0, pairs, 2 * PAIRS) <= PAIRS * PAIR_COST);
    for (uint32_t i = 0; i < 2 * PAIRS; i++) {
        pairs[i].tier = TIER_DEVICE;
        pairs[i].has_tier = false;
    }
    CU_ASSERT(cost_of(map, 1, pairs, 2 * PAIRS) <= PAIRS * PAIR_COST);
    CU_ASSERT_EQUAL(kv_map_stats(map).entries, OTHERS * MANY);
    CU_ASSERT(kv_map_check(map));
    kv_map_free(map);
}

/* Slots of the table's old half that are still to be moved. */
static uint64_t left_to_move(const struct copies_table *t)
{
    return t->old.slots ? (UINT64_C(1) << t->old.bits) - t->moved : 0;
}

/* No entry that is added moves many others. */
static void test_tables_grow_by_and_by(void)
{
    struct copies_table t = {0};
    const struct copy_place place = {0};

    CU_ASSERT_FATAL(copies_init(&t, UINT64_MAX, seed) == 0);
    for (uint64_t i = 1; i <= 20 * MANY; i++) {
        struct copies_look look = copies_look(&t, i, place);
        uint64_t left = left_to_move(&t);
        uint32_t bits = t.now.bits;

        CU_ASSERT_FATAL(copies_add(&t, look.room, i, place, i, 0) ==
                        copies_find(&t, i, place));
        if (t.now.bits > bits)
            left = UINT64_C(1) << bits;
        CU_ASSERT_FATAL(left - left_to_move(&t) <= 8);
        if ((i & (i - 1)) == 0)
            CU_ASSERT_FATAL(copies_check(&t));
    }
    for (uint64_t i = 1; i <= 20 * MANY; i++)
        CU_ASSERT_FATAL(copies_find(&t, i, place)->key == i);
    copies_fini(&t);
}

/* One block of an engine with blocks of one token: its hash is its token + 1.
 */
static struct kv_event one_block(const uint64_t *hash, const uint32_t *token,
                                 uint64_t parent)
{
    return (struct kv_event){.kind = KV_STORED,
                             .groups = 1,
                             .hashes = hash,
                             .tokens = token,
                             .n_hashes = 1,
                             .n_tokens = 1,
                             .block_size = 1,
                             .has_parent = parent != 0,
                             .parent = parent};
}

/* Takes it in pieces. Returns the most that the sink was told in one. */
static uint64_t most_told(struct kv_map *map, const struct told *t,
                          const struct kv_event *e)
{
    uint64_t most = 0;
    bool more = true;

    kv_map_begin(map, 0, &(struct kv_batch){.events = e, .n_events = 1});
    while (more) {
        uint64_t before = t->stored + t->removed;

        more = kv_map_work(map, PIECE);
        if (t->stored + t->removed - before > most)
            most = t->stored + t->removed - before;
    }
    return most;
}

/* Blocks of the index that begin alike: when their first piece goes or comes,
 * all of them do, however many there are. */
static void test_one_piece_of_many_blocks(void)
{
    enum { TREES = 20, EACH = 1000, WIDE = 20000 };
    static uint64_t tops[TREES];
    struct told t = {0};
    struct kv_map *map =
        kv_map_new(&(struct kv_map_config){.model = "m",
                                           .block_tokens = 2,
                                           .engine_tokens = 1,
                                           .max_blocks = 1u << 20},
                   &sink, &t);
    struct kv_event e;

    for (uint32_t i = 0; i < TREES * (EACH + 1); i++) {
        uint64_t hash = i + 1;

        tops[i / (EACH + 1)] = hash - i % (EACH + 1);
        e = one_block(&hash, &i, i % (EACH + 1) ? tops[i / (EACH + 1)] : 0);
        (void)most_told(map, &t, &e);
    }
    CU_ASSERT_EQUAL(t.stored, TREES * EACH);
    e = (struct kv_event){
        .kind = KV_REMOVED, .groups = 1, .hashes = tops, .n_hashes = TREES};
    CU_ASSERT(most_told(map, &t, &e) <= EACH + PIECE);
    CU_ASSERT_EQUAL(t.removed, TREES * EACH);
    CU_ASSERT_EQUAL(kv_map_stats(map).full, 0);
    /* One that is wider is not kept. */
    for (uint32_t i = 0; i < WIDE; i++) {
        uint64_t hash = i + 100000;

        e = one_block(&hash, &i, i ? 100000 : 0);
        (void)most_told(map, &t, &e);
    }
    CU_ASSERT_EQUAL(kv_map_stats(map).full, WIDE - RECUT_TREE_MAX);
    e = one_block(&(uint64_t){100000}, &(uint32_t){0}, 0);
    e.kind = KV_REMOVED;
    CU_ASSERT(most_told(map, &t, &e) < RECUT_TREE_MAX);
    e.kind = KV_STORED;
    CU_ASSERT(most_told(map, &t, &e) < RECUT_TREE_MAX);
    CU_ASSERT(kv_map_check(map));
    e = (struct kv_event){.kind = KV_CLEARED};
    (void)most_told(map, &t, &e);
    CU_ASSERT(kv_map_check(map));
    kv_map_free(map);
}

/* What the map has no room for is counted, until it is removed or forgotten. */
static void test_what_has_no_room(void)
{
    enum { ROOM = 100, ALL = 250 };
    struct told t = {0};
    struct kv_map *map = kv_map_new(&(struct kv_map_config){.model = "m",
                                                            .block_tokens = 1,
                                                            .max_blocks = ROOM},
                                    &sink, &t);
    uint64_t hashes[ALL];
    uint32_t tokens[ALL];
    struct kv_event e = {.kind = KV_STORED,
                         .groups = 1,
                         .hashes = hashes,
                         .tokens = tokens,
                         .n_hashes = ALL,
                         .n_tokens = ALL,
                         .block_size = 1};
    struct kv_event f;

    for (uint32_t i = 0; i < ALL; i++)
        hashes[i] = tokens[i] = i + 1;
    (void)take(map, &t, &e, 1);
    CU_ASSERT_EQUAL(kv_map_stats(map).entries, ROOM);
    CU_ASSERT_EQUAL(kv_map_stats(map).full, ALL - ROOM);
    CU_ASSERT_EQUAL(kv_map_stats(map).unkept, ALL - ROOM);
    CU_ASSERT(!kv_map_incomplete(map));
    /* A copy of a known block, behind one that is not known. */
    f = one_block(&hashes[0], &tokens[0], UINT64_C(1) << 40);
    f.tier = TIER_HOST;
    (void)take(map, &t, &f, 1);
    CU_ASSERT_EQUAL(kv_map_stats(map).unkept, ALL - ROOM + 1);
    f.kind = KV_REMOVED;
    (void)take(map, &t, &f, 1);
    CU_ASSERT_EQUAL(kv_map_stats(map).unkept, ALL - ROOM);
    e.kind = KV_REMOVED;
    e.hashes += ROOM / 2;
    e.n_hashes = ALL - ROOM;
    (void)take(map, &t, &e, 1);
    CU_ASSERT_EQUAL(kv_map_stats(map).entries, ROOM / 2);
    CU_ASSERT_EQUAL(kv_map_stats(map).unkept, ROOM / 2);
    CU_ASSERT(kv_map_incomplete(map));
    kv_map_clear(map);
    CU_ASSERT_EQUAL(kv_map_stats(map).unkept, 0);
    CU_ASSERT(!kv_map_incomplete(map));
    kv_map_free(map);
}

/* A random event of few hashes. */
static struct kv_event random_event(uint64_t *rng, uint64_t *hashes,
                                    uint32_t *tokens)
{
    uint32_t n = below(rng, LENGTH_MAX), from = below(rng, HASHES - LENGTH_MAX);
    struct kv_event e = {.kind = below(rng, 20) == 0  ? KV_CLEARED
                                 : below(rng, 4) == 0 ? KV_REMOVED
                                                      : KV_STORED,
                         .tier = below(rng, 3),
                         .has_tier = below(rng, 4) != 0,
                         .has_parent = from > 0,
                         .parent = from,
                         .groups = 1 + below(rng, 3),
                         .hashes = hashes,
                         .tokens = tokens,
                         .n_hashes = n,
                         .n_tokens = below(rng, 10) == 0 ? 0 : n,
                         .block_size = 1};

    for (uint32_t i = 0; i < n; i++)
        hashes[i] = tokens[i] = from + i + 1;
    return e;
}

/* Whether the sink knows what the map has. */
static bool agree(const struct kv_map *map, const struct told *t)
{
    for (uint64_t h = 1; h <= HASHES; h++) {
        uint64_t key_seed, key = kv_map_key(map, h, &key_seed);
        uint32_t i = (uint32_t)(key % (4 * HASHES));
        unsigned tiers = 0;

        while (key != 0 && t->has[i].key != 0 && t->has[i].key != key)
            i = (i + 1) % (4 * HASHES);
        for (unsigned tier = 0; tier < BLOCK_TIERS && key != 0; tier++)
            for (uint16_t rank = 0; rank < 2; rank++)
                if (kv_map_copies(map, h, tier, rank) > 0)
                    tiers |= BLOCK_TIER_BIT(tier);
        if (key != 0 && t->has[i].tiers != tiers)
            return false;
    }
    return true;
}

/* Beside one that takes all at once; now and then a rank is cleared in
 * between. */
static void test_as_if_at_once(void)
{
    for (uint32_t run = 0; run < cases_of(60); run++) {
        struct told at_once = {.keeps = true}, pieces = {.keeps = true};
        struct kv_map *a = map_new(&at_once), *b = map_new(&pieces);
        uint64_t rng = seed + run;

        for (uint32_t step = 0; step < 100; step++) {
            uint64_t hashes[4][LENGTH_MAX];
            uint32_t tokens[4][LENGTH_MAX];
            struct kv_event events[4];
            struct kv_batch batch = {.events = events,
                                     .n_events = 1 + below(&rng, 4)};
            uint16_t rank = (uint16_t)below(&rng, 2);
            uint32_t most = 1 + below(&rng, 100);
            bool alike = true;

            for (uint32_t i = 0; i < batch.n_events; i++)
                events[i] = random_event(&rng, hashes[i], tokens[i]);
            kv_map_batch(a, rank, &batch);
            kv_map_begin(b, rank, &batch);
            while (kv_map_work(b, most)) {
                CU_ASSERT_FATAL(kv_map_check(b) && agree(b, &pieces));
                if (below(&rng, 200) > 0)
                    continue;
                /* The engine has lost all of it, or the other rank has. */
                rank = below(&rng, 2) ? rank : (uint16_t)(1 - rank);
                kv_map_clear_rank(b, rank);
                alike = false;
                while (kv_map_forgets(b) && kv_map_work(b, most))
                    CU_ASSERT_FATAL(kv_map_check(b) && agree(b, &pieces));
                CU_ASSERT_FATAL(kv_map_check(b) && agree(b, &pieces));
            }
            CU_ASSERT_FATAL(kv_map_check(b) && agree(b, &pieces));
            CU_ASSERT_FATAL(!alike || memcmp(at_once.has, pieces.has,
                                             sizeof(pieces.has)) == 0);
            if (!alike || below(&rng, 10) == 0) {
                kv_map_clear(a);
                kv_map_clear(b);
            }
        }
        kv_map_free(a);
        kv_map_free(b);
    }
}

static const struct suite_test tests[] = {
    {"no piece is long", test_no_piece_is_long},
    {"clears of nothing cost nothing", test_clears_of_nothing_cost_nothing},
    {"a rank goes in pieces", test_a_rank_goes_in_pieces},
    {"stores and clears in turn", test_stores_and_clears_in_turn},
    {"tables grow by and by", test_tables_grow_by_and_by},
    {"one piece of many blocks", test_one_piece_of_many_blocks},
    {"as if at once", test_as_if_at_once},
    {"what has no room", test_what_has_no_room},
};

int main(void)
{
    seed = cases_seed(4711);
    return SUITE_RUN("kv_pieces", tests);
}
