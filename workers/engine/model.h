/* The shape of a model. Models are data: every engine is built from one of
 * these structs, and no other code of the workers knows a model by name. */
#ifndef WORKERS_ENGINE_MODEL_H
#define WORKERS_ENGINE_MODEL_H

#include <stddef.h>
#include <stdint.h>

/* The only ids that a native model answers with: printable ASCII. */
#define MODEL_FIRST_OUTPUT 32
#define MODEL_LAST_OUTPUT 126
#define MODEL_OUTPUTS (MODEL_LAST_OUTPUT - MODEL_FIRST_OUTPUT + 1)

/* A decoder-only transformer of the Llama architecture. Plain data.
 * Invariants (model_check): every count is at least 1, head_dim is even,
 * heads is a multiple of kv_heads, vocab > MODEL_LAST_OUTPUT. */
struct model_shape {
    const char *name;
    uint32_t layers;
    uint32_t d_model;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t ffn;           /* inner width of the SwiGLU block */
    uint32_t vocab;         /* token ids are 0 .. vocab - 1 */
    float rope_theta;       /* base of the rotary frequencies */
    float norm_eps;         /* of RMSNorm */
    uint32_t window_tokens; /* prompt and answer together */
};

/* How one number of a KV row is stored. Part of the fingerprint. */
enum model_element {
    MODEL_FLOAT32 = 1,
    MODEL_BFLOAT16 = 2,
    MODEL_HASH64 = 3, /* engine "timed": a running hash, no tensor */
};

/* Returns the shape with this name, static; NULL = none. */
const struct model_shape *model_find(const char *name);

/* Returns the i-th known shape, static; NULL = no more. For listings. */
const struct model_shape *model_at(size_t i);

/* Returns 0 if `shape` keeps the invariants above, else -EINVAL, with
 * "model: <field> is <value>: <what it must be>" in err[err_bytes]. */
[[nodiscard]] int model_check(const struct model_shape *shape, char *err,
                              size_t err_bytes);

/* Returns a hash (FNV-1a, 64 bits) over the shape (except its name), the layers
 * in use, the seed of the weights and the element type. Only workers with equal
 * ones may share KV. */
uint64_t model_fingerprint(const struct model_shape *shape, uint32_t layers,
                           uint64_t seed, enum model_element element);

#endif
