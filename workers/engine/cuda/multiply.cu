/* Chooses how a matrix product is computed, and computes it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workers/engine/cuda/lt.h"
#include "workers/engine/cuda/multiply.h"

#define CANDIDATES 16
#define PROBE_ROWS 7 /* different rows in a probe */

/* The implementation of one matrix's product for one kind of rows. */
struct plan {
    struct multiply_size size;
    bool adds;
    bool own; /* multiply_tile.cu, not cuBLASLt */
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulAlgo_t algo;
};

struct multiply {
    struct lt lt;
    cublasLtHandle_t handle;
    void *workspace;
    struct plan plans[MULTIPLY_KINDS][MULTIPLY_MATRICES];
    /* Rejected suggestions, by reason. */
    int cut_sums, not_all_rows, differ;
    char name[128];
};

/* The three matrices of a product as cuBLASLt sees them: column-major, so our
 * rows are its columns. */
struct layouts {
    cublasLtMatrixLayout_t w, x, y;
};

static uint32_t unit_rows(enum multiply_kind kind)
{
    return kind == MULTIPLY_PREFILL ? CUDA_PREFILL_ROWS : CUDA_DECODE_ROWS;
}

static void layouts_free(const struct lt *lt, struct layouts *l)
{
    if (l->w)
        lt->MatrixLayoutDestroy(l->w);
    if (l->x)
        lt->MatrixLayoutDestroy(l->x);
    if (l->y)
        lt->MatrixLayoutDestroy(l->y);
}

static int layouts_make(const struct lt *lt, const struct plan *p,
                        uint32_t rows, struct layouts *l)
{
    cudaDataType_t sum = p->adds ? CUDA_R_32F : CUDA_R_16BF;
    uint64_t in = p->size.inputs, out = p->size.outputs;

    *l = layouts{};
    if (lt->MatrixLayoutCreate(&l->w, CUDA_R_16BF, in, out, (int64_t)in) ||
        lt->MatrixLayoutCreate(&l->x, CUDA_R_16BF, in, rows, (int64_t)in) ||
        lt->MatrixLayoutCreate(&l->y, sum, out, rows, (int64_t)out)) {
        layouts_free(lt, l);
        return -EIO;
    }
    return 0;
}

static int run_lt(struct multiply *m, cudaStream_t s, const struct plan *p,
                  uint32_t rows, const bf16 *x, const bf16 *w, void *y)
{
    const float one = 1, beta = p->adds ? 1.0f : 0.0f;
    struct layouts l;

    if (layouts_make(&m->lt, p, rows, &l) < 0)
        return -EIO;
    cublasStatus_t rc =
        m->lt.Matmul(m->handle, p->desc, &one, w, l.w, x, l.x, &beta, y, l.y, y,
                     l.y, &p->algo, m->workspace, MULTIPLY_WORKSPACE_BYTES, s);
    layouts_free(&m->lt, &l);
    return rc == CUBLAS_STATUS_SUCCESS ? 0 : -EIO;
}

static int run_plan(struct multiply *m, cudaStream_t s, enum multiply_kind kind,
                    const struct plan *p, uint32_t rows, const bf16 *x,
                    const bf16 *w, void *y)
{
    bool wide = kind == MULTIPLY_PREFILL;

    if (!p->own)
        return run_lt(m, s, p, rows, x, w, y);
    if (p->adds)
        launch_multiply_add(s, wide, rows, p->size.inputs, p->size.outputs, x,
                            w, (float *)y);
    else
        launch_multiply(s, wide, rows, p->size.inputs, p->size.outputs, x, w,
                        (bf16 *)y);
    return 0;
}

int multiply_run(struct multiply *m, cudaStream_t s, enum multiply_kind kind,
                 enum multiply_matrix matrix, uint32_t rows, const bf16 *x,
                 const bf16 *w, void *y)
{
    return run_plan(m, s, kind, &m->plans[kind][matrix], rows, x, w, y);
}

/* --- choosing ----------------------------------------------------------- */

/* Rows for a probe: row r is number (r + shift) % period of the patterns. The
 * halves of a row are equal, see launch_probe_matrix(). */
static void fill_probe(uint16_t *x, uint32_t rows, uint32_t inputs,
                       uint32_t period, uint32_t shift)
{
    uint32_t state = 1;

    for (uint32_t n = 0; n < period && n < rows; n++) {
        uint16_t *row = x + (size_t)n * inputs;

        state = (n + shift) % period * 2654435761u + 1;
        for (uint32_t i = 0; i < inputs / 2; i++) {
            state = state * 1664525u + 1013904223u;
            /* A sign, an exponent of 2^-3 to 2^0, seven bits. */
            row[i] = (uint16_t)((state >> 16 & 0x8000u) |
                                ((124u + (state >> 24 & 3u)) << 7) |
                                (state >> 8 & 0x7fu));
        }
        memcpy(row + inputs / 2, row, inputs / 2 * sizeof(*row));
    }
    for (uint32_t r = period; r < rows; r++)
        memcpy(x + (size_t)r * inputs, x + (size_t)(r % period) * inputs,
               inputs * sizeof(*x));
}

/* Working memory for checking an algorithm. */
struct probe {
    cudaStream_t s;
    bf16 *x; /* on the card */
    float *y;
    uint32_t rows; /* room */
    uint16_t *host_x;
    unsigned char *host_y;
};

/* Multiplies `rows` rows that repeat `period` patterns, from number `shift`
 * on; the result is in p->host_y. */
static int probe_run(struct multiply *m, struct probe *p,
                     enum multiply_kind kind, const struct plan *plan,
                     const bf16 *w, uint32_t rows, uint32_t period,
                     uint32_t shift)
{
    size_t in = plan->size.inputs, out = plan->size.outputs;
    size_t y_bytes = rows * out * (plan->adds ? sizeof(float) : sizeof(bf16));

    fill_probe(p->host_x, rows, plan->size.inputs, period, shift);
    /* Clear the error of the algorithm tried before. */
    (void)cudaGetLastError();
    if (cudaMemcpyAsync(p->x, p->host_x, rows * in * sizeof(bf16),
                        cudaMemcpyHostToDevice, p->s) ||
        cudaMemsetAsync(p->y, plan->adds ? 0 : 0xff, y_bytes, p->s) ||
        run_plan(m, p->s, kind, plan, rows, p->x, w, p->y) < 0 ||
        cudaMemcpyAsync(p->host_y, p->y, y_bytes, cudaMemcpyDeviceToHost,
                        p->s) ||
        cudaStreamSynchronize(p->s) || cudaGetLastError())
        return -EIO;
    return 0;
}

/* Repeats the same PROBE_ROWS rows at every place of the tiles, in batches of
 * several sizes. Returns 0 if each row's result is the same everywhere, bit for
 * bit. */
static int probe_check(struct multiply *m, struct probe *p,
                       enum multiply_kind kind, const struct plan *plan,
                       const bf16 *w)
{
    const uint32_t period = PROBE_ROWS, unit = unit_rows(kind);
    size_t row_bytes =
        plan->size.outputs * (plan->adds ? sizeof(float) : sizeof(bf16));
    unsigned char *want = (unsigned char *)malloc(period * row_bytes);
    uint32_t sizes[] = {unit, 3 * unit, p->rows / unit * unit};
    int rc = want ? 0 : -ENOMEM;

    for (uint32_t k = 0; k < 3 && rc == 0; k++) {
        uint32_t rows = sizes[k] < p->rows ? sizes[k] : p->rows / unit * unit;

        rc = probe_run(m, p, kind, plan, w, rows, period, k);
        if (k == 0 && rc == 0)
            memcpy(want, p->host_y, period * row_bytes);
        for (uint32_t r = 0; r < rows && rc == 0; r++)
            if (memcmp(p->host_y + r * row_bytes,
                       want + (r + k) % period * row_bytes, row_bytes) != 0)
                rc = -ENOTSUP;
    }
    free(want);
    return rc;
}

static bool one_pass(const struct lt *lt, const cublasLtMatmulAlgo_t *algo)
{
    int32_t split = 1;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
    size_t written;

    lt->MatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                     &split, sizeof(split), &written);
    lt->MatmulAlgoConfigGetAttribute(algo,
                                     CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                     &reduction, sizeof(reduction), &written);
    return split <= 1 && reduction == CUBLASLT_REDUCTION_SCHEME_NONE;
}

/* Whether the library accepts the algorithm for all numbers of rows in a step:
 * it was suggested for one of them, and a step cannot handle a refusal. */
static bool takes_all_rows(struct multiply *m, const struct plan *p,
                           uint32_t unit, uint32_t most)
{
    const struct lt *lt = &m->lt;
    bool takes = true;

    for (uint32_t rows = unit; takes && rows <= most; rows += unit) {
        cublasLtMatmulHeuristicResult_t found;
        struct layouts l;

        if (layouts_make(lt, p, rows, &l) < 0)
            return false;
        takes =
            lt->MatmulAlgoCheck(m->handle, p->desc, l.w, l.x, l.y, l.y,
                                &p->algo, &found) == CUBLAS_STATUS_SUCCESS &&
            found.workspaceSize <= MULTIPLY_WORKSPACE_BYTES;
        layouts_free(lt, &l);
    }
    return takes;
}

/* Writes the library's best suggestions for `rows` rows, sums unsplit. */
static int candidates(struct multiply *m, const struct plan *p, uint32_t rows,
                      cublasLtMatmulHeuristicResult_t *found)
{
    const struct lt *lt = &m->lt;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
    size_t workspace = MULTIPLY_WORKSPACE_BYTES;
    cublasLtMatmulPreference_t preference = NULL;
    struct layouts l;
    int n = 0;

    if (layouts_make(lt, p, rows, &l) < 0)
        return 0;
    if (lt->MatmulPreferenceCreate(&preference) == 0 &&
        lt->MatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
            sizeof(workspace)) == 0 &&
        lt->MatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction,
            sizeof(reduction)) == 0 &&
        lt->MatmulAlgoGetHeuristic(m->handle, p->desc, l.w, l.x, l.y, l.y,
                                   preference, CANDIDATES, found, &n) != 0)
        n = 0;
    if (preference)
        lt->MatmulPreferenceDestroy(preference);
    layouts_free(lt, &l);
    return n;
}

static int describe(struct multiply *m, struct plan *p)
{
    cublasOperation_t transposed = CUBLAS_OP_T;

    if (m->lt.MatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) ||
        m->lt.MatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA,
                                     &transposed, sizeof(transposed)))
        return -EIO;
    return 0;
}

/* Takes the library's best suggestion that passes the check, else our own
 * kernel. */
static int choose(struct multiply *m, struct probe *p, enum multiply_kind kind,
                  struct plan *plan, const bf16 *w)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    uint32_t rows = unit_rows(kind);
    int n = 0;

    if (kind == MULTIPLY_PREFILL)
        rows = p->rows / rows * rows;
    plan->own = false;
    if (m->handle && describe(m, plan) == 0)
        n = candidates(m, plan, rows, found);
    for (int i = 0; i < n; i++) {
        plan->algo = found[i].algo;
        if (found[i].state != CUBLAS_STATUS_SUCCESS)
            continue;
        if (!one_pass(&m->lt, &plan->algo))
            m->cut_sums++;
        else if (!takes_all_rows(m, plan, unit_rows(kind), p->rows))
            m->not_all_rows++;
        else if (probe_check(m, p, kind, plan, w) == 0)
            return 0;
        else
            m->differ++;
    }
    plan->own = true;
    return probe_check(m, p, kind, plan, w);
}

static int choose_all(struct multiply *m, struct probe *p,
                      const struct multiply_size *sizes, bf16 *const *weights)
{
    for (int i = 0; i < MULTIPLY_MATRICES; i++)
        launch_probe_matrix(p->s, sizes[i].inputs, sizes[i].outputs,
                            weights[i]);
    for (int k = 0; k < MULTIPLY_KINDS; k++)
        for (int i = 0; i < MULTIPLY_MATRICES; i++) {
            struct plan *plan = &m->plans[k][i];

            plan->size = sizes[i];
            plan->adds = i == MULTIPLY_O || i == MULTIPLY_DOWN;
            int rc = choose(m, p, (enum multiply_kind)k, plan, weights[i]);
            if (rc < 0)
                return rc;
        }
    return 0;
}

static void name_it(struct multiply *m)
{
    int own = 0;

    for (int i = 0; i < MULTIPLY_KINDS * MULTIPLY_MATRICES; i++)
        own += m->plans[i / MULTIPLY_MATRICES][i % MULTIPLY_MATRICES].own;
    if (!m->handle)
        snprintf(m->name, sizeof(m->name), "own kernels (no cuBLASLt)");
    else
        snprintf(m->name, sizeof(m->name),
                 "cuBLASLt %zu for %d of %d products (not taken: %d cut sums, "
                 "%d not for all rows, %d differ)",
                 m->lt.GetVersion(), MULTIPLY_KINDS * MULTIPLY_MATRICES - own,
                 MULTIPLY_KINDS * MULTIPLY_MATRICES, m->cut_sums,
                 m->not_all_rows, m->differ);
}

struct multiply *multiply_new(cudaStream_t s, const struct multiply_size *sizes,
                              bf16 *const *weights, uint32_t rows, bf16 *x,
                              float *y)
{
    struct multiply *m = (struct multiply *)calloc(1, sizeof(*m));
    struct probe p = {};
    size_t inputs = 0, outputs = 0;

    if (!m)
        return NULL;
    if (lt_load(&m->lt) == 0 && m->lt.Create(&m->handle) != 0)
        m->handle = NULL;
    for (int i = 0; i < MULTIPLY_MATRICES; i++) {
        inputs = sizes[i].inputs > inputs ? sizes[i].inputs : inputs;
        outputs = sizes[i].outputs > outputs ? sizes[i].outputs : outputs;
    }
    p.s = s;
    p.x = x;
    p.y = y;
    p.rows = rows;
    p.host_x = (uint16_t *)malloc(rows * inputs * sizeof(uint16_t));
    p.host_y = (unsigned char *)malloc(rows * outputs * sizeof(float));
    int rc = p.host_x && p.host_y &&
                     cudaMalloc(&m->workspace, MULTIPLY_WORKSPACE_BYTES) ==
                         cudaSuccess
                 ? choose_all(m, &p, sizes, weights)
                 : -ENOMEM;
    free(p.host_x);
    free(p.host_y);
    if (rc < 0) {
        multiply_free(m);
        return NULL;
    }
    name_it(m);
    return m;
}

void multiply_free(struct multiply *m)
{
    if (!m)
        return;
    for (int i = 0; i < MULTIPLY_KINDS * MULTIPLY_MATRICES; i++) {
        struct plan *p =
            &m->plans[i / MULTIPLY_MATRICES][i % MULTIPLY_MATRICES];

        if (p->desc)
            m->lt.MatmulDescDestroy(p->desc);
    }
    if (m->handle)
        m->lt.Destroy(m->handle);
    cudaFree(m->workspace);
    lt_unload(&m->lt);
    free(m);
}

const char *multiply_name(const struct multiply *m)
{
    return m->name;
}
