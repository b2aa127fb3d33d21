/*
 * The instances as the scheduler sees them: role, health, accepted work, KV
 * room, links. Workers' reports and decisions change them.
 *
 * An instance has a slot (small, reused; the index of arrays and of the
 * prefix index) and an id (slot and generation; never 0). Functions take ids:
 * an id that outlived its instance gets -ESTALE and changes nothing.
 */
#ifndef CONDUCTOR_CORE_POOL_POOL_H
#define CONDUCTOR_CORE_POOL_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "conductor/core/index/prefix_index.h"
#include "conductor/core/pool/instance.h"
#include "conductor/core/step/queue.h"

struct pool_config {
    uint32_t max_instances; /* 1..PREFIX_INDEX_INSTANCES_MAX */
    uint32_t max_waiting;   /* prefills waiting on one instance,
                               1..QUEUE_ITEMS_MAX - 1 */
    uint32_t max_running;   /* prefills begun on one instance, at least 1 */
    uint32_t max_decodes;   /* on one instance, at least 1 */
    uint32_t max_pending_blocks; /* (instance, block) pairs of unfinished
                                    prefills; a prefill beyond it is accepted,
                                    but its blocks match only once stored */
    uint32_t max_bookings;       /* of links and tiers by unfinished prefills;
                                    bookings beyond it are not given back */
    const struct queue_order *order; /* static; NULL = fifo */
    int64_t patience_us;             /* of yield_has_time(); above 0 */
    int64_t correction_tau_us;       /* as in struct correction, above 0 */
    double correction_min_ratio;
    double correction_max_ratio;
    bool uncorrected;      /* observed times do not correct predictions */
    double link_smoothing; /* weight of a new observed link rate, (0, 1] */
    bool shared_steps;    /* an instance computes several prompts in one step: a
                             prefill's own time begins when the one in front
                             of it is done */
    uint32_t step_tokens; /* most tokens of a chunk, at whose end a prefill may
                             be interrupted; 0 = chunks are short */
    bool grows;    /* for simulations: the tables of pending blocks are small at
                      first, and double in one go of some ms */
    uint64_t seed; /* of the table of pending blocks: random where strangers
                      choose keys */
};

/* 64 instances, 512 waiting, 64 running, 1024 decodes, 1 << 18 pending
 * blocks, 1 << 16 bookings, fifo, 30 s of patience, corrections of 60 s within
 * 0.25 .. 4, link smoothing 0.25, seed 1. */
extern const struct pool_config pool_config_default;

/* An instance to add. */
struct pool_instance_config {
    const char *name;           /* borrowed; cut to POOL_NAME_BYTES - 1 */
    unsigned role;              /* ROLE_*, at least one */
    int64_t kv_capacity_tokens; /* above 0; POOL_KV_UNKNOWN = unknown */
    double link_bytes_per_s;    /* first guess, at least 0 */
    double tier_bytes_per_s[LOAD_TIERS]; /* 0 = reads cost nothing; TIER_SHARED:
                                            0 = it reads no shared store */
    uint32_t block_tokens;               /* tokens per KV block; 0 = 1 */
    int64_t cache_tokens;   /* capacity of all its tiers; 0 = unknown */
    uint32_t max_batch;     /* most decodes in one step; 0 = any number */
    uint32_t window_tokens; /* most tokens of prompt and output; 0 = any */
    uint32_t most_stages;   /* as in struct pool_instance */
    bool switches;          /* as in struct pool_instance */
    const struct queue_order *order; /* static; NULL = the pool's */
    uint8_t pair; /* as in struct pool_instance, below POOL_PAIRS */
};

struct pool;

/*
 * Makes a pool without instances. All memory is reserved here (untouched
 * pages cost nothing); no later call allocates.
 *   config  borrowed for the call.
 * Returns the pool, owned by the caller, or NULL: out of memory or bad bounds.
 */
[[nodiscard]] struct pool *pool_new(const struct pool_config *config);

/* Frees the pool. NULL is a no-op. */
void pool_free(struct pool *pool);

/* Returns the pool's configuration, borrowed; `order` is never NULL. Slots are
 * below max_instances: the length of arrays that are indexed by slot. */
const struct pool_config *pool_config(const struct pool *pool);

/*
 * Adds an instance in HEALTH_STARTING.
 *   id  its id, written on success. Its slot is pool_get(pool, id)->slot.
 * Returns 0; -EINVAL: bad role, capacity or rate; -ENOSPC: pool full.
 */
[[nodiscard]] int pool_add(struct pool *pool,
                           const struct pool_instance_config *config,
                           uint32_t *id);

/*
 * Removes an instance with all its accepted work. The caller also calls
 * prefix_index_cleared(index, slot) before the slot is used again, that is
 * before the next pool_add().
 * Returns 0 or -ESTALE.
 */
int pool_remove(struct pool *pool, uint32_t id, int64_t now_us);

/* Returns the instance of an id, borrowed until removed; NULL if stale. */
const struct pool_instance *pool_get(const struct pool *pool, uint32_t id);

/* Returns the instance in a slot, borrowed; NULL if the slot is free. */
const struct pool_instance *pool_at(const struct pool *pool, uint32_t slot);

/* Returns all instances, (max_instances), by slot, NULL if free; borrowed. */
const struct pool_instance *const *pool_instances(const struct pool *pool);

/* Returns the highest slot in use plus 1: the bound of loops over slots. */
uint32_t pool_slots(const struct pool *pool);

/* Returns ROLE_* by slot, 0 unless pool_takes_work(); borrowed. A search for a
 * role thus reads a byte instead of an instance. */
const uint8_t *pool_ready_roles(const struct pool *pool);

/*
 * Changes the health of an instance, if the transition table allows it:
 *   starting -> ready, draining, suspect, gone
 *   ready    -> draining, suspect, gone
 *   draining -> ready, suspect, gone
 *   suspect  -> ready, draining, gone
 * The same state again is allowed and changes nothing.
 * Returns 0; -ESTALE; -EPERM: no such transition, which pool_broken() tells.
 */
int pool_set_health(struct pool *pool, uint32_t id, enum pool_health health);

/* Returns an invariant that broke since the last call; NULL = none. */
const char *pool_broken(struct pool *pool);

/*
 * Holds an instance or ends that: a held instance gets no work, and may still
 * send blocks. Its health goes on changing, and counts again once it is no
 * longer held.
 * Returns 0 or -ESTALE.
 */
[[nodiscard]] int pool_hold(struct pool *pool, uint32_t id, bool held);

/*
 * Sets the next role of an instance, which gets no work until it takes that by
 * pool_take_role().
 *   role  ROLE_*; the present role cancels a switch.
 * Returns 0; -ESTALE; -EINVAL: no such role, or it cannot take another one.
 */
[[nodiscard]] int pool_switch(struct pool *pool, uint32_t id, unsigned role);

/*
 * Gives an empty instance (pool_is_empty()) the next role that pool_switch()
 * set.
 *   kv_capacity_tokens  its KV capacity in that role, above 0.
 * Returns 0; -ESTALE; -EINVAL: no next role, or a bad capacity; -EBUSY: it has
 * work.
 */
[[nodiscard]] int pool_take_role(struct pool *pool, uint32_t id,
                                 int64_t kv_capacity_tokens);

/* Stores the KV tokens that an instance reports as used.
 * Returns 0; -ESTALE; -EINVAL: negative. */
int pool_set_kv_used(struct pool *pool, uint32_t id, int64_t used_tokens);

/* Sets how many of the index's blocks one block of an instance has: it reuses
 * cached blocks of a prompt in multiples of that. Returns 0 or -ESTALE. */
int pool_set_reuse(struct pool *pool, uint32_t id, uint32_t blocks);

/* Returns whether pool_set_reuse() was ever called with more than 1. */
bool pool_reuses_in_steps(const struct pool *pool);

/*
 * Gives an instance a cost model of its own. A change sets its correction back
 * to 1, for accepted prefills too; their predictions by the cost model change
 * with pool_predict_again().
 *   cost  borrowed until the instance has another one or is removed; several
 *         instances may share it; NULL = the estimates' cost model.
 * Returns 0 or -ESTALE.
 */
int pool_set_cost(struct pool *pool, uint32_t id,
                  const struct cost_model *cost);

/* After a change of an instance's cost model, scales the predictions of its
 * waiting and running prefills by the ratio of their times in both models.
 * Otherwise the correction of the instance would learn the old model's error.
 *   from, to  borrowed for the call.
 * Returns 0 or -ESTALE. */
int pool_predict_again(struct pool *pool, uint32_t id,
                       const struct cost_model *from,
                       const struct cost_model *to);

/* Returns whether any instance has a cost model of its own. */
bool pool_costs_differ(const struct pool *pool);

/* Stores an instance's decodes from outside the pool, and their KV tokens.
 * Returns 0; -ESTALE; -EINVAL: negative. */
int pool_set_others(struct pool *pool, uint32_t id, int64_t decodes,
                    int64_t kv_tokens);

/*
 * Smooths a measured transfer into the sender's link rate.
 *   bytes, elapsed_us  both above 0, else the call changes nothing.
 * Returns 0 or -ESTALE.
 */
int pool_link_observed(struct pool *pool, uint32_t id, int64_t bytes,
                       int64_t elapsed_us);

/*
 * Stores the rates that an instance measured for blocks from other instances;
 * estimates of its own loads use them. Replaces the rates stored before.
 *   paths  (n), n at most POOL_PATHS_MAX, copied; rates above 0.
 * Returns 0, -ESTALE, or -EINVAL.
 */
[[nodiscard]] int pool_set_paths(struct pool *pool, uint32_t id,
                                 const struct pool_path *paths, uint32_t n);

/* Stores a tier's rate, which the instance has smoothed itself.
 *   bytes_per_s  above 0 and finite; TIER_SHARED: also 0 = it reads no shared
 *                store. Other values change nothing.
 * Returns 0, -ESTALE or -EINVAL: no such tier. */
[[nodiscard]] int pool_set_tier_rate(struct pool *pool, uint32_t id,
                                     enum block_tier tier, double bytes_per_s);

/* Returns a + b, and a - b. */
struct pool_work pool_work_add(struct pool_work a, struct pool_work b);
struct pool_work pool_work_less(struct pool_work a, struct pool_work b);

/* A prefill to accept. */
struct pool_prefill_request {
    uint64_t request_id;  /* unique among the instance's prefills */
    int64_t predicted_us; /* by the cost model, slowed down by the decodes
                             beside it; uncorrected */
    int64_t shared_us;    /* part of predicted_us: the constant of the step that
                             computes all waiting prefills together */
    int64_t ready_at_us;  /* when its blocks will have been fetched */
    int64_t loading_until_us; /* its blocks come until then while it computes;
                                 0 = it loads none */
    int64_t arrived_us;
    int64_t deadline_us; /* of its first token; 0 = none */
    bool implied;        /* deadline_us is of queue_implied_us(), not an SLO */
    int64_t uncached_tokens;
    int64_t cached_tokens;
    bool stage;            /* as in struct pool_prefill */
    struct pool_work work; /* zeros = decodes beside it do not count it */
    const uint64_t *keys;  /* (n_keys), copied: its pending blocks */
    size_t n_keys;
};

/*
 * Gives an instance a prefill. It waits from now on, and its blocks count as
 * pending there. Corrections of instances that had no prefill for long fade a
 * little: a slow instance gets no work, so nothing else would show that it has
 * become faster. Returns 0; -ESTALE; -EEXIST: it has a prefill of that request;
 * -ENOSPC: its queue is full; -EINVAL: a negative number.
 */
[[nodiscard]] int
pool_prefill_accept(struct pool *pool, uint32_t id,
                    const struct pool_prefill_request *request);

/* A link or tier that a request keeps busy until `until_us`. */
struct pool_booking {
    uint32_t holder;  /* pool id of the instance whose link or tier it is */
    unsigned channel; /* enum block_tier, POOL_EGRESS or POOL_INGRESS */
    int64_t until_us;
};

/*
 * Books a link or tier for an accepted prefill, from the time when it is free.
 * The unused rest of the booking is given back when the prefill leaves the
 * pool, whichever way it ends.
 *   id  the prefill's instance; POOL_NO_INSTANCE = no prefill in the pool: the
 *       booking is never given back.
 * Returns 0; -ESTALE: no such holder; -ENOENT: no such prefill; -EINVAL: no
 * such channel.
 */
int pool_book(struct pool *pool, const struct pool_booking *booking,
              uint32_t id, uint64_t request_id, int64_t now_us);

/* KV that an instance will push to another. */
struct pool_push {
    uint32_t from;  /* pool id of the prefill instance */
    int64_t bytes;  /* at least 0 */
    int64_t due_us; /* when its prefill will end */
};

/*
 * Books the push of a request's KV to its decode instance. The booking is given
 * back when the decode has started or ends.
 *   id  the decode instance.
 * Returns 0; -ESTALE; -ENOENT: no such decode, or it has started; -EEXIST: it
 * has such a booking; -EINVAL: negative bytes.
 */
int pool_book_push(struct pool *pool, const struct pool_push *push, uint32_t id,
                   uint64_t request_id);

/* Records that an instance began a waiting prefill.
 * Returns 0; -ESTALE; -ENOENT; -ENOSPC: max_running are begun already. */
int pool_prefill_started(struct pool *pool, uint32_t id, uint64_t request_id,
                         int64_t now_us);

/*
 * Records that a prefill is done, whether it waited or had started. It leaves
 * the instance, its pending blocks go (the instance has reported them stored by
 * then), its bookings are given back, and the correction learns from it.
 *   observed_us  time of service without waiting; negative = unknown.
 * Returns 0; -ESTALE; -ENOENT.
 */
int pool_prefill_done(struct pool *pool, uint32_t id, uint64_t request_id,
                      int64_t observed_us, int64_t now_us);

/* Teaches the correction by a step that computed several prefills; these are
 * done with an unknown time each.
 *   predicted_us  of the step by the cost model alone, shared_us counted once.
 *   observed_us   of the step.
 * Returns 0; -ESTALE. */
int pool_step_done(struct pool *pool, uint32_t id, int64_t predicted_us,
                   int64_t observed_us);

/* Records that a prefill was cancelled or failed: as pool_prefill_done(), but
 * the correction learns nothing, and `accepted` loses its work.
 * Returns 0; -ESTALE; -ENOENT. */
int pool_prefill_cancel(struct pool *pool, uint32_t id, uint64_t request_id,
                        int64_t now_us);

/* Gives an instance a decode, whose KV is on the way.
 * Returns 0; -ESTALE; -EEXIST; -ENOSPC: max_decodes or its max_batch;
 * -EINVAL: negative. */
[[nodiscard]] int pool_decode_accept(struct pool *pool, uint32_t id,
                                     uint64_t request_id, int64_t prompt_tokens,
                                     int64_t max_output_tokens);

/* A decode whose begin and end are predicted. */
struct pool_decode_request {
    uint64_t request_id;
    int64_t prompt_tokens;
    int64_t max_output_tokens;
    int64_t expected_tokens; /* of its output, 1..max_output_tokens */
    int64_t comes_us;        /* when its KV will begin to come */
    uint32_t prefill;        /* pool id of the prefill instance;
                                POOL_NO_INSTANCE = unknown */
    int64_t prefill_us;      /* time of its prefill */
};

/* As pool_decode_accept(), but reserves KV for the expected output, and accepts
 * more than max_batch: some decodes end before this one begins. A decode that
 * becomes longer than expected reserves more as it grows.
 * Returns as pool_decode_accept(); -ENOSPC: max_decodes of the pool, or
 * POOL_DECODES_AHEAD times that of the instance. */
[[nodiscard]] int pool_decode_expect(struct pool *pool, uint32_t id,
                                     const struct pool_decode_request *request);

/* Adds tokens of KV room that waiting requests need on an instance; a stale id
 * is ignored. pool_await_none() sets all instances back to 0. */
void pool_await(struct pool *pool, uint32_t id, int64_t tokens);
void pool_await_none(struct pool *pool);

/* Stores a decode's predicted output, and that prefills accepted from now on
 * run beside it. Returns 0; -ESTALE; -ENOENT. */
int pool_decode_likely(struct pool *pool, uint32_t id, uint64_t request_id,
                       int64_t likely_tokens);

/* Enters that a decode's KV begins to come now. Returns 0; -ESTALE; -ENOENT. */
int pool_decode_comes(struct pool *pool, uint32_t id, uint64_t request_id,
                      int64_t now_us);

/* Enters that a decode is in the batch. Returns 0; -ESTALE; -ENOENT. */
int pool_decode_started(struct pool *pool, uint32_t id, uint64_t request_id);

/* Stores how many tokens a decode has produced in total.
 * Returns 0; -ESTALE; -ENOENT; -EINVAL: negative. */
int pool_decode_progress(struct pool *pool, uint32_t id, uint64_t request_id,
                         int64_t produced_tokens);

/* Adds more_tokens to the produced tokens of every started decode, for steps of
 * a whole batch. Returns 0; -ESTALE; -EINVAL: negative. */
int pool_decode_advance(struct pool *pool, uint32_t id, int64_t more_tokens);

/* Removes a decode that ended, in whatever way. Returns 0; -ESTALE; -ENOENT. */
int pool_decode_done(struct pool *pool, uint32_t id, uint64_t request_id);

/* Returns the remaining time (us) of running prefills, corrected, at least 0.
 * Cost: O(1) while none of them is late, else O(running). */
int64_t pool_running_left_us(const struct pool_instance *instance,
                             int64_t now_us);

/* The place of a new prefill in an instance's queue. */
struct pool_place {
    int64_t wait_us;  /* until it begins, if no other request comes */
    int64_t most_us;  /* until it begins in the worst case: where the order lets
                         others pass, all that wait now go first */
    int64_t doubt_us; /* possible error of the prediction of most_us and its own
                         cost; 0 = predictions have been exact */
    uint32_t behind;  /* prefills that would wait for it */
};

/*
 * Returns the place in the queue of a new prefill that is not loading.
 *   ready_at_us  when its blocks would be there; at most now_us = at once.
 *   cost_us      its own corrected cost.
 *   deadline_us  of its first token; 0 = none.
 * Cost: as queue_wait_us().
 */
struct pool_place pool_queue_place(const struct pool *pool,
                                   const struct pool_instance *instance,
                                   int64_t ready_at_us, int64_t cost_us,
                                   int64_t deadline_us, int64_t now_us);

/*
 * Returns the time at which a running prefill will have computed a prompt's
 * leading blocks. Under orders that interrupt, a prefill that can reuse them
 * does not begin before (yield.h).
 *   keys  (n), borrowed: of these blocks, at least 1.
 * Returns 0 if they are computed, no running prefill computes all of them, or
 * the order does not interrupt. Cost: O(running).
 */
int64_t pool_computed_us(const struct pool *pool,
                         const struct pool_instance *instance,
                         const uint64_t *keys, uint32_t n, int64_t now_us);

/*
 * Returns when the waiting prefill that `item` would follow (step/follow.h),
 * because it computes the prompt's leading blocks, will have ended.
 *   keys  (n), borrowed: of these blocks, at least 1.
 *   item  borrowed: the newcomer, with its cost once these blocks are there.
 * Returns 0 if it would follow none. Cost: O(waiting).
 */
int64_t pool_followed_us(const struct pool *pool,
                         const struct pool_instance *instance,
                         const uint64_t *keys, uint32_t n,
                         const struct queue_item *item, int64_t now_us);

/*
 * Returns the KV tokens of a request on an instance at its longest: its prompt
 * and all output tokens except the last, which is never fed back, rounded up to
 * whole blocks.
 *   prompt_tokens, max_output_tokens  at least 0.
 */
int64_t pool_kv_tokens(const struct pool_instance *instance,
                       int64_t prompt_tokens, int64_t max_output_tokens);

/*
 * Finds, for every slot, how many leading blocks of a prompt are pending on the
 * instance: unfinished prefills will leave them there.
 *   match  of prefix_match_init() for at least as many instances; written.
 * Cost: as prefix_index_match().
 */
void pool_pending_match(struct pool *pool, const uint64_t *keys, size_t n,
                        struct prefix_match *match);

/* Returns by how many blocks the pending blocks of an instance and n_new more
 * exceed its cache. 0 = they fit, or unknown: no cache_tokens, or the instance
 * also decodes, and answers share its cache. O(1). */
uint32_t pool_blocks_over(const struct pool *pool,
                          const struct pool_instance *instance, uint32_t n_new);

/*
 * Counts blocks as pending on an instance without a prefill in the pool, until
 * pool_unexpect() with the same keys, which must come before pool_remove().
 *   keys  (n), borrowed, from the prompt's first block on.
 * Returns 0; -ESTALE; -ENOSPC: max_pending_blocks; -EINVAL: a key of 0.
 */
[[nodiscard]] int pool_expect(struct pool *pool, uint32_t id,
                              const uint64_t *keys, size_t n);
void pool_unexpect(struct pool *pool, uint32_t id, const uint64_t *keys,
                   size_t n);

/* Returns how many accepted prefills had blocks beyond max_pending_blocks. */
uint64_t pool_pending_dropped(const struct pool *pool);

/* Returns how many times an interrupted prefill went on. */
uint64_t pool_interrupted(const struct pool *pool);

#endif
