/* The inside of the scheduler, shared by its files. Not for others. */
#ifndef CONDUCTOR_CORE_SCHEDULE_INTERNAL_H
#define CONDUCTOR_CORE_SCHEDULE_INTERNAL_H

#include "conductor/core/schedule/policy.h"
#include "conductor/core/schedule/schedule.h"

/* An instance that others could load from. */
struct schedule_peer {
    struct schedule_source source;
    struct load_source load;
};

/* The peers of one request: one more than a plan uses, because one of them may
 * be the candidate itself. */
struct schedule_peers {
    struct schedule_peer at[SCHEDULE_PEERS_MAX + 1];
    size_t n;
};

/* The work that prefills were accepted with, fading over a minute: the sum of
 * their times and of the squares of these. */
struct schedule_pace {
    double work_us, square;
    int64_t begun_us, at_us;
    double tau_us, slower;
};

struct scheduler {
    struct estimate_model model;
    const struct schedule_policy *policy;
    const struct admission_policy *admission;
    double options[POLICY_OPTIONS_MAX]; /* the policy's */
    void *state;                        /* likewise */
    struct schedule_rules rules;        /* likewise, as far as they apply */
    /* Groups of pairs, a bit each, of which instances take work now: some that
     * prefill and have a place, some that decode. */
    uint32_t givers, takers;
    uint32_t there[POOL_PAIRS];  /* leading blocks that one of these has, which
                                    has room to decode the request */
    int64_t room_us[POOL_PAIRS]; /* until one of these has room, about */
    struct pool *pool;
    struct prefix_index *index;
    struct prefix_match stored;   /* what instances hold of the prompt */
    struct prefix_match expected; /* and will hold when prefills end */
    struct prefill_estimate *candidates;
    struct decode_estimate *decode_candidates;
    struct decode_end *decode_ends; /* scratch */
    struct schedule_pace pace;
    struct price *price; /* NULL: nothing is priced */
};

/* Makes s->price if the policy's options say so; its times pass `slower` times
 * more slowly, 0: as they are. Returns 0, or -1: out of memory. */
int schedule_price_init(struct scheduler *s, int64_t slower);

/* Writes for every slot the leading blocks of a prompt that are stored, and
 * those expected. `shared`: what lies in the store that instances share counts
 * as stored by each that reads it. */
void schedule_match(struct scheduler *s, const struct schedule_request *request,
                    uint32_t usable_blocks, bool shared);

/* Lends the chosen instance idle ones, if that makes a long prefill end
 * sooner. */
void schedule_lend(const struct scheduler *s,
                   const struct schedule_request *request,
                   struct schedule_decision *decision);

/* Enters what is lent into the pool, each with the prefill `request` of the
 * leader. Returns 0, or as pool_prefill_accept() with nothing changed. */
[[nodiscard]] int schedule_take_lent(struct pool *pool,
                                     const struct schedule_lent *lent,
                                     const struct pool_prefill_request *request,
                                     int64_t now_us);

/* The lesser of two counts of blocks. */
static inline uint32_t schedule_lesser(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Whether the instance of a slot is none of those that may take the request. */
static inline bool schedule_ineligible(const struct schedule_request *request,
                                       uint32_t slot)
{
    return request->eligible &&
           !(request->eligible[slot / 64] >> slot % 64 & 1u);
}

/* Whether an instance may not take the request: it is not eligible, has failed
 * it, or another one alone may. */
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

/* Whether the place of a request's decode is predicted. */
static inline bool
schedule_predicts_decode(const struct scheduler *s,
                         const struct schedule_request *request)
{
    return s->rules.predicts_decodes && request->expected_tokens > 0;
}

/* When a prefill begins, and with it the push of its KV, from now. */
static inline int64_t schedule_kv_in_us(const struct prefill_estimate *prefill)
{
    int64_t us = prefill->ttft_us - prefill->prefill_us;

    return us > 0 ? us : 0;
}

/* Whether an instance may be chosen for a role. For loops over all slots:
 * where pool_ready_roles() has the role, those that are not excluded. */
static inline bool schedule_takes_work(const struct schedule_request *request,
                                       const struct pool_instance *instance,
                                       unsigned role)
{
    return instance && (instance->role & role) != 0 &&
           pool_takes_work(instance) && !schedule_excluded(request, instance);
}

/* Whether an instance, whose ready roles are these, may prefill a request: of a
 * pair, somebody must be there to decode. */
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

/* Whether d, which has ROLE_DECODE, may decode what p prefills. */
static inline bool schedule_may_decode(const struct scheduler *s,
                                       const struct pool_instance *p,
                                       const struct pool_instance *d)
{
    if (!s->model.coupled)
        return true;
    return p->role & ROLE_DECODE ? p == d : p->pair == d->pair;
}

/* Notes which pairs could serve the request, once it is matched: s->givers,
 * s->takers, s->there, s->room_us. */
void schedule_find_pairs(struct scheduler *s,
                         const struct schedule_request *request,
                         uint32_t usable_blocks);

/* How many of a prompt's tokens are pushed where its decode instance has so
 * many leading blocks. */
static inline int64_t
schedule_push_tokens(const struct scheduler *s,
                     const struct schedule_request *request,
                     uint32_t there_blocks)
{
    return request->n_tokens - (int64_t)there_blocks * s->model.block_tokens;
}

/* Whether a request's TBT and that of the decodes beside its prefill decide
 * where it goes. */
static inline bool schedule_guards_tbt(const struct scheduler *s,
                                       const struct schedule_request *request)
{
    return s->rules.spares_decodes && request->slo_tbt_us > 0;
}

/* Marks those of the first n candidates that are left to their decodes: others
 * prefill for them, and their own prefill would take longer than what the
 * request would win by it. Nobody is where it is known what those bear. */
void schedule_spare(struct scheduler *s, const struct schedule_request *request,
                    size_t n);

/* Whether an instance can send blocks of this request to others. */
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
 * the lowest slot. Returns NULL if nobody has any. */
const struct pool_instance *
schedule_find_sender(const struct scheduler *s,
                     const struct schedule_request *request,
                     uint32_t usable_blocks, uint32_t *best_blocks);

/* The blocks in slow tiers that an instance itself holds behind its leading
 * ones at no cost. */
struct schedule_own {
    uint32_t free_blocks; /* leading, at no cost */
    struct schedule_source sources[LOAD_TIERS];
    size_t n_sources;
};

/*
 * Looks up an instance's own blocks. A range never holds blocks of a slower
 * tier than its own. Together the ranges cover all blocks from free_blocks to
 * the last held one of the first `blocks`.
 * Cost: one probe a block if the instance has slow tiers, else nothing.
 */
void schedule_own_blocks(const struct scheduler *s,
                         const struct pool_instance *instance, uint32_t blocks,
                         struct schedule_own *own);

/* False where all blocks that are stored on an instance cost nothing to read,
 * as is seen at a glance. */
static inline bool schedule_reads_any(const struct scheduler *s,
                                      const struct pool_instance *instance)
{
    const struct prefix_match *m = &s->stored;
    const struct prefix_run *run = &m->runs[m->last_run[instance->slot]];

    return run->tiers != 0 &&
           (run->before != 0 ||
            instance->tier_bytes_per_s[__builtin_ctz(run->tiers)] > 0.0);
}

/* When an instance will have read all of these itself; now_us if there are
 * none. */
int64_t schedule_own_ready_us(const struct scheduler *s,
                              const struct pool_instance *instance,
                              const struct schedule_own *own, int64_t now_us);

/* Whether reads of some tier of an instance take time. */
bool schedule_has_slow_tier(const struct pool_instance *instance);

/* Finds the instances to load from: the deepest holder, as Algorithm 1 finds
 * it, then those that could send most while the prompt was computed; of equals
 * the lower slots. Cost: O(instances), and of the found ones as
 * schedule_own_blocks(). */
void schedule_find_peers(const struct scheduler *s,
                         const struct schedule_request *request,
                         uint32_t usable_blocks, struct schedule_peers *peers);

/* From where one instance could get the blocks of a request. */
struct schedule_site {
    uint32_t resident;
    int64_t computed_us; /* when a prefill that nobody may pass will have
                            computed those; 0: none does */
    struct schedule_source sources[SCHEDULE_SOURCES_MAX];
    struct load_source loads[SCHEDULE_SOURCES_MAX];
    size_t n;
    size_t n_own; /* the first of them are its own */
};

/* How fast a peer sends to `i`: as `i` has measured it, or else as the peer's
 * link does. */
double schedule_path_rate(const struct scheduler *s,
                          const struct pool_instance *i, uint32_t from);

/* Looks it up, its own tiers first, then others out of `peers`. */
void schedule_find_site(const struct scheduler *s,
                        const struct schedule_request *request,
                        const struct pool_instance *i, uint32_t usable_blocks,
                        const struct schedule_peers *peers,
                        struct schedule_site *site);

/* The leading blocks that the instance at a slot has or expects. */
static inline uint32_t schedule_local_blocks(const struct scheduler *s,
                                             uint32_t slot,
                                             uint32_t usable_blocks)
{
    uint32_t matched = s->stored.blocks[slot] > s->expected.blocks[slot]
                           ? s->stored.blocks[slot]
                           : s->expected.blocks[slot];

    return schedule_lesser(matched, usable_blocks);
}

/* How many times as fast as the model's cost model an instance is, by its own
 * one and by what was observed. */
double schedule_speed_of(const struct scheduler *s,
                         const struct pool_instance *instance);

/* Estimates every instance that takes work, with the blocks that it has, into
 * s->candidates. Returns their number. */
size_t schedule_estimate_own(struct scheduler *s,
                             const struct schedule_request *request,
                             uint32_t usable_blocks);

/* Likewise, but where the best match is more than `threshold` times as long as
 * the instance's own, with a fetch of what it lacks. */
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

/* Whether a request that was given its instances waits before it is sent there,
 * for KV that is on its way to where it decodes; writes the verdict and
 * retry_after_us if so. */
bool schedule_waits_for_link(const struct scheduler *s,
                             const struct schedule_request *request,
                             struct schedule_decision *decision);

/* Lets a request wait that is refused for its TBT alone, because of KV of
 * others on its way to where it decodes: then it writes the verdict and
 * retry_after_us. With the option link_last. */
void schedule_wait_instead(const struct scheduler *s,
                           const struct schedule_request *request,
                           struct schedule_decision *decision);

/*
 * Says whether the first token of a request that was given its instances waits
 * for its KV, with the option hold_first: holds and hold_us of the decision.
 * Returns by how much that shortens its TBT for certain enough to admit it.
 */
int64_t schedule_hold_first(const struct scheduler *s,
                            const struct schedule_request *request,
                            struct schedule_decision *decision);

/* The work of a candidate's prefill for decodes beside it; zeros where that
 * does not count. */
struct pool_work schedule_work_of(const struct scheduler *s,
                                  const struct schedule_request *request,
                                  const struct prefill_estimate *prefill);

/* The highest TBT of the decodes of an instance that prefills a request so,
 * which asks for a TBT; 0 where that does not count. */
int64_t schedule_beside_tbt_us(const struct scheduler *s,
                               const struct schedule_request *request,
                               const struct prefill_estimate *prefill);

/* What must meet the TTFT SLO of a candidate. */
static inline int64_t schedule_tested_us(const struct scheduler *s,
                                         const struct prefill_estimate *e)
{
    return s->rules.by_score && e->score_us > e->most_us ? e->score_us
                                                         : e->most_us;
}

/* When the first of the candidates of a request that is late will meet its TTFT
 * SLO, from now, if no other request comes; -1: never. */
int64_t schedule_fits_in_us(const struct scheduler *s,
                            const struct schedule_request *request,
                            const struct schedule_decision *decision);

/* schedule_pace_init(p, slower): no work yet; times pass `slower` times more
 * slowly, 0: as they are. */
void schedule_pace_init(struct schedule_pace *p, int64_t slower);

/* schedule_pace_add(p, work_us, now_us): a prefill was accepted. */
void schedule_pace_add(struct schedule_pace *p, int64_t work_us,
                       int64_t now_us);

/*
 * When queues of `queue_us` will be shorter by late_us, if work keeps coming as
 * in the last minute.
 * Returns microseconds from now_us; -1: not within five minutes, or they are
 * longer in more than one of ten cases whatever the time.
 */
int64_t schedule_pace_in_us(const struct schedule_pace *p, uint32_t n_instances,
                            int64_t queue_us, int64_t late_us, int64_t now_us);

/* When a decode candidate will fit the request, from now; -1: never. A
 * predicted one has until its prefill ends. */
int64_t schedule_decode_fits_in_us(const struct scheduler *s,
                                   const struct schedule_request *request,
                                   const struct decode_estimate *candidate,
                                   int64_t prefill_us);

#endif
