/* The KV store: literal cases, and random operations against an obvious model
 * in which everything is a linear scan. Keys come from a tiny space there, so
 * that collisions are frequent. */
#include <CUnit/CUnit.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/cases.h"
#include "tests/unit/kv_store_check.h"
#include "tests/unit/suite.h"
#include "workers/store/kv_store.h"

#define BT 2       /* tokens of a block */
#define CAP 24     /* blocks of the model */
#define MAX_RUN 10 /* blocks of a prompt */
#define N_REQ 6

static struct kv_store *new_store(uint32_t capacity, uint32_t events)
{
    struct kv_store_config config = {.capacity_blocks = capacity,
                                     .block_tokens = BT,
                                     .block_bytes = 100,
                                     .event_capacity = events};
    struct kv_store *store = NULL;

    CU_ASSERT_EQUAL_FATAL(kv_store_new(&config, &store), 0);
    return store;
}

static const uint32_t prompt[] = {1, 2, 3, 4, 5, 6, 7, 8};
static const uint64_t keys[] = {11, 12, 13, 14};

/* Compute `n` blocks of the prompt and keep them in the store. */
static void fill(struct kv_store *store, uint32_t n)
{
    uint32_t ids[4];
    uint32_t held;

    CU_ASSERT_EQUAL_FATAL(kv_store_alloc(store, n, ids), 0);
    for (uint32_t i = 0; i < n; i++)
        CU_ASSERT_EQUAL(kv_store_commit(store, ids[i],
                                        i ? ids[i - 1] : KV_BLOCK_NONE, keys[i],
                                        prompt + BT * i, &held),
                        KV_COMMITTED);
    for (uint32_t i = 0; i < n; i++)
        kv_store_release(store, ids[i]);
    kv_store_check(store);
}

static void test_config(void)
{
    struct kv_store_config good = {.capacity_blocks = 1,
                                   .block_tokens = 16,
                                   .block_bytes = 1,
                                   .event_capacity = 1};
    struct kv_store *store = NULL;

    for (int i = 0; i < 5; i++) {
        struct kv_store_config c = good;

        c.capacity_blocks = i == 0 ? 0 : i == 4 ? 1000 : 1;
        c.block_tokens = i == 1 ? 0 : 16;
        c.block_bytes = i == 2 ? 0 : i == 4 ? SIZE_MAX / 2 : 1;
        c.event_capacity = i == 3 ? 0 : 1;
        CU_ASSERT_EQUAL(kv_store_new(&c, &store), -EINVAL);
    }
    CU_ASSERT_EQUAL_FATAL(kv_store_new(&good, &store), 0);
    CU_ASSERT_EQUAL((uintptr_t)kv_store_data(store, 0) % KV_BLOCK_ALIGN, 0);
    kv_store_free(store);
    kv_store_free(NULL);
}

/* Memory that is given, refused, and told of. */
struct memory {
    void *slab;
    void *taken[8];
    uint32_t n_taken;
    bool refuse;
};

static void *memory_alloc(void *arg, size_t bytes)
{
    struct memory *m = arg;

    m->slab = m->refuse ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
    return m->slab;
}

static void memory_free(void *arg, void *memory)
{
    struct memory *m = arg;

    CU_ASSERT_PTR_EQUAL(memory, m->slab);
    m->slab = NULL;
    free(memory);
}

static void memory_taken(void *arg, void *data)
{
    struct memory *m = arg;

    m->taken[m->n_taken++ % 8] = data;
}

/* Every block that is handed out is announced, also one that was evicted. */
static void test_memory(void)
{
    struct memory m = {.refuse = true};
    struct kv_store_config config = {
        .capacity_blocks = 4,
        .block_tokens = BT,
        .block_bytes = 100,
        .event_capacity = 8,
        .memory = {memory_alloc, memory_free, memory_taken, &m}};
    struct kv_store *store = NULL;
    uint32_t ids[4];

    CU_ASSERT_EQUAL(kv_store_new(&config, &store), -ENOMEM);
    m.refuse = false;
    CU_ASSERT_EQUAL_FATAL(kv_store_new(&config, &store), 0);
    fill(store, 4);
    CU_ASSERT_EQUAL(m.n_taken, 4);
    CU_ASSERT_EQUAL_FATAL(kv_store_alloc(store, 2, ids), 0);
    CU_ASSERT_EQUAL(m.n_taken, 6);
    for (uint32_t i = 0; i < 2; i++) {
        CU_ASSERT_PTR_EQUAL(m.taken[4 + i], kv_store_data(store, ids[i]));
        kv_store_release(store, ids[i]);
    }
    CU_ASSERT_PTR_EQUAL(kv_store_data(store, 0), m.slab);
    kv_store_free(store);
    CU_ASSERT_PTR_NULL(m.slab);
}

#define STORE_TEST(test, ...)                                           \
    SUITE_TEST_OF(test, struct kv_store, store, new_store(__VA_ARGS__), \
                  kv_store_free(store))

STORE_TEST(test_match_and_pins, 4, 64)
{
    uint32_t ids[4];
    uint32_t other[4];
    uint32_t changed[8];

    fill(store, 3);
    CU_ASSERT_EQUAL(kv_store_match(store, keys, prompt, 4, ids), 3);
    /* Pinned blocks stay: only one more can be had. */
    CU_ASSERT_EQUAL(kv_store_alloc(store, 2, other), -ENOSPC);
    CU_ASSERT_EQUAL(kv_store_alloc(store, 1, other), 0);
    kv_store_release(store, other[0]);
    for (int i = 0; i < 3; i++)
        kv_store_release(store, ids[i]);
    /* The same keys with other tokens: a collision is a miss. */
    memcpy(changed, prompt, sizeof(changed));
    changed[3] = 99;
    CU_ASSERT_EQUAL(kv_store_match(store, keys, changed, 3, ids), 1);
    kv_store_release(store, ids[0]);
    /* Leaf first: two of three go from the end. */
    CU_ASSERT_EQUAL(kv_store_alloc(store, 3, other), 0);
    CU_ASSERT_EQUAL(kv_store_match(store, keys, prompt, 4, ids), 1);
    kv_store_check(store);
}

/* A block that nobody holds is released: that changes nothing, and is told. */
static void test_released_twice(void)
{
    struct kv_store *store = new_store(4, 64);
    uint32_t ids[4];

    fill(store, 3);
    CU_ASSERT_EQUAL(kv_store_match(store, keys, prompt, 4, ids), 3);
    for (int i = 0; i < 3; i++)
        kv_store_release(store, ids[i]);
    CU_ASSERT_PTR_NULL(kv_store_broken(store));
    kv_store_release(store, ids[1]);
    CU_ASSERT_STRING_EQUAL(kv_store_broken(store), "b->pins > 0");
    CU_ASSERT_PTR_NULL(kv_store_broken(store));
    kv_store_check(store);
    kv_store_free(store);
}

/* A child computed on a colliding parent must not be found through the key of
 * the other parent, although key, tokens and parent key are all equal. */
STORE_TEST(test_parent_identity, 4, 64)
{
    const uint32_t twin[] = {9, 9, 3, 4};
    uint32_t ids[2];
    uint32_t held = KV_BLOCK_NONE;

    fill(store, 2);
    CU_ASSERT_EQUAL_FATAL(kv_store_alloc(store, 2, ids), 0);
    CU_ASSERT_EQUAL(
        kv_store_commit(store, ids[0], KV_BLOCK_NONE, keys[0], twin, &held),
        KV_COLLISION);
    CU_ASSERT_EQUAL(
        kv_store_commit(store, ids[1], ids[0], keys[1], twin + BT, &held),
        KV_ORPHAN);
    CU_ASSERT_EQUAL(held, KV_BLOCK_NONE);
    CU_ASSERT_EQUAL(kv_store_match(store, keys, twin, 2, ids), 0);
    kv_store_check(store);
}

/* A number names one content of a block for good. */
STORE_TEST(test_identity, 2, 64)
{
    uint32_t id[2];

    fill(store, 2);
    uint32_t root = kv_store_find(store, keys[0], KV_BLOCK_NONE, prompt);
    CU_ASSERT_NOT_EQUAL_FATAL(root, KV_BLOCK_NONE);
    uint32_t child = kv_store_find(store, keys[1], root, prompt + BT);
    CU_ASSERT_NOT_EQUAL_FATAL(child, KV_BLOCK_NONE);
    CU_ASSERT_EQUAL(kv_store_parent(store, child), root);
    CU_ASSERT_EQUAL(kv_store_parent(store, root), KV_BLOCK_NONE);
    CU_ASSERT_EQUAL(kv_store_find(store, keys[1], KV_BLOCK_NONE, prompt + BT),
                    KV_BLOCK_NONE);
    CU_ASSERT_EQUAL(kv_store_find(store, keys[1], root, prompt), KV_BLOCK_NONE);
    CU_ASSERT_EQUAL(kv_store_find_key(store, keys[1]), child);
    uint64_t number = kv_store_number(store, child);
    CU_ASSERT_NOT_EQUAL(number, 0);
    CU_ASSERT_NOT_EQUAL(number, kv_store_number(store, root));
    CU_ASSERT_EQUAL_FATAL(kv_store_alloc(store, 1, id), 0);
    CU_ASSERT_EQUAL(id[0], child);
    CU_ASSERT_NOT_EQUAL(kv_store_number(store, child), number);
    kv_store_release(store, id[0]);
}

STORE_TEST(test_duplicate, 4, 64)
{
    uint32_t id[2];
    uint32_t held = KV_BLOCK_NONE;
    uint32_t child;

    fill(store, 1);
    CU_ASSERT_EQUAL_FATAL(kv_store_alloc(store, 2, id), 0);
    CU_ASSERT_EQUAL(
        kv_store_commit(store, id[0], KV_BLOCK_NONE, keys[0], prompt, &held),
        KV_DUPLICATE);
    CU_ASSERT(kv_store_is_held(store, held) && held != id[0]);
    CU_ASSERT_EQUAL(kv_store_key(store, held), keys[0]);
    CU_ASSERT_EQUAL(memcmp(kv_store_tokens(store, held), prompt, 8), 0);
    CU_ASSERT_EQUAL(
        kv_store_commit(store, id[1], held, keys[1], prompt + BT, &child),
        KV_COMMITTED);
    kv_store_release(store, id[0]);
    kv_store_release(store, id[1]);
    kv_store_release(store, held);
    kv_store_check(store);
}

STORE_TEST(test_events_and_inventory, 2, 3)
{
    struct kv_store_event e;
    uint32_t ids[2];
    uint32_t cursor = KV_BLOCK_NONE;

    fill(store, 2);
    CU_ASSERT(kv_store_next_event(store, &e));
    CU_ASSERT(e.kind == KV_EVENT_STORED && e.key == 11 && !e.has_parent);
    CU_ASSERT(kv_store_next_event(store, &e));
    CU_ASSERT(e.kind == KV_EVENT_STORED && e.key == 12 && e.has_parent &&
              e.parent_key == 11);
    CU_ASSERT(!kv_store_next_event(store, &e));

    CU_ASSERT(kv_store_inventory(store, &cursor, &e) && e.key == 11);
    CU_ASSERT(kv_store_inventory(store, &cursor, &e) && e.key == 12);
    CU_ASSERT(!kv_store_inventory(store, &cursor, &e));

    CU_ASSERT_EQUAL(kv_store_alloc(store, 1, ids), 0);
    CU_ASSERT(kv_store_next_event(store, &e));
    CU_ASSERT(e.kind == KV_EVENT_REMOVED && e.key == 12);
    kv_store_walk(store);
    CU_ASSERT(kv_store_walk_next(store, &e) && e.key == 11);
    kv_store_drop(store, kv_store_find_key(store, 11));
    CU_ASSERT(kv_store_next_event(store, &e));
    CU_ASSERT(e.kind == KV_EVENT_REMOVED && e.key == 11);
    kv_store_release(store, ids[0]);

    /* Four events do not fit into three: all are dropped, and it is said. */
    CU_ASSERT(!kv_store_take_resync(store));
    fill(store, 2);
    kv_store_drop(store, kv_store_find_key(store, 11));
    CU_ASSERT(!kv_store_next_event(store, &e));
    CU_ASSERT(kv_store_take_resync(store));
    CU_ASSERT(!kv_store_take_resync(store));
    kv_store_check(store);
}

/* A parent of a pinned block cannot leave: it is no room for others, and
 * nothing is evicted for them in vain. */
STORE_TEST(test_parents_of_pinned, 4, 20)
{
    uint32_t tokens[3 * BT] = {0};
    uint64_t chain[3] = {1, 2, 3};
    uint32_t ids[4], held;
    struct kv_store_stats stats;

    /* 1 <- 2 <- 3, and 9 alone; then only 3 is pinned. */
    CU_ASSERT_EQUAL_FATAL(kv_store_alloc(store, 4, ids), 0);
    for (uint32_t i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(kv_store_commit(store, ids[i],
                                        i ? ids[i - 1] : KV_BLOCK_NONE,
                                        chain[i], tokens + i * BT, &held),
                        KV_COMMITTED);
    CU_ASSERT_EQUAL(
        kv_store_commit(store, ids[3], KV_BLOCK_NONE, 9, tokens, &held),
        KV_COMMITTED);
    kv_store_release(store, ids[0]);
    kv_store_release(store, ids[1]);
    kv_store_release(store, ids[3]);
    kv_store_stats(store, &stats);
    CU_ASSERT_EQUAL(stats.evictable_blocks, 1);
    kv_store_check(store);
    CU_ASSERT_EQUAL(kv_store_alloc(store, 2, ids), -ENOSPC);
    kv_store_stats(store, &stats);
    CU_ASSERT_EQUAL(stats.evicted_blocks, 0);
    CU_ASSERT_NOT_EQUAL(kv_store_find_key(store, 9), KV_BLOCK_NONE);
}

/* --- the obvious model ------------------------------------------------- */

struct entry {
    int state; /* 0 free, 1 private, 2 held */
    uint64_t key;
    uint32_t parent;
    uint32_t tokens[BT];
    int pins;
    uint64_t last;
};

struct request {
    uint32_t tokens[MAX_RUN * BT];
    uint64_t keys[MAX_RUN];
    uint32_t ids[MAX_RUN];   /* pinned */
    uint32_t chain[MAX_RUN]; /* the held block of that place, or NONE */
    uint32_t extra[MAX_RUN]; /* pinned twins */
    uint32_t n_ids, n_shared, n_extra;
};

struct model {
    struct kv_store *store;
    struct entry e[CAP];
    struct request req[N_REQ];
    uint64_t tick;
    uint64_t mirror[CAP]; /* what the events say is held */
    uint32_t n_mirror;
    uint64_t rng;
};

static uint32_t rnd(struct model *m, uint32_t n)
{
    return draw_below(&m->rng, n);
}

static int model_is_leaf(const struct model *m, uint32_t id)
{
    for (int i = 0; i < CAP; i++)
        if (m->e[i].state == 2 && m->e[i].parent == id)
            return 0;
    return 1;
}

static uint32_t model_find(const struct model *m, uint64_t key)
{
    for (uint32_t i = 0; i < CAP; i++)
        if (m->e[i].state == 2 && m->e[i].key == key)
            return i;
    return KV_BLOCK_NONE;
}

/* The block that alloc must hand out if nothing is free. */
static uint32_t model_victim(const struct model *m)
{
    uint32_t best = KV_BLOCK_NONE;

    for (uint32_t i = 0; i < CAP; i++)
        if (m->e[i].state == 2 && m->e[i].pins == 0 && model_is_leaf(m, i) &&
            (best == KV_BLOCK_NONE || m->e[i].last < m->e[best].last))
            best = i;
    return best;
}

static int model_free_count(const struct model *m)
{
    int n = 0;

    for (int i = 0; i < CAP; i++)
        n += m->e[i].state == 0;
    return n;
}

static void model_release(struct model *m, uint32_t id)
{
    kv_store_release(m->store, id);
    if (--m->e[id].pins > 0)
        return;
    if (m->e[id].state == 1)
        m->e[id].state = 0;
    else
        m->e[id].last = ++m->tick;
}

/* Prompts over two tokens, keys of six bits: shared prefixes and collisions
 * all the time. */
static void op_start(struct model *m, struct request *r)
{
    uint64_t h = 0;

    for (uint32_t i = 0; i < MAX_RUN; i++) {
        for (uint32_t k = 0; k < BT; k++)
            r->tokens[i * BT + k] = rnd(m, 8) == 0;
        h = h * 31 + r->tokens[i * BT] * 7 + r->tokens[i * BT + 1] * 3 + 1;
        r->keys[i] = h % 61;
    }
    uint32_t n = 1 + rnd(m, MAX_RUN);
    uint32_t got = kv_store_match(m->store, r->keys, r->tokens, n, r->ids);
    uint32_t parent = KV_BLOCK_NONE;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = model_find(m, r->keys[i]);

        if (id == KV_BLOCK_NONE || m->e[id].parent != parent ||
            memcmp(m->e[id].tokens, r->tokens + i * BT, sizeof(m->e->tokens))) {
            CU_ASSERT_EQUAL_FATAL(got, i);
            break;
        }
        CU_ASSERT_FATAL(got > i && r->ids[i] == id);
        m->e[id].pins++;
        r->chain[i] = id;
        parent = id;
    }
    r->n_ids = got;
    r->n_shared = got;
}

static void op_alloc(struct model *m, struct request *r)
{
    uint32_t id = KV_BLOCK_NONE;
    int n_free = model_free_count(m);
    uint32_t victim = model_victim(m);
    int rc = kv_store_alloc(m->store, 1, &id);

    if (n_free == 0 && victim == KV_BLOCK_NONE) {
        CU_ASSERT_EQUAL_FATAL(rc, -ENOSPC);
        return;
    }
    CU_ASSERT_EQUAL_FATAL(rc, 0);
    if (n_free == 0)
        CU_ASSERT_EQUAL_FATAL(id, victim);
    if (n_free > 0)
        CU_ASSERT_EQUAL_FATAL(m->e[id].state, 0);
    m->e[id] = (struct entry){.state = 1, .pins = 1, .parent = KV_BLOCK_NONE};
    r->ids[r->n_ids++] = id;
}

/* How many blocks could be had, found by taking leaf after leaf away. */
static uint32_t model_room(const struct model *m)
{
    struct model *copy = malloc(sizeof(*copy));
    uint32_t n = (uint32_t)model_free_count(m);
    uint32_t victim;

    CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
    *copy = *m;
    for (; (victim = model_victim(copy)) != KV_BLOCK_NONE; n++)
        copy->e[victim].state = 0;
    free(copy);
    return n;
}

/* More than there is room for takes nothing, and costs nothing. */
static void op_alloc_too_many(struct model *m)
{
    uint32_t ids[CAP + 1];
    uint32_t room = model_room(m);
    struct kv_store_stats before, after;

    kv_store_stats(m->store, &before);
    CU_ASSERT_EQUAL_FATAL(before.free_blocks + before.evictable_blocks, room);
    CU_ASSERT_EQUAL_FATAL(kv_store_alloc(m->store, room + 1, ids), -ENOSPC);
    kv_store_stats(m->store, &after);
    CU_ASSERT_EQUAL_FATAL(after.evicted_blocks, before.evicted_blocks);
    CU_ASSERT_EQUAL_FATAL(after.free_blocks, before.free_blocks);
    CU_ASSERT_EQUAL_FATAL(after.evictable_blocks, before.evictable_blocks);
}

static enum kv_commit model_commit(struct model *m, uint32_t id,
                                   uint32_t parent, uint64_t key,
                                   const uint32_t *tokens)
{
    uint32_t other = model_find(m, key);

    if (parent != KV_BLOCK_NONE && m->e[parent].state != 2)
        return KV_ORPHAN;
    if (other == KV_BLOCK_NONE) {
        m->e[id].state = 2;
        m->e[id].key = key;
        m->e[id].parent = parent;
        memcpy(m->e[id].tokens, tokens, sizeof(m->e[id].tokens));
        return KV_COMMITTED;
    }
    if (m->e[other].parent != parent ||
        memcmp(m->e[other].tokens, tokens, sizeof(m->e[other].tokens)))
        return KV_COLLISION;
    m->e[other].pins++;
    return KV_DUPLICATE;
}

static void op_commit(struct model *m, struct request *r)
{
    uint32_t i = r->n_shared;
    uint32_t parent = i ? r->chain[i - 1] : KV_BLOCK_NONE;
    uint32_t held = KV_BLOCK_NONE;

    if (i && parent == KV_BLOCK_NONE)
        return;
    enum kv_commit want =
        model_commit(m, r->ids[i], parent, r->keys[i], r->tokens + i * BT);
    enum kv_commit got = kv_store_commit(m->store, r->ids[i], parent,
                                         r->keys[i], r->tokens + i * BT, &held);
    CU_ASSERT_EQUAL_FATAL(got, want);
    r->chain[i] = got == KV_COMMITTED ? r->ids[i] : KV_BLOCK_NONE;
    if (got == KV_DUPLICATE) {
        CU_ASSERT_EQUAL_FATAL(held, model_find(m, r->keys[i]));
        r->chain[i] = held;
        r->extra[r->n_extra++] = held;
    }
    r->n_shared++;
}

static void op_finish(struct model *m, struct request *r)
{
    for (uint32_t i = 0; i < r->n_ids; i++)
        model_release(m, r->ids[i]);
    for (uint32_t i = 0; i < r->n_extra; i++)
        model_release(m, r->extra[i]);
    memset(r, 0, sizeof(*r));
}

static void mirror_event(struct model *m, const struct kv_store_event *e)
{
    uint32_t at = 0;

    while (at < m->n_mirror && m->mirror[at] != e->key)
        at++;
    if (e->kind == KV_EVENT_REMOVED) {
        CU_ASSERT_FATAL(at < m->n_mirror);
        m->mirror[at] = m->mirror[--m->n_mirror];
    } else {
        CU_ASSERT_FATAL(at == m->n_mirror && at < CAP);
        m->mirror[m->n_mirror++] = e->key;
    }
}

/* A held block and those before it go, up to one that is pinned or has held
 * blocks behind it. */
static void op_let_go(struct model *m)
{
    uint32_t at = rnd(m, CAP), n = rnd(m, 6), gone = 0;

    if (m->e[at].state != 2)
        return;
    uint32_t got = kv_store_let_go(m->store, kv_store_key(m->store, at), n);
    while (gone < n && at != KV_BLOCK_NONE) {
        uint32_t parent = m->e[at].parent;
        bool leaf = m->e[at].pins == 0;

        for (int i = 0; i < CAP; i++)
            leaf = leaf && !(m->e[i].state == 2 && m->e[i].parent == at);
        if (!leaf)
            break;
        m->e[at].state = 0;
        m->e[at].parent = KV_BLOCK_NONE;
        gone++;
        at = parent;
    }
    CU_ASSERT_EQUAL(got, gone);
}

/* A held block and all behind it go, pinned or not. */
static void op_drop(struct model *m)
{
    uint32_t top = rnd(m, CAP);
    bool dropped[CAP] = {false};
    bool more = true;

    if (m->e[top].state != 2)
        return;
    kv_store_drop(m->store, top);
    dropped[top] = true;
    while (more) {
        more = false;
        for (int i = 0; i < CAP; i++) {
            if (m->e[i].state != 2 || dropped[i] ||
                m->e[i].parent == KV_BLOCK_NONE || !dropped[m->e[i].parent])
                continue;
            dropped[i] = true;
            more = true;
        }
    }
    for (int i = 0; i < CAP; i++) {
        if (!dropped[i])
            continue;
        m->e[i].state = m->e[i].pins > 0;
        m->e[i].parent = KV_BLOCK_NONE;
    }
}

static void op_drain(struct model *m)
{
    struct kv_store_event e;
    uint32_t cursor = KV_BLOCK_NONE;

    if (kv_store_take_resync(m->store)) {
        CU_ASSERT_FATAL(!kv_store_next_event(m->store, &e));
        m->n_mirror = 0;
        while (kv_store_inventory(m->store, &cursor, &e))
            mirror_event(m, &e);
    }
    while (kv_store_next_event(m->store, &e))
        mirror_event(m, &e);
    uint32_t n = 0;
    for (int i = 0; i < CAP; i++) {
        if (m->e[i].state != 2)
            continue;
        n++;
        uint32_t at = 0;
        while (at < m->n_mirror && m->mirror[at] != m->e[i].key)
            at++;
        CU_ASSERT_FATAL(at < m->n_mirror);
    }
    CU_ASSERT_EQUAL_FATAL(n, m->n_mirror);
}

static void random_op(struct model *m)
{
    struct request *r = &m->req[rnd(m, N_REQ)];
    uint32_t op = rnd(m, 1000);

    if (op < 6)
        op_drop(m);
    else if (op < 12)
        op_let_go(m);
    else if (op < 20)
        op_alloc_too_many(m);
    else if (op < 60)
        op_drain(m);
    else if (op < 160)
        op_finish(m, r);
    else if (r->n_ids == 0 && op < 300)
        op_start(m, r);
    else if (r->n_ids > r->n_shared)
        op_commit(m, r);
    else if (r->n_ids > 0 && r->n_ids < MAX_RUN)
        op_alloc(m, r);
    else if (r->n_ids == 0) {
        op_start(m, r);
        if (r->n_ids < MAX_RUN)
            op_alloc(m, r);
    }
}

static void test_random(void)
{
    uint64_t seed = cases_seed((uint64_t)time(NULL));
    struct model *m = calloc(1, sizeof(*m));
    int shared = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    m->rng = seed * 0x9e3779b97f4a7c15u + 1;
    m->store = new_store(CAP, 40);
    for (int i = 0; i < 200000; i++) {
        random_op(m);
        kv_store_check(m->store);
        shared += m->req[0].n_shared > 3;
    }
    /* The walk reached what it is for. */
    struct kv_store_stats stats;
    kv_store_stats(m->store, &stats);
    CU_ASSERT(stats.evicted_blocks > 1000);
    CU_ASSERT(shared > 1000);
    for (int i = 0; i < N_REQ; i++)
        op_finish(m, &m->req[i]);
    kv_store_stats(m->store, &stats);
    CU_ASSERT_EQUAL(stats.private_blocks, 0);
    CU_ASSERT_EQUAL(stats.evictable_blocks, stats.held_blocks);
    kv_store_free(m->store);
    free(m);
}

static const struct suite_test tests[] = {
    {"configuration", test_config},
    {"memory", test_memory},
    {"match and pins", test_match_and_pins},
    {"released twice", test_released_twice},
    {"parent identity", test_parent_identity},
    {"identity", test_identity},
    {"duplicate", test_duplicate},
    {"events and inventory", test_events_and_inventory},
    {"parents of pinned blocks", test_parents_of_pinned},
    {"random against model", test_random},
};
SUITE("kv_store", tests)
