/*
 * The instances as the scheduler sees them: role, health, accepted work, KV
 * room, links. Workers' reports and decisions change them; nothing here calls
 * outward.
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
    uint32_t max_pending_blocks; /* blocks of unfinished prefills, each counted
                                once for an instance; matches do not see those
                                beyond it until they are stored */
    uint32_t max_bookings;       /* of links and tiers by unfinished prefills;
                                    bookings beyond it are not given back early */
    const struct queue_order *order; /* static; NULL: fifo */
    int64_t patience_us;             /* of yield_has_time(); above 0 */
    int64_t correction_tau_us; /* predicted work that it learns from, above 0 */
    double correction_min_ratio;
    double correction_max_ratio;
    bool uncorrected; /* predictions stay as they are, whatever is observed */
    double link_smoothing; /* weight of a new observed link rate, (0, 1] */
    bool shared_steps; /* an instance computes several prompts in one step: of
                          the time of a prefill, what passed before the one in
                          front of it was done is not its own */
    uint32_t step_tokens; /* most tokens of a chunk, behind which a prefill may
                             be interrupted; 0: chunks are short */
    bool grows; /* the tables of pending blocks are small at first, and double:
                   at once, some ms, and so for simulations */
    uint64_t seed; /* of the table of pending blocks: random where strangers
                      choose keys */
};

/* 64 instances, 512 waiting, 64 running, 1024 decodes, 1 << 18 pending
 * blocks, 1 << 16 bookings, fifo, 30 s of patience, 60 s in 0.25 .. 4, 0.25,
 * seed 1. */
extern const struct pool_config pool_config_default;

/* What the pool must know of an instance when it registers. */
struct pool_instance_config {
    const char *name;           /* borrowed; cut to POOL_NAME_BYTES - 1 */
    unsigned role;              /* ROLE_*, at least one */
    int64_t kv_capacity_tokens; /* above 0 */
    double link_bytes_per_s;    /* first guess, at least 0 */
    double tier_bytes_per_s[LOAD_TIERS]; /* at least 0; 0: at no cost, and of
                                            TIER_SHARED that there is none */
    uint32_t block_tokens;               /* of its KV blocks; 0: 1 */
    int64_t cache_tokens;   /* that all its tiers hold; 0: not known */
    uint32_t max_batch;     /* decodes that it steps together; 0: any */
    uint32_t window_tokens; /* of its model, or smaller; 0: any */
    uint32_t most_stages;   /* as in struct pool_instance */
    bool switches;          /* likewise */
    const struct queue_order *order; /* static: its own; NULL: the pool's */
    uint8_t pair; /* as in struct pool_instance, below POOL_PAIRS */
};

struct pool;

/*
 * Makes a pool without instances. All memory is reserved here (untouched
 * pages cost nothing); no later call allocates.
 *   config  borrowed for the call.
 * Returns it, owned by the caller, or NULL: out of memory or bad bounds.
 */
[[nodiscard]] struct pool *pool_new(const struct pool_config *config);

/* Frees the pool. NULL is a no-op. */
void pool_free(struct pool *pool);

/* What it was made with; `order` is never NULL. Borrowed. max_instances bounds
 * its slots: it is the length of arrays that are indexed by slot. */
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

/* The instance of an id, borrowed until it is removed; NULL if stale. */
const struct pool_instance *pool_get(const struct pool *pool, uint32_t id);

/* The instance in a slot, borrowed; NULL if the slot is free or beyond. */
const struct pool_instance *pool_at(const struct pool *pool, uint32_t slot);

/* All of these, (max_instances), borrowed: for loops over all slots. */
const struct pool_instance *const *pool_instances(const struct pool *pool);

/* One above the highest slot in use: for (s = 0; s < pool_slots(p); s++). */
uint32_t pool_slots(const struct pool *pool);

/* By slot, the roles of instances for which pool_takes_work(), 0 for others;
 * borrowed. A search for one role reads a byte instead of an instance. */
const uint8_t *pool_ready_roles(const struct pool *pool);

/*
 * Changes the health of an instance, if the transition table allows it:
 *   starting -> ready, draining, suspect, gone
 *   ready    -> draining, suspect, gone
 *   draining -> ready, suspect, gone
 *   suspect  -> ready, draining, gone
 * The same state again is allowed and changes nothing.
 * Returns 0; -ESTALE; -EPERM: no such transition.
 */
[[nodiscard]] int pool_set_health(struct pool *pool, uint32_t id,
                                  enum pool_health health);

/*
 * Drains an instance, or lets it go again: it gets no work meanwhile, and may
 * still send blocks. Its health goes on changing as if nothing had happened, so
 * that it is known when it is let go.
 * Returns 0 or -ESTALE.
 */
[[nodiscard]] int pool_hold(struct pool *pool, uint32_t id, bool held);

/*
 * An instance is to take another role: it gets no work until it has it, by
 * pool_take_role(). Its present one: it keeps that, whatever it was to take.
 * Returns 0; -ESTALE; -EINVAL: no such role, or it can take none.
 */
[[nodiscard]] int pool_switch(struct pool *pool, uint32_t id, unsigned role);

/*
 * An instance that was to take another role and is empty (pool_is_empty())
 * takes it.
 *   kv_capacity_tokens  that it has then, above 0.
 * Returns 0; -ESTALE; -EINVAL: it is to take none, or the capacity; -EBUSY: it
 * has work.
 */
[[nodiscard]] int pool_take_role(struct pool *pool, uint32_t id,
                                 int64_t kv_capacity_tokens);

/* Stores the KV tokens that an instance reports as used.
 * Returns 0; -ESTALE; -EINVAL: negative. */
int pool_set_kv_used(struct pool *pool, uint32_t id, int64_t used_tokens);

/* Of a cached prompt an instance reuses multiples of so many of the index's
 * blocks, since its own are as large. Returns 0 or -ESTALE. */
int pool_set_reuse(struct pool *pool, uint32_t id, uint32_t blocks);

/* Whether one of the instances that there were has such a multiple. */
bool pool_reuses_in_steps(const struct pool *pool);

/*
 * Gives an instance a cost model of its own. Another one than it had begins
 * with another correction, of 1.
 *   cost  borrowed until the instance has another one or is removed; several
 *         instances may share it; NULL: that of the estimates.
 * Returns 0 or -ESTALE.
 */
int pool_set_cost(struct pool *pool, uint32_t id,
                  const struct cost_model *cost);

/* Whether an instance has a cost model of its own. */
bool pool_costs_differ(const struct pool *pool);

/* Stores how many decodes an instance has besides those that the pool gave it,
 * and the KV tokens of these. Returns 0; -ESTALE; -EINVAL: negative. */
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
 * How fast blocks come to an instance from others, as it measured that itself:
 * estimates of what it loads from them go by this, and nobody else's do. What
 * it does not name any more is not known any more.
 *   paths  (n), n at most POOL_PATHS_MAX, copied; rates above 0.
 * Returns 0, -ESTALE, or -EINVAL.
 */
[[nodiscard]] int pool_set_paths(struct pool *pool, uint32_t id,
                                 const struct pool_path *paths, uint32_t n);

/* Stores a tier's rate, which the instance has smoothed itself.
 *   bytes_per_s  above 0 and finite, else the call changes nothing.
 * Returns 0, -ESTALE or -EINVAL: no such tier. */
[[nodiscard]] int pool_set_tier_rate(struct pool *pool, uint32_t id,
                                     enum block_tier tier, double bytes_per_s);

/* Sums and differences. */
struct pool_work pool_work_add(struct pool_work a, struct pool_work b);
struct pool_work pool_work_less(struct pool_work a, struct pool_work b);

/* A prefill to accept. */
struct pool_prefill_request {
    uint64_t request_id;  /* unique among the instance's prefills */
    int64_t predicted_us; /* by the cost model, with what decodes beside it add
                             to it; uncorrected */
    int64_t shared_us;    /* of that, at most all: what all that wait together
                             pay once, as one step computes them */
    int64_t ready_at_us;  /* when its blocks will have been fetched */
    int64_t loading_until_us; /* until then blocks come while it computes; 0:
                                 none do */
    int64_t arrived_us;
    int64_t deadline_us; /* 0: none */
    int64_t uncached_tokens;
    int64_t cached_tokens;
    bool stage; /* of a prompt that several compute: nothing interrupts it */
    struct pool_work work; /* zeros: no matter to anybody */
    const uint64_t *keys;  /* (n_keys), copied: the blocks are expected there
                             from now on */
    size_t n_keys;
};

/*
 * Gives an instance a prefill. It waits from now on, and its blocks count as
 * pending there. The corrections of instances that have had no prefill for long
 * fade a little: a slow instance gets no work, so nothing else would show that
 * it is no longer slow.
 * Returns 0; -ESTALE; -EEXIST: that request is there already; -ENOSPC: its
 * queue is full; -EINVAL: a negative number.
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
 * What is left of the booking is given back when the prefill leaves the pool,
 * whichever way it ends.
 *   id  where the prefill is; POOL_NO_INSTANCE: the booking is for something
 *       that the pool does not know, and is never given back.
 * Returns 0; -ESTALE: no such holder; -ENOENT: no such prefill; -EINVAL: no
 * such channel.
 */
int pool_book(struct pool *pool, const struct pool_booking *booking,
              uint32_t id, uint64_t request_id, int64_t now_us);

/* KV that an instance will push to another. */
struct pool_push {
    uint32_t from;  /* pool id of who prefills it */
    int64_t bytes;  /* at least 0 */
    int64_t due_us; /* when its prefill will end */
};

/*
 * Books the KV that is pushed to where a request decodes. It is given back when
 * the decode has started or ends.
 *   id  where the decode is.
 * Returns 0; -ESTALE; -ENOENT: no such decode that has not started; -EEXIST:
 * it has such a booking; -EINVAL.
 */
int pool_book_push(struct pool *pool, const struct pool_push *push, uint32_t id,
                   uint64_t request_id);

/* A prefill's blocks have come (earlier or later than estimated): it is ready
 * from now on.
 * Returns 0; -ESTALE; -ENOENT: no such prefill waits. */
int pool_prefill_ready(struct pool *pool, uint32_t id, uint64_t request_id,
                       int64_t now_us);

/* The instance began a prefill.
 * Returns 0; -ESTALE; -ENOENT; -ENOSPC: max_running are begun already. */
int pool_prefill_started(struct pool *pool, uint32_t id, uint64_t request_id,
                         int64_t now_us);

/*
 * A prefill is done, whether it waited or had started. It leaves the instance,
 * its pending blocks go (the instance has reported them stored by then), what
 * is left of its bookings is given back, and the correction learns from it.
 *   observed_us  time of service without waiting; negative: unknown.
 * Returns 0; -ESTALE; -ENOENT.
 */
int pool_prefill_done(struct pool *pool, uint32_t id, uint64_t request_id,
                      int64_t observed_us, int64_t now_us);

/* Several prefills that one step computed took observed_us: by the cost model
 * alone predicted_us, what they share counted once. The correction learns from
 * it, as it does not from each of them, which are done with an unknown time.
 * Returns 0; -ESTALE. */
int pool_step_done(struct pool *pool, uint32_t id, int64_t predicted_us,
                   int64_t observed_us);

/* A prefill was cancelled or failed: as pool_prefill_done(), but nothing is
 * learned.
 * Returns 0; -ESTALE; -ENOENT. */
int pool_prefill_cancel(struct pool *pool, uint32_t id, uint64_t request_id,
                        int64_t now_us);

/* An instance will decode a request; its KV is on the way.
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
    uint32_t prefill;        /* pool id of who prefills it, and how long that */
    int64_t prefill_us;      /* takes; POOL_NO_INSTANCE: not told */
};

/* As pool_decode_accept(), but KV is reserved for the expected output, and an
 * instance may get more than its max_batch: some end before this one begins. A
 * decode that turns out longer reserves more as it grows.
 * Returns as that; -ENOSPC: max_decodes of the pool, or POOL_DECODES_AHEAD
 * times its own. */
[[nodiscard]] int pool_decode_expect(struct pool *pool, uint32_t id,
                                     const struct pool_decode_request *request);

/* Requests that no instance has yet wait for so many more tokens of room on one
 * (which may be gone); and for none, on any. */
void pool_await(struct pool *pool, uint32_t id, int64_t tokens);
void pool_await_none(struct pool *pool);

/* What is accepted from now on runs beside a decode, or waits, and its output
 * is likely to have so many tokens. Returns 0; -ESTALE; -ENOENT. */
int pool_decode_likely(struct pool *pool, uint32_t id, uint64_t request_id,
                       int64_t likely_tokens);

/* A decode's KV begins to come now, earlier or later than predicted. Returns 0;
 * -ESTALE; -ENOENT. */
int pool_decode_comes(struct pool *pool, uint32_t id, uint64_t request_id,
                      int64_t now_us);

/* A decode's KV has come; it is in the batch. Returns 0; -ESTALE; -ENOENT. */
int pool_decode_started(struct pool *pool, uint32_t id, uint64_t request_id);

/* A decode has produced so many tokens in total.
 * Returns 0; -ESTALE; -ENOENT; -EINVAL: negative. */
int pool_decode_progress(struct pool *pool, uint32_t id, uint64_t request_id,
                         int64_t produced_tokens);

/* Every started decode of an instance has produced so many more tokens: for
 * steps of a whole batch. Returns 0; -ESTALE; -EINVAL: negative. */
int pool_decode_advance(struct pool *pool, uint32_t id, int64_t more_tokens);

/* A decode ended, in whatever way. Returns 0; -ESTALE; -ENOENT. */
int pool_decode_done(struct pool *pool, uint32_t id, uint64_t request_id);

/* What is left of the work in service, corrected, at least 0.
 * Cost: O(1) while none of it is late, else O(running). */
int64_t pool_running_left_us(const struct pool_instance *instance,
                             int64_t now_us);

/* The place of a new prefill in an instance's queue. */
struct pool_place {
    int64_t wait_us;  /* until it begins, if nothing else comes */
    int64_t most_us;  /* until it begins, whatever comes: where the order lets
                         others pass, all that waits now goes first */
    int64_t doubt_us; /* by which that and its own time may exceed what is
                         predicted; 0: predictions have been exact */
    uint32_t behind;  /* prefills that would wait for it */
};

/*
 * Where a new prefill that is not loading would stand, by the queue order.
 *   ready_at_us  when its blocks would be there; at most now_us: at once.
 *   cost_us      its own corrected cost; deadline_us 0: none.
 * Cost: see queue_wait_us().
 */
struct pool_place pool_queue_place(const struct pool *pool,
                                   const struct pool_instance *instance,
                                   int64_t ready_at_us, int64_t cost_us,
                                   int64_t deadline_us, int64_t now_us);

/*
 * When prefills that have begun will have computed a prompt's first blocks,
 * where those that wait may interrupt them: nobody who can use these begins
 * before (yield.h).
 *   keys  (n), borrowed: of the blocks, at least 1.
 * Returns 0: they are there, or none of them computes all of these. Cost:
 * O(running).
 */
int64_t pool_computed_us(const struct pool *pool,
                         const struct pool_instance *instance,
                         const uint64_t *keys, uint32_t n, int64_t now_us);

/*
 * When the waiting prefill that `item` would follow (step/follow.h) will have
 * ended, which makes a prompt's first blocks.
 *   keys  (n), borrowed: of these blocks, at least 1.
 *   item  borrowed: the newcomer, with what it costs behind them.
 * Returns 0: it would follow none. Cost: O(waiting).
 */
int64_t pool_followed_us(const struct pool *pool,
                         const struct pool_instance *instance,
                         const uint64_t *keys, uint32_t n,
                         const struct queue_item *item, int64_t now_us);

/*
 * The KV of a request on an instance at its longest: its prompt and all output
 * tokens except the last, which is never fed back, in whole blocks.
 *   prompt_tokens, max_output_tokens  at least 0; 0 or 1 output tokens: the
 *                                     prompt's KV alone.
 */
int64_t pool_kv_tokens(const struct pool_instance *instance,
                       int64_t prompt_tokens, int64_t max_output_tokens);

/*
 * For every slot, how many leading blocks the instance is expected to hold
 * because unfinished prefills on it cover them.
 *   match  of prefix_match_init() for at least as many instances; written.
 * Cost: as prefix_index_match().
 */
void pool_pending_match(struct pool *pool, const uint64_t *keys, size_t n,
                        struct prefix_match *match);

/* By how many blocks more its tiers would have to hold, for all that unfinished
 * prefills will leave there and n_new more. 0 = none, or not known: nobody told
 * the size of its tiers, or it also decodes, so that answers share them. O(1).
 */
uint32_t pool_blocks_over(const struct pool *pool,
                          const struct pool_instance *instance, uint32_t n_new);

/*
 * An instance will have the blocks of a prompt, although no prefill of the pool
 * says so: they count as those of unfinished prefills, until pool_unexpect()
 * with the same keys, which must be called before pool_remove().
 *   keys  (n), borrowed, from the prompt's first block on.
 * Returns 0; -ESTALE; -ENOSPC: max_pending_blocks; -EINVAL, -EEXIST: keys that
 * no prompt has.
 */
[[nodiscard]] int pool_expect(struct pool *pool, uint32_t id,
                              const uint64_t *keys, size_t n);
void pool_unexpect(struct pool *pool, uint32_t id, const uint64_t *keys,
                   size_t n);

/* Accepted prefills whose blocks did not fit into max_pending_blocks. */
uint64_t pool_pending_dropped(const struct pool *pool);

/* How often a prefill went on that had been interrupted by another one. */
uint64_t pool_interrupted(const struct pool *pool);

#endif
