/* See heap.h.
 *
 * Invariants: entries[i] is not before entries[(i - 1) / 4];
 * places[entries[i].id] == i, and NONE for every other id. */
#include "base/heap.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define ARITY 4u
#define NONE UINT32_MAX

void heap_fini(struct heap *heap)
{
    free(heap->entries);
    free(heap->places);
    memset(heap, 0, sizeof(*heap));
}

int heap_reserve(struct heap *heap, uint32_t n_ids)
{
    size_t before = heap->capacity;
    size_t capacity = before; /* of both arrays */

    if (array_reserve(heap->entries, capacity, n_ids) ||
        array_reserve(heap->places, heap->capacity, n_ids))
        return -ENOMEM;
    for (size_t id = before; id < heap->capacity; id++)
        heap->places[id] = NONE;
    return 0;
}

static bool before(const struct heap_entry *a, const struct heap_entry *b)
{
    if (a->at != b->at)
        return a->at < b->at;
    if (a->rank != b->rank)
        return a->rank < b->rank;
    return a->id < b->id;
}

static void put(struct heap *heap, uint32_t i, const struct heap_entry *entry)
{
    heap->entries[i] = *entry;
    heap->places[entry->id] = i;
}

/* Moves an entry from the hole at i towards the root, and puts it down. */
static void rise(struct heap *heap, uint32_t i, struct heap_entry entry)
{
    while (i > 0) {
        uint32_t parent = (i - 1) / ARITY;

        if (!before(&entry, &heap->entries[parent]))
            break;
        put(heap, i, &heap->entries[parent]);
        i = parent;
    }
    put(heap, i, &entry);
}

/* Moves an entry from the hole at i towards the leaves, and puts it down. */
static void sink(struct heap *heap, uint32_t i, struct heap_entry entry)
{
    for (;;) {
        uint32_t first = i * ARITY + 1;
        uint32_t last = first + ARITY < heap->n ? first + ARITY : heap->n;
        uint32_t least = first;

        if (first >= heap->n)
            break;
        for (uint32_t c = first + 1; c < last; c++)
            if (before(&heap->entries[c], &heap->entries[least]))
                least = c;
        if (!before(&heap->entries[least], &entry))
            break;
        put(heap, i, &heap->entries[least]);
        i = least;
    }
    put(heap, i, &entry);
}

void heap_set(struct heap *heap, uint32_t id, uint32_t rank, int64_t at)
{
    struct heap_entry entry = {at, rank, id};
    uint32_t i = heap->places[id];

    if (i == NONE)
        rise(heap, heap->n++, entry);
    else if (before(&entry, &heap->entries[i]))
        rise(heap, i, entry);
    else
        sink(heap, i, entry);
}

void heap_remove(struct heap *heap, uint32_t id)
{
    uint32_t i = heap->places[id];

    if (i == NONE)
        return;
    heap->places[id] = NONE;
    struct heap_entry last = heap->entries[--heap->n];

    if (i == heap->n)
        return;
    if (before(&last, &heap->entries[i]))
        rise(heap, i, last);
    else
        sink(heap, i, last);
}

const struct heap_entry *heap_first(const struct heap *heap)
{
    return heap->n > 0 ? &heap->entries[0] : NULL;
}
