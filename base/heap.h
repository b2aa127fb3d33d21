/*
 * What comes next of events or of blocks: a 4-ary heap with the place of every
 * entry known, so that it can be changed and taken out. Equal ones come out by
 * rank, then by id: the order never depends on history.
 */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct heap_entry {
    int64_t at; /* a time, or what else rises */
    uint32_t rank;
    uint32_t id;
};

struct heap {
    struct heap_entry *entries; /* (capacity) */
    uint32_t *places;           /* (capacity): index in entries, or NONE */
    uint32_t n;
    size_t capacity;
};

/* Frees the memory; the struct becomes an empty heap, as {0} is one. */
void heap_fini(struct heap *heap);

/* Makes room for the ids below n_ids. Returns 0 or -ENOMEM. */
[[nodiscard]] int heap_reserve(struct heap *heap, uint32_t n_ids);

/* Sets when an entry comes, new or not; its id is below the reserved number.
 * O(log n). */
void heap_set(struct heap *heap, uint32_t id, uint32_t rank, int64_t at);

/* Takes an entry out; nothing if it is not in. O(log n). */
void heap_remove(struct heap *heap, uint32_t id);

/* The first entry, NULL if there is none. Borrowed until the next change. */
const struct heap_entry *heap_first(const struct heap *heap);

#endif
