/* Matrix products of the engine: cuBLASLt with one algorithm for each matrix,
 * chosen once, or the kernels of multiply_tile.cu. C++, of the card's files.
 *
 * A row of y depends on its own row of x and on nothing else, bit for bit: see
 * docs/internals/decisions/020-batch-invariance.md. */
#ifndef WORKERS_ENGINE_CUDA_MULTIPLY_H
#define WORKERS_ENGINE_CUDA_MULTIPLY_H

#include "workers/engine/cuda/kernels.h"

/* Memory on the card that cuBLASLt may use. */
#define MULTIPLY_WORKSPACE_BYTES ((size_t)32 << 20)

/* Kinds of rows. */
enum multiply_kind { MULTIPLY_PREFILL, MULTIPLY_DECODE, MULTIPLY_KINDS };

/* The matrices of a layer; the sums of the last two are added to y. */
enum multiply_matrix {
    MULTIPLY_QKV,
    MULTIPLY_GATE_UP,
    MULTIPLY_O,
    MULTIPLY_DOWN,
    MULTIPLY_MATRICES
};

struct multiply_size {
    uint32_t inputs;
    uint32_t outputs;
};

struct multiply;

/* Chooses and checks an algorithm for each of sizes[MULTIPLY_MATRICES] and
 * kind, for up to `rows` rows. Overwrites x and y (float), with room for `rows`
 * rows of any of the matrices, and weights[MULTIPLY_MATRICES], one of each
 * size. Waits for `s`. Returns it owned, or NULL: out of memory, or the card
 * failed. */
struct multiply *multiply_new(cudaStream_t s, const struct multiply_size *sizes,
                              bf16 *const *weights, uint32_t rows, bf16 *x,
                              float *y);
void multiply_free(struct multiply *m);

/* Returns the implementation of the products, and why suggestions of cuBLASLt
 * were rejected; valid until freed. */
const char *multiply_name(const struct multiply *m);

/* Computes y = x w^T, or y += x w^T for MULTIPLY_O and MULTIPLY_DOWN, whose y
 * is float, not bf16. rows is a multiple of CUDA_PREFILL_ROWS or
 * CUDA_DECODE_ROWS. Returns 0, or -EIO. */
int multiply_run(struct multiply *m, cudaStream_t s, enum multiply_kind kind,
                 enum multiply_matrix matrix, uint32_t rows, const bf16 *x,
                 const bf16 *w, void *y);

#endif
