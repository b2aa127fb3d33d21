/* What follows from a model's shape alone. */
#include "tests/unit/model_facts.h"

#include <stdio.h>

const char *model_names(char *out, size_t out_bytes)
{
    size_t used = 0;

    for (size_t i = 0; model_at(i) && used < out_bytes; i++) {
        int n = snprintf(out + used, out_bytes - used, "%s%s",
                         i == 0 ? "" : ", ", model_at(i)->name);

        if (n < 0)
            break;
        used += (size_t)n;
    }
    return out;
}

uint64_t model_kv_bytes_per_token(const struct model_shape *shape,
                                  uint32_t element_bytes)
{
    return (uint64_t)2 * shape->layers * shape->kv_heads * shape->head_dim *
           element_bytes;
}

/* Of one layer. */
static double layer_weights(const struct model_shape *s)
{
    double q = (double)s->heads * s->head_dim;
    double kv = (double)s->kv_heads * s->head_dim;

    return (2 * q + 2 * kv + 3.0 * s->ffn) * s->d_model;
}

double model_weights(const struct model_shape *s, uint32_t layers)
{
    return layers * layer_weights(s) + (double)s->d_model * MODEL_OUTPUTS;
}

double model_prefill_flops(const struct model_shape *s, uint32_t layers,
                           uint32_t from, uint32_t to)
{
    double q = (double)s->heads * s->head_dim;
    double a = from;
    double b = to;
    double seen = (b * (b + 1) - a * (a + 1)) / 2;

    return layers * (2 * layer_weights(s) * (b - a) + 4 * q * seen);
}
