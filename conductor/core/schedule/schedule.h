/*
 * Chooses where a request is prefilled, where its blocks come from, and where
 * it is decoded. The same inputs give the same decision, byte for byte.
 *
 * A policy (policy.h) chooses the prefill instance. If its choice misses the
 * TTFT SLO and the candidate with the lowest worst-case TTFT meets it, the
 * latter is chosen (not under global_cache). The decode instance is the one
 * with the lowest predicted TBT among those with room. A request that misses an
 * SLO is rejected.
 */
#ifndef CONDUCTOR_CORE_SCHEDULE_SCHEDULE_H
#define CONDUCTOR_CORE_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/core/index/prefix_index.h"
#include "conductor/core/plan/estimate.h"
#include "conductor/core/pool/pool.h"
#include "conductor/core/price/price.h"
#include "conductor/core/schedule/admission.h"
#include "conductor/core/schedule/policy.h"

#define SCHEDULE_EXCLUDE_MAX 8
/* Most peers that a plan loads from, and most sources of it in all. */
#define SCHEDULE_PEERS_MAX 3
#define SCHEDULE_SOURCES_MAX (SCHEDULE_PEERS_MAX + LOAD_TIERS)

/* Most instances lent to one prefill; tokens of a chunk between stages. */
#define SCHEDULE_LENT_MAX 15
#define SCHEDULE_CHUNK_TOKENS 512
/* Most time of a group, or its links, as a share of the leader's time alone. */
#define SCHEDULE_LEND_GAIN 0.9

struct scheduler;

/* schedule_share(pool, store, tier, match): extends the match of each instance
 * that has a rate for the tier by the following blocks of `store`, an instance
 * of the index. O(instances). */
void schedule_share(const struct pool *pool, uint32_t store,
                    enum block_tier tier, struct prefix_match *match);

struct schedule_config {
    const struct schedule_policy *policy;
    const double *options; /* (POLICY_OPTIONS_MAX), set by policy_options_set();
                              NULL = the initial values */
    const char *admission; /* "plain" or "none"; NULL: plain */
};

struct schedule_request {
    uint64_t request_id;
    const uint64_t *keys; /* (n_keys), of its full blocks; borrowed */
    size_t n_keys;
    int64_t n_tokens;          /* of the prompt, at least 1 */
    int64_t max_output_tokens; /* at least 1; 1 needs no decode */
    uint32_t whole; /* a bit per group whose pairs must not split the request:
                       one instance does all */
    int64_t expected_tokens; /* predicted output; 0 = unknown */
    int64_t median_tokens;   /* median of the predicted output; 0 = unknown */
    int64_t slo_ttft_us;     /* rest of the SLO from now; 0 = no SLO */
    int64_t waited_us;       /* since arrival, not part of slo_ttft_us */
    int64_t slo_tbt_us;      /* 0 = none */
    bool may_hold;           /* its first token can wait for its KV */
    uint64_t n_held;         /* requests waiting in the conductor */
    int64_t due_us; /* absolute: due time of the first token of a request that
                       was accepted before and is no longer refused (slo_ttft_us
                       is 0); 0 = no SLO, or late anyway */
    double price_times;    /* factor on its price */
    int64_t queue_most_us; /* longest queue allowed; 0 = any. Only plan */
    int64_t now_us;
    uint32_t session; /* pool id of the instance that served its session last,
                         slightly preferred by plan; POOL_NO_INSTANCE: none */
    uint32_t only;    /* pool id of the one instance that may take it;
                         POOL_NO_INSTANCE: any */
    const uint64_t *eligible; /* (max_instances / 64, rounded up), borrowed: a
                                 bit per slot whose instance may serve the
                                 request or send blocks; may change between
                                 decisions; NULL = all */
    /* Pool ids that failed this request: neither chosen nor fetched from. */
    uint32_t exclude[SCHEDULE_EXCLUDE_MAX];
    size_t n_exclude;
};

/* Returns when queues count the first token as due, absolute; 0 = never. */
int64_t schedule_deadline_us(const struct schedule_request *request);

/* Returns this time for plan's instance: earlier by the plan's last step, which
 * other prompts may share, as far as the plan still meets it. */
int64_t schedule_due_us(const struct schedule_request *request,
                        const struct prefill_estimate *plan);

enum schedule_verdict {
    SCHEDULE_ACCEPT,
    SCHEDULE_REJECT_TTFT,         /* no choice within the TTFT SLO */
    SCHEDULE_REJECT_TBT,          /* no choice within the TBT SLO */
    SCHEDULE_REJECT_PRICE,        /* too much work for the KV it leaves */
    SCHEDULE_REJECT_SHARE,        /* from dispatch: other tenants had less */
    SCHEDULE_NO_PREFILL_INSTANCE, /* no large enough instance is ready */
    SCHEDULE_NO_DECODE_INSTANCE,  /* no large enough instance is ready */
    SCHEDULE_DECODE_FULL,         /* no decode instance has room now */
    SCHEDULE_LINK_BUSY,           /* too much other KV on the way to decode */
    SCHEDULE_QUEUE_FULL,          /* every prefill queue is at its bound */
    SCHEDULE_TOO_LONG,            /* longer than any instance's KV */
};
#define SCHEDULE_VERDICTS 11

/* A source of blocks [from_block, to_block) of a prompt: another instance, or a
 * slow tier of the prefill instance itself. */
struct schedule_source {
    uint32_t instance;    /* pool id; for an own tier the prefill instance */
    enum block_tier tier; /* own tier; of a peer the slowest one read */
    uint32_t from_block;
    uint32_t to_block;
};

/* Idle instances that compute shares of a prompt's layers behind the chosen
 * one: see lend.c. */
struct schedule_lent {
    uint32_t n;
    uint32_t members[SCHEDULE_LENT_MAX]; /* pool ids */
    double share; /* time of a chunk's longest stage / on one instance */
};

/* The chosen instances, and why. Pool ids are POOL_NO_INSTANCE if none is
 * chosen. */
struct schedule_decision {
    enum schedule_verdict verdict;
    uint32_t prefill; /* pool id; also set if an SLO rejects */
    uint32_t decode;  /* pool id; may equal prefill; none for 1 output token */
    struct prefill_estimate chosen; /* its estimate; all 0 = none chosen */
    uint32_t stored_blocks;         /* how many of chosen.local_blocks were
                                       reported; the others are expected */
    /* If chosen.planned: the plan. Its source indices refer to sources[]. */
    struct load_plan plan;
    struct schedule_source sources[SCHEDULE_SOURCES_MAX];
    size_t n_sources;
    struct schedule_lent lent; /* if lent.n > 0, chosen has the group's times */
    double engine_price; /* if planned: seconds that other requests wait per
                            second of engine time, as estimated */
    int64_t tbt_us;      /* of decode; 0 = none */
    int64_t behind_us;   /* by which other KV delays its own on the link */
    int64_t gap_us;      /* from its prefill's end until its KV has come */
    bool holds;          /* its first token waits for its KV */
    int64_t hold_us;     /* predicted delay of the first token */
    int64_t n_slowed;    /* token intervals that share such a wait in tbt_us */
    double price_us;     /* from schedule_price(): its price, 0 = none; and the
                            limit, 0 = none */
    double price_limit_us;
    int64_t retry_after_us; /* if rejected: time until it would fit, with
                               further arrivals for a missed TTFT or a price,
                               else without; -1 = never or unknown */
    bool never;             /* rejected for its TTFT, which even empty queues
                               and the full SLO would not meet */
    int64_t tested_us;      /* from now: time tested against the TTFT SLO, the
                               TTFT if every prefill allowed to pass it does; 0
                               = not tested */
    /* Every ready instance estimated, by slot. Borrowed from the scheduler
     * until its next schedule_decide(). */
    const struct prefill_estimate *candidates;
    size_t n_candidates;
    const struct decode_estimate *decode_candidates;
    size_t n_decode_candidates;
};

/* Returns the time that the chosen prefill takes of instances, us; with lent
 * ones the group's time, times the number of its instances. */
static inline int64_t schedule_spent_us(const struct schedule_decision *d)
{
    return d->chosen.prefill_us * (1 + (int64_t)d->lent.n);
}

/*
 * Makes a scheduler.
 *   config  borrowed for the call.
 *   model   copied; model->cost and model->simulated.expected are borrowed as
 *           long as the scheduler lives, the contents of the cost model may be
 *           replaced between calls.
 *   pool, index  borrowed as long as the scheduler lives; the index holds at
 *                least max_instances of the pool.
 * Returns it, owned by the caller, or NULL: out of memory, no policy, no such
 * admission, a bad value, an index with fewer instances than the pool, or
 * expected blocks of another number of instances than the index.
 */
[[nodiscard]] struct scheduler *
scheduler_new(const struct schedule_config *config,
              const struct estimate_model *model, struct pool *pool,
              struct prefix_index *index);

/* Frees a scheduler, but not the pool nor the index. NULL is a no-op. */
void scheduler_free(struct scheduler *scheduler);

/*
 * Decides on one request. Changes only the policy's own state; accept the work
 * with schedule_commit().
 *   decision  written in full.
 * Cost: hashing aside, a match and O(instances) estimates.
 */
void schedule_decide(struct scheduler *scheduler,
                     const struct schedule_request *request,
                     struct schedule_decision *decision);

/*
 * Prices a request on its arrival, if the policy's options enable it: counts
 * its blocks and, with a TTFT SLO, adds it to the arrivals. Call it once for
 * each request, with the decision on it. An accepting decision becomes
 * SCHEDULE_REJECT_PRICE if the price is above the limit.
 */
void schedule_price(struct scheduler *scheduler,
                    const struct schedule_request *request,
                    struct schedule_decision *decision);

/* Returns the time from now that is tested against the TTFT SLO. */
int64_t schedule_tested_us(const struct scheduler *scheduler,
                           const struct prefill_estimate *prefill);

/* A request in the form that other conductors of the same instances get: they
 * count its blocks and its work in their prices, too. */
struct schedule_asked {
    struct price_work work; /* schedule_heard() sets its block_tokens */
    double times;           /* factor on its price */
    int64_t slo_ttft_us;    /* 0 = not counted as an arrival */
    bool feasible;          /* only its price could refuse it */
};

/* schedule_asked(scheduler, request, decision, out): writes the input of
 * schedule_price(); call it before or after. out borrows the request's keys.
 * Returns false if the request is not priced. */
bool schedule_asked(const struct scheduler *scheduler,
                    const struct schedule_request *request,
                    const struct schedule_decision *decision,
                    struct schedule_asked *out);

/* schedule_heard(scheduler, asked, now_us): counts a request that another
 * conductor decided on. */
void schedule_heard(struct scheduler *scheduler,
                    const struct schedule_asked *asked, int64_t now_us);

#define SCHEDULE_PIECE_TOKENS 8192
/* Returns the time (us), by the model's cost model, to compute `tokens` (at
 * least 1) of unknown prompts: whole prompts of SCHEDULE_PIECE_TOKENS and a
 * rest. */
double schedule_work_us(const struct scheduler *scheduler, int64_t tokens);

/* Returns the expected TTFT of a decision not yet committed: chosen.ttft_us, or
 * later if a prefill that computes its pending blocks ends later. Comparisons
 * and SLO tests ignore this delay. Cost: O(waiting prefills of the
 * instance). */
int64_t schedule_expected_us(const struct scheduler *scheduler,
                             const struct schedule_request *request,
                             const struct schedule_decision *decision);

/* Returns the least prefill time of any candidate, us; INT64_MAX without
 * candidates. Cost: O(candidates). */
int64_t schedule_shortest_us(const struct schedule_decision *decision);

/* Returns the rank of a waiting request among those of its tenant, the lowest
 * first: its least prefill time and its age, weighed as in shortest_first; 0
 * where instances serve by age. Cost: O(candidates). */
int64_t schedule_rank(const struct scheduler *scheduler,
                      const struct schedule_decision *decision,
                      int64_t arrived_us);

/* Returns whether the admission policy accepts requests that miss the TTFT. */
bool schedule_admits_late(const struct scheduler *scheduler);

/*
 * Enters an accepted decision into the pool: the prefill with its pending
 * blocks, the decode's reservation and the sender's egress link.
 * Returns 0, or with nothing changed: -EINVAL: not an accepting decision;
 * -ESTALE, -ENOSPC, -EEXIST: the pool has changed since.
 */
[[nodiscard]] int schedule_commit(struct scheduler *scheduler,
                                  const struct schedule_request *request,
                                  const struct schedule_decision *decision);

/*
 * Returns the least time of a prefill with any number of lent instances, if
 * links took no time.
 *   layers    of the model.
 *   uncached  tokens to compute, behind `cached` ones.
 *   alone_us  its time on one instance.
 * Cost: O(SCHEDULE_LENT_MAX).
 */
int64_t schedule_least_us(const struct schedule_rules *rules,
                          const struct cost_model *cost, uint32_t layers,
                          int64_t uncached, int64_t cached, int64_t alone_us);

/* Frees the instances lent to a request: call it when its prefill is done,
 * failed or cancelled. Sets lent->n to 0; a no-op if it is 0. */
void schedule_give_back(struct pool *pool, struct schedule_lent *lent,
                        uint64_t request_id, int64_t now_us);

/* schedule_pool(scheduler): returns the pool given to scheduler_new(). */
struct pool *schedule_pool(const struct scheduler *scheduler);

/* Returns the policy's rules without those that this cluster cannot use; their
 * times are slowed like all others. Borrowed. */
const struct schedule_rules *
schedule_rules_of(const struct scheduler *scheduler);

/* schedule_model(scheduler): returns its copy of the model. Borrowed. */
const struct estimate_model *schedule_model(const struct scheduler *scheduler);

/* Blocks of a prompt by instance. Borrowed until the next decision or look. */
struct schedule_look {
    const struct pool *pool;
    const struct estimate_model *model;
    const struct prefix_index *index;
    const uint32_t *stored;   /* by slot: leading blocks stored */
    const uint32_t *expected; /* the same, once its prefills end */
};

/*
 * Looks up the blocks of a prompt that instances hold.
 *   keys    (n_keys), borrowed for the call.
 *   shared  true: blocks in the shared store count as stored by each
 *           instance that reads it; false: only its own blocks count.
 * Cost: a match of stored and one of expected blocks.
 */
struct schedule_look schedule_look(struct scheduler *s, const uint64_t *keys,
                                   size_t n_keys, int64_t n_tokens,
                                   bool shared);

/* Returns the leading blocks that the instance in a slot has or will have. */
static inline uint32_t schedule_looked(const struct schedule_look *look,
                                       uint32_t slot)
{
    return look->stored[slot] > look->expected[slot] ? look->stored[slot]
                                                     : look->expected[slot];
}

/* Returns whether any of a prompt's first n blocks is only in slow tiers of an
 * instance. O(n) where it has a slow tier. */
bool schedule_looked_slow(const struct schedule_look *look,
                          const struct pool_instance *instance,
                          const uint64_t *keys, uint32_t n);

/* Enters a prefill that serves no request into the pool. Returns as
 * pool_prefill_accept(). */
[[nodiscard]] int
schedule_accept_piece(struct scheduler *s,
                      const struct pool_prefill_request *request,
                      uint32_t instance);

/* Room to decode that a request waits for: the instance had had_tokens of room,
 * and the request needs needs_tokens. */
struct schedule_room {
    uint32_t instance; /* POOL_NO_INSTANCE: it waits for no room */
    bool only;         /* no other instance can take the request */
    int64_t had_tokens;
    int64_t needs_tokens;
};

/* Returns the room that a request waits for where others may pass it (bypass):
 * on the chosen instance if that one also decodes (aggregated pools), else on
 * the decode instance with the most room. */
struct schedule_room schedule_room(const struct scheduler *scheduler,
                                   const struct schedule_request *request,
                                   const struct schedule_decision *decision);

/* Returns false if room->only is set and its instance takes work but has no
 * more room than before. */
bool schedule_room_came(const struct scheduler *scheduler,
                        const struct schedule_room *room);

/* Keeps this room for its request in later decisions: in an aggregated pool
 * other requests wait behind it, else they find no room on the instance.
 * schedule_await_none() ends it. */
void schedule_await(const struct scheduler *scheduler,
                    const struct schedule_room *room);
void schedule_await_none(const struct scheduler *scheduler);

/* Returns "accept", "reject_slo_ttft", ...: for logs and error bodies. */
const char *schedule_verdict_name(enum schedule_verdict verdict);

#endif
