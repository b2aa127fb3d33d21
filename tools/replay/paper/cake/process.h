/*
 * The process of the Cake paper, with the split of
 * conductor/core/plan/load_plan and the orders of conductor/core/step: a cached
 * prompt that is computed, loaded, or both, alone or among others. The
 * parameters in which the paper's process is coarser than a plan:
 *
 *   step     an engine step holds chunk * utilisation tokens of the prompt and
 *            takes as long as a full chunk, since other requests fill the rest
 *   piece    loaded tokens count in whole pieces of io_piece_tokens
 *   no wait  the engine checks for loaded tokens only at the end of a step, and
 *            computes on where a plan would wait for a load about to end
 *   last     one more step of final_step_s ends the prompt
 *
 * Loading alone takes bytes / bandwidth, plus io_piece_s per piece, plus
 * io_fixed_s once. Simulated, not measured. Pure.
 */
#ifndef TOOLS_REPLAY_PAPER_CAKE_PROCESS_H
#define TOOLS_REPLAY_PAPER_CAKE_PROCESS_H

#include <stddef.h>
#include <stdint.h>

#include "conductor/core/plan/load_plan.h"
#include "predictor/cost_model.h"

/* A prompt on a machine, with its constants. Plain data. */
struct cake_engine {
    int64_t n_tokens;     /* of the prompt */
    int64_t step_tokens;  /* at least 1 */
    int64_t piece_tokens; /* at least 1 */
    double piece_bytes;
    double piece_extra_s; /* io_piece_s */
    double piece_s;       /* piece_bytes / bandwidth + piece_extra_s */
    double load_fixed_s;
    double final_step_s;
    struct cost_model cost; /* of the prompt's tokens in such steps */
};

/* Times of one prompt. */
struct cake_prediction {
    double compute_s;
    double load_s;
    double cake_s;
    int64_t split_tokens; /* computed by Cake; the rest is loaded */
    enum load_mode best;  /* the shortest of the three */
};

/* Predicts the plan and the paper's process. Returns 0, or -EINVAL if computing
 * takes longer than COST_MODEL_MAX_US. Cost: one plan, and the steps of a
 * piece. */
[[nodiscard]] int cake_engine_predict(const struct cake_engine *engine,
                                      struct cake_prediction *prediction);

#define CAKE_SHORT_MAX 1000

/* A fully cached prompt, followed by short prompts that are not cached, all
 * present from the start. */
struct cake_mix {
    const struct cake_engine *engine; /* borrowed; utilisation 1 */
    const int64_t *short_tokens;      /* (n_short), borrowed, each above 0 */
    size_t n_short;                   /* at most CAKE_SHORT_MAX */
    const char *order;                /* name in conductor/core/queue */
};

struct cake_mixed {
    double done_s;          /* end of the last prompt */
    double cached_s;        /* first token of the cached prompt */
    double short_mean_s;    /* mean first token of the short prompts */
    double computed_tokens; /* of the cached prompt */
    double tokens_per_s;    /* prompt tokens of all / done_s */
};

/* Serves the prompts in steps of the engine's step_tokens. Returns 0, -EINVAL
 * (unknown order, too many prompts) or -ENOMEM. O(steps short prompts). */
[[nodiscard]] int cake_mix_run(const struct cake_mix *mix,
                               struct cake_mixed *mixed);

#endif
