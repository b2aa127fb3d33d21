/* The matrix product of engine "cpu" on OpenBLAS, and the choice of its
 * kernels. */
#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "workers/engine/cpu/cpu.h"

const char *engine_blas_coretype(void)
{
    if (getenv("OPENBLAS_CORETYPE") ||
        strcmp(openblas_get_corename(), "Prescott") != 0)
        return NULL;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "Haswell";
#endif
    return NULL;
}

void cpu_multiply_init(void)
{
    /* Threads split a product by columns on some cores, and then lanes
     * differ. */
    openblas_set_num_threads(1);
}

const char *cpu_multiply_name(void)
{
    return openblas_get_corename();
}

void cpu_multiply(uint32_t inputs, uint32_t outputs, const float *w,
                  const float *x, float beta, float *y)
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)outputs,
                CPU_LANES, (int)inputs, 1.0f, w, (int)outputs, x, CPU_LANES,
                beta, y, CPU_LANES);
}
