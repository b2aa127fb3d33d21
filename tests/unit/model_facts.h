/* What follows from a model's shape alone, for tests and benches. */
#ifndef TESTS_UNIT_MODEL_FACTS_H
#define TESTS_UNIT_MODEL_FACTS_H

#include "workers/engine/model.h"

/* Writes the known names as "tiny, llama3-8b, ..." into out[out_bytes], cut
 * at its end and always NUL-terminated. For messages. Returns `out`. */
const char *model_names(char *out, size_t out_bytes);

/* Bytes of KV of one token in all layers of `shape`, with `element_bytes` a
 * number: 2 (K and V) x layers x kv_heads x head_dim x element_bytes. */
uint64_t model_kv_bytes_per_token(const struct model_shape *shape,
                                  uint32_t element_bytes);

/* Numbers in the weights that a step reads: the matrices of the first `layers`
 * layers, and of the output. */
double model_weights(const struct model_shape *shape, uint32_t layers);

/* Floating-point operations (an addition and a multiplication are two) of
 * computing tokens [from, to) of one request: the matrix products of `layers`
 * layers, and attention of each token to itself and all in front of it. The
 * output's product is left out: it is for one token of a prompt. */
double model_prefill_flops(const struct model_shape *shape, uint32_t layers,
                           uint32_t from, uint32_t to);

#endif
