/* Builds and frees engine "cpu". */
#include "workers/engine/cpu/cpu.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "workers/engine/cpu/weights.h"

static void cpu_destroy(struct engine *base)
{
    struct cpu_engine *e = (struct cpu_engine *)base;

    free(e->scratch.lanes);
    free(e->memory);
    free(e->frequency);
    free(e->layers);
    free(e);
}

/* Hands out pieces of one allocation, each a whole number of cache lines. With
 * `memory` NULL it only counts. */
struct arena {
    float *memory;
    uint64_t used; /* floats */
};

static float *take(struct arena *a, uint64_t floats)
{
    float *p = a->memory ? a->memory + a->used : NULL;

    a->used += (floats + 15) / 16 * 16;
    return p;
}

static void place_weights(struct cpu_engine *e, struct arena *a)
{
    const struct model_shape *s = &e->shape;
    uint64_t d = s->d_model;
    struct cpu_layer spare; /* used while there are no layers */

    for (uint32_t l = 0; l < e->n_layers; l++) {
        struct cpu_layer *y = e->layers ? &e->layers[l] : &spare;

        y->qkv = take(a, d * (e->q_dim + 2 * (uint64_t)e->kv_dim));
        y->o = take(a, e->q_dim * d);
        y->gate = take(a, d * s->ffn);
        y->up = take(a, d * s->ffn);
        y->down = take(a, s->ffn * d);
    }
    e->head = take(a, d * MODEL_OUTPUTS);
}

static void place_scratch(struct cpu_engine *e, struct arena *a)
{
    const struct model_shape *s = &e->shape;
    struct cpu_scratch *c = &e->scratch;
    uint64_t tiles = e->max_tiles;

    c->x = take(a, tiles * CPU_LANES * s->d_model);
    c->q = take(a, tiles * CPU_LANES * e->q_dim);
    c->cosine = take(a, tiles * CPU_LANES * (s->head_dim / 2));
    c->sine = take(a, tiles * CPU_LANES * (s->head_dim / 2));
    c->norm = take(a, (uint64_t)CPU_LANES * s->d_model);
    c->qkv = take(a, CPU_LANES * (e->q_dim + 2 * (uint64_t)e->kv_dim));
    c->attended = take(a, (uint64_t)CPU_LANES * e->q_dim);
    c->gate = take(a, (uint64_t)CPU_LANES * s->ffn);
    c->up = take(a, (uint64_t)CPU_LANES * s->ffn);
    c->last = take(a, (uint64_t)CPU_LANES * s->d_model);
    c->logits = take(a, CPU_LANES * MODEL_OUTPUTS);
    c->attend_q = take(a, (uint64_t)CPU_ATTEND_MAX_LANES * s->head_dim);
    c->attend_out = take(a, (uint64_t)CPU_ATTEND_MAX_LANES * s->head_dim);
}

/* Draws a matrix [inputs][outputs] whose rows are `stride` apart. */
static void draw(const struct cpu_engine *e, enum weight_tensor t,
                 uint32_t layer, float *out, size_t stride)
{
    uint32_t rows;
    uint32_t columns;

    weights_size(&e->shape, t, &rows, &columns);
    for (uint32_t r = 0; r < rows; r++)
        weights_draw(&e->shape, e->seed, t, layer, (uint64_t)r * columns,
                     columns, out + r * stride, 1);
}

static void draw_weights(struct cpu_engine *e)
{
    const struct model_shape *s = &e->shape;
    size_t qkv = e->q_dim + 2 * (size_t)e->kv_dim;

    for (uint32_t l = 0; l < e->n_layers; l++) {
        struct cpu_layer *y = &e->layers[l];

        draw(e, WEIGHT_Q, l, y->qkv, qkv);
        draw(e, WEIGHT_K, l, y->qkv + e->q_dim, qkv);
        draw(e, WEIGHT_V, l, y->qkv + e->q_dim + e->kv_dim, qkv);
        draw(e, WEIGHT_O, l, y->o, s->d_model);
        draw(e, WEIGHT_GATE, l, y->gate, s->ffn);
        draw(e, WEIGHT_UP, l, y->up, s->ffn);
        draw(e, WEIGHT_DOWN, l, y->down, s->d_model);
    }
    draw(e, WEIGHT_HEAD, 0, e->head, MODEL_OUTPUTS);
}

static void set_sizes(struct cpu_engine *e, const struct engine_config *config)
{
    e->shape = *config->shape;
    e->seed = config->seed;
    e->n_layers = config->layers;
    e->q_dim = e->shape.heads * e->shape.head_dim;
    e->kv_dim = e->shape.kv_heads * e->shape.head_dim;
    e->max_tiles = (config->step_tokens + CPU_LANES - 1) / CPU_LANES;
}

static void cpu_needs(const struct engine_config *config,
                      struct engine_needs *needs)
{
    struct cpu_engine e = {0};
    struct arena weights = {0};
    struct arena scratch = {0};

    set_sizes(&e, config);
    place_weights(&e, &weights);
    place_scratch(&e, &scratch);
    needs->weights_bytes = weights.used * sizeof(float);
    needs->step_bytes = scratch.used * sizeof(float);
}

static int allocate(struct cpu_engine *e, char *err, size_t err_bytes)
{
    struct arena all = {0};

    e->layers = calloc(e->n_layers, sizeof(*e->layers));
    e->frequency = calloc(e->shape.head_dim / 2, sizeof(*e->frequency));
    e->scratch.lanes =
        calloc((size_t)e->max_tiles * CPU_LANES, sizeof(*e->scratch.lanes));
    if (!e->layers || !e->frequency || !e->scratch.lanes)
        goto nomem;
    place_weights(e, &all);
    place_scratch(e, &all);
    /* With small pages, a prompt on cold caches is slower. */
    e->memory = engine_host_alloc(all.used * sizeof(float));
    if (!e->memory)
        goto nomem;
    all = (struct arena){.memory = e->memory};
    place_weights(e, &all);
    place_scratch(e, &all);
    return 0;

nomem:
    return error_say(err, err_bytes, -ENOMEM, "cpu: model %s: %s",
                     e->shape.name, strerror(ENOMEM));
}

static struct engine *cpu_create(const struct engine_config *config,
                                 struct engine_kv_layout *layout, char *err,
                                 size_t err_bytes)
{
    struct cpu_engine *e;

    if (config->shape->head_dim % 8 != 0)
        return error_null(err, err_bytes,
                          "cpu: head_dim is %u: must be a multiple of 8",
                          config->shape->head_dim);
    e = calloc(1, sizeof(*e));
    if (!e)
        return error_null(err, err_bytes, "cpu: %s", strerror(ENOMEM));
    e->base.layout = *layout;
    set_sizes(e, config);
    e->kernels = cpu_kernels_best();
    if (allocate(e, err, err_bytes) != 0)
        goto fail;
    for (uint32_t i = 0; i < e->shape.head_dim / 2; i++)
        e->frequency[i] = pow((double)e->shape.rope_theta,
                              -2.0 * (double)i / (double)e->shape.head_dim);
    draw_weights(e);
    cpu_multiply_init();
    if (cpu_check_invariance(e) != 0) {
        snprintf(err, err_bytes,
                 "cpu: the matrix product (%s) gives a token other results in "
                 "other columns of a batch, so its KV cannot be reused; set "
                 "OPENBLAS_CORETYPE to another core",
                 cpu_multiply_name());
        goto fail;
    }
    return &e->base;

fail:
    cpu_destroy(&e->base);
    return NULL;
}

const struct engine_ops engine_cpu_ops = {
    .kind = "cpu",
    .element = MODEL_FLOAT32,
    .needs = cpu_needs,
    .create = cpu_create,
    .destroy = cpu_destroy,
    .step = cpu_step,
    .stage = cpu_stage,
};
