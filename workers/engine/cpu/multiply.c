/* Checks that the matrix product of engine "cpu" gives the same result in
 * every lane. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "workers/engine/cpu/cpu.h"

/* Returns the next float in [-1, 1) of a linear congruential generator. */
static float noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-23f - 1.0f;
}

/* Compares every lane of y with lane 0 of want, bit for bit. */
static bool lanes_equal(const float *y, const float *want, uint32_t outputs)
{
    for (uint32_t o = 0; o < outputs; o++) {
        for (uint32_t l = 0; l < CPU_LANES; l++)
            if (memcmp(&y[o * CPU_LANES + l], &want[o * CPU_LANES],
                       sizeof(float)) != 0)
                return false;
    }
    return true;
}

/* Puts the same token in all lanes, then again with zeros as neighbours: equal
 * results show that neither column nor neighbours matter. */
static int check_shape(const float *w, uint32_t inputs, uint32_t outputs,
                       float beta)
{
    size_t in = (size_t)inputs * CPU_LANES;
    size_t out = (size_t)outputs * CPU_LANES;
    float *x = aligned_alloc(64, in * sizeof(float));
    float *y = aligned_alloc(64, 2 * out * sizeof(float));
    uint32_t state = 1;
    int rc = -ENOMEM;

    if (!x || !y)
        goto done;
    for (size_t i = 0; i < in; i++)
        x[i] = i % CPU_LANES == 0 ? noise(&state) : x[i - 1];
    for (size_t i = 0; i < 2 * out; i++)
        y[i] = i % CPU_LANES == 0 ? noise(&state) : y[i - 1];
    memcpy(y + out, y, out * sizeof(float));
    cpu_multiply(inputs, outputs, w, x, beta, y);
    for (size_t i = 0; i < in; i++)
        x[i] = i % CPU_LANES == 0 ? x[i] : 0.0f;
    cpu_multiply(inputs, outputs, w, x, beta, y + out);
    rc = lanes_equal(y, y + out, outputs) ? 0 : -ENOTSUP;

done:
    free(x);
    free(y);
    return rc;
}

int cpu_check_invariance(const struct cpu_engine *e)
{
    const struct cpu_layer *l = &e->layers[0];
    const struct {
        const float *w;
        uint32_t inputs;
        uint32_t outputs;
        float beta;
    } uses[] = {
        {l->qkv, e->shape.d_model, e->q_dim + 2 * e->kv_dim, 0},
        {l->o, e->q_dim, e->shape.d_model, 1},
        {l->gate, e->shape.d_model, e->shape.ffn, 0},
        {l->down, e->shape.ffn, e->shape.d_model, 1},
        {e->head, e->shape.d_model, MODEL_OUTPUTS, 0},
    };

    for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++) {
        int rc = check_shape(uses[i].w, uses[i].inputs, uses[i].outputs,
                             uses[i].beta);

        if (rc != 0)
            return rc;
    }
    return 0;
}
