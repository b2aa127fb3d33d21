/* Loads cuBLASLt on demand: a worker with another engine should not need its
 * half gigabyte. */
#ifndef WORKERS_ENGINE_CUDA_LT_H
#define WORKERS_ENGINE_CUDA_LT_H

#include <cublasLt.h>

/* The functions used, named without their prefix. */
struct lt {
    void *library;
    decltype(&cublasLtCreate) Create;
    decltype(&cublasLtDestroy) Destroy;
    decltype(&cublasLtGetVersion) GetVersion;
    decltype(&cublasLtMatmul) Matmul;
    decltype(&cublasLtMatmulDescCreate) MatmulDescCreate;
    decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy;
    decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute;
    decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate;
    decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy;
    decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate;
    decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute)
        MatmulPreferenceSetAttribute;
    decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic;
    decltype(&cublasLtMatmulAlgoCheck) MatmulAlgoCheck;
    decltype(&cublasLtMatmulAlgoConfigGetAttribute)
        MatmulAlgoConfigGetAttribute;
};

/* Returns 0, or -ENOENT if the library or one of its functions is missing. */
int lt_load(struct lt *l);
void lt_unload(struct lt *l);

#endif
