/* One step of engine "cpu".
 *
 * The tokens of all segments are laid out one behind the other and cut into
 * tiles of CPU_LANES. A layer goes over the tiles twice: first K, V and Q of
 * all tokens, so that every key is in the blocks, then attention and the
 * feed-forward block. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "workers/engine/cpu/cpu.h"
#include "workers/engine/cpu/weights.h"

static size_t lay_out(struct cpu_engine *e,
                      const struct engine_segment *segments, size_t n)
{
    struct cpu_lane *lanes = e->scratch.lanes;
    size_t used = 0;

    for (size_t s = 0; s < n; s++) {
        for (uint32_t i = 0; i < segments[s].n_tokens; i++)
            lanes[used++] =
                (struct cpu_lane){(uint32_t)s, segments[s].position + i};
    }
    size_t tiles = (used + CPU_LANES - 1) / CPU_LANES;
    for (; used < tiles * CPU_LANES; used++)
        lanes[used] = (struct cpu_lane){CPU_NO_SEGMENT, 0};
    return tiles;
}

/* Draws embeddings when needed: a published vocabulary would take gigabytes. */
static void embed(struct cpu_engine *e, const struct engine_segment *segments,
                  size_t tiles)
{
    uint32_t d = e->shape.d_model;

    for (size_t at = 0; at < tiles * CPU_LANES; at++) {
        const struct cpu_lane *lane = &e->scratch.lanes[at];
        float *x = e->scratch.x + cpu_tile(at / CPU_LANES, d) + at % CPU_LANES;

        if (lane->segment == CPU_NO_SEGMENT) {
            for (uint32_t i = 0; i < d; i++)
                x[(size_t)i * CPU_LANES] = 0;
            continue;
        }
        const struct engine_segment *s = &segments[lane->segment];
        uint32_t token = s->tokens[lane->position - s->position];
        weights_draw(&e->shape, e->seed, WEIGHT_EMBEDDING, 0,
                     (uint64_t)token * d, d, x, CPU_LANES);
    }
}

/* Computes angles in double precision: in float32, positions beyond some
 * thousand lose digits. */
static void find_angles(struct cpu_engine *e, size_t tiles)
{
    uint32_t half = e->shape.head_dim / 2;

    for (size_t at = 0; at < tiles * CPU_LANES; at++) {
        size_t base = cpu_tile(at / CPU_LANES, half) + at % CPU_LANES;
        double position = e->scratch.lanes[at].position;

        for (uint32_t i = 0; i < half; i++) {
            double angle = position * e->frequency[i];

            e->scratch.cosine[base + (size_t)i * CPU_LANES] = (float)cos(angle);
            e->scratch.sine[base + (size_t)i * CPU_LANES] = (float)sin(angle);
        }
    }
}

/* Copies one lane of K and one of V, each [kv_dim][CPU_LANES], to its slot. */
static void store_kv(struct cpu_engine *e,
                     const struct engine_segment *segments, size_t tile,
                     uint32_t layer)
{
    const struct engine_kv_layout *layout = &e->base.layout;
    const float *k = e->scratch.qkv + cpu_tile(1, e->q_dim);
    const float *v = k + cpu_tile(1, e->kv_dim);

    for (uint32_t l = 0; l < CPU_LANES; l++) {
        const struct cpu_lane *lane = &e->scratch.lanes[tile * CPU_LANES + l];

        if (lane->segment == CPU_NO_SEGMENT)
            continue;
        uint32_t slot = lane->position % layout->block_tokens;
        void *block = segments[lane->segment]
                          .blocks[lane->position / layout->block_tokens];
        float *to_k = engine_kv_row(layout, block, layer, ENGINE_K, slot);
        float *to_v = engine_kv_row(layout, block, layer, ENGINE_V, slot);
        for (size_t i = 0; i < e->kv_dim; i++) {
            to_k[i] = k[i * CPU_LANES + l];
            to_v[i] = v[i * CPU_LANES + l];
        }
    }
}

static void project_qkv(struct cpu_engine *e,
                        const struct engine_segment *segments, size_t tile,
                        uint32_t layer)
{
    const struct model_shape *s = &e->shape;
    struct cpu_scratch *c = &e->scratch;
    size_t angles = cpu_tile(tile, s->head_dim / 2);

    e->kernels->rms_norm(s->d_model, s->norm_eps,
                         c->x + cpu_tile(tile, s->d_model), c->norm);
    cpu_multiply(s->d_model, e->q_dim + 2 * e->kv_dim, e->layers[layer].qkv,
                 c->norm, 0, c->qkv);
    e->kernels->rope(s->heads + s->kv_heads, s->head_dim, c->cosine + angles,
                     c->sine + angles, c->qkv);
    memcpy(c->q + cpu_tile(tile, e->q_dim), c->qkv,
           cpu_tile(1, e->q_dim) * sizeof(float));
    store_kv(e, segments, tile, layer);
}

static void finish_layer(struct cpu_engine *e,
                         const struct engine_segment *segments, size_t tile,
                         uint32_t layer)
{
    const struct model_shape *s = &e->shape;
    const struct cpu_layer *y = &e->layers[layer];
    struct cpu_scratch *c = &e->scratch;
    float *x = c->x + cpu_tile(tile, s->d_model);

    cpu_attend_tile(e, segments, tile, layer);
    cpu_multiply(e->q_dim, s->d_model, y->o, c->attended, 1, x);
    e->kernels->rms_norm(s->d_model, s->norm_eps, x, c->norm);
    cpu_multiply(s->d_model, s->ffn, y->gate, c->norm, 0, c->gate);
    cpu_multiply(s->d_model, s->ffn, y->up, c->norm, 0, c->up);
    e->kernels->swiglu(s->ffn, c->gate, c->up);
    cpu_multiply(s->ffn, s->d_model, y->down, c->gate, 1, x);
}

/* Returns the printable id with the largest logit of a lane, the lowest among
 * equals. */
static uint32_t best_output(const float *logits, uint32_t lane)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < MODEL_OUTPUTS; i++)
        if (logits[i * CPU_LANES + lane] > logits[best * CPU_LANES + lane])
            best = i;
    return MODEL_FIRST_OUTPUT + best;
}

/* Computes the answers of up to CPU_LANES segments, whose last tokens are at[n]
 * in the step. Their lanes are gathered into one tile. */
static void answer_tile(struct cpu_engine *e, struct engine_segment *segments,
                        const size_t *at, uint32_t n)
{
    uint32_t d = e->shape.d_model;
    struct cpu_scratch *c = &e->scratch;
    float *x = c->last;

    for (uint32_t l = 0; l < CPU_LANES; l++) {
        size_t from = at[l < n ? l : 0];
        const float *lane =
            c->x + cpu_tile(from / CPU_LANES, d) + from % CPU_LANES;

        for (size_t i = 0; i < d; i++)
            x[i * CPU_LANES + l] = lane[i * CPU_LANES];
    }
    e->kernels->rms_norm(d, e->shape.norm_eps, x, c->norm);
    cpu_multiply(d, MODEL_OUTPUTS, e->head, c->norm, 0, c->logits);
    for (uint32_t l = 0; l < n; l++)
        segments[c->lanes[at[l]].segment].token_out = best_output(c->logits, l);
}

static void answer(struct cpu_engine *e, struct engine_segment *segments,
                   size_t n)
{
    size_t at[CPU_LANES];
    size_t end = 0;
    uint32_t wanted = 0;

    for (size_t s = 0; s < n; s++) {
        end += segments[s].n_tokens;
        if (segments[s].want_token)
            at[wanted++] = end - 1;
        if (wanted == CPU_LANES || (s == n - 1 && wanted > 0)) {
            answer_tile(e, segments, at, wanted);
            wanted = 0;
        }
    }
}

/* Computes layers [from, to) of the tiles. Returns as cpu_step(). */
static int compute_layers(struct cpu_engine *e,
                          const struct engine_segment *segments, size_t n,
                          uint32_t from, uint32_t to,
                          const struct engine_step_ops *ops, void *arg,
                          const atomic_bool *abort)
{
    size_t tokens = 0;

    for (size_t s = 0; s < n; s++)
        tokens += segments[s].n_tokens;
    size_t tiles = (tokens + CPU_LANES - 1) / CPU_LANES;
    for (uint32_t layer = from; layer < to; layer++) {
        if (engine_aborted(abort))
            return -ECANCELED;
        for (size_t t = 0; t < tiles; t++)
            project_qkv(e, segments, t, layer);
        engine_layer_done(ops, arg, 0, n, layer);
        if (engine_wait_layer(ops, arg, 0, n, layer) < 0)
            return -EIO;
        for (size_t t = 0; t < tiles; t++)
            finish_layer(e, segments, t, layer);
    }
    return 0;
}

int cpu_step(struct engine *base, struct engine_segment *segments, size_t n,
             const struct engine_step_ops *ops, void *arg,
             const atomic_bool *abort)
{
    struct cpu_engine *e = (struct cpu_engine *)base;
    size_t tiles = lay_out(e, segments, n);

    embed(e, segments, tiles);
    find_angles(e, tiles);
    int rc = compute_layers(e, segments, n, 0, e->n_layers, ops, arg, abort);
    if (rc == 0)
        answer(e, segments, n);
    return rc;
}

/* Returns the residual stream of one token, in its lane; the lanes behind the
 * last token are zero. */
static float *lane_of(const struct cpu_engine *e, size_t token)
{
    return e->scratch.x + cpu_tile(token / CPU_LANES, e->shape.d_model) +
           token % CPU_LANES;
}

static void take_in(struct cpu_engine *e, const float *in, uint32_t n_tokens,
                    size_t tiles)
{
    uint32_t d = e->shape.d_model;

    for (size_t t = 0; t < tiles * CPU_LANES; t++) {
        float *x = lane_of(e, t);

        for (size_t i = 0; i < d; i++)
            x[i * CPU_LANES] = t < n_tokens ? in[t * d + i] : 0;
    }
}

static void put_out(const struct cpu_engine *e, float *out, uint32_t n_tokens)
{
    uint32_t d = e->shape.d_model;

    for (size_t t = 0; t < n_tokens; t++) {
        const float *x = lane_of(e, t);

        for (size_t i = 0; i < d; i++)
            out[t * d + i] = x[i * CPU_LANES];
    }
}

int cpu_stage(struct engine *base, struct engine_segment *s,
              const struct engine_stage *stage,
              const struct engine_step_ops *ops, void *arg,
              const atomic_bool *abort)
{
    struct cpu_engine *e = (struct cpu_engine *)base;
    size_t tiles = lay_out(e, s, 1);

    if (stage->from_layer == 0)
        embed(e, s, tiles);
    else
        take_in(e, stage->in, s->n_tokens, tiles);
    find_angles(e, tiles);
    int rc = compute_layers(e, s, 1, stage->from_layer, stage->to_layer, ops,
                            arg, abort);
    if (rc < 0)
        return rc;
    if (stage->to_layer == e->n_layers)
        answer(e, s, 1);
    else
        put_out(e, stage->out, s->n_tokens);
    return 0;
}
