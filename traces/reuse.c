/*
 * Computes stack distances.
 *
 * Every touch marks the next slot of a Fenwick tree, and unmarks the slot of
 * the block's last touch. So the marks behind a block's slot are the different
 * blocks touched since. When the slots run out, the marked ones are compacted,
 * in order.
 */
#include "traces/reuse.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "traces/id_map.h"

#define SLOTS_FIRST 1024U
#define BLOCKS_MAX ((size_t)1 << 31)
#define NO_BLOCK UINT32_MAX

struct block {
    uint64_t id;
    int64_t last_us;
    uint32_t slot; /* slot of its last touch, from 0 */
    uint32_t uses;
};

struct trace_reuse {
    struct id_map *known; /* id -> index in blocks */
    struct block *blocks; /* (n_blocks), in order of first touch */
    size_t n_blocks;
    size_t block_capacity;
    uint64_t *distances; /* (block_capacity): touches at each distance */

    uint32_t *marks;  /* (n_slots + 1): the Fenwick tree, from 1 */
    uint32_t *owners; /* (n_slots): index of the block, or NO_BLOCK */
    size_t n_slots;
    size_t next_slot;

    uint32_t *gaps_ms; /* (n_gaps) */
    size_t n_gaps;
    size_t gap_capacity;
    bool gaps_sorted;
};

struct trace_reuse *trace_reuse_new(void)
{
    struct trace_reuse *reuse = calloc(1, sizeof *reuse);

    if (!reuse)
        return NULL;
    reuse->known = id_map_new(SIZE_MAX);
    if (!reuse->known) {
        free(reuse);
        return NULL;
    }
    return reuse;
}

void trace_reuse_free(struct trace_reuse *reuse)
{
    if (reuse) {
        id_map_free(reuse->known);
        free(reuse->blocks);
        free(reuse->distances);
        free(reuse->marks);
        free(reuse->owners);
        free(reuse->gaps_ms);
        free(reuse);
    }
}

static void mark(struct trace_reuse *reuse, size_t slot, uint32_t change)
{
    for (size_t i = slot + 1; i <= reuse->n_slots; i += i & (~i + 1))
        reuse->marks[i] += change; /* modulo 2^32, so -1 works too */
}

/* Counts the marks in slots 0 .. slot. */
static size_t marked_up_to(const struct trace_reuse *reuse, size_t slot)
{
    size_t sum = 0;

    for (size_t i = slot + 1; i > 0; i -= i & (~i + 1))
        sum += reuse->marks[i];
    return sum;
}

/* Compacts the marked slots to the front, of two slots per block. */
static int move_together(struct trace_reuse *reuse)
{
    size_t n = SLOTS_FIRST;

    while (n < 2 * reuse->n_blocks)
        n *= 2;
    uint32_t *marks = calloc(n + 1, sizeof marks[0]);
    uint32_t *owners = malloc(n * sizeof owners[0]);
    if (!marks || !owners) {
        free(marks);
        free(owners);
        return -ENOMEM;
    }
    size_t used = 0;
    for (size_t i = 0; i < reuse->next_slot; i++) {
        uint32_t owner = reuse->owners[i];

        if (owner != NO_BLOCK) {
            reuse->blocks[owner].slot = (uint32_t)used;
            owners[used++] = owner;
        }
    }
    /* A tree of ones in its first slots: each node adds to its parent. */
    for (size_t i = 1; i <= n; i++) {
        marks[i] += i <= used;
        size_t parent = i + (i & (~i + 1));
        if (parent <= n)
            marks[parent] += marks[i];
    }
    free(reuse->marks);
    free(reuse->owners);
    reuse->marks = marks;
    reuse->owners = owners;
    reuse->n_slots = n;
    reuse->next_slot = used;
    return 0;
}

static int grow_blocks(struct trace_reuse *reuse)
{
    size_t n = reuse->n_blocks;
    size_t capacity = reuse->block_capacity; /* of both arrays */

    if (n == BLOCKS_MAX)
        return -E2BIG;
    if (array_reserve(reuse->blocks, capacity, n + 1) ||
        array_reserve(reuse->distances, reuse->block_capacity, n + 1))
        return -ENOMEM;
    memset(reuse->distances + n, 0,
           (reuse->block_capacity - n) * sizeof reuse->distances[0]);
    return 0;
}

static int keep_gap(struct trace_reuse *reuse, int64_t gap_us)
{
    int64_t ms = gap_us / 1000;

    if (array_reserve(reuse->gaps_ms, reuse->gap_capacity, reuse->n_gaps + 1))
        return -ENOMEM;
    reuse->gaps_ms[reuse->n_gaps++] =
        ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
    reuse->gaps_sorted = false;
    return 0;
}

/* Adds a block without a slot; sets *index. */
static int add_block(struct trace_reuse *reuse, uint64_t id, uint32_t *index)
{
    int rc = reuse->n_blocks == reuse->block_capacity ? grow_blocks(reuse) : 0;

    if (rc == 0)
        rc = id_map_put(reuse->known, id, reuse->n_blocks);
    if (rc == 0) {
        *index = (uint32_t)reuse->n_blocks++;
        reuse->blocks[*index] = (struct block){.id = id, .slot = NO_BLOCK};
    }
    return rc;
}

static int touch(struct trace_reuse *reuse, uint64_t id, int64_t now_us)
{
    const uint64_t *found = id_map_get(reuse->known, id);
    uint32_t index = found ? (uint32_t)*found : 0;
    int rc = found ? 0 : add_block(reuse, id, &index);

    if (rc == 0 && reuse->next_slot == reuse->n_slots)
        rc = move_together(reuse);
    if (rc != 0)
        return rc;
    struct block *block = &reuse->blocks[index];
    if (found) {
        size_t between = reuse->n_blocks - marked_up_to(reuse, block->slot);

        reuse->distances[between]++;
        mark(reuse, block->slot, UINT32_MAX);
        reuse->owners[block->slot] = NO_BLOCK;
        rc = keep_gap(reuse, now_us - block->last_us);
    }
    block->slot = (uint32_t)reuse->next_slot++;
    block->last_us = now_us;
    block->uses++;
    reuse->owners[block->slot] = index;
    mark(reuse, block->slot, 1);
    return rc;
}

int trace_reuse_add(struct trace_reuse *reuse,
                    const struct trace_request *request)
{
    int rc = 0;

    for (size_t i = 0; i < request->block_count && rc == 0; i++)
        rc = touch(reuse, request->hash_ids[i], request->arrival_us);
    return rc;
}

uint64_t trace_reuse_unique(const struct trace_reuse *reuse)
{
    return reuse->n_blocks;
}

uint64_t trace_reuse_used_once(const struct trace_reuse *reuse)
{
    uint64_t once = 0;

    for (size_t i = 0; i < reuse->n_blocks; i++)
        once += reuse->blocks[i].uses == 1;
    return once;
}

uint64_t trace_reuse_hits(const struct trace_reuse *reuse,
                          uint64_t capacity_blocks)
{
    uint64_t hits = 0;

    for (size_t i = 0; i < reuse->n_blocks && i < capacity_blocks; i++)
        hits += reuse->distances[i];
    return hits;
}

static int compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

double trace_reuse_gap_ms(struct trace_reuse *reuse, double share)
{
    if (reuse->n_gaps == 0)
        return 0;
    if (!reuse->gaps_sorted) {
        qsort(reuse->gaps_ms, reuse->n_gaps, sizeof reuse->gaps_ms[0],
              compare_u32);
        reuse->gaps_sorted = true;
    }
    double rank = share * (double)(reuse->n_gaps - 1);
    size_t low = (size_t)rank;
    double at = reuse->gaps_ms[low];
    if (low + 1 >= reuse->n_gaps)
        return at;
    return at + (rank - (double)low) * (reuse->gaps_ms[low + 1] - at);
}

static int compare_most_used(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;

    return (x < y) - (x > y);
}

uint32_t *trace_reuse_popularity(const struct trace_reuse *reuse)
{
    size_t n = reuse->n_blocks;
    uint32_t *uses = malloc((n > 0 ? n : 1) * sizeof uses[0]);

    for (size_t i = 0; uses && i < n; i++)
        uses[i] = reuse->blocks[i].uses;
    if (uses)
        qsort(uses, n, sizeof uses[0], compare_most_used);
    return uses;
}
