/* What the kernels compute, as plain loops. See kernels_ref.h. */
#include "tests/gpu/kernels_ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint16_t ref_bf16(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof(bits));
    if (v != v)
        return 0x7fff;
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

float ref_float(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

static float draw(uint64_t stream, float scale, uint64_t index)
{
    uint64_t z = stream + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    int32_t raw = 0;

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    for (int i = 0; i < 4; i++)
        raw += (int32_t)(z >> (16 * i) & 0xffff);
    return (float)(raw - 131070) * scale;
}

void ref_draw_matrix(uint64_t stream, float scale, uint32_t inputs,
                     uint32_t outputs, uint16_t *out)
{
    for (uint64_t i = 0; i < inputs; i++)
        for (uint64_t o = 0; o < outputs; o++)
            out[o * inputs + i] =
                ref_bf16(draw(stream, scale, i * outputs + o));
}

void ref_embed(uint64_t stream, float scale, uint32_t token, uint32_t d,
               float *x)
{
    for (uint32_t i = 0; i < d; i++)
        x[i] =
            ref_float(ref_bf16(draw(stream, scale, (uint64_t)token * d + i)));
}

void ref_norm(uint32_t d, double eps, const float *x, double *out)
{
    double sum = 0;

    for (uint32_t i = 0; i < d; i++)
        sum += (double)x[i] * (double)x[i];
    for (uint32_t i = 0; i < d; i++)
        out[i] = (double)x[i] / sqrt(sum / d + eps);
}

void ref_turn(uint32_t head_dim, double theta, uint32_t position, double *head)
{
    uint32_t half = head_dim / 2;

    for (uint32_t i = 0; i < half; i++) {
        double angle = position * pow(theta, -2.0 * i / head_dim);
        double a = head[i];
        double b = head[i + half];

        head[i] = a * cos(angle) - b * sin(angle);
        head[i + half] = b * cos(angle) + a * sin(angle);
    }
}

double ref_swiglu(double gate, double up)
{
    return gate / (1 + exp(-gate)) * up;
}

double ref_dot(uint32_t n, const uint16_t *a, const uint16_t *b)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += (double)ref_float(a[i]) * (double)ref_float(b[i]);
    return sum;
}

void ref_attend(uint32_t head_dim, const uint16_t *q, uint32_t n_keys,
                const uint16_t *const *k, const uint16_t *const *v, double *out)
{
    double *weight = malloc(n_keys * sizeof(*weight));
    double most = -INFINITY;
    double sum = 0;

    for (uint32_t i = 0; i < head_dim; i++)
        out[i] = 0;
    if (!weight)
        abort();
    for (uint32_t t = 0; t < n_keys; t++) {
        weight[t] = ref_dot(head_dim, q, k[t]) / sqrt((double)head_dim);
        most = fmax(most, weight[t]);
    }
    for (uint32_t t = 0; t < n_keys; t++) {
        double w = exp(weight[t] - most);

        sum += w;
        for (uint32_t i = 0; i < head_dim; i++)
            out[i] += w * (double)ref_float(v[t][i]);
    }
    for (uint32_t i = 0; i < head_dim; i++)
        out[i] /= sum;
    free(weight);
}
