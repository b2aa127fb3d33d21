/*
 * The time of a cached prompt on a machine of the calibration: computed,
 * loaded, or both at once as Cake does. The merge is conductor/core/load_plan;
 * this file has the parameters in which the paper's process is coarser than a
 * plan:
 *
 *   step     an engine step holds chunk * utilisation tokens of the prompt and
 *            takes as long as a full chunk, since other requests fill the rest
 *   piece    loaded tokens count in whole pieces of io_piece_tokens
 *   no wait  the engine checks for loaded tokens only at the end of a step, and
 *            computes on where a plan would wait for a load about to end
 *   last     one more step of final_step_s ends the prompt
 *
 * Loading alone takes bytes / bandwidth, plus io_piece_s per piece, plus
 * io_fixed_s once. Pure.
 */
#ifndef TOOLS_REPLAY_PAPER_CAKE_MODEL_H
#define TOOLS_REPLAY_PAPER_CAKE_MODEL_H

#include "conductor/core/plan/load_plan.h"
#include "predictor/cost_model.h"
#include "tools/replay/paper/cake/calibration.h"
#include "tools/replay/paper/cake/table.h"

/* A setup with its constants. Plain data. */
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

/* Times of one setup, and Cake's speed-ups. */
struct cake_prediction {
    double compute_s;
    double load_s;
    double cake_s;
    double speedup_io;      /* load_s / cake_s */
    double speedup_compute; /* compute_s / cake_s */
    int64_t split_tokens;   /* computed by Cake; the rest is loaded */
    enum load_mode best;    /* the shortest of the three */
};

/*
 * Sets the constants of a setup. Returns 0; or, with a message in `error` that
 * names field and value: -ENOENT if the calibration has no such hardware or
 * model; -EINVAL for a step of less than one token, or too many for the cost
 * model.
 */
[[nodiscard]] int cake_engine_init(struct cake_engine *engine,
                                   const struct cake_calibration *calibration,
                                   const struct cake_setup *setup,
                                   char error[CAKE_ERROR_BYTES]);

/* Predicts the plan and the paper's process for a setup. Returns 0, or -EINVAL
 * if computing takes longer than COST_MODEL_MAX_US. Cost: one plan, and the
 * steps of a piece. */
[[nodiscard]] int cake_engine_predict(const struct cake_engine *engine,
                                      struct cake_prediction *prediction);

#endif
