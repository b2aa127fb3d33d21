/*
 * What one request would cost on one instance: time to first token (TTFT) of
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

/* A request that never fits: larger than every time that can occur. */
#define ESTIMATE_NEVER_US (INT64_MAX / 4)

/* What all estimates share. Borrowed by its users. */
struct estimate_model {
    const struct cost_model *cost; /* of instances without their own */
    uint32_t block_tokens;         /* at least 1 */
    int64_t kv_bytes_per_token;    /* at least 1 */
    uint32_t layers;               /* of the model; 0: no loads by layer */
    bool assumes_stored;   /* who carries decisions out says itself which
                              blocks are there or expected: commits give
                              the pool no keys */
    uint32_t shared_store; /* the index's instance that is a store which
                              those read that have a rate for it; 0: none */
    uint8_t shared_tier;   /* enum block_tier that it is of these */
    bool coupled;          /* a request decodes where it was prefilled: an
                              aggregated pool; but for its pairs */
    const double *push;    /* (2), in microseconds: how long pairs take from
                              the end of a prefill to the first token that the
                              decode instance sends, and for each token of the
                              prompt; NULL: none. Borrowed */
    uint32_t step_tokens;  /* of an aggregated instance: most tokens of a
                              step, those of its decodes first; 0: of any
                              number */
    struct simulated_world simulated; /* the daemon: all zero */
};

/* What an instance's work costs: all times of it are by this. */
static inline const struct cost_model *
estimate_cost(const struct estimate_model *model,
              const struct pool_instance *instance)
{
    return instance->cost ? instance->cost : model->cost;
}

/* One prefill candidate, and why. */
struct prefill_estimate {
    uint32_t instance;       /* pool id */
    uint32_t slot;           /* and slot */
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
    int64_t queue_most_us;   /* the same, whatever comes: where the queue order
                                lets shorter ones pass, those who wait now may
                                all go first, and later ones make nobody late */
    int64_t doubt_us;        /* by which that and its own time may exceed what
                                is predicted */
    int64_t again_us;        /* that blocks which can't all stay there may take
                                to be computed again */
    uint32_t behind;         /* prefills that would wait for it to end */
    int64_t room_us;         /* of queue_us: until there is room to decode it;
                                0: there is, or the pool is not aggregated */
    int64_t link_us;         /* planned: that others' links send for it */
    int64_t push_us;         /* of ttft_us: until the other one of a pair, which
                                sends the first token, has the KV */
    int64_t push_tokens;     /* of which prompt's tokens */
    int64_t predicted_us;    /* prefill, by the cost model, on its own */
    int64_t beside_us;       /* what decodes beside it add to that */
    struct beside beside;
    int64_t last_us;    /* its last step may take so long, with other prompts */
    int64_t prefill_us; /* both, corrected for this instance */
    int64_t score_us;   /* transfer + queue + prefill: Algorithm 1's sum, by
                           which policies choose. Planned: ttft + prefill times
                           the decision's engine_price */
    int64_t ttft_us; /* predicted: the transfer overlaps the queue, so this is
                        the time until its turn has come and its blocks are
                        here, plus prefill; at most score_us while all are
                        ready */
    int64_t most_us; /* likewise, after queue_most_us, doubt_us and again_us:
                        SLOs look at it */
    bool planned;    /* by a load plan: local_blocks are resident,
                        used_blocks - split_block come from sources, transfer
                        is the whole load, predicted and prefill are the work
                        of the engine */
    bool at_least;   /* planned, and score and ttft are lower bounds: it was
                        not worked out, because another candidate is better */
    bool late;       /* planned, and its ttft misses the request's SLO */
    bool tbt_late;   /* planned: a decode there would miss its SLO by it */
    bool spared;     /* not eligible: it decodes for those that prefill, and
                        would compute for longer than is won by it */
    uint64_t last_prefill; /* planned: the instance's */
    bool evicts; /* planned, one of equal candidates: its blocks have no
                    room beside what is cached there */
    enum load_mode load_mode;
    uint32_t split_block; /* [local_blocks, split_block) is computed although
                             it is cached somewhere */
    bool extrapolated;    /* the cost model was asked beyond its range */
    bool queue_full;      /* not eligible */
    bool too_long;        /* not eligible: prompt above its KV or window; in an
                             aggregated pool with its output */
};

/* One decode candidate, and why. */
struct decode_estimate {
    uint32_t instance;   /* pool id */
    uint32_t slot;       /* and slot */
    int64_t batch;       /* with this request and those on their way */
    int64_t kv_tokens;   /* likewise */
    int64_t room_tokens; /* before this request */
    int64_t tbt_us;      /* one decode step of that batch; in an aggregated
                            pool with the prompts that share it now */
    int64_t behind_us;   /* by how much KV on its way to there holds up its
                            own; 0 where that does not count */
    int64_t gap_us;      /* by how much that comes later than the prefill ends,
                            likewise */
    int64_t load_us;     /* tbt_us with all that the instance has accepted:
                            by this the least loaded is chosen. Of one with a
                            cost model of its own: as if its steps were as
                            long as the model's */
    int64_t push_us;     /* until it has the prompt's KV from the other one of a
                            pair, once that is computed */
    int64_t push_tokens; /* of which prompt's tokens */
    bool extrapolated;
    bool no_room;  /* not eligible now: KV or number of decodes */
    bool too_long; /* not eligible ever: above its KV capacity or window */
};

/*
 * The leading blocks of a prompt that may be reused: at least its last token
 * must be computed, or there would be no logits to choose a token from, unless
 * a simulated world has whole_prompt_reuse.
 * Returns min(matched_blocks, (n_tokens - 1) / block_tokens), with
 * whole_prompt_reuse min(matched_blocks, ceil(n_tokens / block_tokens)); 0 for
 * 0 tokens.
 */
uint32_t estimate_usable_blocks(const struct estimate_model *model,
                                uint32_t matched_blocks, int64_t n_tokens);

/* The last answers of one request's estimates, to be used again: most instances
 * have the same blocks. {0} at first; valid for one model, prompt, sender and
 * time. */
struct estimate_memo {
    bool predicted; /* whether predicted_us is that of cached_tokens */
    bool extrapolated;
    const struct cost_model *cost; /* by which it was predicted */
    int64_t cached_tokens;
    int64_t predicted_us;
    uint32_t sent_blocks; /* 0: transfer_us is of none */
    int64_t transfer_us;
};

/* A prefill on an instance. */
struct estimate_prefill_request {
    int64_t n_tokens;
    int64_t max_output_tokens; /* at least 1 */
    uint32_t local_blocks;     /* usable leading blocks that the instance has */
    uint32_t used_blocks;      /* and will after the fetch, >= local_blocks */
    const struct pool_instance *sender; /* of the difference; NULL: none */
    uint32_t there_blocks; /* leading ones that are not pushed: the other one of
                              a pair has them */
    int64_t pair_room_us;  /* until one has room that would decode it; 0: there
                              is */
    uint32_t over_blocks;  /* that the instance's tiers can't hold, of pool.h */
    int64_t deadline_us;   /* of its first token; 0: none */
    int64_t now_us;
};

/*
 * Estimates it.
 *   memo  of this request's estimates so far.
 *   out   written in full.
 */
void estimate_prefill(const struct estimate_model *model,
                      const struct pool *pool,
                      const struct pool_instance *instance,
                      const struct estimate_prefill_request *request,
                      struct estimate_memo *memo, struct prefill_estimate *out);

/*
 * Adds to an estimate that the instance first reads blocks from a slow tier of
 * its own. The read overlaps the queue, as a transfer does. Algorithm 1's sum
 * does not change.
 *   own_ready_us  absolute: when they will have been read.
 *   out           written by estimate_prefill() before.
 */
void estimate_add_own_load(const struct estimate_model *model,
                           const struct pool *pool,
                           const struct pool_instance *instance,
                           const struct estimate_prefill_request *request,
                           int64_t own_ready_us, struct prefill_estimate *out);

/* How long the other one of a pair takes to send a first token, once a prompt
 * of so many tokens is computed; 0: nothing is known of pushes. */
int64_t estimate_push_us(const struct estimate_model *model, int64_t n_tokens);

/* What planning needs to know of a request on an instance. */
struct estimate_plan_request {
    int64_t n_tokens;
    uint32_t resident_blocks; /* usable leading blocks at no cost */
    uint32_t usable_blocks;
    int64_t queue_us; /* its wait there */
    struct beside beside;
    int64_t now_us;
    const struct load_source *sources; /* (n_sources) */
    size_t n_sources;
    unsigned modes; /* LOAD_MODE_BIT()s */
};

/*
 * The load plan of a request on an instance that finishes first.
 *   plan  written, all pieces and shares in it.
 *   out   the plan's part is written: blocks, transfer, predicted, prefill,
 *         beside, ready, score, ttft; the rest does not change.
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

/* A decode of an instance, and what it has to produce yet. */
struct decode_end {
    int64_t left_tokens;
    size_t decode;
};

/*
 * When an instance would have room for the request and a TBT within the SLO, if
 * no other request came and its decodes ran to their full length at the present
 * step time.
 *   slo_tbt_us  0: any TBT will do.
 *   scratch     (n_decodes of the instance)
 * Returns microseconds from now, ESTIMATE_NEVER_US if not even an idle
 * instance would do. Cost: O(decodes), and O(log decodes) for each that must
 * end first; for rejected requests only.
 */
int64_t estimate_decode_fits_in_us(const struct estimate_model *model,
                                   const struct pool_instance *instance,
                                   int64_t n_tokens, int64_t max_output_tokens,
                                   int64_t slo_tbt_us,
                                   struct decode_end *scratch);

#endif
