/*
 * Chooses where a request is prefilled, where its blocks come from, and where
 * it is decoded. The same inputs give the same decision, byte for byte.
 *
 * A policy (policy.h) chooses the prefill instance. If its choice misses the
 * TTFT SLO, the candidate that ends first, whatever comes, takes its place if
 * that meets it (not under global_cache). The decode instance is the one
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
/* Other instances that a plan loads from, and all its sources. */
#define SCHEDULE_PEERS_MAX 3
#define SCHEDULE_SOURCES_MAX (SCHEDULE_PEERS_MAX + LOAD_TIERS)

/* Instances that one prefill may be lent, and the tokens of a chunk that goes
 * from stage to stage. */
#define SCHEDULE_LENT_MAX 15
#define SCHEDULE_CHUNK_TOKENS 512
/* Lending must shorten a prefill to this share, or less, and by as much more as
 * links are busy for it: others need them. */
#define SCHEDULE_LEND_GAIN 0.9

struct scheduler;

/* schedule_share(pool, store, tier, match): lets each instance that has a rate
 * for the tier go on in the index's instance `store` where it holds less.
 * O(instances). */
void schedule_share(const struct pool *pool, uint32_t store,
                    enum block_tier tier, struct prefix_match *match);

struct schedule_config {
    const struct schedule_policy *policy;
    const double *options; /* (POLICY_OPTIONS_MAX), of the policy, by
                              policy_options_set(); NULL: the initial ones */
    const char *admission; /* "plain" or "none"; NULL: plain */
};

struct schedule_request {
    uint64_t request_id;
    const uint64_t *keys; /* (n_keys), borrowed: of its full blocks */
    size_t n_keys;
    int64_t n_tokens;          /* of the prompt, at least 1 */
    int64_t max_output_tokens; /* at least 1; 1 needs no decode */
    uint32_t whole; /* a bit of each group whose pairs cannot share it: one
                       instance does all */
    int64_t expected_tokens; /* of these, as learnt; 0: not known */
    int64_t median_tokens;   /* likewise: as likely as not, at least so many */
    int64_t slo_ttft_us;     /* what is left of it; 0: none */
    int64_t waited_us;       /* it was longer by this when the request came */
    int64_t slo_tbt_us;      /* 0: none */
    bool may_hold;           /* its first token can wait for its KV */
    uint64_t n_held;         /* others that wait for room to decode */
    int64_t due_us; /* absolute, without slo_ttft_us: its first token would be
                       in time by then, but it is refused for nothing, as it
                       was accepted once; 0: it has no SLO, or is late anyway */
    double price_times;    /* what its price is multiplied by */
    int64_t queue_most_us; /* an instance with a longer queue is full for
                              it; 0: any will do. Under plan alone */
    int64_t now_us;
    uint32_t session; /* pool id of who served its session last, preferred a
                         little by the policy plan; POOL_NO_INSTANCE: none */
    uint32_t only;    /* pool id of the one instance that may take it;
                         POOL_NO_INSTANCE: any */
    const uint64_t *eligible; /* (max_instances / 64, rounded up), borrowed: a
                                 bit of each slot whose instance may take it or
                                 send to it; it may change between decisions;
                                 NULL: all */
    /* Pool ids that must not be chosen or fetched from: they failed this
     * request. */
    uint32_t exclude[SCHEDULE_EXCLUDE_MAX];
    size_t n_exclude;
};

/* By when the first token is due, for queues' orders; absolute, 0: never. */
int64_t schedule_deadline_us(const struct schedule_request *request);

/* The same on the instance of `plan`: earlier by its last step, which ends with
 * other prompts, as far as the plan ends in time even so. */
int64_t schedule_due_us(const struct schedule_request *request,
                        const struct prefill_estimate *plan);

enum schedule_verdict {
    SCHEDULE_ACCEPT,
    SCHEDULE_REJECT_TTFT,         /* no choice within the TTFT SLO */
    SCHEDULE_REJECT_TBT,          /* or the TBT SLO */
    SCHEDULE_REJECT_PRICE,        /* too much work for what it saves others */
    SCHEDULE_REJECT_SHARE,        /* dispatch's: others have had less */
    SCHEDULE_NO_PREFILL_INSTANCE, /* none that could hold it is ready */
    SCHEDULE_NO_DECODE_INSTANCE,  /* none that could hold it is ready */
    SCHEDULE_DECODE_FULL,         /* no decode instance has room now */
    SCHEDULE_LINK_BUSY,           /* its link has too much KV to bring now */
    SCHEDULE_QUEUE_FULL,          /* every prefill queue is at its bound */
    SCHEDULE_TOO_LONG,            /* longer than any instance's KV */
};
#define SCHEDULE_VERDICTS 11

/* A source of blocks [from_block, to_block) of a prompt: another instance, or a
 * slow tier of the prefill instance itself. */
struct schedule_source {
    uint32_t instance;    /* pool id; the prefill instance: its own tier */
    enum block_tier tier; /* which tier; of others the slowest that they read */
    uint32_t from_block;
    uint32_t to_block;
};

/* Idle instances that compute a share of a prompt's layers, behind the one that
 * was chosen: see lend.c. */
struct schedule_lent {
    uint32_t n;
    uint32_t members[SCHEDULE_LENT_MAX]; /* pool ids */
    double share; /* of a chunk's time alone, that its longest stage takes */
};

/* The chosen instances, and why. Pool ids are POOL_NO_INSTANCE if none is
 * chosen. */
struct schedule_decision {
    enum schedule_verdict verdict;
    uint32_t prefill; /* pool id; also set when an SLO rejects */
    uint32_t decode;  /* pool id; may equal prefill; none for 1 token */
    struct prefill_estimate chosen; /* of prefill, all 0 if none */
    uint32_t stored_blocks;         /* of chosen.local_blocks, those that it has
                                       reported; the others are expected */
    /* If it is planned: its plan, and what its sources' indices mean. */
    struct load_plan plan;
    struct schedule_source sources[SCHEDULE_SOURCES_MAX];
    size_t n_sources;
    struct schedule_lent lent; /* chosen's times are the group's */
    double engine_price; /* planned: how many seconds others are assumed to wait
                            for each second of engine time */
    int64_t tbt_us;      /* of decode, 0 if none */
    int64_t behind_us;   /* of decode: how long KV on its way to there holds up
                            its own */
    int64_t gap_us;      /* of decode: by how much its own KV comes there later
                            than its prefill ends */
    bool holds;          /* its first token waits for that KV */
    int64_t hold_us;     /* and is later by so much, as predicted */
    int64_t n_slowed;    /* intervals of its answer that share such a wait, in
                            its TBT */
    double price_us;     /* by schedule_price(): its x, and what limited it;
                            0: not priced, no limit */
    double price_limit_us;
    int64_t retry_after_us; /* rejected: when it would fit, from now: for a
                               missed TTFT and a price while others keep coming,
                               else if none came; -1: never or not known, as for
                               a TBT that is kept for others */
    bool never;             /* rejected for the TTFT: it would be late without
                               any queue, too, if it came anew */
    int64_t tested_us;      /* from now, what had to meet the TTFT SLO: the
                               TTFT if all come first that may; 0: not tested */
    /* Every ready instance that was looked at, by slot. Borrowed from the
     * scheduler until its next schedule_decide(). */
    const struct prefill_estimate *candidates;
    size_t n_candidates;
    const struct decode_estimate *decode_candidates;
    size_t n_decode_candidates;
};

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

/* Frees it; not the pool nor the index. NULL is a no-op. */
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
 * Prices a request on its arrival, if the policy's options say so: counts the
 * blocks that it asks for, and with a TTFT SLO enters it among the arrivals.
 * Call it once for each request, with the decision on it. An accepting decision
 * becomes SCHEDULE_REJECT_PRICE if the price is above the limit.
 */
void schedule_price(struct scheduler *scheduler,
                    const struct schedule_request *request,
                    struct schedule_decision *decision);

/* A request that came, as others who share its instances hear of it: they
 * count what it asks for and would take, too. */
struct schedule_asked {
    struct price_work work; /* its block_tokens need not be told */
    double times;           /* what its price is multiplied by */
    int64_t slo_ttft_us;    /* 0: it counts among no arrivals */
    bool feasible;          /* it would be accepted but for its price */
};

/* schedule_asked(scheduler, request, decision, out): what schedule_price() goes
 * by, before or after it. Borrows the request's keys. Returns whether the
 * policy prices it. */
bool schedule_asked(const struct scheduler *scheduler,
                    const struct schedule_request *request,
                    const struct schedule_decision *decision,
                    struct schedule_asked *out);

/* schedule_heard(scheduler, asked, now_us): it came elsewhere, where it was
 * decided on. */
void schedule_heard(struct scheduler *scheduler,
                    const struct schedule_asked *asked, int64_t now_us);

#define SCHEDULE_PIECE_TOKENS 8192
/* The predicted time of computing so many tokens, at least 1, of prompts that
 * nothing else is known of: of as many of SCHEDULE_PIECE_TOKENS as they fill,
 * and one more. In microseconds of an instance of the model's cost model. */
double schedule_work_us(const struct scheduler *scheduler, int64_t tokens);

/* The TTFT of a decision that is not committed yet, as it is expected: the
 * chosen one's ttft_us, but not before a prefill has ended that it follows.
 * Candidates are compared and limits are tested without that. Cost: O(waiting
 * prefills of the instance). */
int64_t schedule_expected_us(const struct scheduler *scheduler,
                             const struct schedule_request *request,
                             const struct schedule_decision *decision);

/* The least work that any candidate would have with the prompt, us; without
 * candidates more than any work. Cost: O(candidates). */
int64_t schedule_shortest_us(const struct schedule_decision *decision);

/* By what a request that waits comes before others of its tenant, where
 * instances do not serve by age: the least work that any of them would have
 * with it, and its age, as their order weighs both; else 0. Cost:
 * O(candidates). */
int64_t schedule_rank(const struct scheduler *scheduler,
                      const struct schedule_decision *decision,
                      int64_t arrived_us);

/* Whether the admission policy accepts requests that miss their TTFT SLO. */
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

/* The least that a prefill takes with as many idle instances as may be lent to
 * it, over links that take no time.
 *   layers    of the model.
 *   uncached  tokens that are computed, behind so many cached ones.
 *   alone_us  that it takes by itself. O(SCHEDULE_LENT_MAX). */
int64_t schedule_least_us(const struct schedule_rules *rules,
                          const struct cost_model *cost, uint32_t layers,
                          int64_t uncached, int64_t cached, int64_t alone_us);

/* What is lent for a request is free again: call it when its prefill is done,
 * failed or cancelled. lent->n becomes 0; with 0 a no-op. */
void schedule_give_back(struct pool *pool, struct schedule_lent *lent,
                        uint64_t request_id, int64_t now_us);

/* schedule_pool(scheduler): the pool that it was made with. */
struct pool *schedule_pool(const struct scheduler *scheduler);

/* What its policy has others do, in times as they pass here, without what its
 * instances have no use for. Borrowed. */
const struct schedule_rules *
schedule_rules_of(const struct scheduler *scheduler);

/* schedule_model(scheduler): that it was made with. Borrowed. */
const struct estimate_model *schedule_model(const struct scheduler *scheduler);

/* What instances hold of a prompt. Borrowed until the next decision or look. */
struct schedule_look {
    const struct pool *pool;
    const struct estimate_model *model;
    const struct prefix_index *index;
    const uint32_t *stored;   /* by slot: leading blocks that it has, */
    const uint32_t *expected; /* and will have when its prefills end */
};

/*
 * Looks.
 *   keys    (n_keys), borrowed for the call.
 *   shared  whether what lies in the store that instances share counts as
 *           stored by each that reads it; else only what it holds itself does.
 * Cost: a match of stored and one of expected blocks.
 */
struct schedule_look schedule_look(struct scheduler *s, const uint64_t *keys,
                                   size_t n_keys, int64_t n_tokens,
                                   bool shared);

/* Leading blocks that the instance in a slot has or will have. */
static inline uint32_t schedule_looked(const struct schedule_look *look,
                                       uint32_t slot)
{
    return look->stored[slot] > look->expected[slot] ? look->stored[slot]
                                                     : look->expected[slot];
}

/* Whether an instance has one of a prompt's first n blocks in a slow tier
 * alone. O(n) where it has a slow tier. */
bool schedule_looked_slow(const struct schedule_look *look,
                          const struct pool_instance *instance,
                          const uint64_t *keys, uint32_t n);

/* Enters a prefill that is no request into the pool. Returns as
 * pool_prefill_accept(). */
[[nodiscard]] int
schedule_accept_piece(struct scheduler *s,
                      const struct pool_prefill_request *request,
                      uint32_t instance);

/* Room to decode that a request waits for: an instance had had_tokens of room
 * when the request found too little there, and it needs needs_tokens. */
struct schedule_room {
    uint32_t instance; /* POOL_NO_INSTANCE: any has the room that it needs, or
                          only one could */
    bool only;         /* it goes nowhere else */
    int64_t had_tokens;
    int64_t needs_tokens;
};

/* What a request waits for that found no room, where others may pass it
 * (bypass): the instance that was chosen for it where requests decode where
 * they are prefilled, else the decode instance with the most room. */
struct schedule_room schedule_room(const struct scheduler *scheduler,
                                   const struct schedule_request *request,
                                   const struct schedule_decision *decision);

/* Whether there may be room now: the only instance has more than then, or takes
 * no work any more. */
bool schedule_room_came(const struct scheduler *scheduler,
                        const struct schedule_room *room);

/* Requests that are decided on from now on leave that room to this one: where
 * they decode where they are prefilled they wait for theirs behind it, else
 * they find none on that instance. And to nobody. */
void schedule_await(const struct scheduler *scheduler,
                    const struct schedule_room *room);
void schedule_await_none(const struct scheduler *scheduler);

/* "accept", "reject_slo_ttft", ...: for logs and error bodies. */
const char *schedule_verdict_name(enum schedule_verdict verdict);

#endif
