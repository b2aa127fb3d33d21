/* The inside of the scheduler, for files of this folder only. */
#ifndef CONDUCTOR_CORE_SCHEDULE_INTERNAL_H
#define CONDUCTOR_CORE_SCHEDULE_INTERNAL_H

#include "conductor/core/price/asked.h"
#include "conductor/core/schedule/policy.h"
#include "conductor/core/schedule/schedule.h"

/* An instance that other instances could load from. */
struct schedule_peer {
    struct schedule_source source;
    struct load_source load;
};

/* The peers of one request: one more than a plan uses, because one peer may be
 * the candidate itself. */
struct schedule_peers {
    struct schedule_peer at[SCHEDULE_PEERS_MAX + 1];
    size_t n;
};

/* Work of accepted prefills, fading over a minute: the sum of their times, and
 * the sum of the squares. */
struct schedule_pace {
    double work_us, square;
    int64_t begun_us, at_us;
    double tau_us, slower;
};

/* Sums of what accepted prompts evicted, and what of it was computed again.
 * They fade: see evicted.c. */
struct schedule_evicted {
    struct asked seen;   /* pieces of accepted prompts */
    double tokens;       /* evicted */
    double again_tokens; /* computed again, though seen before */
    double again_us;     /* time to compute these, by the model's cost model */
};

struct scheduler {
    struct estimate_model model;
    const struct schedule_policy *policy;
    const struct admission_policy *admission;
    double options[POLICY_OPTIONS_MAX]; /* the policy's */
    void *state;                        /* the policy's */
    struct schedule_rules rules;        /* the policy's that apply here */
    /* A bit per group of pairs. givers: a prefill-only instance has a place;
     * takers: a decode instance takes work. */
    uint32_t givers, takers;
    uint32_t there[POOL_PAIRS];  /* most leading blocks of a taker with room for
                                    the decode */
    int64_t room_us[POOL_PAIRS]; /* estimate, until a taker has room */
    struct pool *pool;
    struct prefix_index *index;
    struct prefix_match stored;   /* blocks of the prompt that instances hold */
    struct prefix_match expected; /* and will hold when prefills end */
    struct prefill_estimate *candidates;
    struct decode_estimate *decode_candidates;
    struct decode_end *decode_ends; /* scratch */
    struct schedule_pace pace;
    struct price *price; /* NULL: nothing is priced */
    struct schedule_evicted evicted;
};

/* Makes s->price if the policy's options enable it; all its times are
 * multiplied by `slower`, 0 = unchanged. Returns 0, or -1: out of memory. */
int schedule_price_init(struct scheduler *s, int64_t slower);

/* Writes every slot's stored and expected leading blocks of a prompt. `shared`:
 * an instance that reads the shared store counts as storing its blocks. */
void schedule_match(struct scheduler *s, const struct schedule_request *request,
                    uint32_t usable_blocks, bool shared);

/* Lends idle instances to the chosen one, if a long prefill ends sooner with
 * them. */
void schedule_lend(const struct scheduler *s,
                   const struct schedule_request *request,
                   struct schedule_decision *decision);

/* Enters the leader's prefill `request` for each lent instance into the pool.
 * Returns 0, or an error of pool_prefill_accept() with nothing changed. */
[[nodiscard]] int schedule_take_lent(struct pool *pool,
                                     const struct schedule_lent *lent,
                                     const struct pool_prefill_request *request,
                                     int64_t now_us);

/* The lesser of two counts of blocks. */
static inline uint32_t schedule_lesser(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Returns whether request->eligible leaves out the instance of a slot. */
static inline bool schedule_ineligible(const struct schedule_request *request,
                                       uint32_t slot)
{
    return request->eligible &&
           !(request->eligible[slot / 64] >> slot % 64 & 1u);
}

/* Returns whether an instance may not take the request: it is not eligible, has
 * failed the request, or is not the only one allowed. */
static inline bool schedule_excluded(const struct schedule_request *request,
                                     const struct pool_instance *instance)
{
    uint32_t id = instance->id;

    if ((request->only != POOL_NO_INSTANCE && request->only != id) ||
        schedule_ineligible(request, instance->slot))
        return true;
    for (size_t i = 0; i < request->n_exclude; i++)
        if (request->exclude[i] == id)
            return true;
    return false;
}

/* Returns whether the length of a request's decode is predicted. */
static inline bool
schedule_predicts_decode(const struct scheduler *s,
                         const struct schedule_request *request)
{
    return s->rules.predicts_decodes && request->expected_tokens > 0;
}

/* Time from now until a prefill begins, and with it the push of its KV. */
static inline int64_t schedule_kv_in_us(const struct prefill_estimate *prefill)
{
    int64_t us = prefill->ttft_us - prefill->prefill_us;

    return us > 0 ? us : 0;
}

/* Returns whether an instance may be chosen for a role. Loops over all slots
 * check pool_ready_roles() and schedule_excluded() instead. */
static inline bool schedule_takes_work(const struct schedule_request *request,
                                       const struct pool_instance *instance,
                                       unsigned role)
{
    return instance && (instance->role & role) != 0 &&
           pool_takes_work(instance) && !schedule_excluded(request, instance);
}

/* Returns whether an instance with these ready roles may prefill a request: a
 * prefill-only one needs a decode instance in its group. */
static inline bool schedule_may_prefill(const struct scheduler *s,
                                        const struct schedule_request *request,
                                        const struct pool_instance *i,
                                        unsigned ready)
{
    if ((ready & ROLE_PREFILL) == 0 || schedule_excluded(request, i))
        return false;
    return !s->model.coupled || (ready & ROLE_DECODE) ||
           (s->takers & ~request->whole) >> i->pair & 1u;
}

/* Returns whether d, which has ROLE_DECODE, may decode a prefill of p. */
static inline bool schedule_may_decode(const struct scheduler *s,
                                       const struct pool_instance *p,
                                       const struct pool_instance *d)
{
    if (!s->model.coupled)
        return true;
    return p->role & ROLE_DECODE ? p == d : p->pair == d->pair;
}

/* Notes which pairs could serve a matched request: s->givers, s->takers,
 * s->there, s->room_us. */
void schedule_find_pairs(struct scheduler *s,
                         const struct schedule_request *request,
                         uint32_t usable_blocks);

/* Returns the tokens of a prompt to push to a decode instance that has
 * there_blocks leading blocks. */
static inline int64_t
schedule_push_tokens(const struct scheduler *s,
                     const struct schedule_request *request,
                     uint32_t there_blocks)
{
    return request->n_tokens - (int64_t)there_blocks * s->model.block_tokens;
}

/* Returns whether TBTs, the request's own and those of decodes beside its
 * prefill, affect its placement. */
static inline bool schedule_guards_tbt(const struct scheduler *s,
                                       const struct schedule_request *request)
{
    return s->rules.spares_decodes && request->slo_tbt_us > 0;
}

/* Marks as spared those of the first n candidates whose group has a
 * prefill-only instance, if the prefill takes longer than the request would
 * gain by their choice. Marks none where schedule_guards_tbt() is true. */
void schedule_spare(struct scheduler *s, const struct schedule_request *request,
                    size_t n);

/* Returns whether an instance can send blocks of this request to others. */
static inline bool schedule_can_send(const struct schedule_request *request,
                                     const struct pool_instance *instance)
{
    return instance && instance->link_bytes_per_s > 0.0 &&
           !schedule_excluded(request, instance) &&
           (instance->health == HEALTH_READY ||
            instance->health == HEALTH_DRAINING);
}

/* FindBestPrefixMatch: the instance that can send the most leading blocks,
 * counting only stored ones. Ties go to the link that is free first, then to
 * the lowest slot. Returns NULL if no instance has any. */
const struct pool_instance *
schedule_find_sender(const struct scheduler *s,
                     const struct schedule_request *request,
                     uint32_t usable_blocks, uint32_t *best_blocks);

/* An instance's own blocks: leading ones at no cost, then in slow tiers. */
struct schedule_own {
    uint32_t free_blocks; /* leading, at no cost */
    struct schedule_source sources[LOAD_TIERS];
    size_t n_sources;
};

/*
 * Looks up an instance's own blocks. A range has no block of a slower tier.
 * Together the ranges cover all blocks from free_blocks to the last held one of
 * the first `blocks`.
 * Cost: one probe a block if the instance has slow tiers, else nothing.
 */
void schedule_own_blocks(const struct scheduler *s,
                         const struct pool_instance *instance, uint32_t blocks,
                         struct schedule_own *own);

/* Returns false if a quick look shows that reading all blocks stored on an
 * instance costs nothing. */
static inline bool schedule_reads_any(const struct scheduler *s,
                                      const struct pool_instance *instance)
{
    const struct prefix_match *m = &s->stored;
    const struct prefix_run *run = &m->runs[m->last_run[instance->slot]];

    return run->tiers != 0 &&
           (run->before != 0 ||
            instance->tier_bytes_per_s[__builtin_ctz(run->tiers)] > 0.0);
}

/* Returns when an instance will have read all of `own`, absolute; now_us if
 * there is nothing to read. */
int64_t schedule_own_ready_us(const struct scheduler *s,
                              const struct pool_instance *instance,
                              const struct schedule_own *own, int64_t now_us);

/* Returns whether reads of some tier of an instance take time. */
bool schedule_has_slow_tier(const struct pool_instance *instance);

/* Finds the peers to load from: the instance with the longest match, as in
 * Algorithm 1, then those that could send most blocks while the prompt is
 * computed; of equal ones the lower slots. Cost: O(instances), and
 * schedule_own_blocks() for each instance found. */
void schedule_find_peers(const struct scheduler *s,
                         const struct schedule_request *request,
                         uint32_t usable_blocks, struct schedule_peers *peers);

/* The sources of a request's blocks for one instance. */
struct schedule_site {
    uint32_t resident;
    int64_t computed_us; /* when running prefills will have computed the
                            resident blocks; 0 = no need */
    struct schedule_source sources[SCHEDULE_SOURCES_MAX];
    struct load_source loads[SCHEDULE_SOURCES_MAX];
    size_t n;
    size_t n_own; /* the first n_own sources are its own tiers */
};

/* Returns the bytes/s at which a peer sends to `i`: as measured by `i`, else
 * the rate of the peer's link. */
double schedule_path_rate(const struct scheduler *s,
                          const struct pool_instance *i, uint32_t from);

/* Writes the sources of `i` for a request: its own tiers first, then peers out
 * of `peers`. */
void schedule_find_site(const struct scheduler *s,
                        const struct schedule_request *request,
                        const struct pool_instance *i, uint32_t usable_blocks,
                        const struct schedule_peers *peers,
                        struct schedule_site *site);

/* Returns the leading blocks that the instance in a slot has or expects. */
static inline uint32_t schedule_local_blocks(const struct scheduler *s,
                                             uint32_t slot,
                                             uint32_t usable_blocks)
{
    uint32_t matched = s->stored.blocks[slot] > s->expected.blocks[slot]
                           ? s->stored.blocks[slot]
                           : s->expected.blocks[slot];

    return schedule_lesser(matched, usable_blocks);
}

/* Returns an instance's speed, by its own cost model and correction, as a
 * multiple of the model's. */
double schedule_speed_of(const struct scheduler *s,
                         const struct pool_instance *instance);

/* Estimates every instance that takes work, with its own blocks, into
 * s->candidates. Returns their number. */
size_t schedule_estimate_own(struct scheduler *s,
                             const struct schedule_request *request,
                             uint32_t usable_blocks);

/* Does the same as schedule_estimate_own(), but with a fetch of the missing
 * blocks if the best match is more than `threshold` times as long as the
 * instance's own. */
size_t schedule_estimate_fetching(struct scheduler *s,
                                  const struct schedule_request *request,
                                  uint32_t usable_blocks, double threshold);

/* Estimates every prefill candidate and lets the policy choose: writes
 * candidates, chosen and prefill, or the verdict and retry_after_us.
 * Returns whether one was chosen. */
bool schedule_choose_prefill(struct scheduler *s,
                             const struct schedule_request *request,
                             struct schedule_decision *decision);

/* SelectDecodingInstance: the lowest predicted TBT among those with room.
 * Writes decode_candidates, decode and tbt_us, or the verdict and
 * retry_after_us. Returns true if one was chosen or none is needed. */
bool schedule_choose_decode(struct scheduler *s,
                            const struct schedule_request *request,
                            struct schedule_decision *decision);

/* Returns whether a request waits because KV on its way to its decode instance
 * would delay its own KV; writes the verdict and retry_after_us if so. */
bool schedule_waits_for_link(const struct scheduler *s,
                             const struct schedule_request *request,
                             struct schedule_decision *decision);

/* With the rule link_last: turns a refusal for the TBT into a wait, if only
 * other KV on its way to the decode instance causes it; writes the verdict and
 * retry_after_us. */
void schedule_wait_instead(const struct scheduler *s,
                           const struct schedule_request *request,
                           struct schedule_decision *decision);

/*
 * With the option hold_first: writes holds and hold_us of the decision: whether
 * and how long the first token waits for its KV. Returns by how much admission
 * may take the TBT for shorter because of it, us.
 */
int64_t schedule_hold_first(const struct scheduler *s,
                            const struct schedule_request *request,
                            struct schedule_decision *decision);

/* Returns a prefill's load on decodes beside it; zeros without the rule
 * spares_decodes. */
struct pool_work schedule_work_of(const struct scheduler *s,
                                  const struct schedule_request *request,
                                  const struct prefill_estimate *prefill);

/* Returns the highest TBT of the decodes on an instance that also runs this
 * prefill; 0 where that does not count. */
int64_t schedule_beside_tbt_us(const struct scheduler *s,
                               const struct schedule_request *request,
                               const struct prefill_estimate *prefill);

/* Returns the time from now until the first candidate of a late request meets
 * its TTFT SLO, if no other request comes; -1 = never. */
int64_t schedule_fits_in_us(const struct scheduler *s,
                            const struct schedule_request *request,
                            const struct schedule_decision *decision);

/* Makes the memory of seen prompts if the rules ask for it. Returns 0, or
 * -ENOMEM. asked_fini() of it frees it. */
[[nodiscard]] int schedule_evicted_init(struct scheduler *s);

/* Returns the cached tokens, in whole blocks, that must leave the instance in a
 * slot for the matched request's prompt. Where the capacity is unknown: all of
 * the prompt that is not there. O(1). */
int64_t schedule_evicted_tokens(const struct scheduler *s,
                                const struct schedule_request *request,
                                uint32_t usable_blocks, uint32_t slot);

/* Counts an accepted request, just matched, that the instance in a slot
 * prefills. Nothing without the rule weighs_evicted. Cost: O(instances), and a
 * probe for each PRICE_PIECE_TOKENS. */
void schedule_evicted_count(struct scheduler *s,
                            const struct schedule_request *request,
                            uint32_t slot);

/* Returns the time (us) that is lost on average for each token that leaves: to
 * compute again what was asked for again. At most the time to compute it, and 0
 * while nothing was asked for again. */
double schedule_evicted_us(const struct scheduler *s);

/* schedule_pace_init(p, slower): starts without work; times are `slower` times
 * as long, 0 = unchanged. */
void schedule_pace_init(struct schedule_pace *p, int64_t slower);

/* schedule_pace_add(p, work_us, now_us): counts an accepted prefill. */
void schedule_pace_add(struct schedule_pace *p, int64_t work_us,
                       int64_t now_us);

/* Returns the time from now_us until queues of `queue_us` on all instances are
 * shorter by late_us, if work keeps coming as in the last minute; -1 = not
 * within five minutes, or queues stay longer more than one time in ten. Cost:
 * O(instances). */
int64_t schedule_pace_in_us(const struct scheduler *s, int64_t queue_us,
                            int64_t late_us, int64_t now_us);

/* Returns the time from now until a decode candidate fits the request; -1 =
 * never. A predicted decode needs its room only after prefill_us. */
int64_t schedule_decode_fits_in_us(const struct scheduler *s,
                                   const struct schedule_request *request,
                                   const struct decode_estimate *candidate,
                                   int64_t prefill_us);

#endif
