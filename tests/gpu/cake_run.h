/* One prompt whose KV lies behind a slow link: computed, loaded, or both at
 * once until the two meet (Cake, "Compute Or Load KV Cache? Why Not Both?").
 *
 * The KV is in the host blocks all the time; the link is a delay: a block
 * counts as there when its bytes would have come, and goes to the device then.
 * Blocks come from the end backward, one after the other. As in a worker,
 * conductor/core/load_plan chooses the mode, and workers/step_pace before every
 * step how far to compute.
 */
#ifndef TESTS_GPU_CAKE_RUN_H
#define TESTS_GPU_CAKE_RUN_H

#include "predictor/cost_model.h"
#include "tests/gpu/bench_rig.h"
#include "workers/load/step_pace.h"

#define CAKE_BLOCK_TOKENS 128 /* the paper's load chunk */
#define CAKE_STEP_TOKENS 512  /* the paper's token budget */
#define CAKE_MAX_TOKENS 16384
#define CAKE_MIN_BUDGET 16
#define CAKE_MAX_STEPS (CAKE_MAX_TOKENS / CAKE_MIN_BUDGET)
#define CAKE_MAX_BLOCKS (CAKE_MAX_TOKENS / CAKE_BLOCK_TOKENS)

struct cake {
    struct bench *b;
    struct bench_kv kv;     /* holds the KV of the whole prompt */
    const uint32_t *prompt; /* at least n_tokens */
    uint32_t n_tokens;      /* of this prompt */
    uint32_t budget;        /* tokens of a step */
    double bytes_per_s;     /* of the link */
    struct cost_model cost; /* of steps of `budget` tokens */
    struct step_pace pace;  /* the same, as a worker uses it */
};

/* Blocks of the prompt that may be loaded: all but that of the last token. */
uint32_t cake_blocks(const struct cake *c);

/* What a prompt took when it was only computed. */
struct cake_computed {
    uint32_t n_steps;
    double us;                      /* altogether */
    double step_us[CAKE_MAX_STEPS]; /* each */
    uint32_t token;                 /* the answer */
};

/* What a prompt took when all of it was loaded. */
struct cake_loaded {
    double us;                          /* altogether */
    double arrived_us[CAKE_MAX_BLOCKS]; /* [i]: the last i + 1 blocks are
                                           there, since the start */
    double suffix_us;                   /* what was left to compute */
    uint32_t token;
};

/* What it took with both. */
struct cake_both {
    double us;
    uint32_t split_block; /* blocks in front of it were computed */
    uint32_t token;
};

/* Each returns 0 or a negative errno; the results are then undefined. */
[[nodiscard]] int cake_compute(struct cake *c, struct cake_computed *out);
[[nodiscard]] int cake_load(struct cake *c, struct cake_loaded *out);
[[nodiscard]] int cake_both(struct cake *c, struct cake_both *out);

/* Sets c->cost and c->pace from what the steps took: a constant for each token,
 * and a part that grows with the tokens in front of it. Least squares. */
void cake_learn(struct cake *c, const struct cake_computed *computed);

/* The time of a merge without loss: the least, over all blocks where the two
 * could meet, of the later one of the measured times to compute up to there
 * and to load from the end down to there, and the suffix behind it; or the
 * better single one, if that is less. Within a step, time passes evenly. */
double cake_ideal_us(const struct cake *c, const struct cake_computed *computed,
                     const struct cake_loaded *loaded);

#endif
