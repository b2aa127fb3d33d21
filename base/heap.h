/*
 * A priority queue of events or blocks: a 4-ary heap that knows each entry's
 * place, so that entries can be changed and removed. Ties are broken by rank,
 * then by id: the order never depends on history.
 */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct heap_entry {
    int64_t at; /* sort key: a time, or another number */
    uint32_t rank;
    uint32_t id;
};

struct heap {
    struct heap_entry *entries; /* (capacity) */
    uint32_t *places;           /* (capacity): index in entries, or NONE */
    uint32_t n;
    size_t capacity;
};

/* Frees the memory and leaves an empty heap, like {0}. */
void heap_fini(struct heap *heap);

/* Makes room for the ids below n_ids. Returns 0 or -ENOMEM. */
[[nodiscard]] int heap_reserve(struct heap *heap, uint32_t n_ids);

/* Adds or changes the entry `id`, which is below the reserved number. O(log
 * n). */
void heap_set(struct heap *heap, uint32_t id, uint32_t rank, int64_t at);

/* Removes an entry; no-op if it is not in the heap. O(log n). */
void heap_remove(struct heap *heap, uint32_t id);

/* Returns the first entry, or NULL if empty. Borrowed until the next
 * change. */
const struct heap_entry *heap_first(const struct heap *heap);

#endif
