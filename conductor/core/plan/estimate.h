/*
 * Estimates of one request on one instance: time to first token (TTFT) of
 * a prefill, time between tokens (TBT) of a decode.
 */
#ifndef CONDUCTOR_CORE_PLAN_ESTIMATE_H
#define CONDUCTOR_CORE_PLAN_ESTIMATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/core/plan/beside.h"
#include "conductor/core/plan/load_plan.h"
#include "conductor/core/pool/pool.h"
#include "conductor/core/simulated_world.h"
#include "predictor/cost_model.h"

/* Time of a request that never fits: larger than every time that can occur. */
#define ESTIMATE_NEVER_US (INT64_MAX / 4)

/* Parameters of all estimates. Borrowed by its users. */
struct estimate_model {
    const struct cost_model *cost; /* of instances without their own */
    uint32_t block_tokens;         /* at least 1 */
    int64_t kv_bytes_per_token;    /* at least 1 */
    uint32_t layers;               /* of the model; 0 = no loads by layer */
    bool assumes_stored;   /* the caller enters stored and expected blocks
                              itself: commits give the pool no keys */
    uint32_t shared_store; /* slot of the shared store in the index; instances
                              with a rate for it read it. 0 = none */
    uint8_t shared_tier;   /* tier that the store is to them (block_tier) */
    bool coupled;          /* aggregated pool: a request decodes where it was
                              prefilled, except in pairs */
    const double *push;    /* (2), borrowed: us from the end of a prefill to the
                              first token of a pair's decode instance, and us
                              per prompt token on top; NULL = both 0 */
    uint32_t step_tokens;  /* most tokens of a step that prefills and decodes
                              share; 0 = unlimited, or they share none */
    struct simulated_world simulated; /* the daemon: all zero */
};

/* Returns the cost model behind all estimates for an instance. */
static inline const struct cost_model *
estimate_cost(const struct estimate_model *model,
              const struct pool_instance *instance)
{
    return instance->cost ? instance->cost : model->cost;
}

/* Returns whether an instance decodes what it prefills, in the same steps. */
static inline bool estimate_decodes_here(const struct estimate_model *model,
                                         const struct pool_instance *instance)
{
    return model->coupled && (instance->role & ROLE_DECODE) != 0;
}

/* One prefill candidate, and why. */
struct prefill_estimate {
    uint32_t instance; /* pool id */
    uint32_t slot;
    uint32_t local_blocks;   /* leading blocks it has or will have computed */
    uint32_t used_blocks;    /* leading blocks the plan reuses, of any source */
    uint32_t fetch_from;     /* pool id that sends the blocks local_blocks ..
                                used_blocks - 1, or POOL_NO_INSTANCE */
    int64_t cached_tokens;   /* tokens that are not computed: those of
                                used_blocks, at most the prompt's */
    int64_t transfer_us;     /* until the fetched blocks are here, congestion
                                included */
    int64_t transfer_end_us; /* absolute; now if nothing is fetched */
    int64_t ready_us;        /* absolute: when its blocks are here and it can
                                begin, those of its own slow tiers included */
    int64_t queue_us;        /* wait of a request whose blocks are here */
    int64_t queue_most_us;   /* longest such wait: where the order lets shorter
                                requests pass, all that wait now go first */
    int64_t doubt_us;        /* possible error of the prediction of
                                queue_most_us and prefill_us */
    int64_t again_us;        /* to compute blocks again that the instance's
                                tiers have no room for */
    uint32_t behind;         /* prefills that would wait for it to end */
    int64_t room_us;         /* part of queue_us: until there is room to decode
                                it; 0 = there is room, or no aggregated pool */
    int64_t link_us;         /* planned: time of other instances' links to send
                                its blocks */
    int64_t push_us;         /* part of ttft_us: until the pair's decode
                                instance, which sends the first token, has the
                                KV */
    int64_t push_tokens;     /* prompt tokens of that push */
    int64_t predicted_us;    /* prefill, by the cost model, without decodes */
    int64_t beside_us;       /* added by the decodes beside it */
    struct beside beside;
    int64_t last_us;    /* most time of its last step, with other prompts */
    int64_t prefill_us; /* predicted_us + beside_us, corrected */
    int64_t score_us;   /* transfer + queue + prefill: the sum in Algorithm 1,
                           by which policies choose. Planned: ttft + prefill
                           times the decision's engine_price */
    int64_t ttft_us; /* predicted. The transfer overlaps the queue: time until
                        its turn has come and its blocks are here, plus prefill;
                        at most score_us while all blocks are here */
    int64_t most_us; /* TTFT to compare with SLOs: by queue_most_us, doubt_us
                        and again_us */
    bool planned;    /* by a load plan: local_blocks are resident,
                        used_blocks - split_block come from sources, transfer
                        is the whole load, predicted and prefill are the work
                        of the engine */
    bool at_least;   /* planned: score and ttft are lower bounds, since another
                        candidate is better than these */
    bool late;       /* planned: its ttft misses the request's SLO */
    bool tbt_late;   /* planned: it makes a decode there miss its TBT SLO */
    bool spared;     /* not eligible: a decode instance that would compute for
                        longer than the request gains */
    uint64_t last_prefill;  /* planned: as in struct pool_instance */
    int64_t evicted_tokens; /* planned: cached tokens that must leave the
                               instance for its blocks */
    enum load_mode load_mode;
    uint32_t split_block; /* [local_blocks, split_block) is computed although
                             it is cached somewhere */
    bool extrapolated;    /* the cost model was asked beyond its range */
    bool queue_full;      /* not eligible */
    bool too_long;        /* not eligible: prompt (in an aggregated pool with
                             its output) above its KV or window */
};

/* One decode candidate, and why. */
struct decode_estimate {
    uint32_t instance; /* pool id */
    uint32_t slot;
    int64_t batch;       /* decodes, this request and accepted ones included */
    int64_t kv_tokens;   /* KV of that batch */
    int64_t room_tokens; /* before this request */
    int64_t tbt_us;      /* one decode step of that batch; in an aggregated
                            pool with the prompts that share it now */
    int64_t behind_us;   /* delay of its KV by other KV on its way there; 0 =
                            none, or links do not count */
    int64_t gap_us;      /* from the end of its prefill until its KV is there; 0
                            = none, or links do not count */
    int64_t load_us;     /* tbt_us with all decodes that the instance has
                            accepted, by which the least loaded one is chosen;
                            scaled to the model's steps if the instance has a
                            cost model of its own */
    int64_t push_us;     /* pairs: from the end of the prefill until the decode
                            instance has the KV */
    int64_t push_tokens; /* prompt tokens of that push */
    bool extrapolated;
    bool no_room;  /* not eligible now: KV or number of decodes */
    bool too_long; /* never eligible: above its KV capacity or window */
};

/*
 * Returns the leading blocks of a prompt that may be reused:
 * min(matched_blocks, (n_tokens - 1) / block_tokens), since the last token must
 * be computed for the logits of the first output token. With whole_prompt_reuse
 * min(matched_blocks, ceil(n_tokens / block_tokens)). 0 for 0 tokens.
 */
uint32_t estimate_usable_blocks(const struct estimate_model *model,
                                uint32_t matched_blocks, int64_t n_tokens);

/* Cache of one request's last estimate: most instances have the same blocks.
 * {0} at first; valid for one model, prompt, sender and time. */
struct estimate_memo {
    bool predicted; /* the members up to predicted_us are set */
    bool extrapolated;
    const struct cost_model *cost;
    int64_t cached_tokens;
    int64_t predicted_us;
    uint32_t sent_blocks; /* blocks of transfer_us; 0 = not set */
    int64_t transfer_us;
};

/* A prefill on an instance. */
struct estimate_prefill_request {
    int64_t n_tokens;
    int64_t max_output_tokens; /* at least 1 */
    uint32_t local_blocks;     /* usable leading blocks that the instance has */
    uint32_t used_blocks;      /* with fetched ones, >= local_blocks */
    const struct pool_instance *sender; /* of fetched blocks; NULL = none */
    uint32_t there_blocks; /* leading blocks that the pair's decode instance
                              has: they are not pushed */
    int64_t pair_room_us;  /* until a decode instance of the pair has room; 0 =
                              one has room now */
    uint32_t over_blocks;  /* of pool_blocks_over() */
    int64_t deadline_us;   /* of its first token; 0 = none */
    int64_t now_us;
};

/*
 * Estimates a prefill on an instance.
 *   memo  from earlier estimates of this request.
 *   out   written in full.
 */
void estimate_prefill(const struct estimate_model *model,
                      const struct pool *pool,
                      const struct pool_instance *instance,
                      const struct estimate_prefill_request *request,
                      struct estimate_memo *memo, struct prefill_estimate *out);

/*
 * Adds to an estimate the time to read blocks from a slow tier of the instance
 * itself. The read overlaps the queue, as a transfer does. score_us does not
 * change.
 *   own_ready_us  absolute: when the blocks will have been read.
 *   out           in, out: of estimate_prefill().
 */
void estimate_add_own_load(const struct estimate_model *model,
                           const struct pool *pool,
                           const struct pool_instance *instance,
                           const struct estimate_prefill_request *request,
                           int64_t own_ready_us, struct prefill_estimate *out);

/* Returns the time (us) from the end of the prefill of n_tokens to the first
 * token of the pair's decode instance; 0 = unknown. */
int64_t estimate_push_us(const struct estimate_model *model, int64_t n_tokens);

/* A request on an instance, for planning. */
struct estimate_plan_request {
    int64_t n_tokens;
    uint32_t resident_blocks; /* usable leading blocks at no cost */
    uint32_t usable_blocks;   /* most blocks that may be reused */
    int64_t queue_us;
    struct beside beside;
    int64_t now_us;
    const struct load_source *sources; /* (n_sources) */
    size_t n_sources;
    unsigned modes; /* LOAD_MODE_BIT()s */
};

/*
 * Makes the load plan of a request on an instance that finishes first.
 *   plan  written.
 *   out   in, out: of estimate_prefill(); the plan's members are written:
 *         blocks, transfer, predicted, prefill, beside, ready, score, ttft.
 * Cost: load_plan_make().
 */
void estimate_plan(const struct estimate_model *model,
                   const struct pool_instance *instance,
                   const struct estimate_plan_request *request,
                   struct load_plan *plan, struct prefill_estimate *out);

/*
 * Estimates the decoding of a request on an instance.
 *   out  written in full.
 */
void estimate_decode(const struct estimate_model *model,
                     const struct pool_instance *instance, int64_t n_tokens,
                     int64_t max_output_tokens, struct decode_estimate *out);

/* The end of a decode: index in pool_instance.decodes, tokens to produce. */
struct decode_end {
    int64_t left_tokens;
    size_t decode;
};

/*
 * Returns in how many us an instance will have room for the request and a TBT
 * within the SLO, if no other request comes, its decodes run to their expected
 * length at the present step time, and decodes from outside the pool stay;
 * ESTIMATE_NEVER_US if not even an idle instance would do. If the decodes from
 * outside alone make the TBT too long, returns when all others have ended.
 *   slo_tbt_us  0 = any TBT will do.
 *   scratch     (n_decodes of the instance)
 * Cost: O(decodes), and O(log decodes) for each that must end first; for
 * rejected requests only.
 */
int64_t estimate_decode_fits_in_us(const struct estimate_model *model,
                                   const struct pool_instance *instance,
                                   int64_t n_tokens, int64_t max_output_tokens,
                                   int64_t slo_tbt_us,
                                   struct decode_end *scratch);

#endif
