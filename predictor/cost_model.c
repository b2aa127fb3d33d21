/* Evaluates the cost model. See cost_model.h. */
#include "predictor/cost_model.h"

#include <math.h>
#include <stddef.h>

static double poly_of(const double c[COST_MODEL_PREFILL_TERMS], double u,
                      double p)
{
    return c[0] + u * (c[1] + c[2] * u + c[3] * p);
}

static double prefill_poly(const struct cost_model *m, double u, double p)
{
    return poly_of(m->prefill, u, p);
}

static double decode_poly(const struct cost_model *m, double batch, double kv)
{
    const double *d = m->decode;

    return d[0] + d[1] * batch + d[2] * kv;
}

/* Turns NaN, which no loaded model gives, into the largest cost, so that it is
 * never chosen. */
static int64_t clamp_us(double us)
{
    if (!(us < (double)COST_MODEL_MAX_US))
        return COST_MODEL_MAX_US;
    if (us < 1.0)
        return 1;
    /* As llround(), without a call; the fraction is exact. */
    return (int64_t)us + (us - (double)(int64_t)us >= 0.5);
}

static double at_least_zero(int64_t n)
{
    return n > 0 ? (double)n : 0.0;
}

int64_t cost_model_prefill_us(const struct cost_model *m,
                              int64_t uncached_tokens, int64_t cached_tokens,
                              bool *extrapolated)
{
    const struct cost_model_range *r = &m->range;

    if (extrapolated)
        *extrapolated = uncached_tokens < r->uncached_min_tokens ||
                        uncached_tokens > r->uncached_max_tokens ||
                        cached_tokens < 0 ||
                        cached_tokens > r->cached_max_tokens;
    return clamp_us(prefill_poly(m, at_least_zero(uncached_tokens),
                                 at_least_zero(cached_tokens)));
}

int64_t cost_model_prefill_beside_us(const struct cost_model *m,
                                     int64_t uncached_tokens,
                                     int64_t cached_tokens, double prompt_us,
                                     double token_us)
{
    const double c[COST_MODEL_PREFILL_TERMS] = {
        m->prefill[0] + prompt_us,
        m->prefill[1] + token_us,
        m->prefill[2],
        m->prefill[3],
    };

    return clamp_us(poly_of(c, at_least_zero(uncached_tokens),
                            at_least_zero(cached_tokens)));
}

int64_t cost_model_decode_step_us(const struct cost_model *m, int64_t batch,
                                  int64_t kv_tokens, bool *extrapolated)
{
    const struct cost_model_range *r = &m->range;

    if (extrapolated)
        *extrapolated = batch < 1 || batch > r->batch_max || kv_tokens < 0 ||
                        kv_tokens > r->kv_tokens_max;
    return clamp_us(
        decode_poly(m, at_least_zero(batch), at_least_zero(kv_tokens)));
}

/* Returns the smaller number, or NaN if either is NaN: fmin() would hide it. */
static double lesser(double a, double b)
{
    if (isnan(a) || isnan(b))
        return (double)NAN;
    return a < b ? a : b;
}

/* Returns the cost of a run of chunks so far; 0 without tokens. */
static int64_t run_us(const struct cost_model *m, int64_t uncached_tokens,
                      int64_t cached_tokens)
{
    if (uncached_tokens == 0)
        return 0;
    return cost_model_prefill_us(m, uncached_tokens, cached_tokens, NULL);
}

int64_t cost_model_chunk_us(const struct cost_model *m, int64_t n_tokens,
                            int64_t done_tokens, int64_t cached_tokens)
{
    int64_t us = run_us(m, done_tokens + n_tokens, cached_tokens) -
                 run_us(m, done_tokens, cached_tokens);

    return us > 0 ? us : 0;
}

int64_t cost_model_mixed_saves_us(const struct cost_model *m,
                                  int64_t prefill_us)
{
    double read_us = m->decode[0] > 0 ? m->decode[0] : 0;

    return read_us < (double)prefill_us ? llround(read_us) : prefill_us;
}

double cost_model_decodes_add_us(const struct cost_model *m, int64_t batch,
                                 int64_t kv_tokens)
{
    double us = decode_poly(m, at_least_zero(batch), at_least_zero(kv_tokens)) -
                m->decode[0];

    return us > 0.0 ? us : 0.0;
}

double cost_model_prefill_least_us(const struct cost_model *m)
{
    const double u_min = (double)m->range.uncached_min_tokens;
    const double u_max = (double)m->range.uncached_max_tokens;
    const double ends[2] = {0.0, (double)m->range.cached_max_tokens};
    double least = INFINITY;

    for (int i = 0; i < 2; i++) {
        double p = ends[i];

        least = lesser(least, prefill_poly(m, u_min, p));
        least = lesser(least, prefill_poly(m, u_max, p));
        double vertex =
            -(m->prefill[1] + m->prefill[3] * p) / (2.0 * m->prefill[2]);
        if (vertex > u_min && vertex < u_max)
            least = lesser(least, prefill_poly(m, vertex, p));
    }
    return least;
}

double cost_model_prefill_least_slope_us(const struct cost_model *m)
{
    const double *c = m->prefill;
    const double us[2] = {(double)m->range.uncached_min_tokens,
                          (double)m->range.uncached_max_tokens};
    const double ps[2] = {0.0, (double)m->range.cached_max_tokens};
    double least = INFINITY;

    for (int i = 0; i < 2; i++) {
        least = lesser(least, c[3] * us[i]);
        for (int j = 0; j < 2; j++)
            least = lesser(least, c[1] + 2.0 * c[2] * us[i] + c[3] * ps[j]);
    }
    return least;
}

double cost_model_decode_least_us(const struct cost_model *m)
{
    const double kv_max = (double)m->range.kv_tokens_max;
    const double batches[2] = {1.0, (double)m->range.batch_max};
    double least = INFINITY;

    for (int i = 0; i < 2; i++) {
        least = lesser(least, decode_poly(m, batches[i], 0.0));
        least = lesser(least, decode_poly(m, batches[i], kv_max));
    }
    return least;
}
