/* The tables of kernels, one per instruction set. */
#ifndef WORKERS_ENGINE_CPU_KERNELS_ISA_H
#define WORKERS_ENGINE_CPU_KERNELS_ISA_H

#include "workers/engine/cpu/kernels.h"

extern const struct cpu_kernels cpu_kernels_avx512;
extern const struct cpu_kernels cpu_kernels_avx2;
extern const struct cpu_kernels cpu_kernels_plain;

#endif
