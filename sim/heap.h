/*
 * The events to come: a 4-ary heap with the place of every event known, so
 * that a time can be changed. Equal times come out by rank, then by id: the
 * order never depends on history. Internal to sim.
 */
#ifndef SIM_HEAP_H
#define SIM_HEAP_H

#include <stdbool.h>
#include <stdint.h>

/* No event is later than SIM_LAST_US. Longer times become SIM_NEVER_US; the sum
 * of four of those still fits. */
#define SIM_LAST_US INT64_C(1000000000000000000)
#define SIM_NEVER_US (2 * SIM_LAST_US)

/* A time that fits an int64_t; NaN is never. */
static inline double sim_bounded_us(double us)
{
    return us < (double)SIM_NEVER_US ? us : (double)SIM_NEVER_US;
}

/* The sum of two times of at most SIM_NEVER_US. */
static inline int64_t sim_sum_us(int64_t a_us, int64_t b_us)
{
    return a_us + b_us < SIM_NEVER_US ? a_us + b_us : SIM_NEVER_US;
}

struct sim_heap_entry {
    int64_t at_us;
    uint32_t rank;
    uint32_t id;
};

struct sim_heap {
    struct sim_heap_entry *entries; /* (capacity) */
    uint32_t *places;               /* (n_ids): index in entries, or NONE */
    uint32_t n;
    uint32_t capacity;
    uint32_t n_ids;
};

/* Frees the memory; the struct becomes an empty heap, as {0} is one. */
void sim_heap_fini(struct sim_heap *heap);

/* Makes room for the ids below n_ids. Returns 0 or -ENOMEM. */
[[nodiscard]] int sim_heap_reserve(struct sim_heap *heap, uint32_t n_ids);

/* Sets the time of an event, new or not; its id is below the reserved number.
 * O(log n). */
void sim_heap_set(struct sim_heap *heap, uint32_t id, uint32_t rank,
                  int64_t at_us);

/* Takes an event out; nothing if it is not in. O(log n). */
void sim_heap_remove(struct sim_heap *heap, uint32_t id);

/* The first event, NULL if there is none. Borrowed until the next change. */
const struct sim_heap_entry *sim_heap_first(const struct sim_heap *heap);

#endif
