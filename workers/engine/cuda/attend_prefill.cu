/* Attention of prompt tokens over a paged prefix and the causal chunk.
 *
 * A block of 4 warps takes CUDA_TILE_ROWS queries of one KV head: of each of
 * its tokens, the query heads that share that KV head. So keys and values are
 * read once for all of them, and a short chunk fills a tile too. A warp has 32
 * rows: each fragment of K and V that it reads from shared memory serves two
 * mma, which keeps shared memory from being the limit.
 *
 * K and V have a buffer each: V is on its way during q k^T, the next K during
 * the softmax and weight v. Key tiles begin at multiples of 64 of the prompt,
 * wherever the chunk begins. */
#include "workers/engine/cuda/attend.cuh"

#define KEYS 64
#define ROWS CUDA_TILE_ROWS
#define WARP_ROWS 32
#define M_TILES (WARP_ROWS / 16)
#define N_TILES (KEYS / 8)

template <int D> constexpr size_t prefill_shared()
{
    return sizeof(bf16) * D * (ROWS + 2 * KEYS);
}

/* Begins to copy the queries of the tile; zeros behind its last token. */
template <int D>
__device__ __forceinline__ void
load_queries(bf16 *q, const struct attend_view &a, const struct cuda_tile &tile,
             uint32_t kv_head, uint32_t group, size_t stride)
{
    constexpr int chunks = D / 8;
    int chunk = (int)threadIdx.x % chunks;

#pragma unroll
    for (int i = 0; i < ROWS * chunks / ATTEND_THREADS; i++) {
        int row = (int)threadIdx.x / chunks + i * (ATTEND_THREADS / chunks);
        uint32_t token = (uint32_t)row / group;
        uint32_t head = kv_head * group + (uint32_t)row % group;
        bool valid = token < tile.n_tokens;
        const bf16 *from = a.qkv + (tile.row + (valid ? token : 0)) * stride +
                           head * D + chunk * 8;

        copy16_async(q + tile_at<D>(row, chunk), from, valid);
    }
}

/* Keys that a row must not see get minus infinity. */
__device__ __forceinline__ void mask_keys(float score[M_TILES][N_TILES][4],
                                          uint32_t position, uint32_t group,
                                          uint32_t first, int warp_row,
                                          int lane)
{
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint32_t row = (uint32_t)(warp_row + m * 16 + r * 8 + lane / 4);
            uint32_t last = position + row / group;
#pragma unroll

            for (int n = 0; n < N_TILES; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (first + (uint32_t)(n * 8 + lane % 4 * 2 + i) > last)
                        score[m][n][2 * r + i] = -INFINITY;
        }
}

/* Writes the warp's rows over its queries, which only it read, and from there
 * to memory in whole pieces of 16 bytes. */
template <int D>
__device__ __forceinline__ void
store_rows(bf16 *q, int warp_row, const float out[M_TILES][D / 8][4],
           struct softmax<M_TILES> *s, const struct attend_view &a,
           const struct cuda_tile &tile, uint32_t kv_head, uint32_t group,
           int lane)
{
    constexpr int chunks = D / 8;

    __syncwarp();
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float factor = 1.0f / quad_sum(s->sum[m][r]);
            int row = warp_row + m * 16 + r * 8 + lane / 4;
#pragma unroll

            for (int d = 0; d < D / 8; d++)
                *(uint32_t *)(q + tile_at<D>(row, d) + lane % 4 * 2) =
                    bf16_pack(out[m][d][2 * r] * factor,
                              out[m][d][2 * r + 1] * factor);
        }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < WARP_ROWS * chunks / WARP_LANES; i++) {
        int at = i * WARP_LANES + lane;
        int row = warp_row + at / chunks, chunk = at % chunks;
        uint32_t token = (uint32_t)row / group;
        uint32_t head = kv_head * group + (uint32_t)row % group;

        if (token < tile.n_tokens)
            *(uint4 *)(a.out + (size_t)(tile.row + token) * a.heads * D +
                       head * D + chunk * 8) =
                *(const uint4 *)(q + tile_at<D>(row, chunk));
    }
}

template <int D>
__global__ void __launch_bounds__(ATTEND_THREADS, 2)
    attend_prefill_kernel(struct attend_view a, struct kv_view kv,
                          const struct cuda_tile *tiles)
{
    SHARED_BYTES(memory);
    bf16 *q = (bf16 *)memory;
    bf16 *k = q + ROWS * D;
    bf16 *v = k + KEYS * D;
    /* The tiles with the most keys come last in `tiles`: begin with them. */
    const struct cuda_tile tile = tiles[gridDim.y - 1 - blockIdx.y];
    uint32_t kv_head = blockIdx.x;
    uint32_t group = a.heads / a.kv_heads;
    uint32_t end_key = tile.position + tile.n_tokens;
    const uint32_t *table = a.table + tile.table;
    const bf16 *keys = kv.pages + kv.layer_numbers + kv_head * D;
    const bf16 *values = keys + (size_t)kv.page_tokens * kv.kv_dim;
    int lane = (int)threadIdx.x % WARP_LANES;
    int warp_row = (int)threadIdx.x / WARP_LANES * WARP_ROWS;
    float out[M_TILES][D / 8][4];
    struct softmax<M_TILES> s;

#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            s.most[m][r] = -INFINITY;
            s.sum[m][r] = 0;
#pragma unroll
            for (int d = 0; d < D / 8; d++)
                out[m][d][2 * r] = out[m][d][2 * r + 1] = 0;
        }
    load_queries<D>(q, a, tile, kv_head, group,
                    (size_t)a.heads * D + 2 * (size_t)kv.kv_dim);
    load_keys<D, KEYS, ATTEND_THREADS>(k, keys, kv, table, 0, end_key,
                                       (int)threadIdx.x);
    copy_commit();
    for (uint32_t first = 0; first < end_key; first += KEYS) {
        float score[M_TILES][N_TILES][4];

        copy_wait<0>();
        __syncthreads();
        load_keys<D, KEYS, ATTEND_THREADS>(v, values, kv, table, first, end_key,
                                           (int)threadIdx.x);
        copy_commit();
        score_keys<D, M_TILES, N_TILES>(score, q, warp_row, k, 0, lane);
        copy_wait<0>();
        __syncthreads();
        if (first + KEYS < end_key)
            load_keys<D, KEYS, ATTEND_THREADS>(k, keys, kv, table, first + KEYS,
                                               end_key, (int)threadIdx.x);
        copy_commit();
        if (first + KEYS > tile.position + 1)
            mask_keys(score, tile.position, group, first, warp_row, lane);
        weigh_keys<D, M_TILES, N_TILES>(&s, score, out, score_scale<D>());
        add_values<D, M_TILES, N_TILES>(out, score, v, 0, lane);
    }
    copy_wait<0>();
    store_rows<D>(q, warp_row, out, &s, a, tile, kv_head, group, lane);
}

template <int D>
static void launch(cudaStream_t s, const struct attend_view *a,
                   struct kv_view kv, const struct cuda_tile *tiles,
                   uint32_t n_tiles)
{
    auto kernel = attend_prefill_kernel<D>;

    LAUNCH(kernel, dim3(a->kv_heads, n_tiles), ATTEND_THREADS,
           prefill_shared<D>(), s, *a, kv, tiles);
}

int launch_attend_prefill(cudaStream_t s, const struct attend_view *a,
                          struct kv_view kv, const struct cuda_tile *tiles,
                          uint32_t n_tiles)
{
    if (a->head_dim == 128)
        launch<128>(s, a, kv, tiles, n_tiles);
    else if (a->head_dim == 32)
        launch<32>(s, a, kv, tiles, n_tiles);
    else
        return -1;
    return 0;
}

cudaError_t attend_prefill_prepare(void)
{
    auto kernel = attend_prefill_kernel<128>;

    return cudaFuncSetAttribute(kernel,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)prefill_shared<128>());
}
