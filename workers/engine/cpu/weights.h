/* The weights of a model, drawn from a seed. Every number is a pure function of
 * (seed, tensor, layer, index), computed in integers except for one product, so
 * that every machine and every kind of engine draws the same.
 *
 *   raw(tensor, layer, i) = sum of the four 16-bit parts of
 *       splitmix64(stream(seed, tensor, layer) + (i + 1) x golden ratio)
 *   weight = (raw - 131070) x scale / 37837.2
 *
 * The sum of four uniform numbers is normal enough (standard deviation 37837.2)
 * and takes no logarithm. `scale` is gain / sqrt(inputs); weights.c has the
 * gains and their reason. */
#ifndef WORKERS_ENGINE_CPU_WEIGHTS_H
#define WORKERS_ENGINE_CPU_WEIGHTS_H

#include "workers/engine/model.h"

enum weight_tensor {
    WEIGHT_EMBEDDING, /* [vocab][d_model] */
    WEIGHT_Q,         /* [d_model][heads x head_dim] */
    WEIGHT_K,         /* [d_model][kv_heads x head_dim] */
    WEIGHT_V,         /* [d_model][kv_heads x head_dim] */
    WEIGHT_O,         /* [heads x head_dim][d_model] */
    WEIGHT_GATE,      /* [d_model][ffn] */
    WEIGHT_UP,        /* [d_model][ffn] */
    WEIGHT_DOWN,      /* [ffn][d_model] */
    WEIGHT_HEAD,      /* [d_model][MODEL_OUTPUTS]: only printable outputs */
    WEIGHT_TENSORS,
};

/* Draws numbers first .. first + n - 1 of a tensor, in its row-major order.
 * `layer` is 0 for the embedding and the head. Writes out[0], out[stride],
 * out[2 stride]... Cost: about 1 ns a number. */
void weights_draw(const struct model_shape *shape, uint64_t seed,
                  enum weight_tensor tensor, uint32_t layer, uint64_t first,
                  size_t n, float *out, size_t stride);

/* Return the parameters of weights_draw() for engines with their own generator:
 * the stream, and the factor for raw numbers. */
uint64_t weights_stream(uint64_t seed, enum weight_tensor tensor,
                        uint32_t layer);
float weights_scale(const struct model_shape *shape, enum weight_tensor tensor);

/* Writes the rows (inputs) and columns (outputs) of a tensor. */
void weights_size(const struct model_shape *shape, enum weight_tensor tensor,
                  uint32_t *rows, uint32_t *columns);

#endif
