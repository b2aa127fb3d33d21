/* See model.h. */
#include "tools/replay/paper/cake/model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define MICROSECONDS 1e6

static int64_t greatest_common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/*
 * Step k of s tokens takes a + b k, so t tokens take, with k = t / s,
 *   T(t) = a k + b k (k - 1) / 2 = (a / s - b / 2s) t + (b / 2s^2) t^2
 * and u tokens behind p take T(p + u) - T(p): the cost model's form.
 */
static void set_cost(struct cost_model *cost, double a, double b, double s)
{
    memset(cost, 0, sizeof *cost);
    cost->prefill[1] = (a / s - b / (2 * s)) * MICROSECONDS;
    cost->prefill[2] = b / (2 * s * s) * MICROSECONDS;
    cost->prefill[3] = b / (s * s) * MICROSECONDS;
}

/* Sets the cost of a step: alpha of a chunk of its size, plus beta for every
 * step before it. */
static int step_cost(const struct cake_calibration *calibration,
                     const struct cake_chunk_cost *chunk,
                     const struct cake_setup *setup, int64_t step_tokens,
                     double *alpha_s, double *beta_s,
                     char error[CAKE_ERROR_BYTES])
{
    double chunk_tokens = (double)calibration->chunk_tokens;
    double chunks = (double)setup->chunk_tokens / chunk_tokens;

    if (step_tokens < 1)
        return error_say(
            error, CAKE_ERROR_BYTES, -EINVAL,
            "util_pct: %g %% of a chunk of %lld tokens is less than one",
            100 * setup->utilisation, (long long)setup->chunk_tokens);
    *alpha_s = chunk->alpha_s * chunks;
    *beta_s = chunk->beta_s * chunks * (double)step_tokens / chunk_tokens;
    if (*alpha_s < *beta_s)
        return error_say(
            error, CAKE_ERROR_BYTES, -EINVAL,
            "chunk: %lld tokens are too many for a calibration of chunks "
            "of %lld",
            (long long)setup->chunk_tokens,
            (long long)calibration->chunk_tokens);
    return 0;
}

int cake_engine_init(struct cake_engine *engine,
                     const struct cake_calibration *calibration,
                     const struct cake_setup *setup,
                     char error[CAKE_ERROR_BYTES])
{
    const struct cake_chunk_cost *chunk =
        cake_calibration_cost(calibration, setup->hardware, setup->model);
    const struct cake_model_size *size =
        cake_calibration_size(calibration, setup->model);
    int64_t step = llround((double)setup->chunk_tokens * setup->utilisation);
    double alpha_s = 0;
    double beta_s = 0;

    if (!size)
        return error_say(
            error, CAKE_ERROR_BYTES, -ENOENT,
            "model: the calibration has no kv_bytes_per_token of \"%s\"",
            setup->model);
    if (!chunk)
        return error_say(
            error, CAKE_ERROR_BYTES, -ENOENT,
            "hardware: the calibration has no chunk_cost_s of \"%s\" on "
            "\"%s\"",
            setup->model, setup->hardware);
    int rc =
        step_cost(calibration, chunk, setup, step, &alpha_s, &beta_s, error);
    if (rc != 0)
        return rc;
    double piece_bytes = (double)calibration->io_piece_tokens *
                         (double)size->kv_bytes_per_token * setup->kv_bits / 16;
    *engine = (struct cake_engine){
        .n_tokens = setup->n_tokens,
        .step_tokens = step,
        .piece_tokens = calibration->io_piece_tokens,
        .piece_bytes = piece_bytes,
        .piece_extra_s = calibration->io_piece_s,
        .piece_s = piece_bytes * 8 / (setup->bandwidth_gbps * 1e9) +
                   calibration->io_piece_s,
        .load_fixed_s = calibration->io_fixed_s,
        .final_step_s = calibration->final_step_s,
    };
    set_cost(&engine->cost, alpha_s, beta_s, (double)step);
    return 0;
}

static double compute_s(const struct cake_engine *engine, int64_t tokens)
{
    return (double)cost_model_prefill_us(&engine->cost, tokens, 0, NULL) /
           MICROSECONDS;
}

/* Returns the time to load whole pieces, the fixed part excluded. */
static double load_s(const struct cake_engine *engine, int64_t tokens)
{
    int64_t pieces = (tokens + engine->piece_tokens - 1) / engine->piece_tokens;

    return (double)pieces * engine->piece_s;
}

/* Plans the whole prompt, in the largest blocks that divide both a step and a
 * piece. *split_tokens: the computed part. */
static int plan_split(const struct cake_engine *engine, int64_t *split_tokens)
{
    int64_t block =
        greatest_common_divisor(engine->step_tokens, engine->piece_tokens);
    int64_t n_blocks = (engine->n_tokens + block - 1) / block;
    const struct load_source source = {
        .to_block = (uint32_t)n_blocks,
        .bytes_per_s = engine->piece_bytes / engine->piece_s,
    };
    const struct load_plan_request request = {
        .cost = &engine->cost,
        .cost_ratio = 1,
        .n_tokens = n_blocks * block, /* the last block is loaded whole */
        .block_tokens = (uint32_t)block,
        .block_bytes = llround(engine->piece_bytes * (double)block /
                               (double)engine->piece_tokens),
        .usable_blocks = (uint32_t)n_blocks,
        .step_tokens = (uint32_t)engine->step_tokens,
        .sources = &source,
        .n_sources = 1,
        .modes = LOAD_MODE_BIT(LOAD_MODE_BOTH),
    };
    struct load_plan plan;
    int rc = load_plan_make(&request, &plan);
    if (rc == 0) {
        *split_tokens = plan.mode == LOAD_MODE_COMPUTE
                            ? engine->n_tokens
                            : plan.split_block * block;
    }
    return rc;
}

int cake_engine_predict(const struct cake_engine *engine,
                        struct cake_prediction *prediction)
{
    struct cake_prediction p = {.best = LOAD_MODE_BOTH};
    int64_t n = engine->n_tokens;
    int64_t split = 0;
    int rc = plan_split(engine, &split);

    if (rc == 0 && compute_s(engine, n) * MICROSECONDS >= COST_MODEL_MAX_US)
        rc = -EINVAL;
    if (rc != 0)
        return rc;
    /* Where the plan would wait for the load, the engine computes on. */
    while (split < n && load_s(engine, n - split) > compute_s(engine, split))
        split += engine->step_tokens;
    p.split_tokens = split < n ? split : n;
    p.cake_s = compute_s(engine, p.split_tokens) + engine->final_step_s;
    p.compute_s = compute_s(engine, n);
    p.load_s = load_s(engine, n) + engine->load_fixed_s;
    p.speedup_io = p.load_s / p.cake_s;
    p.speedup_compute = p.compute_s / p.cake_s;
    if (fmin(p.compute_s, p.load_s) < p.cake_s)
        p.best = p.compute_s < p.load_s ? LOAD_MODE_COMPUTE : LOAD_MODE_LOAD;
    *prediction = p;
    return 0;
}
