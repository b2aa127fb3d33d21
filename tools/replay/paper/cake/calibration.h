/*
 * Costs of computing and loading on the machines of the Cake paper: constants
 * fitted to the ratio of its two baselines, never to Cake's own times. The
 * project's own copy is the default; a JSON file can replace it:
 *
 *   {"io_fixed_s": 0.045,          per load
 *    "io_piece_s": 0.00077,        per piece of a load, beside its bytes
 *    "io_piece_tokens": 128,
 *    "final_step_s": 0.045,        the step after the merge
 *    "chunk_tokens": 512,          chunk size of the costs below
 *    "step_tokens": "chunk_tokens * utilisation",
 *    "kv_bytes_per_token": {"LongAlpaca-13B": 819200},   at 16 bits
 *    "chunk_cost_s": [{"hardware": "A100", "model": "LongAlpaca-13B",
 *                      "alpha": 0.08039, "beta": 0.001551}]}
 *
 * Chunk i of a prompt takes alpha + beta i seconds. "source" and a cost's
 * "assumed_rising_share" are allowed and ignored.
 */
#ifndef TOOLS_REPLAY_PAPER_CAKE_CALIBRATION_H
#define TOOLS_REPLAY_PAPER_CAKE_CALIBRATION_H

#include <stddef.h>
#include <stdint.h>

#include "tools/replay/paper/cake/table.h"

#define CAKE_MODELS_MAX 64
#define CAKE_COSTS_MAX 256
#define CAKE_CALIBRATION_MAX_BYTES (256 * 1024)

struct cake_model_size {
    char model[CAKE_NAME_BYTES];
    int64_t kv_bytes_per_token; /* at 16 bits per number */
};

struct cake_chunk_cost {
    char hardware[CAKE_NAME_BYTES];
    char model[CAKE_NAME_BYTES];
    double alpha_s; /* of the first chunk */
    double beta_s;  /* more for each further chunk */
};

/* Plain data. */
struct cake_calibration {
    double io_fixed_s;
    double io_piece_s;
    int64_t io_piece_tokens;
    double final_step_s;
    int64_t chunk_tokens;
    size_t n_models;
    size_t n_costs;
    struct cake_model_size models[CAKE_MODELS_MAX];
    struct cake_chunk_cost costs[CAKE_COSTS_MAX];
};

/*
 * Reads the JSON of `size` bytes at `text` (borrowed); `name` stands for the
 * file in messages. Returns 0; or -EINVAL with "FILE: FIELD: what" or "FILE:
 * line L, column C: what" in `error`, and the calibration untouched.
 */
[[nodiscard]] int
cake_calibration_read_buffer(const char *text, size_t size, const char *name,
                             struct cake_calibration *calibration,
                             char error[CAKE_ERROR_BYTES]);

/* Reads a file as cake_calibration_read_buffer(); also returns -EFBIG, -ENOMEM,
 * or the error of open or read. path NULL = the paper's machines. */
[[nodiscard]] int
cake_calibration_read_file(const char *path,
                           struct cake_calibration *calibration,
                           char error[CAKE_ERROR_BYTES]);

/* Return the chunk cost of a model on hardware, and the size of its KV; NULL if
 * the calibration has none. Borrowed. O(entries). */
const struct cake_chunk_cost *
cake_calibration_cost(const struct cake_calibration *c, const char *hardware,
                      const char *model);
const struct cake_model_size *
cake_calibration_size(const struct cake_calibration *c, const char *model);

#endif
