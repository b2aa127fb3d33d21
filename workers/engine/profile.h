/* Times an engine over a grid, for the cost model that is fitted to it:
 * prefill over (prompt tokens to compute, cached prefix), decode steps over
 * (batch, KV tokens of the batch). Used by `conductor-worker --profile`.
 */
#ifndef WORKERS_ENGINE_PROFILE_H
#define WORKERS_ENGINE_PROFILE_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include "workers/engine/engine.h"

#define PROFILE_DEFAULT_TOKENS 4096
#define PROFILE_DEFAULT_BATCH 64
#define PROFILE_DEFAULT_REPEATS 3
#define PROFILE_DEFAULT_KV_BYTES (UINT64_C(1) << 28)

/* Runs the timed work in the worker's step loop, whose overhead is part of a
 * request's latency. */
struct profile_way {
    void *arg;
    /* Prefills tokens[n_tokens], reusing at most *cached_tokens; sets it to
     * the tokens reused, and *us. Returns 0 or a negative errno. */
    int (*prefill)(void *arg, const uint32_t *tokens, uint32_t n_tokens,
                   uint32_t *cached_tokens, double *us);
    /* Runs one step of segments[n]. Returns 0 or a negative errno. */
    int (*step)(void *arg, struct engine_segment *segments, uint32_t n);
};

/* (0: ...) names the default that zero stands for. */
struct profile_config {
    const char *model;   /* its name, for the file; borrowed */
    const char *machine; /* for the file; borrowed (NULL: the processor) */
    uint64_t seed;       /* of the weights, for the file; and the order */
    uint32_t max_tokens; /* prefix + prompt (0: 4096 or the window) */
    uint32_t max_batch;  /* decode batch (0: 64 or the engine's step_tokens) */
    uint32_t repeats;    /* of every point (0: 3) */
    uint64_t max_kv_bytes;         /* points that need more are left out (0: 256
                                      MiB) */
    const atomic_bool *stop;       /* NULL, or a flag that ends the run early */
    const struct profile_way *way; /* borrowed; NULL = the engine alone */
};

/* Called after each measurement. */
typedef void profile_progress_fn(void *arg, uint32_t done, uint32_t of);

/* Runs the grid on `e`, which nothing else may use meanwhile, and writes the
 * measurements to `out` as CSV: lines "# key: value" with the model, machine
 * and settings, the header
 *   kind,uncached_tokens,cached_tokens,batch,kv_tokens,us
 * and one row a measurement; predictor/profile_csv.h reads it. A prompt ends
 * with a token. Without config->way it is prefilled in steps of the engine's
 * step_tokens, in the same blocks every time. Repeats are rounds over all
 * points in random order, so that a slow minute does not fall on one point.
 *   progress, arg   progress may be NULL
 * Returns 0; -EINVAL with a message in err[err_bytes] for a field out of range;
 * -ENOMEM; -ECANCELED if *stop was set; or what writing to `out` or the engine
 * reported. Cost: about 8 s for tiny on one fast core. */
[[nodiscard]] int profile_run(struct engine *e,
                              const struct profile_config *config, FILE *out,
                              profile_progress_fn *progress, void *arg,
                              char *err, size_t err_bytes);

#endif
