/* The matrix product of engine "cpu" without a BLAS: several times slower, for
 * reference and trials, not for serving. */
#include <string.h>

#include "workers/engine/cpu/cpu.h"

/* Outputs whose lanes are computed together: they stay in the cache while all
 * the inputs pass. */
#define OUTPUTS 64

const char *engine_blas_coretype(void)
{
    return NULL;
}

void cpu_multiply_init(void)
{
}

const char *cpu_multiply_name(void)
{
    return "plain";
}

/* Adds one input's share to n outputs: y[o] += w[o] x, lane by lane. */
static void add_input(const float *w, const float *x, float *y, uint32_t n)
{
    for (uint32_t o = 0; o < n; o++)
        for (uint32_t l = 0; l < CPU_LANES; l++)
            y[o * CPU_LANES + l] += w[o] * x[l];
}

void cpu_multiply(uint32_t inputs, uint32_t outputs, const float *w,
                  const float *x, float beta, float *y)
{
    for (uint32_t o = 0; o < outputs; o += OUTPUTS) {
        uint32_t n = outputs - o < OUTPUTS ? outputs - o : OUTPUTS;
        float *part = y + (size_t)o * CPU_LANES;

        /* With beta 0, y may hold anything, even NaN. */
        if (beta == 0)
            memset(part, 0, (size_t)n * CPU_LANES * sizeof(*part));
        for (uint32_t i = 0; i < inputs; i++)
            add_input(w + (size_t)i * outputs + o, x + (size_t)i * CPU_LANES,
                      part, n);
    }
}
