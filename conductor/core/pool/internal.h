/* The inside of the pool, shared by its files. Not for others. */
#ifndef CONDUCTOR_CORE_POOL_INTERNAL_H
#define CONDUCTOR_CORE_POOL_INTERNAL_H

#include "conductor/core/arena.h"
#include "conductor/core/pool/pending.h"
#include "conductor/core/pool/pool.h"

/* An instance and its arrays, which `view` shows to readers. */
struct pool_slot {
    struct pool_instance view;
    struct pool_prefill *waiting; /* (max_waiting) */
    struct queue_item *queue;     /* (max_waiting) */
    struct pool_prefill *running; /* (max_running) */
    struct pool_decode *decodes;  /* (max_decodes) */
    uint32_t generation;          /* 1..65535, of the next or present id */
    bool in_use;
};

struct pool {
    struct pool_config config;
    struct pool_slot *slots; /* (max_instances) */
    struct pool_prefill *waiting;
    struct queue_item *queue;
    struct pool_prefill *running;
    struct pool_decode *decodes;
    struct pending *pending;
    struct arena keys; /* of accepted prefills, one unit a key */
    uint64_t next_seq;
    uint64_t n_dropped;
    uint32_t n_slots;
};

/* The slot of an id, NULL if stale. */
static inline struct pool_slot *pool_slot_of(const struct pool *pool,
                                             uint32_t id)
{
    uint32_t slot = id & 0xffff;

    if (slot >= pool->n_slots || !pool->slots[slot].in_use ||
        pool->slots[slot].view.id != id)
        return NULL;
    return &pool->slots[slot];
}

/* Gives back what the pool keeps of a prefill's blocks. */
void pool_forget_keys(struct pool *pool, uint32_t slot,
                      const struct pool_prefill *prefill);

#endif
