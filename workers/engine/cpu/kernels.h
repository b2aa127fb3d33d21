/* The arithmetic of engine "cpu" that is no matrix product.
 *
 * Activations come in tiles of CPU_LANES tokens, stored [feature][lane]. Every
 * operation runs down a lane and never across: a token's result cannot depend
 * on its neighbours or on its lane, so batch invariance holds by construction.
 *
 * The file kernels.c is compiled once per instruction set. */
#ifndef WORKERS_ENGINE_CPU_KERNELS_H
#define WORKERS_ENGINE_CPU_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define CPU_LANES 16
/* Most lanes of one call of attend(), whatever the instruction set. */
#define CPU_ATTEND_MAX_LANES 32

/* One head of keys and values, and queries on it. */
struct attend_args {
    const float *q;        /* [head_dim][lanes], scaled by log2(e)/sqrt(dim) */
    const uint32_t *limit; /* [lanes]: a lane sees keys 0 .. limit - 1, >= 1 */
    uint32_t lanes;        /* narrow or wide of the kernels in use */
    uint32_t n_keys;       /* largest limit */
    uint32_t head_dim;     /* multiple of 8 */
    void *const *blocks;   /* block i holds keys [i bt, (i + 1) bt) */
    uint32_t block_tokens;
    size_t k_offset; /* floats from a block's start to K of its first token */
    size_t v_offset; /* the same for V */
    size_t stride;   /* floats from one token to the next */
    float *out;      /* [head_dim][lanes] */
};

struct cpu_kernels {
    const char *isa;
    uint32_t narrow; /* lanes of one vector */
    uint32_t wide;   /* lanes of two vectors: fastest for attend() */

    /* out = x / sqrt(mean(x^2) + eps), both [n][CPU_LANES]. The learned gain of
     * RMSNorm is 1 in a model with random weights. */
    void (*rms_norm)(uint32_t n, float eps, const float *x, float *out);

    /* Rotates feature pairs (i, i + dim/2) of each of `heads` heads of x,
     * [heads x dim][CPU_LANES], by the angles whose cosine and sine are in
     * [dim/2][CPU_LANES]. */
    void (*rope)(uint32_t heads, uint32_t dim, const float *cosine,
                 const float *sine, float *x);

    /* gate = silu(gate) x up, both [n][CPU_LANES]. */
    void (*swiglu)(uint32_t n, float *gate, const float *up);

    /* out = softmax(q K^T) V, one key tile after the other with a running
     * maximum (online softmax); key tiles lie at fixed positions. */
    void (*attend)(const struct attend_args *a);
};

/* Returns the fastest kernels for this processor; static. */
const struct cpu_kernels *cpu_kernels_best(void);

/* Returns the i-th kernels that this processor runs; NULL = no more. For tests
 * and benchmarks. */
const struct cpu_kernels *cpu_kernels_at(size_t i);

#endif
