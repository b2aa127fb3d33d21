/* The pace of the engine. */
#include "workers/load/step_pace.h"

#include "predictor/cost_model.h"

/* Factor by which each step lowers the weight of earlier ones. */
#define KEEP 0.95
/* Weight of a new ratio in the smoothed one. */
#define RATIO_GAIN 0.2

/* Returns the model's time (us) of a chunk of a prefill that began at `cached`.
 */
static double model_us(const struct cost_model *cost, uint32_t n_tokens,
                       uint32_t position, uint32_t cached)
{
    return (double)cost_model_chunk_us(cost, n_tokens, position - cached,
                                       cached);
}

static double mean_position(uint32_t n_tokens, uint32_t position)
{
    return position + n_tokens / 2.0;
}

static void learn_ratio(struct step_pace *p, double expected_us, double us)
{
    if (expected_us <= 0)
        return;
    double ratio = us / expected_us;
    p->ratio =
        p->ratio > 0 ? p->ratio + RATIO_GAIN * (ratio - p->ratio) : ratio;
}

void step_pace_learn(struct step_pace *p, const struct engine_segment *segments,
                     size_t n, int64_t us)
{
    double tokens = 0;
    double depth = 0;
    double expected_us = 0;

    for (size_t i = 0; i < n; i++) {
        const struct engine_segment *s = &segments[i];

        if (s->decode)
            return;
        tokens += s->n_tokens;
        depth += s->n_tokens * mean_position(s->n_tokens, s->position);
        if (p->cost)
            expected_us +=
                model_us(p->cost, s->n_tokens, s->position, s->cached_tokens);
    }
    if (p->cost) {
        learn_ratio(p, expected_us, (double)us);
        return;
    }
    p->nn = KEEP * p->nn + tokens * tokens;
    p->nd = KEEP * p->nd + tokens * depth;
    p->dd = KEEP * p->dd + depth * depth;
    p->n_us = KEEP * p->n_us + tokens * (double)us;
    p->d_us = KEEP * p->d_us + depth * (double)us;
}

/* Returns the fit by least squares, or the mean time of a token if positions
 * hardly differed or the fit has a negative coefficient. */
static double fitted_us(const struct step_pace *p, double tokens, double depth)
{
    double det = p->nn * p->dd - p->nd * p->nd;

    if (det > 1e-3 * p->nn * p->dd) {
        double b = (p->n_us * p->dd - p->d_us * p->nd) / det;
        double d = (p->d_us * p->nn - p->n_us * p->nd) / det;

        if (b >= 0 && d >= 0)
            return b * tokens + d * depth;
    }
    return p->n_us / p->nn * tokens;
}

double step_pace_us(const void *arg, uint32_t n_tokens, uint32_t position,
                    uint32_t cached)
{
    const struct step_pace *p = arg;

    if (p->cost)
        return (p->ratio > 0 ? p->ratio : 1) *
               model_us(p->cost, n_tokens, position, cached);
    if (p->nn <= 0)
        return -1;
    return fitted_us(p, n_tokens, n_tokens * mean_position(n_tokens, position));
}
