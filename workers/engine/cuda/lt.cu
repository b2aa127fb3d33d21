/* Loads cuBLASLt. See lt.h. */
#include <errno.h>

#include "workers/engine/cuda/lt.h"

#ifdef CUDA_EMULATED
#define FIND(l, name) ((l)->name = cublasLt##name)
#else
#include <dlfcn.h>
#define FIND(l, name) \
    ((l)->name = (decltype((l)->name))dlsym((l)->library, "cublasLt" #name))
#endif

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

/* Never unloads it: the library registers code with the driver. */
static bool open_library(struct lt *l)
{
#ifdef CUDA_EMULATED
    l->library = l;
#else
    l->library = dlopen("libcublasLt.so." TEXT(CUBLAS_VER_MAJOR),
                        RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#endif
    return l->library;
}

int lt_load(struct lt *l)
{
    *l = lt{};
    if (open_library(l) && FIND(l, Create) && FIND(l, Destroy) &&
        FIND(l, GetVersion) && FIND(l, Matmul) && FIND(l, MatmulDescCreate) &&
        FIND(l, MatmulDescDestroy) && FIND(l, MatmulDescSetAttribute) &&
        FIND(l, MatrixLayoutCreate) && FIND(l, MatrixLayoutDestroy) &&
        FIND(l, MatmulPreferenceCreate) && FIND(l, MatmulPreferenceDestroy) &&
        FIND(l, MatmulPreferenceSetAttribute) &&
        FIND(l, MatmulAlgoGetHeuristic) && FIND(l, MatmulAlgoCheck) &&
        FIND(l, MatmulAlgoConfigGetAttribute))
        return 0;
    lt_unload(l);
    return -ENOENT;
}

void lt_unload(struct lt *l)
{
#ifndef CUDA_EMULATED
    if (l->library)
        dlclose(l->library);
#endif
    l->library = NULL;
}
