#include "cublasLt.h"

#include <vector>

#include "emulate.h"

#define ALGORITHMS 4
#define ALGO_SPLITS 0
#define ALGO_BY_PLACE 1
#define ALGO_REFUSES 2 /* products of REFUSED_ROWS rows */
#define REFUSED_ROWS 128

struct lt_handle {
    int unused;
};
struct lt_desc {
    cublasOperation_t a, b;
};
struct lt_layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld;
};
struct lt_preference {
    int unused;
};

static bool have = true;

void emulate_have_cublaslt(bool h)
{
    have = h;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    if (!have)
        return CUBLAS_STATUS_INVALID_VALUE;
    *h = new lt_handle();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    delete h;
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion()
{
    return 0;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d,
                                        cublasComputeType_t, cudaDataType_t)
{
    *d = new lt_desc();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    delete d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t at,
                                              const void *value, size_t bytes)
{
    if (bytes != sizeof(cublasOperation_t))
        return CUBLAS_STATUS_INVALID_VALUE;
    (at == CUBLASLT_MATMUL_DESC_TRANSA ? d->a : d->b) =
        *(const cublasOperation_t *)value;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l,
                                          cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t ld)
{
    if ((uint64_t)ld < rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    *l = new lt_layout{type, rows, columns, ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    delete l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    *p = new lt_preference();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                     cublasLtMatmulPreferenceAttributes_t at,
                                     const void *, size_t bytes)
{
    bool size = at == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;

    return bytes == (size ? sizeof(size_t) : sizeof(uint32_t))
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t
cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                               cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                               cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                               cublasLtMatmulPreference_t, int wanted,
                               cublasLtMatmulHeuristicResult_t *found, int *n)
{
    for (*n = 0; *n < ALGORITHMS && *n < wanted; (*n)++) {
        found[*n] = {};
        found[*n].algo.data[0] = (uint64_t)*n;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static bool refused(const cublasLtMatmulAlgo_t *algo, const lt_layout *out)
{
    return algo->data[0] == ALGO_REFUSES && out->columns == REFUSED_ROWS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(
    cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t out,
    const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result)
{
    *result = {};
    return refused(algo, out) ? CUBLAS_STATUS_NOT_SUPPORTED
                              : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                     cublasLtMatmulAlgoConfigAttributes_t at,
                                     void *value, size_t bytes, size_t *written)
{
    bool splits = algo->data[0] == ALGO_SPLITS;

    if (bytes != 4)
        return CUBLAS_STATUS_INVALID_VALUE;
    *(uint32_t *)value = at == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? 1 + splits : 0;
    *written = 4;
    return CUBLAS_STATUS_SUCCESS;
}

static float number(cudaDataType_t type, const void *p, uint64_t at)
{
    return type == CUDA_R_32F
               ? ((const float *)p)[at]
               : __uint_as_float((uint32_t)((const uint16_t *)p)[at] << 16);
}

static void put(cudaDataType_t type, void *p, uint64_t at, float v)
{
    uint32_t bits = __float_as_uint(v);

    if (type == CUDA_R_32F)
        ((float *)p)[at] = v;
    else
        ((uint16_t *)p)[at] =
            (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* A matrix, column-major or transposed, as [depth][width] of float. */
static std::vector<float> unpack(const lt_layout &l, const void *p,
                                 bool depth_is_rows, uint64_t depth,
                                 uint64_t width)
{
    std::vector<float> out(depth * width);

    for (uint64_t k = 0; k < depth; k++)
        for (uint64_t i = 0; i < width; i++)
            out[k * width + i] = number(l.type, p,
                                        depth_is_rows ? i * (uint64_t)l.ld + k
                                                      : k * (uint64_t)l.ld + i);
    return out;
}

/* Both are vectors of this file; checking each of their elements would take
 * most of the time of the tests in a sanitized build. */
__attribute__((no_sanitize("address", "undefined"))) static void
add_scaled(float *__restrict to, const float *__restrict from, float factor,
           uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] += from[i] * factor;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                              const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout,
                              void *out, cublasLtMatrixLayout_t out_layout,
                              const cublasLtMatmulAlgo_t *algo, void *, size_t,
                              cudaStream_t s)
{
    lt_desc desc = *d;
    lt_layout la = *a_layout, lb = *b_layout, lc = *c_layout, lo = *out_layout;
    float scale = *(const float *)alpha, keep = *(const float *)beta;
    bool by_place = algo->data[0] == ALGO_BY_PLACE;
    uint64_t depth = desc.a == CUBLAS_OP_T ? la.rows : la.columns;

    bool a_depth_rows = desc.a == CUBLAS_OP_T;
    bool b_depth_rows = desc.b == CUBLAS_OP_N;
    uint64_t m = a_depth_rows ? la.columns : la.rows;
    uint64_t n = b_depth_rows ? lb.columns : lb.rows;

    if ((b_depth_rows ? lb.rows : lb.columns) != depth || lo.rows != m ||
        lo.columns != n || lc.rows != m || lc.columns != n)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (refused(algo, out_layout))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    cudaError_t rc = emulate_enqueue(s, [=] {
        std::vector<float> x = unpack(la, a, a_depth_rows, depth, m);
        std::vector<float> y = unpack(lb, b, b_depth_rows, depth, n);
        std::vector<float> sum(m);
        for (uint64_t j = 0; j < n; j++) {
            sum.assign(m, 0.0f);
            for (uint64_t at = 0; at < depth; at++) {
                uint64_t k = by_place && j % 2 ? depth - 1 - at : at;

                add_scaled(sum.data(), &x[k * m], y[k * n + j], m);
            }
            for (uint64_t i = 0; i < m; i++) {
                float v = sum[i] * scale;

                if (keep != 0)
                    v += keep * number(lc.type, c, j * (uint64_t)lc.ld + i);
                put(lo.type, out, j * (uint64_t)lo.ld + i, v);
            }
        }
    });
    return rc == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                             : CUBLAS_STATUS_EXECUTION_FAILED;
}
