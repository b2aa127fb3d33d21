/*
 * An open-addressing table of keys; its entries are nodes of a ring in the
 * order of use.
 *
 *   nodes[0]  the ring's head: nodes[0].next was used last, nodes[0].prev
 *             leaves next
 *   nodes[1 .. held]  the blocks
 *   table     (mask + 1) node numbers, 0 = empty; at most half full; no empty
 *             place between a key's home and its entry
 */
#include "conductor/core/index/predicted.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/key_hash.h"

/* Keys prefetched ahead, since keys of one prompt lie anywhere in the table. */
#define AHEAD 16
/* A table with at least one place in CLEARS_ALL used is cleared as a whole. */
#define CLEARS_ALL 16
/* Most places, on average, between a key's home and its entry: 0.5 in a table
 * that is half full of keys spread by chance. */
#define FAR_MEAN 8

struct node {
    uint64_t key;
    uint32_t next, prev;
};

struct predicted {
    uint32_t capacity, held;
    uint32_t mask;
    struct key_secret secret;
    struct node *nodes;
    uint32_t *table;
};

static uint32_t home(const struct predicted *p, uint64_t key)
{
    return (uint32_t)key_hash(&p->secret, key) & p->mask;
}

/* Returns the place of a key, or the empty place where it belongs. */
static uint32_t place_of(const struct predicted *p, uint64_t key)
{
    uint32_t at = home(p, key);

    while (p->table[at] && p->nodes[p->table[at]].key != key)
        at = (at + 1) & p->mask;
    return at;
}

/* Empties a place, and moves up entries that a search would no longer find. */
static void table_remove(struct predicted *p, uint32_t at)
{
    uint32_t next = at;

    for (;;) {
        next = (next + 1) & p->mask;
        if (!p->table[next])
            break;
        uint32_t wants = home(p, p->nodes[p->table[next]].key);
        if (((next - wants) & p->mask) < ((next - at) & p->mask))
            continue;
        p->table[at] = p->table[next];
        at = next;
    }
    p->table[at] = 0;
}

static void unlink_node(struct predicted *p, uint32_t i)
{
    p->nodes[p->nodes[i].prev].next = p->nodes[i].next;
    p->nodes[p->nodes[i].next].prev = p->nodes[i].prev;
}

static void link_first(struct predicted *p, uint32_t i)
{
    struct node *head = &p->nodes[0];

    p->nodes[i].next = head->next;
    p->nodes[i].prev = 0;
    p->nodes[head->next].prev = i;
    head->next = i;
}

struct predicted *predicted_new(uint32_t capacity_blocks, uint64_t seed)
{
    struct predicted *p;
    uint32_t places = 8;

    if (capacity_blocks == 0 || capacity_blocks > PREDICTED_BLOCKS_MAX)
        return NULL;
    p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    while (places < 2 * capacity_blocks)
        places *= 2;
    p->capacity = capacity_blocks;
    p->mask = places - 1;
    p->secret = key_secret_of(seed);
    p->nodes = calloc((size_t)capacity_blocks + 1, sizeof(*p->nodes));
    p->table = calloc(places, sizeof(*p->table));
    if (!p->nodes || !p->table) {
        predicted_free(p);
        return NULL;
    }
    return p;
}

void predicted_free(struct predicted *p)
{
    if (!p)
        return;
    free(p->nodes);
    free(p->table);
    free(p);
}

/* Empties the places from here to the next empty one. Every key whose home is
 * here lies among them: the places before it were in use, or an earlier run
 * emptied them and the key's place with them. */
static void empty_run(struct predicted *p, uint32_t at)
{
    for (; p->table[at]; at = (at + 1) & p->mask)
        p->table[at] = 0;
}

void predicted_clear(struct predicted *p)
{
    if (p->held > p->mask / CLEARS_ALL)
        memset(p->table, 0, ((size_t)p->mask + 1) * sizeof(*p->table));
    else
        for (uint32_t i = 1; i <= p->held; i++)
            empty_run(p, home(p, p->nodes[i].key));
    p->nodes[0] = (struct node){0};
    p->held = 0;
}

/* Takes a node for a new block, if need be the least recently used one's. */
static uint32_t take_node(struct predicted *p, predicted_evicted *evicted,
                          void *arg)
{
    uint32_t i;

    if (p->held < p->capacity)
        return ++p->held;
    i = p->nodes[0].prev;
    table_remove(p, place_of(p, p->nodes[i].key));
    unlink_node(p, i);
    evicted(arg, p->nodes[i].key);
    return i;
}

/* Prefetches for later keys: first their places, then their nodes. */
static void fetch_ahead(const struct predicted *p, const uint64_t *keys,
                        size_t k)
{
    if (k >= 2 * AHEAD)
        __builtin_prefetch(&p->table[home(p, keys[k - 2 * AHEAD])]);
    if (k >= AHEAD)
        __builtin_prefetch(&p->nodes[p->table[home(p, keys[k - AHEAD])]]);
}

size_t predicted_use(struct predicted *p, const uint64_t *keys, size_t n,
                     size_t *had, predicted_evicted *evicted, void *arg)
{
    if (n > p->capacity)
        n = p->capacity;
    *had = n;
    /* Held blocks first, so that no new block evicts one; from the last to the
     * first, so that the prompt's first block counts as used last. */
    for (size_t k = n; k-- > 0;) {
        fetch_ahead(p, keys, k);
        uint32_t i = p->table[place_of(p, keys[k])];

        if (i) {
            unlink_node(p, i);
            link_first(p, i);
        } else {
            *had = k;
        }
    }
    for (size_t k = n; k-- > 0;) {
        uint32_t i = p->table[place_of(p, keys[k])];

        if (i) {
            unlink_node(p, i);
        } else {
            i = take_node(p, evicted, arg);
            p->nodes[i].key = keys[k];
            p->table[place_of(p, keys[k])] = i;
        }
        link_first(p, i);
    }
    return n;
}

/* Removes a block; the last node moves to its number. */
static void drop(struct predicted *p, uint32_t at)
{
    uint32_t i = p->table[at], last = p->held;

    table_remove(p, at);
    unlink_node(p, i);
    if (i != last) {
        p->table[place_of(p, p->nodes[last].key)] = i;
        p->nodes[i] = p->nodes[last];
        p->nodes[p->nodes[i].prev].next = i;
        p->nodes[p->nodes[i].next].prev = i;
    }
    p->held--;
}

void predicted_drop(struct predicted *p, const uint64_t *keys, size_t n,
                    predicted_evicted *evicted, void *arg)
{
    for (size_t k = 0; k < n; k++) {
        uint32_t at = place_of(p, keys[k]);

        if (!p->table[at])
            continue;
        drop(p, at);
        evicted(arg, keys[k]);
    }
}

int predicted_resize(struct predicted *p, uint32_t capacity_blocks,
                     predicted_evicted *evicted, void *arg)
{
    struct predicted *next = predicted_new(capacity_blocks, 0), old = *p;
    size_t had;

    if (!next)
        return -ENOMEM;
    next->secret = p->secret;
    for (uint32_t i = p->nodes[0].prev; i; i = p->nodes[i].prev)
        predicted_use(next, &p->nodes[i].key, 1, &had, evicted, arg);
    *p = *next;
    *next = old;
    predicted_free(next);
    return 0;
}

uint32_t predicted_capacity(const struct predicted *p)
{
    return p->capacity;
}

uint32_t predicted_held(const struct predicted *p)
{
    return p->held;
}

bool predicted_has(const struct predicted *p, uint64_t key)
{
    return p->table[place_of(p, key)] != 0;
}

bool predicted_check(const struct predicted *p)
{
    uint32_t n = 0, entries = 0;
    uint64_t far = 0; /* sum of the distances of entries from their homes */

    for (uint32_t i = p->nodes[0].next; i; i = p->nodes[i].next) {
        uint32_t at = place_of(p, p->nodes[i].key);

        if (++n > p->held || p->table[at] != i ||
            p->nodes[p->nodes[i].next].prev != i)
            return false;
        far += (at - home(p, p->nodes[i].key)) & p->mask;
    }
    for (uint32_t at = 0; at <= p->mask; at++)
        entries += p->table[at] != 0;
    return n == p->held && entries == n && n <= p->capacity &&
           far <= FAR_MEAN * (uint64_t)n;
}
