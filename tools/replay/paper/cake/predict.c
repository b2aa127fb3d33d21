/* A prompt computed, loaded, or both as planned; see process.h. */
#include <errno.h>
#include <math.h>

#include "tools/replay/paper/cake/process.h"

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
    if (fmin(p.compute_s, p.load_s) < p.cake_s)
        p.best = p.compute_s < p.load_s ? LOAD_MODE_COMPUTE : LOAD_MODE_LOAD;
    *prediction = p;
    return 0;
}
