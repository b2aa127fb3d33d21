/* Chooses the kernels for this processor. */
#include <stdbool.h>

#include "workers/engine/cpu/kernels_isa.h"

/* Best first. */
static const struct cpu_kernels *const tables[] = {
#if defined(__x86_64__)
    &cpu_kernels_avx512,
    &cpu_kernels_avx2,
#endif
    &cpu_kernels_plain,
};

static bool runs_here(const struct cpu_kernels *k)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (k == &cpu_kernels_avx512)
        return __builtin_cpu_supports("avx512f");
    if (k == &cpu_kernels_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return k == &cpu_kernels_plain;
}

const struct cpu_kernels *cpu_kernels_at(size_t i)
{
    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
        if (runs_here(tables[t]) && i-- == 0)
            return tables[t];
    return NULL;
}

const struct cpu_kernels *cpu_kernels_best(void)
{
    return cpu_kernels_at(0);
}
