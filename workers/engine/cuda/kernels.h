/* The kernels: each function puts one into a stream. C++, used by the card
 * (card*.cu) and by the tests. Each has a plain reference in
 * tests/gpu/kernels_ref.h, which states the tolerance too.
 *
 * Pointers are to device memory, aligned to 16 bytes. A function returns
 * nothing: cudaGetLastError() has the error.
 *
 * BATCH INVARIANCE: a row of every result is a function of its own row of the
 * arguments, and of the KV that its request has, with one order of operations
 * that depends on absolute positions only. */
#ifndef WORKERS_ENGINE_CUDA_KERNELS_H
#define WORKERS_ENGINE_CUDA_KERNELS_H

#include "workers/engine/cuda/cuda_engine.h"
#include "workers/engine/cuda/device.cuh"

/* Rows of padding have this number as their page. */
#define NO_PAGE UINT32_MAX

/* Location of KV: pages of the card, and the rows of one layer in them. */
struct kv_view {
    bf16 *pages;
    size_t page_numbers;  /* numbers from one page to the next */
    size_t layer_numbers; /* from a page's start to K of the layer */
    uint32_t page_tokens;
    uint32_t kv_dim; /* kv_heads x head_dim: from one token to the next */
};

/* The rows of a batch. */
struct row_view {
    const uint32_t *tokens;
    const uint32_t *positions;
    const uint32_t *pages; /* of the row's own token; NO_PAGE = padding */
    uint32_t rows;
};

/* out[outputs][inputs] = numbers of a tensor that is [inputs][outputs] in
 * engine/cpu/weights.h, rounded to bfloat16. */
void launch_draw_matrix(cudaStream_t s, uint64_t stream, float scale,
                        uint32_t inputs, uint32_t outputs, bf16 *out);

/* out[outputs][inputs] such that its product with a row whose halves are equal
 * is 0, but for rounding: the remainder shows the order of summation. */
void launch_probe_matrix(cudaStream_t s, uint32_t inputs, uint32_t outputs,
                         bf16 *out);

/* x[rows][d] = the embeddings of the rows' tokens, rounded to bfloat16; zeros
 * in padding. They are drawn, not stored. d is a multiple of 4. */
void launch_embed(cudaStream_t s, struct row_view v, uint64_t stream,
                  float scale, uint32_t d, float *x);

/* turns[rows][half] = (cosine, sine) of position x frequency[half], in double
 * precision and then rounded. */
void launch_angles(cudaStream_t s, struct row_view v, const double *frequency,
                   uint32_t half, float2 *turns);

/* out[rows][d] = x / sqrt(mean(x^2) + eps); d is a multiple of 4, at most
 * NORM_MAX. */
#define NORM_MAX 8192
void launch_norm(cudaStream_t s, uint32_t rows, uint32_t d, float eps,
                 const float *x, bf16 *out);

/* Turns the heads of Q in qkv[rows][q_dim + 2 kv_dim] in place, and writes K,
 * turned, and V to their pages. */
void launch_place(cudaStream_t s, struct row_view v, struct kv_view kv,
                  uint32_t heads, uint32_t head_dim, const float2 *turns,
                  bf16 *qkv);

/* out[rows][ffn] = silu(gate) x up of gate_up[rows][2 ffn]; ffn is a multiple
 * of 8. */
void launch_swiglu(cudaStream_t s, uint32_t rows, uint32_t ffn,
                   const bf16 *gate_up, bf16 *out);

/* Attention of whole tiles of prompt tokens: row r of out[.][q_dim] from row r
 * of qkv[.][q_dim + 2 kv_dim], over keys 0 .. position of its request. `table`
 * has the pages of all requests; tiles is [n_tiles]. Returns 0; or -1 if
 * head_dim is not 32 or 128, or heads / kv_heads not 1, 2, 4, 8 or 16. */
struct attend_view {
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    const bf16 *qkv;
    bf16 *out;
    const uint32_t *table;
};
int launch_attend_prefill(cudaStream_t s, const struct attend_view *a,
                          struct kv_view kv, const struct cuda_tile *tiles,
                          uint32_t n_tiles);

/* The same for decoded tokens, one row each from row `first_row` on: each of
 * n_splits pieces by itself (partial: PARTIAL_FLOATS(head_dim) a head and
 * split), then all pieces of a row, in order. */
int launch_attend_decode(cudaStream_t s, const struct attend_view *a,
                         struct kv_view kv, uint32_t first_row,
                         const struct cuda_split *splits, uint32_t n_splits,
                         const struct cuda_decode *decodes, uint32_t n_decodes,
                         float *partial);
/* Floats of a split's result for one head: sums, largest score, weight. */
#define PARTIAL_FLOATS(head_dim) ((head_dim) + 4)

/* answers[i] = the printable id with the largest logit for row wanted[i] of x,
 * the lowest among equals; head is [MODEL_OUTPUTS][d]. */
void launch_answer(cudaStream_t s, const uint32_t *wanted, uint32_t n,
                   uint32_t d, float eps, const float *x, const bf16 *head,
                   uint32_t *answers);

/* y[rows][outputs] (bf16, or float to which it is added) = x[rows][inputs]
 * times w[outputs][inputs], transposed. inputs is a multiple of 32, outputs of
 * 8. `wide` takes tiles of 128 rows, else of 64. */
void launch_multiply(cudaStream_t s, bool wide, uint32_t rows, uint32_t inputs,
                     uint32_t outputs, const bf16 *x, const bf16 *w, bf16 *y);
void launch_multiply_add(cudaStream_t s, bool wide, uint32_t rows,
                         uint32_t inputs, uint32_t outputs, const bf16 *x,
                         const bf16 *w, float *y);

/* Raise the limits of shared memory of these kernels, each once for a card and
 * before the first launch. Return cudaSuccess or the card's error. */
cudaError_t attend_prefill_prepare(void);
cudaError_t attend_decode_prepare(void);
cudaError_t multiply_prepare(void);

#endif
