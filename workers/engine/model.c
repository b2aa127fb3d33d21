/* The table of known models, and the fingerprint of a shape. */
#include "workers/engine/model.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

/* `tiny` is made for demonstrations and tests. The others are the published
 * shapes; llama3-* are Llama 3.1, longalpaca-* are Llama 2 with a window
 * stretched to 32k. Rotary scaling for long windows is left out: the weights
 * are random, and it changes no cost. */
static const struct model_shape models[] = {
    {"tiny", 4, 128, 4, 2, 32, 256, 512, 10000.0f, 1e-5f, 32768},
    {"llama3-8b", 32, 4096, 32, 8, 128, 14336, 128256, 500000.0f, 1e-5f,
     131072},
    {"llama3-70b", 80, 8192, 64, 8, 128, 28672, 128256, 500000.0f, 1e-5f,
     131072},
    {"longalpaca-7b", 32, 4096, 32, 32, 128, 11008, 32000, 10000.0f, 1e-5f,
     32768},
    {"longalpaca-13b", 40, 5120, 40, 40, 128, 13824, 32000, 10000.0f, 1e-5f,
     32768},
};

#define N_MODELS (sizeof(models) / sizeof(models[0]))

const struct model_shape *model_at(size_t i)
{
    return i < N_MODELS ? &models[i] : NULL;
}

const struct model_shape *model_find(const char *name)
{
    for (size_t i = 0; i < N_MODELS; i++)
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
    return NULL;
}

int model_check(const struct model_shape *s, char *err, size_t err_bytes)
{
    const struct {
        const char *name;
        uint32_t value;
    } counts[] = {
        {"layers", s->layers},     {"d_model", s->d_model},
        {"heads", s->heads},       {"kv_heads", s->kv_heads},
        {"head_dim", s->head_dim}, {"ffn", s->ffn},
        {"vocab", s->vocab},       {"window_tokens", s->window_tokens},
    };

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        if (counts[i].value == 0 || counts[i].value > 1u << 24)
            return error_say(err, err_bytes, -EINVAL,
                             "model: %s is %u: must be 1 to 2^24",
                             counts[i].name, counts[i].value);
    }
    if (s->head_dim % 2 != 0)
        return error_say(err, err_bytes, -EINVAL,
                         "model: head_dim is %u: must be even", s->head_dim);
    if (s->heads % s->kv_heads != 0)
        return error_say(err, err_bytes, -EINVAL,
                         "model: kv_heads is %u: must divide heads, %u",
                         s->kv_heads, s->heads);
    if ((uint64_t)s->heads * s->head_dim > 1u << 24)
        return error_say(
            err, err_bytes, -EINVAL,
            "model: heads is %u: times head_dim, %u, must be at most 2^24",
            s->heads, s->head_dim);
    if (s->vocab <= MODEL_LAST_OUTPUT)
        return error_say(err, err_bytes, -EINVAL,
                         "model: vocab is %u: must be above %d", s->vocab,
                         MODEL_LAST_OUTPUT);
    if (!(s->rope_theta > 0) || !(s->norm_eps > 0))
        return error_say(
            err, err_bytes, -EINVAL,
            "model: rope_theta is %g and norm_eps %g: must be above 0",
            (double)s->rope_theta, (double)s->norm_eps);
    return 0;
}

/* Little-endian, so that the fingerprint is the same on every machine. */
static uint8_t *put_u32(uint8_t *p, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++)
        *p++ = (uint8_t)(v >> (8 * i));
    return p;
}

static uint8_t *put_float(uint8_t *p, float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return put_u32(p, bits);
}

static uint64_t fnv1a(const uint8_t *bytes, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < n; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}

uint64_t model_fingerprint(const struct model_shape *s, uint32_t layers,
                           uint64_t seed, enum model_element element)
{
    uint8_t bytes[4 * 12];
    uint8_t *p = bytes;

    /* The window and the model's total layers do not change a KV row. */
    p = put_u32(p, layers);
    p = put_u32(p, s->d_model);
    p = put_u32(p, s->heads);
    p = put_u32(p, s->kv_heads);
    p = put_u32(p, s->head_dim);
    p = put_u32(p, s->ffn);
    p = put_u32(p, s->vocab);
    p = put_float(p, s->rope_theta);
    p = put_float(p, s->norm_eps);
    p = put_u32(p, (uint32_t)seed);
    p = put_u32(p, (uint32_t)(seed >> 32));
    put_u32(p, (uint32_t)element);
    return fnv1a(bytes, sizeof(bytes));
}
