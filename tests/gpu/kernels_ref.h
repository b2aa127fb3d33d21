/* What each kernel of kernels.h computes, as plain loops in double precision on
 * the CPU: slow and obvious. Numbers of bfloat16 are rounded where the kernels
 * round them, and nowhere else.
 *
 * TOLERANCES, of |kernel - reference|, absolute + relative:
 *   draw, embed     0: equal bit for bit
 *   angles          1e-6 + 0
 *   norm, place     1e-6 + 2^-8: one rounding to bfloat16, which a difference
 *                   in the last digit of float may turn the other way
 *   swiglu          1e-6 + 2^-8
 *   multiply        1e-5 x sqrt(inputs) + 2^-8 (bf16) or 1e-5 (float), for
 *                   numbers of the size 1
 *   attention       REF_ATTEND_ABSOLUTE + 2^-7: weights are rounded to bfloat16
 *                   before they are summed, and so is the result
 *   answer          the logit of the answer is at most 1e-4 below the largest
 */
#ifndef TESTS_GPU_KERNELS_REF_H
#define TESTS_GPU_KERNELS_REF_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define REF_BF16_RELATIVE 0x1p-8
#define REF_ATTEND_RELATIVE 0x1p-7
#define REF_ATTEND_ABSOLUTE 4e-3

/* Rounds to nearest even, and back. */
uint16_t ref_bf16(float v);
float ref_float(uint16_t v);

/* out[outputs][inputs] from tensor numbers [inputs][outputs]. */
void ref_draw_matrix(uint64_t stream, float scale, uint32_t inputs,
                     uint32_t outputs, uint16_t *out);

/* Embedding of one token. */
void ref_embed(uint64_t stream, float scale, uint32_t token, uint32_t d,
               float *x);

/* out[d] = x / sqrt(mean(x^2) + eps), before it is rounded. */
void ref_norm(uint32_t d, double eps, const float *x, double *out);

/* Turns one head in place by position x frequency. */
void ref_turn(uint32_t head_dim, double theta, uint32_t position, double *head);

/* silu(gate) x up, before it is rounded. */
double ref_swiglu(double gate, double up);

/* Attention of one query head over n_keys rows of one KV head: q[dim],
 * k[n_keys] and v[n_keys] pointers to rows. */
void ref_attend(uint32_t head_dim, const uint16_t *q, uint32_t n_keys,
                const uint16_t *const *k, const uint16_t *const *v,
                double *out);

/* Dot product of two rows. */
double ref_dot(uint32_t n, const uint16_t *a, const uint16_t *b);

#ifdef __cplusplus
}
#endif

#endif
