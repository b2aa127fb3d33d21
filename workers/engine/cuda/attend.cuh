/* Building blocks of both attention kernels: warps that multiply tiles in
 * shared memory, and the online softmax between the two products.
 *
 * A warp holds m_tiles x 16 queries. Scores of one query lie in 4 lanes (a
 * quad), as mma_16816() leaves them: index r of a lane's pair of rows means
 * row lane / 4 + 8 r of each 16.
 *
 * A masked key has the score minus infinity: its weight is exactly 0, and if
 * all keys of a tile are masked for a row, the sums so far are scaled by
 * exactly 1. So a row's result does not depend on the keys that other rows of
 * its tile see. */
#ifndef WORKERS_CUDA_ATTEND_CUH
#define WORKERS_CUDA_ATTEND_CUH

#include "workers/engine/cuda/kernels.h"

#define ATTEND_THREADS 128

/* Begins to copy keys [first, first + keys) of one head, or their values, into
 * a tile [keys][D], by `threads` threads of which this is number `me`; zeros
 * from end_key on. `base` is K (or V) of the head in slot 0 of page 0, `table`
 * has the pages of the request. */
template <int D, int keys, int threads>
__device__ __forceinline__ void
load_keys(bf16 *tile, const bf16 *base, const struct kv_view &kv,
          const uint32_t *table, uint32_t first, uint32_t end_key, int me)
{
    constexpr int chunks = D / 8;
    constexpr int rows_at_once = threads / chunks;

    static_assert(keys % rows_at_once == 0, "every thread copies the same");
    uint32_t page = first / kv.page_tokens;
    uint32_t slot = first - page * kv.page_tokens;
    int chunk = me % chunks;
    int row = me / chunks;
    const bf16 *from = base + (size_t)table[page] * kv.page_numbers +
                       (size_t)(slot + (uint32_t)row) * kv.kv_dim + chunk * 8;

    if (slot + keys <= kv.page_tokens && first + keys <= end_key) {
        /* The usual case: all keys exist and lie in one page. Unrolling all 8
         * would take more registers than the prefill kernel has. */
#pragma unroll 4
        for (int i = 0; i < keys / rows_at_once; i++) {
            copy16_async(tile + tile_at<D>(row + i * rows_at_once, chunk), from,
                         true);
            from += rows_at_once * (size_t)kv.kv_dim;
        }
        return;
    }
#pragma unroll 1
    for (; row < keys; row += rows_at_once) {
        uint32_t at = slot + (uint32_t)row;
        bool valid = first + (uint32_t)row < end_key;

        from = base;
        if (valid)
            from +=
                (size_t)table[page + at / kv.page_tokens] * kv.page_numbers +
                (size_t)(at % kv.page_tokens) * kv.kv_dim + chunk * 8;
        copy16_async(tile + tile_at<D>(row, chunk), from, valid);
    }
}

/* Addresses: the swizzle of a chunk depends on the lane only, so a later
 * chunk's address is the first one's with some bits flipped, and later rows lie
 * at a fixed distance. Computed this way, the addresses take no registers.
 *
 * score = q k^T for the warp's queries, from row q_row of tile `q` on, and
 * n_tiles x 8 keys, from row k_row of tile `k` on. */
template <int D, int m_tiles, int n_tiles>
__device__ __forceinline__ void score_keys(float score[m_tiles][n_tiles][4],
                                           const bf16 *q, int q_row,
                                           const bf16 *k, int k_row, int lane)
{
    int q_at = tile_at<D>(q_row + lane % 16, lane / 16);
    int k_at = tile_at<D>(k_row + lane / 16 * 8 + lane % 8, lane / 8 % 2);

#pragma unroll
    for (int m = 0; m < m_tiles; m++)
#pragma unroll
        for (int n = 0; n < n_tiles; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                score[m][n][i] = 0;
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
        uint32_t a[m_tiles][4];
#pragma unroll

        for (int m = 0; m < m_tiles; m++)
            load_matrices(a[m], q + (q_at ^ d * 16) + m * 16 * D);
#pragma unroll
        for (int n = 0; n < n_tiles; n += 2) {
            uint32_t b[4];

            load_matrices(b, k + (k_at ^ d * 16) + n * 8 * D);
#pragma unroll
            for (int m = 0; m < m_tiles; m++) {
                mma_16816(score[m][n], a[m], b);
                mma_16816(score[m][n + 1], a[m], b + 2);
            }
        }
    }
}

/* State of the online softmax for a lane's rows. `sum` is the lane's share:
 * quad_sum() of it is the whole. */
template <int m_tiles> struct softmax {
    float most[m_tiles][2];
    float sum[m_tiles][2];
};

/* Turns scores into weights 2^((score - most) x scale), in place, and scales
 * the sums so far. At least one key of every row is not masked, in this tile or
 * one before. */
template <int D, int m_tiles, int n_tiles>
__device__ __forceinline__ void
weigh_keys(struct softmax<m_tiles> *s, float score[m_tiles][n_tiles][4],
           float out[m_tiles][D / 8][4], float scale)
{
#pragma unroll
    for (int m = 0; m < m_tiles; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float most = s->most[m][r];
#pragma unroll

            for (int n = 0; n < n_tiles; n++)
                most = fmaxf(most,
                             fmaxf(score[m][n][2 * r], score[m][n][2 * r + 1]));
            most = quad_max(most);
            float before = exp2_fast((s->most[m][r] - most) * scale);
            float sum = 0;
            float offset = most * scale;
#pragma unroll
            for (int n = 0; n < n_tiles; n++)
#pragma unroll
                for (int i = 2 * r; i < 2 * r + 2; i++) {
                    score[m][n][i] = exp2_fast(score[m][n][i] * scale - offset);
                    sum += score[m][n][i];
                }
            s->most[m][r] = most;
            s->sum[m][r] = s->sum[m][r] * before + sum;
#pragma unroll
            for (int d = 0; d < D / 8; d++) {
                out[m][d][2 * r] *= before;
                out[m][d][2 * r + 1] *= before;
            }
        }
}

/* out += weight v, the weights rounded to bfloat16; values from row v_row of
 * tile `v` on. */
template <int D, int m_tiles, int n_tiles>
__device__ __forceinline__ void add_values(float out[m_tiles][D / 8][4],
                                           float weight[m_tiles][n_tiles][4],
                                           const bf16 *v, int v_row, int lane)
{
    int v_at = tile_at<D>(v_row + lane % 16, lane / 16);

#pragma unroll
    for (int n = 0; n < n_tiles; n += 2) {
        uint32_t a[m_tiles][4];
#pragma unroll

        for (int m = 0; m < m_tiles; m++) {
            a[m][0] = bf16_pack(weight[m][n][0], weight[m][n][1]);
            a[m][1] = bf16_pack(weight[m][n][2], weight[m][n][3]);
            a[m][2] = bf16_pack(weight[m][n + 1][0], weight[m][n + 1][1]);
            a[m][3] = bf16_pack(weight[m][n + 1][2], weight[m][n + 1][3]);
        }
#pragma unroll
        for (int d = 0; d < D / 8; d += 2) {
            uint32_t b[4];

            load_matrices_transposed(b, v + (v_at ^ d * 8) + n * 8 * D);
#pragma unroll
            for (int m = 0; m < m_tiles; m++) {
                mma_16816(out[m][d], a[m], b);
                mma_16816(out[m][d + 1], a[m], b + 2);
            }
        }
    }
}

/* log2(e) / sqrt(D): scores are kept in powers of two. */
template <int D> __device__ __forceinline__ float score_scale()
{
    static_assert(D == 32 || D == 128, "a head of a known width");
    return D == 32 ? 0.25503487f : 0.12751743f;
}

#endif
