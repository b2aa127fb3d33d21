/*
 * An instance as the pool keeps it, and inline questions that every decision
 * asks of every instance. pool.h changes it.
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
#define POOL_KV_UNKNOWN (INT64_MAX / 4096) /* exceeds any real capacity */

#define POOL_PAIRS 32u /* pair groups, 0 included */

#define ROLE_PREFILL 1u
#define ROLE_DECODE 2u
#define ROLE_BOTH (ROLE_PREFILL | ROLE_DECODE)

enum pool_health {
    HEALTH_STARTING, /* connected, has not reported yet that it is ready */
    HEALTH_READY,    /* gets work */
    HEALTH_DRAINING, /* finishes its work, gets none; may still send blocks */
    HEALTH_SUSPECT,  /* silent: gets no work until it answers again */
    HEALTH_GONE,     /* lost; only removal is left */
};
#define HEALTH_STATES 5

/* Channels beside the tiers (struct pool_booking): a link's two directions. */
#define POOL_EGRESS ((unsigned)LOAD_TIERS)
#define POOL_INGRESS (POOL_EGRESS + 1u)

/* The computing of one or more accepted prefills. */
struct pool_work {
    int64_t tokens;
    int64_t us; /* predicted when they were accepted, on an idle instance */
    /* For the spread of chunk times: tokens, us, and the sum over tokens of us
     * squared. A prefill shorter than a chunk counts as the part of a chunk
     * that it fills. */
    double own_tokens;
    double own_us;
    double own_square;
};

/* A prefill that an instance has accepted. */
struct pool_prefill {
    uint64_t request_id;
    struct queue_item item; /* cost_us is corrected: predicted * ratio */
    int64_t predicted_us;   /* uncorrected */
    int64_t shared_us;      /* part of predicted_us: the constant of the step
                               that computes all waiting prefills together. Not
                               in cost_us while it waits */
    int64_t uncached_tokens;
    int64_t cached_tokens;
    int64_t started_at_us; /* -1 while it waits */
    /* Only under orders that interrupt, as of running_since_us. */
    struct yield_begun begun;
    int64_t worked_us;
    int64_t spare_us;  /* of yield_spare_us() */
    bool decodes_here; /* running: its request is among the decodes too */
    bool stage;       /* one of several stages of a prompt: never interrupted */
    uint32_t keys_at; /* arena position of its block keys */
    uint32_t n_keys;  /* 0 = none, or the arena had no room for them */
    uint32_t bookings;     /* its last booking, a node of struct bookings */
    struct pool_work work; /* as accepted */
};

/* A request that decodes, or will, on an instance. */
struct pool_decode {
    uint64_t request_id;
    int64_t prompt_tokens;
    int64_t max_output_tokens;
    int64_t expected_tokens; /* output tokens that KV is reserved for: more than
                                produced, at most max_output_tokens */
    int64_t produced_tokens;
    int64_t likely_tokens;   /* predicted output; 0 = unknown */
    struct pool_work before; /* `accepted`, as likely_tokens was set */
    uint64_t before_seq;     /* `before` has prefills of lower arrival_seq */
    int64_t comes_us;        /* when its KV begins to come, as predicted */
    uint32_t prefill;        /* pool id of the prefill instance;
                                POOL_NO_INSTANCE = unknown */
    int64_t prefill_us;      /* time of its prefill */
    bool coming;             /* its KV has begun to come */
    bool started;            /* all of its KV has come, it is in the batch */
    uint32_t push_from;      /* pool id of the sender of its KV;
                                POOL_NO_INSTANCE = none, or the KV has come */
    int64_t push_bytes;
    int64_t push_due_us; /* when its prefill was to end */
};

/* When running prefills will end: in line (one after another, if they share
 * steps or interrupt each other), or each on its own. */
struct pool_running_load {
    uint64_t ends_us; /* sum of the ends, modulo 2^64; in line: the last end */
    int64_t first_us; /* the first end; INT64_MAX = none runs */
    bool in_line;
};

/* Read-only outside the pool, which changes it by the calls of pool.h. Members
 * that every decision reads stand first. */
struct pool_instance {
    uint32_t id;
    uint32_t slot;
    unsigned role;      /* ROLE_* */
    unsigned next_role; /* it finishes its work, gets none, then takes this
                           role; 0 = keeps its role */
    enum pool_health health;
    bool held; /* drained by an operator: gets no work, whatever its health */
    /* Group in an aggregated pool. 0 = it decodes what it prefills. In other
     * groups instances with ROLE_PREFILL alone hand their prompts' KV to those
     * with ROLE_DECODE; one with both roles also serves requests alone. */
    uint8_t pair;
    int64_t kv_whole_tokens; /* KV capacity, rounded down to whole blocks */
    int64_t window_tokens;   /* most tokens of prompt and output; 0 = any */
    size_t n_waiting;
    size_t max_waiting;
    const struct queue_order *order;       /* in which it serves `queue` */
    struct queue_load load;                /* of `queue` */
    struct pool_running_load running_load; /* of `running` */
    int64_t running_since_us;      /* under orders that interrupt: when the last
                                      of `running` began, or went on */
    struct correction occupancy;   /* under orders that interrupt: corrects the
                                      time that prefills kept the engine */
    struct correction correction;  /* of prefill times */
    const struct cost_model *cost; /* its own; NULL = the model of estimates */
    /* By tier: the rate at which blocks are read to where the engine uses them
     * (0 = at no cost), and when all accepted reads will have ended. */
    double tier_bytes_per_s[LOAD_TIERS];
    int64_t tier_free_us[LOAD_TIERS];
    double link_bytes_per_s;       /* smoothed egress rate; 0 = cannot send */
    const struct pool_path *paths; /* (n_paths): rates that it has measured */
    uint32_t n_paths;
    int64_t egress_free_us;  /* when its accepted sends will have ended */
    int64_t ingress_free_us; /* when its accepted fetches will have ended */
    /* KV that it will push to decode instances or receive from prefill
     * instances, and the number of these pushes. */
    int64_t push_out_bytes;
    int64_t push_in_bytes;
    size_t n_pushes_out;
    size_t n_pushes_in;
    int64_t prefilled_us;  /* when its last prefill was done; 0 = none yet */
    uint64_t last_prefill; /* number of its last prefill among all that the pool
                              accepted, from 1 on; 0 = none yet */
    size_t n_running;
    size_t n_decodes;
    size_t max_decodes; /* most decodes at once: pool's bound or max_batch */
    int64_t kv_capacity_tokens;
    int64_t cache_tokens;           /* as in struct pool_instance_config */
    int64_t decode_kv_tokens;       /* KV of its decodes now */
    int64_t decode_reserved_tokens; /* KV of its decodes at their expected
                                       length, in whole blocks */
    int64_t other_decodes;          /* decodes from outside the pool, as last
                                       reported: they take time, and no room */
    int64_t other_kv_tokens;        /* KV of other_decodes */
    int64_t awaited_tokens;         /* room that waiting requests need here */
    int64_t prefill_tokens;         /* prompts that wait or run */
    struct pool_work accepted;      /* all its prefills but cancelled ones */
    int64_t running_kv_tokens;      /* KV of running prefills that do not decode
                                       here, in whole blocks */
    /* Arrays with the counts above, owned by the pool. queue[i] is
     * waiting[i].item, laid out for queue_pick() and queue_wait_us(). */
    const struct pool_prefill *waiting;
    const struct queue_item *queue;
    const struct pool_prefill *running;
    const struct pool_decode *decodes;
    int64_t block_tokens;   /* tokens per KV block */
    int64_t kv_used_tokens; /* as last reported, cached blocks included */
    uint32_t reuse_blocks;  /* it reuses cached blocks of a prompt in multiples
                               of this number; 0 = any number */
    size_t max_batch;       /* most decodes in one step; 0 = any number */
    bool switches;          /* it can take another role */
    uint32_t most_stages;   /* most instances that compute one prompt together,
                               this one included: the model's layers; 0 = it
                               takes no part */
    char name[POOL_NAME_BYTES];
};

/* The rate at which blocks came to an instance from another one. */
struct pool_path {
    uint32_t from; /* pool id */
    double bytes_per_s;
};

#define POOL_PATHS_MAX 16u

/* Returns that rate as `to` measured it; 0 = unknown. O(POOL_PATHS_MAX). */
static inline double pool_path_bytes_per_s(const struct pool_instance *to,
                                           uint32_t from)
{
    for (uint32_t i = 0; i < to->n_paths; i++)
        if (to->paths[i].from == from)
            return to->paths[i].bytes_per_s;
    return 0.0;
}

/* Returns whether an instance gets work. */
static inline bool pool_takes_work(const struct pool_instance *instance)
{
    return instance->health == HEALTH_READY && !instance->held &&
           instance->next_role == 0;
}

/* Returns whether two instances are a pair: another instance of its group
 * decodes what `p` prefills, and the engines push the KV by themselves. */
static inline bool pool_is_pair(const struct pool_instance *p,
                                const struct pool_instance *d)
{
    return p && d && p != d && p->pair > 0 && p->pair == d->pair;
}

/* Returns the health to show to operators: HEALTH_DRAINING for a ready instance
 * that is held or about to take another role. */
static inline enum pool_health
pool_shown_health(const struct pool_instance *instance)
{
    return instance->health == HEALTH_READY && !pool_takes_work(instance)
               ? HEALTH_DRAINING
               : instance->health;
}

/* Returns whether an instance has no accepted work, and no KV is on its way
 * from it or to it. */
static inline bool pool_is_empty(const struct pool_instance *instance)
{
    return instance->n_waiting + instance->n_running + instance->n_decodes +
               instance->n_pushes_out + instance->n_pushes_in ==
           0;
}

/* Returns whether an instance can accept no more prefills. */
static inline bool pool_prefill_full(const struct pool_instance *instance)
{
    return instance->n_waiting >= instance->max_waiting;
}

/* Most accepted decodes per instance if their times are predicted, as a
 * multiple of max_decodes: most of them still wait for their prefill. */
#define POOL_DECODES_AHEAD 4u

/* Returns whether an instance can accept no more decodes: another one would
 * wait between its first two tokens until a decode ends. */
static inline bool pool_decode_full(const struct pool_instance *instance)
{
    return instance->n_decodes >= instance->max_decodes;
}

/* Returns the tokens with KV of a request at its longest: all but the last
 * output token, which is never fed back. */
static inline int64_t pool_tokens_at_longest(int64_t prompt_tokens,
                                             int64_t max_output_tokens)
{
    return prompt_tokens + (max_output_tokens > 1 ? max_output_tokens - 1 : 0);
}

/* Returns whether a request is too long even for an empty instance: for its KV
 * (as pool_kv_tokens()) or its window. */
static inline bool pool_too_long(const struct pool_instance *instance,
                                 int64_t prompt_tokens,
                                 int64_t max_output_tokens)
{
    int64_t tokens = pool_tokens_at_longest(prompt_tokens, max_output_tokens);

    return tokens > instance->kv_whole_tokens ||
           (instance->window_tokens > 0 && tokens > instance->window_tokens);
}

/* Returns the KV tokens that decodes may still reserve on an instance: its
 * capacity less the reservations of decodes and the KV of running prefills.
 * Cached blocks can be evicted and do not count. May be negative. */
static inline int64_t
pool_decode_room_tokens(const struct pool_instance *instance)
{
    return instance->kv_capacity_tokens - instance->decode_reserved_tokens -
           instance->running_kv_tokens;
}

/* Returns whether a decode's KV (as pool_kv_tokens()) fits into that room. */
static inline bool pool_decode_fits(const struct pool_instance *instance,
                                    int64_t prompt_tokens,
                                    int64_t max_output_tokens)
{
    return pool_tokens_at_longest(prompt_tokens, max_output_tokens) <=
           instance->kv_whole_tokens - instance->decode_reserved_tokens -
               instance->running_kv_tokens;
}

/* Returns whether an instance can accept a decode now: the batch has a place,
 * and the KV fits. */
static inline bool pool_decode_has_room(const struct pool_instance *instance,
                                        int64_t prompt_tokens,
                                        int64_t max_output_tokens)
{
    return !pool_decode_full(instance) &&
           pool_decode_fits(instance, prompt_tokens, max_output_tokens);
}

#endif
