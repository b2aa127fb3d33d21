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
#include "conductor/core/schedule/decision.h"
#include "conductor/core/schedule/policy.h"

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
