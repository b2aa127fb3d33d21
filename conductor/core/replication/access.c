/*
 * Space-saving over block keys; see access.h.
 *
 * Counts are kept as of epoch_us: an addition t later weighs 2^(t / half), so
 * that nothing else changes as time passes. Before weights grow too large, all
 * counts are scaled down and the epoch is moved.
 */
#include "conductor/core/replication/access.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define LN2 0.69314718055994530942
/* Half lives after which the epoch moves. */
#define EPOCH_HALVES 64.0

struct entry {
    uint64_t key;
    uint64_t parent; /* 0 = none */
    uint64_t tag;    /* the caller's */
    double count;
    double error;  /* part of count inherited from replaced keys */
    double tokens; /* sum over prompts, weighted as in count - error */
    uint32_t n_blocks;
    uint32_t heap_at;
    uint32_t next;   /* next entry of its hash chain */
    uint32_t deeper; /* in access_tips(): most prompts share the next block */
};

struct access_sketch {
    int64_t half_us;
    uint64_t seed;
    int64_t epoch_us;
    double sum;            /* of all counts */
    uint32_t n;            /* entries in use */
    uint32_t n_places;     /* all */
    uint32_t mask;         /* of heads */
    struct entry *entries; /* (n_places) */
    uint32_t *heap;        /* (n_places), the least count first */
    uint32_t *heads;       /* (mask + 1) */
};

static uint32_t heads_for(uint32_t places)
{
    uint32_t n = 1;

    while (n < places)
        n *= 2;
    return n;
}

static uint64_t bytes_of(uint32_t places)
{
    return sizeof(struct access_sketch) +
           (uint64_t)places * (sizeof(struct entry) + sizeof(uint32_t)) +
           (uint64_t)heads_for(places) * sizeof(uint32_t);
}

/* The most places that fit into max_bytes. */
static uint32_t places_for(uint64_t max_bytes)
{
    uint32_t places = 0;

    for (uint32_t bit = 1u << 30; bit > 0; bit /= 2)
        if (bytes_of(places + bit) <= max_bytes)
            places += bit;
    return places;
}

struct access_sketch *access_new(const struct access_config *config)
{
    struct access_sketch *s;

    if (config->max_bytes < ACCESS_BYTES_MIN || config->half_us <= 0)
        return NULL;
    s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->half_us = config->half_us;
    s->seed = config->seed;
    s->n_places = places_for(config->max_bytes);
    s->mask = heads_for(s->n_places) - 1;
    s->entries = calloc(s->n_places, sizeof(*s->entries));
    s->heap = calloc(s->n_places, sizeof(*s->heap));
    s->heads = calloc((size_t)s->mask + 1, sizeof(*s->heads));
    if (!s->entries || !s->heap || !s->heads) {
        access_free(s);
        return NULL;
    }
    memset(s->heads, 0xff, ((size_t)s->mask + 1) * sizeof(*s->heads));
    return s;
}

void access_free(struct access_sketch *sketch)
{
    if (!sketch)
        return;
    free(sketch->entries);
    free(sketch->heap);
    free(sketch->heads);
    free(sketch);
}

uint32_t access_places(const struct access_sketch *sketch)
{
    return sketch->n_places;
}

static uint32_t *head_of(const struct access_sketch *s, uint64_t key)
{
    uint64_t h = (key ^ s->seed) * UINT64_C(0x9E3779B97F4A7C15);

    return &s->heads[(h >> 32) & s->mask];
}

static uint32_t find(const struct access_sketch *s, uint64_t key)
{
    uint32_t e = *head_of(s, key);

    while (e != NONE && s->entries[e].key != key)
        e = s->entries[e].next;
    return e;
}

static void unchain(struct access_sketch *s, uint32_t e)
{
    uint32_t *at = head_of(s, s->entries[e].key);

    while (*at != e)
        at = &s->entries[*at].next;
    *at = s->entries[e].next;
}

static void chain_in(struct access_sketch *s, uint32_t e)
{
    uint32_t *head = head_of(s, s->entries[e].key);

    s->entries[e].next = *head;
    *head = e;
}

/* The heap's order; of equal counts the deepest block leaves first. */
static bool before(const struct access_sketch *s, uint32_t a, uint32_t b)
{
    const struct entry *x = &s->entries[a], *y = &s->entries[b];

    if (x->count != y->count)
        return x->count < y->count;
    return x->n_blocks > y->n_blocks;
}

static void heap_put(struct access_sketch *s, uint32_t at, uint32_t e)
{
    s->heap[at] = e;
    s->entries[e].heap_at = at;
}

static void sift_up(struct access_sketch *s, uint32_t at)
{
    uint32_t e = s->heap[at];

    while (at > 0 && before(s, e, s->heap[(at - 1) / 2])) {
        heap_put(s, at, s->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_put(s, at, e);
}

static void sift_down(struct access_sketch *s, uint32_t at)
{
    uint32_t e = s->heap[at];

    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child >= s->n)
            break;
        if (child + 1 < s->n && before(s, s->heap[child + 1], s->heap[child]))
            child++;
        if (!before(s, s->heap[child], e))
            break;
        heap_put(s, at, s->heap[child]);
        at = child;
    }
    heap_put(s, at, e);
}

static double weight(const struct access_sketch *s, int64_t now_us)
{
    return pow(2.0, (double)(now_us - s->epoch_us) / (double)s->half_us);
}

/* Scaling keeps the order, except among counts too small to differ afterwards:
 * so the heap is built again. */
static void move_epoch(struct access_sketch *s, int64_t now_us)
{
    double less = 1.0 / weight(s, now_us);

    for (uint32_t e = 0; e < s->n; e++) {
        s->entries[e].count *= less;
        s->entries[e].error *= less;
        s->entries[e].tokens *= less;
    }
    s->sum *= less;
    s->epoch_us = now_us;
    for (uint32_t at = s->n; at-- > 0;)
        sift_down(s, at);
}

/* Gives a new key a free place, or the place of the least count. */
static uint32_t take_place(struct access_sketch *s, uint64_t key)
{
    uint32_t e;

    if (s->n < s->n_places) {
        e = s->n++;
        s->entries[e] = (struct entry){.key = key};
        heap_put(s, e, e);
    } else {
        double left = s->entries[s->heap[0]].count;

        e = s->heap[0];
        unchain(s, e);
        s->entries[e] =
            (struct entry){.key = key, .count = left, .error = left};
    }
    chain_in(s, e);
    return e;
}

void access_add(struct access_sketch *sketch, const uint64_t *keys,
                size_t n_keys, int64_t n_tokens, uint64_t tag, int64_t now_us)
{
    size_t n = n_keys < sketch->n_places ? n_keys : sketch->n_places;
    double w;

    if (sketch->n == 0)
        sketch->epoch_us = now_us;
    if ((double)(now_us - sketch->epoch_us) >
        EPOCH_HALVES * (double)sketch->half_us)
        move_epoch(sketch, now_us);
    w = weight(sketch, now_us);
    for (size_t i = 0; i < n; i++) {
        uint32_t e = find(sketch, keys[i]);
        struct entry *entry;

        if (e == NONE)
            e = take_place(sketch, keys[i]);
        entry = &sketch->entries[e];
        entry->parent = i > 0 ? keys[i - 1] : 0;
        entry->n_blocks = (uint32_t)i + 1;
        entry->tag = tag;
        entry->count += w;
        entry->tokens += w * (double)n_tokens;
        sketch->sum += w;
        sift_up(sketch, entry->heap_at);
        sift_down(sketch, entry->heap_at);
    }
}

/* Requests per second that would keep a count steady against its decay. */
static double per_s(const struct access_sketch *s, const struct entry *e,
                    int64_t now_us)
{
    return (e->count - e->error) / weight(s, now_us) * LN2 * 1e6 /
           (double)s->half_us;
}

double access_rate(const struct access_sketch *sketch, uint64_t key,
                   int64_t now_us)
{
    uint32_t e = find(sketch, key);

    return e == NONE ? 0.0 : per_s(sketch, &sketch->entries[e], now_us);
}

static double sure(const struct entry *e)
{
    return e->count - e->error;
}

static bool comes_before(const struct access_tip *a, const struct access_tip *b)
{
    double x = a->per_s * a->n_blocks, y = b->per_s * b->n_blocks;

    return x != y ? x > y : a->key < b->key;
}

static size_t insert(const struct access_tip *tip, struct access_tip *tips,
                     size_t n, size_t max)
{
    size_t at = n;

    while (at > 0 && comes_before(tip, &tips[at - 1]))
        at--;
    if (at == max)
        return n;
    if (n < max)
        n++;
    memmove(&tips[at + 1], &tips[at], (n - 1 - at) * sizeof(*tips));
    tips[at] = *tip;
    return n;
}

/* Marks blocks where at least half of the prompts share the next block. */
static void mark_deeper(struct access_sketch *s, double least)
{
    for (uint32_t e = 0; e < s->n; e++)
        s->entries[e].deeper = 0;
    for (uint32_t e = 0; e < s->n; e++) {
        const struct entry *child = &s->entries[e];
        uint32_t p;

        if (child->parent == 0 || sure(child) < least)
            continue;
        p = find(s, child->parent);
        if (p != NONE && 2.0 * sure(child) >= sure(&s->entries[p]))
            s->entries[p].deeper = 1;
    }
}

size_t access_tips(struct access_sketch *sketch, double least_per_s,
                   int64_t now_us, struct access_tip *tips, size_t max)
{
    double least = least_per_s * weight(sketch, now_us) *
                   (double)sketch->half_us / (LN2 * 1e6);
    size_t n = 0;

    mark_deeper(sketch, least);
    for (uint32_t i = 0; max > 0 && i < sketch->n; i++) {
        const struct entry *e = &sketch->entries[i];

        if (e->deeper || !(sure(e) >= least) || !(sure(e) > 0.0))
            continue;
        n = insert(&(struct access_tip){.key = e->key,
                                        .n_blocks = e->n_blocks,
                                        .per_s = per_s(sketch, e, now_us),
                                        .mean_tokens = e->tokens / sure(e),
                                        .tag = e->tag},
                   tips, n, max);
    }
    return n;
}

bool access_chain(const struct access_sketch *sketch,
                  const struct access_tip *tip, uint64_t *keys)
{
    uint64_t key = tip->key;

    for (uint32_t i = tip->n_blocks; i-- > 0;) {
        uint32_t e = find(sketch, key);

        if (e == NONE || sketch->entries[e].n_blocks != i + 1)
            return false;
        keys[i] = key;
        key = sketch->entries[e].parent;
    }
    return true;
}

bool access_check(const struct access_sketch *sketch)
{
    double sum = 0.0;

    for (uint32_t at = 0; at < sketch->n; at++) {
        uint32_t e = sketch->heap[at];
        const struct entry *entry = &sketch->entries[e];

        if (entry->heap_at != at || find(sketch, entry->key) != e ||
            entry->error < 0.0 || entry->error > entry->count ||
            (at > 0 && before(sketch, e, sketch->heap[(at - 1) / 2])))
            return false;
        sum += entry->count;
    }
    return fabs(sum - sketch->sum) <= 1e-9 * (sketch->sum + 1.0) &&
           bytes_of(sketch->n_places) >= sizeof(*sketch);
}
