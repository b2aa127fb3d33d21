/* Attention of decoded tokens: one query a request, so memory is the limit.
 *
 * The keys of a request are cut into pieces of CUDA_SPLIT_KEYS at fixed
 * places; a block takes one piece and one KV head with all query heads that
 * share it (at most 16: one row tile of mma). Each warp has 16 of every 64 keys
 * for itself: it copies them into its own two buffers, so that no warp waits
 * for another until the end. The warps of a block are then added in order, and
 * the pieces of a row, in order, by a second kernel: the result depends on
 * nothing but the keys. */
#include "workers/engine/cuda/attend.cuh"

#define WARPS (ATTEND_THREADS / WARP_LANES)
#define WARP_KEYS 16
#define STEP_KEYS (WARPS * WARP_KEYS)
#define STAGES 2
#define MAX_GROUP 16

template <int D> constexpr size_t decode_shared()
{
    return sizeof(bf16) * D *
           (MAX_GROUP + STAGES * WARPS * 2 * (size_t)WARP_KEYS);
}

template <int D>
__device__ __forceinline__ void load_query(bf16 *q, const struct attend_view &a,
                                           uint32_t row, uint32_t kv_head,
                                           uint32_t group, size_t stride)
{
    constexpr int chunks = D / 8;

    for (int i = (int)threadIdx.x; i < MAX_GROUP * chunks;
         i += ATTEND_THREADS) {
        int head = i / chunks, chunk = i % chunks;
        bool valid = (uint32_t)head < group;
        const bf16 *from = a.qkv + row * stride + kv_head * group * D +
                           (valid ? head * D : 0) + chunk * 8;

        copy16_async(q + tile_at<D>(head, chunk), from, valid);
    }
}

/* Adds the warps' results, in order, and writes the piece's own. `room` is
 * [WARPS][group][PARTIAL_FLOATS(D)]. */
template <int D>
__device__ __forceinline__ void
merge_warps(float *room, const float out[1][D / 8][4], struct softmax<1> *s,
            uint32_t group, float *partial, int warp, int lane)
{
    constexpr int width = PARTIAL_FLOATS(D);
    float scale = score_scale<D>();

#pragma unroll
    for (int r = 0; r < 2; r++) {
        uint32_t row = (uint32_t)(lane / 4 + r * 8);
        float sum = quad_sum(s->sum[0][r]);

        if (row >= group)
            continue;
        float *to = room + ((uint32_t)warp * group + row) * width;
#pragma unroll
        for (int d = 0; d < D / 8; d++) {
            to[d * 8 + lane % 4 * 2] = out[0][d][2 * r];
            to[d * 8 + lane % 4 * 2 + 1] = out[0][d][2 * r + 1];
        }
        if (lane % 4 == 0) {
            to[D] = s->most[0][r];
            to[D + 1] = sum;
        }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < group * D; i += ATTEND_THREADS) {
        const float *from = room + i / D * width;
        float most = -INFINITY, value = 0, sum = 0;

        for (uint32_t w = 0; w < WARPS; w++)
            most = fmaxf(most, from[w * group * width + D]);
        for (uint32_t w = 0; w < WARPS; w++) {
            const float *one = from + w * group * width;
            float factor = exp2_fast((one[D] - most) * scale);

            value += factor * one[i % D];
            sum += factor * one[D + 1];
        }
        float *to = partial + i / D * width;
        to[i % D] = value;
        if (i % D == 0) {
            to[D] = most;
            to[D + 1] = sum;
        }
    }
}

template <int D>
__global__ void __launch_bounds__(ATTEND_THREADS)
    attend_split_kernel(struct attend_view a, struct kv_view kv,
                        uint32_t first_row, const struct cuda_split *splits,
                        float *partial)
{
    SHARED_BYTES(memory);
    bf16 *q = (bf16 *)memory;
    const struct cuda_split split = splits[blockIdx.y];
    uint32_t kv_head = blockIdx.x;
    uint32_t group = a.heads / a.kv_heads;
    const uint32_t *table = a.table + split.table;
    const bf16 *keys = kv.pages + kv.layer_numbers + kv_head * D;
    const bf16 *values = keys + (size_t)kv.page_tokens * kv.kv_dim;
    int lane = (int)threadIdx.x % WARP_LANES;
    int warp = (int)threadIdx.x / WARP_LANES;
    /* [STAGES] of K and V, the warp's own. */
    bf16 *mine = q + MAX_GROUP * D + warp * STAGES * 2 * WARP_KEYS * D;
    float out[1][D / 8][4];
    struct softmax<1> s;

#pragma unroll
    for (int r = 0; r < 2; r++) {
        s.most[0][r] = -INFINITY;
        s.sum[0][r] = 0;
#pragma unroll
        for (int d = 0; d < D / 8; d++)
            out[0][d][2 * r] = out[0][d][2 * r + 1] = 0;
    }
    uint32_t key = split.from_key + (uint32_t)(warp * WARP_KEYS);
    load_query<D>(q, a, first_row + split.decode, kv_head, group,
                  (size_t)a.heads * D + 2 * (size_t)kv.kv_dim);
    copy_commit();
    for (int stage = 0; stage < STAGES; stage++) {
        uint32_t at = key + (uint32_t)(stage * STEP_KEYS);
        bf16 *to = mine + stage * 2 * WARP_KEYS * D;

        if (at < split.to_key) {
            load_keys<D, WARP_KEYS, WARP_LANES>(to, keys, kv, table, at,
                                                split.to_key, lane);
            load_keys<D, WARP_KEYS, WARP_LANES>(to + WARP_KEYS * D, values, kv,
                                                table, at, split.to_key, lane);
        }
        copy_commit();
    }
    copy_wait<STAGES>();
    __syncthreads();
    for (int stage = 0; key < split.to_key;
         key += STEP_KEYS, stage = (stage + 1) % STAGES) {
        bf16 *tile = mine + stage * 2 * WARP_KEYS * D;
        uint32_t next = key + STAGES * STEP_KEYS;
        float score[1][2][4];

        copy_wait<STAGES - 1>();
        __syncwarp();
        score_keys<D, 1, 2>(score, q, 0, tile, 0, lane);
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (key + (uint32_t)(n * 8 + lane % 4 * 2 + i % 2) >=
                    split.to_key)
                    score[0][n][i] = -INFINITY;
        weigh_keys<D, 1, 2>(&s, score, out, score_scale<D>());
        add_values<D, 1, 2>(out, score, tile + WARP_KEYS * D, 0, lane);
        __syncwarp();
        if (next < split.to_key) {
            load_keys<D, WARP_KEYS, WARP_LANES>(tile, keys, kv, table, next,
                                                split.to_key, lane);
            load_keys<D, WARP_KEYS, WARP_LANES>(tile + WARP_KEYS * D, values,
                                                kv, table, next, split.to_key,
                                                lane);
        }
        copy_commit();
    }
    copy_wait<0>();
    __syncthreads();
    merge_warps<D>((float *)(q + MAX_GROUP * D), out, &s, group,
                   partial + ((size_t)blockIdx.y * a.heads + kv_head * group) *
                                 PARTIAL_FLOATS(D),
                   warp, lane);
}

/* One block a head and decoded token, one thread a number. */
template <int D>
__global__ void __launch_bounds__(D)
    attend_merge_kernel(struct attend_view a, uint32_t first_row,
                        const struct cuda_decode *decodes, const float *partial)
{
    constexpr int width = PARTIAL_FLOATS(D);
    const struct cuda_decode decode = decodes[blockIdx.y];
    size_t step = (size_t)a.heads * width;
    const float *from =
        partial + decode.first_split * step + (size_t)blockIdx.x * width;
    float scale = score_scale<D>();
    float most = -INFINITY, value = 0, sum = 0;

    for (uint32_t i = 0; i < decode.n_splits; i++)
        most = fmaxf(most, from[i * step + D]);
    for (uint32_t i = 0; i < decode.n_splits; i++) {
        const float *one = from + i * step;
        float factor = exp2_fast((one[D] - most) * scale);

        value += factor * one[threadIdx.x];
        sum += factor * one[D + 1];
    }
    value /= sum;
    uint32_t pair = bf16_pack(value, 0);
    a.out[((size_t)(first_row + blockIdx.y) * a.heads + blockIdx.x) * D +
          threadIdx.x] = (bf16)pair;
}

template <int D>
static void
launch(cudaStream_t s, const struct attend_view *a, struct kv_view kv,
       uint32_t first_row, const struct cuda_split *splits, uint32_t n_splits,
       const struct cuda_decode *decodes, uint32_t n_decodes, float *partial)
{
    auto split_kernel = attend_split_kernel<D>;
    auto merge_kernel = attend_merge_kernel<D>;

    LAUNCH(split_kernel, dim3(a->kv_heads, n_splits), ATTEND_THREADS,
           decode_shared<D>(), s, *a, kv, first_row, splits, partial);
    LAUNCH(merge_kernel, dim3(a->heads, n_decodes), D, 0, s, *a, first_row,
           decodes, partial);
}

int launch_attend_decode(cudaStream_t s, const struct attend_view *a,
                         struct kv_view kv, uint32_t first_row,
                         const struct cuda_split *splits, uint32_t n_splits,
                         const struct cuda_decode *decodes, uint32_t n_decodes,
                         float *partial)
{
    if (a->head_dim == 128)
        launch<128>(s, a, kv, first_row, splits, n_splits, decodes, n_decodes,
                    partial);
    else if (a->head_dim == 32)
        launch<32>(s, a, kv, first_row, splits, n_splits, decodes, n_decodes,
                   partial);
    else
        return -1;
    return 0;
}

cudaError_t attend_decode_prepare(void)
{
    auto kernel = attend_split_kernel<128>;

    return cudaFuncSetAttribute(kernel,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)decode_shared<128>());
}
