/*
 * What the pool knows of an instance, and what is asked of it in every
 * decision. pool.h changes it.
 */
#ifndef CONDUCTOR_CORE_POOL_INSTANCE_H
#define CONDUCTOR_CORE_POOL_INSTANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/core/index/prefix_index.h"
#include "conductor/core/step/queue.h"
#include "conductor/core/step/yield.h"
#include "predictor/correction.h"
#include "predictor/cost_model.h"

#define POOL_NO_INSTANCE 0u /* an id that no instance has */
#define POOL_NAME_BYTES 64

#define POOL_PAIRS 32u /* groups, 0 included */

#define ROLE_PREFILL 1u
#define ROLE_DECODE 2u
#define ROLE_BOTH (ROLE_PREFILL | ROLE_DECODE)

enum pool_health {
    HEALTH_STARTING, /* connected, has not said yet that it is ready */
    HEALTH_READY,    /* gets work */
    HEALTH_DRAINING, /* finishes its work, gets none; may still send blocks */
    HEALTH_SUSPECT,  /* late: gets no work until it answers again */
    HEALTH_GONE,     /* lost; only removal is left */
};
#define HEALTH_STATES 5

/* Channels beside the tiers, see pool_booking: what a link sends, and what it
 * receives. */
#define POOL_EGRESS ((unsigned)LOAD_TIERS)
#define POOL_INGRESS (POOL_EGRESS + 1u)

/* What prefills that an instance has accepted compute, one after another. */
struct pool_work {
    int64_t tokens;
    int64_t us; /* as predicted when they were accepted, on an idle instance */
    /* How unlike their chunks are: of those that fill chunks of their own (of
     * others the part of a chunk that they fill) tokens, us, and the sum of
     * each token's us squared. */
    double own_tokens;
    double own_us;
    double own_square;
};

/* A prefill that an instance has accepted. */
struct pool_prefill {
    uint64_t request_id;
    struct queue_item item; /* cost_us is corrected: predicted * ratio */
    int64_t predicted_us;   /* uncorrected */
    int64_t shared_us;      /* of that: it is part of cost_us only while it
                               runs; those that wait begin in one step, and the
                               next one brings it */
    int64_t uncached_tokens;
    int64_t cached_tokens;
    int64_t started_at_us; /* -1 while it waits */
    /* Where prefills are interrupted; as of the instance's running_since_us. */
    struct yield_begun begun;
    int64_t worked_us;
    int64_t spare_us;  /* of yield_spare_us() */
    bool decodes_here; /* running: its request is among the decodes too */
    bool stage; /* of a prompt that several compute: nothing interrupts it */
    uint32_t keys_at;      /* where the pool keeps its block keys */
    uint32_t n_keys;       /* 0: none, or no room for them */
    uint32_t bookings;     /* where the pool keeps what it has booked */
    struct pool_work work; /* as accepted */
};

/* A request that decodes, or will, on an instance. */
struct pool_decode {
    uint64_t request_id;
    int64_t prompt_tokens;
    int64_t max_output_tokens;
    int64_t expected_tokens; /* of its output, that KV is reserved for: more
                                than produced, at most max_output_tokens */
    int64_t produced_tokens;
    int64_t likely_tokens;   /* of its output, for what runs beside it; 0: not
                                told */
    struct pool_work before; /* the instance's accepted work by then, */
    uint64_t before_seq;     /* of prefills with a lower arrival_seq */
    int64_t comes_us;        /* when its KV will begin to come, as predicted */
    uint32_t prefill;        /* pool id of who prefills it, and how long that */
    int64_t prefill_us;      /* takes; POOL_NO_INSTANCE: not told */
    bool coming;             /* that has begun */
    bool started;            /* false: its KV is on the way */
    uint32_t push_from;      /* pool id of who sends that, and how much; */
    int64_t push_bytes;      /* 0: nobody, or it is here */
    int64_t push_due_us;     /* when its prefill was to end */
};

/* When running prefills will end: each on its own, or, where they share steps
 * or interrupt each other, one after another. */
struct pool_running_load {
    uint64_t ends_us; /* the sum, modulo 2^64; in line: the last */
    int64_t first_us; /* the first of them; INT64_MAX: none runs */
    bool in_line;
};

/* Read it; change it through the calls below only. What every decision reads of
 * every instance stands first. */
struct pool_instance {
    uint32_t id;
    uint32_t slot;
    unsigned role; /* ROLE_* */
    /* It ends the work that it has, gets none, and takes this one; 0: none. */
    unsigned next_role;
    enum pool_health health;
    bool held; /* somebody drains it: no work, however well it is */
    /* In an aggregated pool: 0: what it prefills it decodes. Else it is one of
     * a group: its members with ROLE_PREFILL alone hand their prompts' KV to
     * those with ROLE_DECODE; with both roles it serves requests alone, too. */
    uint8_t pair;
    int64_t kv_whole_tokens; /* of its capacity, in whole blocks */
    int64_t window_tokens;   /* prompt and output together; 0: any */
    size_t n_waiting;
    size_t max_waiting;
    const struct queue_order *order;       /* in which it serves queue */
    struct queue_load load;                /* of queue */
    struct pool_running_load running_load; /* of running */
    int64_t running_since_us; /* where prefills are interrupted: when the last
                                 of running began, or went on */
    struct correction
        occupancy; /* of how long prefills kept the engine, to what they
                 were accepted for; where they are interrupted */
    struct correction correction;  /* of prefill times */
    const struct cost_model *cost; /* its own; NULL: as the others */
    /* The rate at which blocks of a tier are read to where the engine uses them
     * (0: at no cost), and when all accepted reads will have ended. */
    double tier_bytes_per_s[LOAD_TIERS];
    int64_t tier_free_us[LOAD_TIERS];
    double link_bytes_per_s;       /* smoothed egress rate; 0: cannot send */
    const struct pool_path *paths; /* (n_paths): what it has measured itself */
    uint32_t n_paths;
    int64_t egress_free_us;  /* when its accepted sends will be over */
    int64_t ingress_free_us; /* likewise what it fetches */
    /* KV of accepted requests that it will push to decode instances, or that
     * will be pushed to it, and of how many requests. */
    int64_t push_out_bytes;
    int64_t push_in_bytes;
    size_t n_pushes_out;
    size_t n_pushes_in;
    int64_t prefilled_us;  /* when the last of its prefills was done; 0: none
                              yet */
    uint64_t last_prefill; /* number of its last prefill among all that the pool
                              accepted, from 1 on; 0: it had none */
    size_t n_running;
    size_t n_decodes;
    size_t max_decodes; /* at once: the pool's bound, or its own batch */
    int64_t kv_capacity_tokens;
    int64_t cache_tokens;           /* as in struct pool_instance_config */
    int64_t decode_kv_tokens;       /* of all decodes, as of now */
    int64_t decode_reserved_tokens; /* of all decodes, as long as they are
                                       expected to be, in whole blocks */
    int64_t other_decodes;          /* that others gave it, as last reported:
                                       they take time, and no room */
    int64_t other_kv_tokens;        /* and their KV */
    int64_t awaited_tokens;         /* of room, that requests wait for which no
                                       instance has yet */
    int64_t prefill_tokens;         /* prompts that wait or run */
    struct pool_work accepted;      /* of all its prefills, ever */
    int64_t running_kv_tokens;      /* of running prefills that do not decode
                                       here, in whole blocks */
    /* Arrays of the counts above, owned by the pool. queue[i] is
     * waiting[i].item, laid out for queue_pick() and queue_wait_us(). */
    const struct pool_prefill *waiting;
    const struct queue_item *queue;
    const struct pool_prefill *running;
    const struct pool_decode *decodes;
    int64_t block_tokens;   /* KV is held in blocks of so many */
    int64_t kv_used_tokens; /* as last reported, cached blocks included */
    uint32_t reuse_blocks;  /* of a cached prompt it reuses multiples of so
                               many; 0: any number */
    size_t max_batch;       /* most decodes in one step; 0: any number */
    bool switches;          /* it can take another role */
    uint32_t most_stages;   /* of a prompt that several prefill, it one of them:
                               its model's layers; 0: it computes no stages */
    char name[POOL_NAME_BYTES];
};

/* How fast blocks came to an instance from one other. */
struct pool_path {
    uint32_t from; /* pool id */
    double bytes_per_s;
};

#define POOL_PATHS_MAX 16u

/* That rate as `to` measured it; 0: it did not. O(POOL_PATHS_MAX). */
static inline double pool_path_bytes_per_s(const struct pool_instance *to,
                                           uint32_t from)
{
    for (uint32_t i = 0; i < to->n_paths; i++)
        if (to->paths[i].from == from)
            return to->paths[i].bytes_per_s;
    return 0.0;
}

/* Whether it is given work. */
static inline bool pool_takes_work(const struct pool_instance *instance)
{
    return instance->health == HEALTH_READY && !instance->held &&
           instance->next_role == 0;
}

/* Its health, as people are told: one that is well and held, or about to take
 * another role, drains. */
static inline enum pool_health
pool_shown_health(const struct pool_instance *instance)
{
    return instance->health == HEALTH_READY && !pool_takes_work(instance)
               ? HEALTH_DRAINING
               : instance->health;
}

/* Whether it has ended all work that it was given, and no KV is on its way from
 * it or to it. */
static inline bool pool_is_empty(const struct pool_instance *instance)
{
    return instance->n_waiting + instance->n_running + instance->n_decodes +
               instance->n_pushes_out + instance->n_pushes_in ==
           0;
}

/* Whether an instance can accept no more prefills: max_waiting wait. */
static inline bool pool_prefill_full(const struct pool_instance *instance)
{
    return instance->n_waiting >= instance->max_waiting;
}

/* Decodes that an instance may have accepted where their places are predicted,
 * as a multiple of those at once: most of them wait for their prefill. */
#define POOL_DECODES_AHEAD 4u

/* Whether it can accept no more decodes: max_decodes of the pool, or its own
 * max_batch; beyond that a request would wait between its first two tokens
 * until another one ends. */
static inline bool pool_decode_full(const struct pool_instance *instance)
{
    return instance->n_decodes >= instance->max_decodes;
}

/* The tokens of a request at its longest whose KV is kept: the last output
 * token is never fed back. */
static inline int64_t pool_tokens_at_longest(int64_t prompt_tokens,
                                             int64_t max_output_tokens)
{
    return prompt_tokens + (max_output_tokens > 1 ? max_output_tokens - 1 : 0);
}

/* Whether an instance could not take a request even if it were empty: its KV
 * (as pool_kv_tokens()) or its window is too small. */
static inline bool pool_too_long(const struct pool_instance *instance,
                                 int64_t prompt_tokens,
                                 int64_t max_output_tokens)
{
    int64_t tokens = pool_tokens_at_longest(prompt_tokens, max_output_tokens);

    return tokens > instance->kv_whole_tokens ||
           (instance->window_tokens > 0 && tokens > instance->window_tokens);
}

/* Tokens of KV that decodes may still reserve on an instance: its capacity
 * less what decodes hold or will hold and what running prefills hold. Cached
 * blocks can be evicted and do not count. May be negative. */
static inline int64_t
pool_decode_room_tokens(const struct pool_instance *instance)
{
    return instance->kv_capacity_tokens - instance->decode_reserved_tokens -
           instance->running_kv_tokens;
}

/* Whether a decode's KV (as pool_kv_tokens()) fits into that. */
static inline bool pool_decode_fits(const struct pool_instance *instance,
                                    int64_t prompt_tokens,
                                    int64_t max_output_tokens)
{
    return pool_tokens_at_longest(prompt_tokens, max_output_tokens) <=
           instance->kv_whole_tokens - instance->decode_reserved_tokens -
               instance->running_kv_tokens;
}

/* Whether an instance can accept a decode now: there is a place, and its KV
 * fits. */
static inline bool pool_decode_has_room(const struct pool_instance *instance,
                                        int64_t prompt_tokens,
                                        int64_t max_output_tokens)
{
    return !pool_decode_full(instance) &&
           pool_decode_fits(instance, prompt_tokens, max_output_tokens);
}

#endif
