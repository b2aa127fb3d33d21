/* Kernels over lanes, with the vector extensions that gcc and clang share.
 * Compiled once per instruction set, with CPU_KERNELS naming the table; the
 * vector width follows from the compiler's flags.
 *
 * A lane's arithmetic is the same in every call: sums run in one fixed order,
 * a masked key adds exactly +0 and rescales by exactly 1. */
#include <math.h>
#include <string.h>

#include "workers/engine/cpu/kernels_isa.h"

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

#define VL (VECTOR_BYTES / 4)
#define KEY_TILE 64 /* keys between two updates of the running maximum */
#if VECTOR_BYTES < 64
#define KEY_UNIT 4 /* 16 registers instead of 32 */
#else
#define KEY_UNIT 8
#endif

typedef float vec __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t ivec __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t uvec __attribute__((vector_size(VECTOR_BYTES)));

#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const float *p)
{
    vec v;

    memcpy(&v, p, sizeof(v));
    return v;
}

INLINE void store(float *p, vec v)
{
    memcpy(p, &v, sizeof(v));
}

INLINE vec select_vec(ivec mask, vec a, vec b)
{
    return (vec)(((ivec)a & mask) | ((ivec)b & ~mask));
}

INLINE vec max_vec(vec a, vec b)
{
    return select_vec(a > b, a, b);
}

/* 2^x for x <= 126, to 2 ulp; 0 below -126. Polynomial: the Taylor series of
 * 2^f on [-1/2, 1/2]; the first term left out is below 2^-22. */
INLINE vec exp2_vec(vec x)
{
    const vec lowest = x * 0 - 126.0f;
    ivec in_range = x >= lowest;
    vec y = select_vec(in_range, x, lowest);
    vec whole = (y + 12582912.0f) - 12582912.0f;
    vec f = y - whole;
    vec p = f * 1.5403530e-4f + 1.3333558e-3f;

    p = p * f + 9.6181291e-3f;
    p = p * f + 5.5504109e-2f;
    p = p * f + 2.4022651e-1f;
    p = p * f + 6.9314718e-1f;
    p = p * f + 1.0f;
    uvec exponent = (uvec) __builtin_convertvector(whole, ivec) << 23;
    return (vec)(((uvec)p + exponent) & (uvec)in_range);
}

static void rms_norm(uint32_t n, float eps, const float *x, float *out)
{
    for (uint32_t v = 0; v < CPU_LANES; v += VL) {
        vec sum[4] = {0};
        float mean[VL];

        for (uint32_t i = 0; i < n; i++) {
            vec a = load(x + (size_t)i * CPU_LANES + v);

            sum[i % 4] += a * a;
        }
        store(mean, (sum[0] + sum[1]) + (sum[2] + sum[3]));
        for (uint32_t l = 0; l < VL; l++)
            mean[l] = 1.0f / sqrtf(mean[l] / (float)n + eps);
        vec factor = load(mean);
        for (uint32_t i = 0; i < n; i++) {
            size_t at = (size_t)i * CPU_LANES + v;

            store(out + at, load(x + at) * factor);
        }
    }
}

static void rope(uint32_t heads, uint32_t dim, const float *cosine,
                 const float *sine, float *x)
{
    size_t half = (size_t)dim / 2 * CPU_LANES;

    for (uint32_t h = 0; h < heads; h++) {
        float *lo = x + h * 2 * half;
        float *hi = lo + half;

        for (size_t i = 0; i < half; i += VL) {
            vec c = load(cosine + i);
            vec s = load(sine + i);
            vec a = load(lo + i);
            vec b = load(hi + i);

            store(lo + i, a * c - b * s);
            store(hi + i, b * c + a * s);
        }
    }
}

static void swiglu(uint32_t n, float *gate, const float *up)
{
    const float minus_log2e = -1.44269504f;
    const vec most = (vec){0} + 126.0f;

    for (size_t i = 0; i < (size_t)n * CPU_LANES; i += VL) {
        vec g = load(gate + i);
        vec x = g * minus_log2e;
        vec e = exp2_vec(select_vec(x > most, most, x));

        store(gate + i, g / (e + 1.0f) * load(up + i));
    }
}

/* Pointers to the K and V of up to KEY_TILE consecutive keys. Unused ones
 * repeat the last, so that a whole unit can be read. */
struct key_rows {
    const float *k[KEY_TILE];
    const float *v[KEY_TILE];
};

static void find_rows(const struct attend_args *a, uint32_t first,
                      struct key_rows *rows)
{
    for (uint32_t j = 0; j < KEY_TILE; j++) {
        uint32_t key = first + j < a->n_keys ? first + j : a->n_keys - 1;
        const float *block = a->blocks[key / a->block_tokens];
        size_t row = key % a->block_tokens * a->stride;

        rows->k[j] = block + a->k_offset + row;
        rows->v[j] = block + a->v_offset + row;
    }
}

/* score[j] = q . k[j] for the first `keys` keys, rounded up to a unit. */
INLINE void score_keys(const struct attend_args *a, const uint32_t nv,
                       const struct key_rows *rows, uint32_t keys,
                       vec score[][2])
{
    for (uint32_t j = 0; j < keys; j += KEY_UNIT) {
        const float *const *k = &rows->k[j];
        vec sum[KEY_UNIT][2] = {0};

        for (uint32_t d = 0; d < a->head_dim; d++) {
            vec q[2];

            for (uint32_t v = 0; v < nv; v++)
                q[v] = load(a->q + (size_t)d * nv * VL + v * VL);
            for (uint32_t u = 0; u < KEY_UNIT; u++)
                for (uint32_t v = 0; v < nv; v++)
                    sum[u][v] += q[v] * k[u][d];
        }
        for (uint32_t u = 0; u < KEY_UNIT; u++)
            for (uint32_t v = 0; v < nv; v++)
                score[j + u][v] = sum[u][v];
    }
}

/* Gives keys that a lane must not see a score of minus infinity. */
INLINE void mask_keys(const struct attend_args *a, const uint32_t nv,
                      uint32_t first, uint32_t keys, vec score[][2])
{
    const vec none = (vec){0} - INFINITY;

    for (uint32_t v = 0; v < nv; v++) {
        ivec limit;

        memcpy(&limit, a->limit + v * VL, sizeof(limit));
        for (uint32_t j = 0; j < keys; j++)
            score[j][v] =
                select_vec(limit > (int32_t)(first + j), score[j][v], none);
    }
}

/* The state of the online softmax of each lane. */
struct softmax {
    vec most[2];  /* largest score so far */
    vec sum[2];   /* of 2^(score - most) */
    vec scale[2]; /* factor for the sums so far */
};

/* Turns scores into weights 2^(score - most), in place. */
INLINE void softmax_keys(struct softmax *s, const uint32_t nv, uint32_t keys,
                         vec score[][2])
{
    for (uint32_t v = 0; v < nv; v++) {
        vec most = s->most[v];

        for (uint32_t j = 0; j < keys; j++)
            most = max_vec(most, score[j][v]);
        s->scale[v] = exp2_vec(s->most[v] - most);
        s->most[v] = most;
        vec sum = s->sum[v] * s->scale[v];
        for (uint32_t j = 0; j < keys; j++) {
            score[j][v] = exp2_vec(score[j][v] - most);
            sum += score[j][v];
        }
        s->sum[v] = sum;
    }
}

/* out = out x scale + weights . v */
INLINE void add_values(const struct attend_args *a, const uint32_t nv,
                       const struct key_rows *rows, uint32_t keys,
                       const struct softmax *s, vec weight[][2])
{
    for (uint32_t d = 0; d < a->head_dim; d += KEY_UNIT) {
        float *out = a->out + (size_t)d * nv * VL;
        vec sum[KEY_UNIT][2];

        for (uint32_t u = 0; u < KEY_UNIT; u++)
            for (uint32_t v = 0; v < nv; v++)
                sum[u][v] = load(out + (u * nv + v) * VL) * s->scale[v];
        for (uint32_t j = 0; j < keys; j++) {
            const float *value = rows->v[j] + d;

            for (uint32_t u = 0; u < KEY_UNIT; u++)
                for (uint32_t v = 0; v < nv; v++)
                    sum[u][v] += weight[j][v] * value[u];
        }
        for (uint32_t u = 0; u < KEY_UNIT; u++)
            for (uint32_t v = 0; v < nv; v++)
                store(out + (u * nv + v) * VL, sum[u][v]);
    }
}

/* With a constant nv all code above unrolls into registers. */
INLINE void attend_lanes(const struct attend_args *a, const uint32_t nv)
{
    struct key_rows rows;
    struct softmax s;
    vec score[KEY_TILE][2];
    uint32_t least = a->n_keys;

    memset(a->out, 0, (size_t)a->head_dim * nv * VL * sizeof(float));
    for (uint32_t v = 0; v < 2; v++) {
        s.most[v] = (vec){0} - INFINITY;
        s.sum[v] = s.scale[v] = (vec){0};
    }
    for (uint32_t l = 0; l < nv * VL; l++)
        least = a->limit[l] < least ? a->limit[l] : least;

    for (uint32_t first = 0; first < a->n_keys; first += KEY_TILE) {
        uint32_t left = a->n_keys - first;
        uint32_t keys = left < KEY_TILE ? left : KEY_TILE;

        find_rows(a, first, &rows);
        score_keys(a, nv, &rows, keys, score);
        if (first + keys > least)
            mask_keys(a, nv, first, keys, score);
        softmax_keys(&s, nv, keys, score);
        add_values(a, nv, &rows, keys, &s, score);
    }
    for (uint32_t d = 0; d < a->head_dim; d++)
        for (uint32_t v = 0; v < nv; v++) {
            float *out = a->out + ((size_t)d * nv + v) * VL;

            store(out, load(out) / s.sum[v]);
        }
}

static void attend(const struct attend_args *a)
{
    if (a->lanes == VL)
        attend_lanes(a, 1);
    else
        attend_lanes(a, 2);
}

const struct cpu_kernels CPU_KERNELS = {
    .isa = CPU_KERNELS_ISA,
    .narrow = VL,
    .wide = 2 * VL,
    .rms_norm = rms_norm,
    .rope = rope,
    .swiglu = swiglu,
    .attend = attend,
};
