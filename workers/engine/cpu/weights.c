/* Weights from a seed: a counter-based generator. */
#include "workers/engine/cpu/weights.h"

#include <math.h>

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

/* Gains over 1 / sqrt(inputs). A random transformer tends to ignore its prompt
 * and to repeat one token: attention averages over all tokens, and the last
 * token's own embedding outweighs the result. Sharp scores (their standard
 * deviation is gain of Q x gain of K) and strong residual branches keep the
 * answer a function of the whole prompt, so that wrong KV shows.
 * docs/internals/decisions/020 has the measurement. */
static const float gains[WEIGHT_TENSORS] = {
    [WEIGHT_EMBEDDING] = 1.0f, [WEIGHT_Q] = 2.0f,    [WEIGHT_K] = 2.0f,
    [WEIGHT_V] = 1.0f,         [WEIGHT_O] = 2.0f,    [WEIGHT_GATE] = 2.0f,
    [WEIGHT_UP] = 1.0f,        [WEIGHT_DOWN] = 2.0f, [WEIGHT_HEAD] = 1.0f,
};

static uint64_t splitmix64(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void weights_size(const struct model_shape *s, enum weight_tensor tensor,
                  uint32_t *rows, uint32_t *columns)
{
    uint32_t q = s->heads * s->head_dim;
    uint32_t kv = s->kv_heads * s->head_dim;
    const uint32_t size[WEIGHT_TENSORS][2] = {
        [WEIGHT_EMBEDDING] = {s->vocab, s->d_model},
        [WEIGHT_Q] = {s->d_model, q},
        [WEIGHT_K] = {s->d_model, kv},
        [WEIGHT_V] = {s->d_model, kv},
        [WEIGHT_O] = {q, s->d_model},
        [WEIGHT_GATE] = {s->d_model, s->ffn},
        [WEIGHT_UP] = {s->d_model, s->ffn},
        [WEIGHT_DOWN] = {s->ffn, s->d_model},
        [WEIGHT_HEAD] = {s->d_model, MODEL_OUTPUTS},
    };

    *rows = size[tensor][0];
    *columns = size[tensor][1];
}

uint64_t weights_stream(uint64_t seed, enum weight_tensor tensor,
                        uint32_t layer)
{
    return splitmix64(splitmix64(seed + GOLDEN) + (uint64_t)tensor * GOLDEN +
                      ((uint64_t)layer << 32));
}

/* An embedding is looked up, not multiplied: the gain is the standard deviation
 * of its numbers. */
float weights_scale(const struct model_shape *s, enum weight_tensor t)
{
    uint32_t rows;
    uint32_t columns;

    if (t == WEIGHT_EMBEDDING)
        return gains[t] / 37837.2f;
    weights_size(s, t, &rows, &columns);
    return gains[t] / sqrtf((float)rows) / 37837.2f;
}

void weights_draw(const struct model_shape *shape, uint64_t seed,
                  enum weight_tensor tensor, uint32_t layer, uint64_t first,
                  size_t n, float *out, size_t stride)
{
    uint64_t stream = weights_stream(seed, tensor, layer);
    float scale = weights_scale(shape, tensor);

    for (size_t i = 0; i < n; i++) {
        uint64_t z = splitmix64(stream + (first + i + 1) * GOLDEN);
        int32_t raw = (int32_t)((z & 0xffff) + (z >> 16 & 0xffff) +
                                (z >> 32 & 0xffff) + (z >> 48));

        out[i * stride] = (float)(raw - 131070) * scale;
    }
}
