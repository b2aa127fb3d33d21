/* The inside of the pool, shared by its files. Not for others. */
#ifndef CONDUCTOR_CORE_POOL_INTERNAL_H
#define CONDUCTOR_CORE_POOL_INTERNAL_H

#include <sys/queue.h>

#include "base/check.h"
#include "conductor/core/arena.h"
#include "conductor/core/pool/pending.h"
#include "conductor/core/pool/pool.h"

#define BOOKING_NONE UINT32_MAX
#define POOL_CHANNELS (POOL_INGRESS + 1u)

/* A stretch of a channel's time that a prefill has booked. */
struct booking {
    TAILQ_ENTRY(booking) link; /* in the channel's list */
    uint32_t holder;           /* pool id of the channel's instance */
    uint32_t of_prefill;       /* next node: of the prefill, or free */
    int64_t from_us, until_us;
    uint8_t channel; /* below POOL_CHANNELS */
};

struct bookings {
    struct booking *nodes; /* (n_nodes) */
    uint32_t n_nodes;
    uint32_t fresh; /* nodes from here on have never been used */
    uint32_t free_head;
    uint32_t n_used;
};

/* Bookings of a channel, the oldest first. */
TAILQ_HEAD(booking_list, booking);

/* An instance and its arrays; `view` is the read-only side. */
struct pool_slot {
    struct pool_instance view;
    struct pool_prefill *waiting; /* (max_waiting) */
    struct queue_item *queue;     /* (max_waiting) */
    struct pool_prefill *running; /* (max_running) */
    struct pool_decode *decodes;  /* (max_decodes) */
    struct pool_path *paths;      /* (POOL_PATHS_MAX) */
    /* Cached answer of queue_pick_until() for `queue`. */
    int picked;
    int64_t picked_from_us, picked_until_us; /* equal = none */
    struct booking_list channels[POOL_CHANNELS];
    uint32_t generation; /* of the present or next id, 1..65535 */
    bool in_use;
};

struct pool {
    struct pool_config config;
    struct pool_slot *slots;                /* (max_instances) */
    const struct pool_instance **instances; /* (max_instances): NULL = free */
    uint8_t *ready_roles; /* (max_instances): ROLE_*; 0 = gets no work */
    struct pool_prefill *waiting;
    struct queue_item *queue;
    struct pool_prefill *running;
    struct pool_decode *decodes;
    struct pool_path *paths;
    struct pending *pending;
    struct arena keys; /* block keys of accepted prefills, one per unit */
    struct bookings bookings;
    uint64_t next_seq;
    uint64_t n_dropped;
    uint64_t n_interrupted;
    uint32_t n_slots;
    uint32_t n_own_costs; /* instances with a cost model of their own */
    bool reuses_in_steps;
    const char *broken; /* CHECK() */
};

/* Returns the slot of an id, NULL if stale. */
static inline struct pool_slot *pool_slot_of(const struct pool *pool,
                                             uint32_t id)
{
    uint32_t slot = id & 0xffff;

    if (slot >= pool->n_slots || !pool->slots[slot].in_use ||
        pool->slots[slot].view.id != id)
        return NULL;
    return &pool->slots[slot];
}

/* Returns the time from which on a channel of an instance is free. */
static inline int64_t *pool_free_time_of(struct pool_slot *slot,
                                         unsigned channel)
{
    if (channel == POOL_INGRESS)
        return &slot->view.ingress_free_us;
    return channel == POOL_EGRESS ? &slot->view.egress_free_us
                                  : &slot->view.tier_free_us[channel];
}

#define POOL_NOT_FOUND SIZE_MAX

/* Returns the index of a request among n prefills, or POOL_NOT_FOUND. */
static inline size_t pool_index_of(const struct pool_prefill *prefills,
                                   size_t n, uint64_t request_id)
{
    for (size_t i = 0; i < n; i++)
        if (prefills[i].request_id == request_id)
            return i;
    return POOL_NOT_FOUND;
}

/* Returns the KV tokens of a running prefill beside the decodes' reservations:
 * 0 if its request decodes here too, since that reserves the prompt as well. */
static inline int64_t pool_prefill_kv_tokens(const struct pool_slot *slot,
                                             const struct pool_prefill *p)
{
    return p->decodes_here
               ? 0
               : pool_kv_tokens(&slot->view,
                                p->uncached_tokens + p->cached_tokens, 1);
}

/* Returns a request's prefill on an instance, waiting or running, or NULL. */
static inline struct pool_prefill *
pool_find_prefill(const struct pool *pool, uint32_t id, uint64_t request_id)
{
    struct pool_slot *slot = pool_slot_of(pool, id);
    size_t i;

    if (!slot)
        return NULL;
    i = pool_index_of(slot->running, slot->view.n_running, request_id);
    if (i != POOL_NOT_FOUND)
        return &slot->running[i];
    i = pool_index_of(slot->waiting, slot->view.n_waiting, request_id);
    return i != POOL_NOT_FOUND ? &slot->waiting[i] : NULL;
}

/* Computes the costs of all waiting and running prefills anew. In work.c. */
void pool_apply_correction(struct pool_slot *slot);

/* As pool_prefill_started(), for a prefill that began at started_us and was at
 * work for worked_us of the time since then. In work.c. */
int pool_begin_prefill(struct pool *pool, uint32_t id, uint64_t request_id,
                       int64_t started_us, int64_t worked_us, int64_t now_us);

/* Returns a request's decode on an instance, or NULL. In decodes.c. */
struct pool_decode *pool_find_decode(const struct pool_slot *slot,
                                     uint64_t request_id);

/* Reserves n_nodes bookings. Returns 0 or -ENOMEM. In book.c. */
[[nodiscard]] int bookings_init(struct bookings *b, uint32_t n_nodes);
/* Frees them; a zeroed struct is fine. In book.c. */
void bookings_fini(struct bookings *b);

/* Gives back the rest of all bookings of a prefill from now_us on; bookings
 * behind them move up. Cost: O(bookings behind). In book.c. */
void pool_unbook(struct pool *pool, const struct pool_prefill *prefill,
                 int64_t now_us);

/* Gives back the booked push of a decode on an instance. In decodes.c. */
void pool_unbook_push(struct pool *pool, struct pool_slot *slot,
                      struct pool_decode *decode);

#endif
