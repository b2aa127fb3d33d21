/* Engine "cpu": a decoder-only transformer of the Llama architecture in
 * float32: RMSNorm, rotary positions, grouped-query attention, SwiGLU. Shared
 * by its files. */
#ifndef WORKERS_ENGINE_CPU_CPU_H
#define WORKERS_ENGINE_CPU_CPU_H

#include "workers/engine/cpu/kernels.h"
#include "workers/engine/impl.h"

/* Matrices of one layer, each [inputs][outputs]. q, k and v lie side by side
 * in one matrix. */
struct cpu_layer {
    float *qkv;  /* [d_model][q_dim + 2 kv_dim] */
    float *o;    /* [q_dim][d_model] */
    float *gate; /* [d_model][ffn] */
    float *up;   /* [d_model][ffn] */
    float *down; /* [ffn][d_model] */
};

/* The segment that a lane of a step computes for, and the token in it. */
struct cpu_lane {
    uint32_t segment; /* CPU_NO_SEGMENT in the padding of the last tile */
    uint32_t position;
};

#define CPU_NO_SEGMENT UINT32_MAX

/* Activations of a step. [tiles] ones live through a layer, the others are
 * filled and used within a tile. Each is [features][CPU_LANES]. */
struct cpu_scratch {
    struct cpu_lane *lanes; /* [tiles x CPU_LANES] */
    float *x;               /* [tiles][d_model], the residual stream */
    float *q;               /* [tiles][q_dim] */
    float *cosine;          /* [tiles][head_dim / 2] */
    float *sine;            /* [tiles][head_dim / 2] */
    float *norm;            /* [d_model] */
    float *qkv;             /* [q_dim + 2 kv_dim] */
    float *attended;        /* [q_dim] */
    float *gate;            /* [ffn] */
    float *up;              /* [ffn] */
    float *last;            /* [d_model], last tokens, gathered */
    float *logits;          /* [MODEL_OUTPUTS] */
    float *attend_q;        /* [head_dim][CPU_ATTEND_MAX_LANES] */
    float *attend_out;      /* [head_dim][CPU_ATTEND_MAX_LANES] */
};

struct cpu_engine {
    struct engine base;
    struct model_shape shape;
    uint64_t seed;
    uint32_t n_layers;
    uint32_t q_dim;  /* heads x head_dim */
    uint32_t kv_dim; /* kv_heads x head_dim */
    uint32_t max_tiles;
    const struct cpu_kernels *kernels;
    double *frequency; /* [head_dim / 2], radians a position */
    struct cpu_layer *layers;
    float *head;   /* [d_model][MODEL_OUTPUTS] */
    float *memory; /* holds every matrix above, and the activations */
    struct cpu_scratch scratch;
};

/* Returns the floats before tile `tile` of an array with `features` a tile. */
static inline size_t cpu_tile(size_t tile, uint32_t features)
{
    return tile * features * CPU_LANES;
}

/* Sets process-wide options; call it in every engine before cpu_multiply(). */
void cpu_multiply_init(void);

/* Returns the name of the multiplying kernels, for messages: OpenBLAS's, or
 * "plain". Static. */
const char *cpu_multiply_name(void);

/* y = beta y + x w for one tile: w is [inputs][outputs], x [inputs][CPU_LANES],
 * y [outputs][CPU_LANES]. Lanes are columns, and the shape does not depend on
 * the lanes in use, which makes a BLAS batch invariant:
 * docs/internals/decisions/020. */
void cpu_multiply(uint32_t inputs, uint32_t outputs, const float *w,
                  const float *x, float beta, float *y);

/* Checks that cpu_multiply() gives a lane the same result in every column and
 * beside any neighbours, for every shape that the engine uses. Returns 0, or
 * -ENOTSUP for a BLAS that cannot. Cost: two tiles of every shape. */
[[nodiscard]] int cpu_check_invariance(const struct cpu_engine *e);

/* engine_ops.step of this engine. */
int cpu_step(struct engine *base, struct engine_segment *segments, size_t n,
             const struct engine_step_ops *ops, void *arg,
             const atomic_bool *abort);

/* engine_ops.stage of this engine. */
int cpu_stage(struct engine *base, struct engine_segment *s,
              const struct engine_stage *stage,
              const struct engine_step_ops *ops, void *arg,
              const atomic_bool *abort);

/* Computes the attention of tile `tile`'s queries over the KV in the segments'
 * blocks, in `layer`. */
void cpu_attend_tile(struct cpu_engine *e,
                     const struct engine_segment *segments, size_t tile,
                     uint32_t layer);

#endif
