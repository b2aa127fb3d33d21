/*
 * A bounded buddy allocator of 8-byte units, for the many small arrays of the
 * prefix index and the pool. All memory is reserved once; freeing merges free
 * buddies, so that their memory fits any size again. Internal to core.
 *
 * Invariants: a block b of class c (2^c units) starts at a multiple of 2^c; b
 * and its buddy b ^ 2^c are never both free, except in the largest class.
 */
#ifndef CONDUCTOR_CORE_ARENA_H
#define CONDUCTOR_CORE_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#define ARENA_CLASS_MIN 1u
#define ARENA_CLASS_MAX 17u
#define ARENA_NONE UINT32_MAX

struct arena {
    uint64_t *units;
    uint8_t *is_free; /* bit i: a free block starts at unit 2 i */
    uint32_t n_units;
    uint32_t top_class; /* class of the largest blocks */
    uint32_t fresh;     /* units from here on have never been used */
    uint64_t used_units;
    uint32_t free_head[ARENA_CLASS_MAX + 1]; /* by class; ARENA_NONE = empty */
};

/*
 * Reserves at least 2 and at most n_units units, rounded down to whole blocks
 * of the largest class (2^17 units, or fewer if n_units is smaller).
 * Returns 0; -EINVAL: n_units under 2 or over 2^31; -ENOMEM.
 */
[[nodiscard]] int arena_init(struct arena *arena, uint64_t n_units);

/* Frees the memory. A zeroed arena is fine. */
void arena_fini(struct arena *arena);

/* Takes a block of 2^size_class units; ARENA_CLASS_MIN <= size_class.
 * Returns its first unit, or ARENA_NONE: no room. Cost: O(classes). */
[[nodiscard]] uint32_t arena_alloc(struct arena *arena, uint32_t size_class);

/* Gives a block back. Cost: O(classes). */
void arena_free(struct arena *arena, uint32_t at, uint32_t size_class);

/* Gives back all but the first 2^new_class units of a block, in place. */
void arena_shrink(struct arena *arena, uint32_t at, uint32_t size_class,
                  uint32_t new_class);

/* Returns whether arena_alloc() would find a block. Cost: O(classes). */
bool arena_has_room(const struct arena *arena, uint32_t size_class);

/* Returns the smallest class, at least ARENA_CLASS_MIN, that holds n units. */
uint32_t arena_class_of(uint64_t n_units);

/* Returns the memory of a block; it never moves. */
static inline void *arena_at(const struct arena *arena, uint32_t at)
{
    return arena->units + at;
}

/* Checks the free lists against the invariant. For tests. */
bool arena_check(const struct arena *arena);

#endif
