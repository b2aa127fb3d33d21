/* The cost model: how long an instance takes to prefill a prompt and for one
 * decode step. Evaluation only: pure, no library besides libm. Loading is in
 * cost_model_json.h, fitting is in tools/fit/.
 *
 *   prefill_us(u, p) = c0 + c1 u + c2 u^2 + c3 u p
 *   decode_step_us(b, k) = d0 + d1 b + d2 k
 *
 * u: uncached tokens, to be computed; p: cached tokens, in front of them;
 * b: requests in the decode batch; k: KV tokens of the whole batch.
 * The prefill form is the polynomial regression on request length and prefix
 * hit length of the Mooncake paper (FAST'25, Algorithm 1): in attention each of
 * the u tokens looks at the p before it and at half of the u; the rest is
 * linear.
 */
#ifndef PREDICTOR_COST_MODEL_H
#define PREDICTOR_COST_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define COST_MODEL_PREFILL_TERMS 4
#define COST_MODEL_DECODE_TERMS 3
#define COST_MODEL_NAME_BYTES 256

/* Largest cost (11.6 days): the sum of nine million queued costs still fits an
 * int64_t. */
#define COST_MODEL_MAX_US INT64_C(1000000000000)

/* The measured range. Outside of it, a cost is a guess. */
struct cost_model_range {
    int64_t uncached_min_tokens;
    int64_t uncached_max_tokens;
    int64_t cached_max_tokens;
    int64_t batch_max;
    int64_t kv_tokens_max;
};

/* Quality of one polynomial's fit. The relative errors are of held-out points
 * (cross-validation). */
struct cost_model_quality {
    double r2;
    double median_rel_error;
    double p95_rel_error;
};

/* Plain data. The names are NUL-terminated. */
struct cost_model {
    char engine[COST_MODEL_NAME_BYTES];
    char model[COST_MODEL_NAME_BYTES];
    char machine[COST_MODEL_NAME_BYTES];
    char date[COST_MODEL_NAME_BYTES];
    int64_t block_tokens; /* KV block size it was measured with; 0 = unknown, or
                             irrelevant */
    double prefill[COST_MODEL_PREFILL_TERMS]; /* us for 1, u, u^2, u p */
    double decode[COST_MODEL_DECODE_TERMS];   /* us for 1, batch, kv_tokens */
    double shared_us; /* part of prefill[0] that prompts computed in one step
                         pay once together; not in files */
    struct cost_model_range range;
    struct cost_model_quality prefill_quality;
    struct cost_model_quality decode_quality;
};

/* Returns the predicted time to prefill `uncached_tokens` behind
 * `cached_tokens` reused ones, in microseconds, rounded to nearest, clamped to
 * 1 .. COST_MODEL_MAX_US; a negative token count is taken as 0. Borrows `m`.
 * Sets *extrapolated (may be NULL) to whether the point is outside the valid
 * range. */
int64_t cost_model_prefill_us(const struct cost_model *m,
                              int64_t uncached_tokens, int64_t cached_tokens,
                              bool *extrapolated);

/* As cost_model_prefill_us(), with prompt_us added to prefill[0] and token_us
 * to prefill[1]. */
int64_t cost_model_prefill_beside_us(const struct cost_model *m,
                                     int64_t uncached_tokens,
                                     int64_t cached_tokens, double prompt_us,
                                     double token_us);

/* Predicts the time of one decode step of `batch` requests with `kv_tokens`
 * KV tokens in total, in microseconds, rounded to nearest. Clamp, ownership
 * and `extrapolated` as for cost_model_prefill_us(). */
int64_t cost_model_decode_step_us(const struct cost_model *m, int64_t batch,
                                  int64_t kv_tokens, bool *extrapolated);

/* Returns the time in us, at least 0, that n_tokens more add to a prefill with
 * `done_tokens` computed behind `cached_tokens`. Over the chunks of a prompt it
 * adds up to the whole cost; the first chunk has the constant part. Borrows
 * `m`. */
int64_t cost_model_chunk_us(const struct cost_model *m, int64_t n_tokens,
                            int64_t done_tokens, int64_t cached_tokens);

/* Returns the time in us that a step with prompt chunks and decodes saves over
 * separate steps, as it reads the weights once: d0, the constant part of a
 * decode step, but at most prefill_us, the chunks' time. Borrows `m`. */
int64_t cost_model_mixed_saves_us(const struct cost_model *m,
                                  int64_t prefill_us);

/* Time in us, at least 0, that a batch of decodes adds to a step that computes
 * prompts, and so reads the weights anyway: d1 b + d2 k. Borrows `m`. */
double cost_model_decodes_add_us(const struct cost_model *m, int64_t batch,
                                 int64_t kv_tokens);

/* Returns the prefill polynomial's smallest value, unclamped, in the valid
 * range, in us. Negative or NaN: the model is unusable. The polynomial is
 * linear in p and quadratic in u, so the four corners and the two vertices in u
 * at the ends of p are enough. Borrows `m`. */
double cost_model_prefill_least_us(const struct cost_model *m);

/* Returns the smallest slope of the prefill polynomial, in u or in p, within
 * the valid range, in microseconds a token.
 * Negative: more work would be predicted to take less time. Borrows `m`. */
double cost_model_prefill_least_slope_us(const struct cost_model *m);

/* Returns the decode polynomial's smallest value, unclamped, for batch
 * 1 .. batch_max, kv_tokens 0 .. kv_tokens_max, in us. Borrows `m`. */
double cost_model_decode_least_us(const struct cost_model *m);

#endif
