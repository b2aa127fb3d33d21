/* Kernels with independent rows: norm, rotary positions, SwiGLU, embedding,
 * answers. All are bound by memory: coalesced accesses of 16 bytes a
 * thread. */
#include "workers/engine/cuda/draw.cuh"
#include "workers/engine/cuda/kernels.h"
#include "workers/engine/model.h"

#define NORM_THREADS 256
#define NORM_PIECES (NORM_MAX / 4 / NORM_THREADS) /* float4 a thread */

/* Threads for a row of `items`: whole warps, at most `most`. */
static unsigned threads_for(uint32_t items, unsigned most)
{
    unsigned n = (items + WARP_LANES - 1) / WARP_LANES * WARP_LANES;

    return n == 0 ? WARP_LANES : n < most ? n : most;
}

/* One block a row; each thread keeps what it read in registers. */
__global__ void __launch_bounds__(NORM_THREADS)
    norm_kernel(uint32_t d, float eps, const float *x, bf16 *out)
{
    __shared__ float room[WARP_LANES];
    const float4 *from = (const float4 *)(x + (size_t)blockIdx.x * d);
    uint2 *to = (uint2 *)(out + (size_t)blockIdx.x * d);
    uint32_t n = d / 4;
    float4 mine[NORM_PIECES];
    float sum = 0;

#pragma unroll
    for (int i = 0; i < NORM_PIECES; i++) {
        uint32_t at = (uint32_t)i * blockDim.x + threadIdx.x;

        if (at < n) {
            float4 v = from[at];

            mine[i] = v;
            sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        }
    }
    float factor = 1.0f / sqrtf(block_sum(sum, room) / (float)d + eps);
#pragma unroll
    for (int i = 0; i < NORM_PIECES; i++) {
        uint32_t at = (uint32_t)i * blockDim.x + threadIdx.x;

        if (at < n) {
            float4 v = mine[i];

            to[at] = make_uint2(bf16_pack(v.x * factor, v.y * factor),
                                bf16_pack(v.z * factor, v.w * factor));
        }
    }
}

void launch_norm(cudaStream_t s, uint32_t rows, uint32_t d, float eps,
                 const float *x, bf16 *out)
{
    LAUNCH(norm_kernel, rows, threads_for(d / 4, NORM_THREADS), 0, s, d, eps, x,
           out);
}

#define ROW_THREADS 256

__global__ void __launch_bounds__(ROW_THREADS)
    embed_kernel(struct row_view v, uint64_t stream, float scale, uint32_t d,
                 float *x)
{
    uint32_t row = blockIdx.x;
    uint64_t first = (uint64_t)v.tokens[row] * d;
    bool real = v.pages[row] != NO_PAGE;
    float4 *to = (float4 *)(x + (size_t)row * d);

    for (uint32_t i = threadIdx.x; i < d / 4; i += blockDim.x) {
        float4 y = make_float4(0, 0, 0, 0);

        if (real) {
            uint64_t at = first + (uint64_t)i * 4;
            uint32_t low = bf16_pack(draw_number(stream, scale, at),
                                     draw_number(stream, scale, at + 1));
            uint32_t high = bf16_pack(draw_number(stream, scale, at + 2),
                                      draw_number(stream, scale, at + 3));

            y = make_float4(bf16_low(low), bf16_high(low), bf16_low(high),
                            bf16_high(high));
        }
        to[i] = y;
    }
}

void launch_embed(cudaStream_t s, struct row_view v, uint64_t stream,
                  float scale, uint32_t d, float *x)
{
    LAUNCH(embed_kernel, v.rows, threads_for(d / 4, ROW_THREADS), 0, s, v,
           stream, scale, d, x);
}

#define ANGLE_THREADS 64

/* Double precision: beyond some thousand positions float loses digits. */
__global__ void __launch_bounds__(ANGLE_THREADS)
    angles_kernel(struct row_view v, const double *frequency, uint32_t half,
                  float2 *turns)
{
    uint32_t row = blockIdx.x;
    double position = v.pages[row] == NO_PAGE ? 0 : (double)v.positions[row];

    for (uint32_t i = threadIdx.x; i < half; i += blockDim.x) {
        double angle = position * frequency[i];

        turns[(size_t)row * half + i] =
            make_float2((float)cos(angle), (float)sin(angle));
    }
}

void launch_angles(cudaStream_t s, struct row_view v, const double *frequency,
                   uint32_t half, float2 *turns)
{
    LAUNCH(angles_kernel, v.rows, threads_for(half, ANGLE_THREADS), 0, s, v,
           frequency, half, turns);
}

/* Turns 2 pairs: (lo[i], hi[i]) for the two numbers of each word. */
__device__ __forceinline__ void turn_pair(uint32_t *lo, uint32_t *hi,
                                          const float2 *turn)
{
    float a0 = bf16_low(*lo), a1 = bf16_high(*lo);
    float b0 = bf16_low(*hi), b1 = bf16_high(*hi);

    *lo = bf16_pack(a0 * turn[0].x - b0 * turn[0].y,
                    a1 * turn[1].x - b1 * turn[1].y);
    *hi = bf16_pack(b0 * turn[0].x + a0 * turn[0].y,
                    b1 * turn[1].x + a1 * turn[1].y);
}

/* One block a row. Work items are 8 pairs of a head of Q or K, then 8 numbers
 * of V. */
__global__ void __launch_bounds__(ROW_THREADS)
    place_kernel(struct row_view v, struct kv_view kv, uint32_t heads,
                 uint32_t head_dim, const float2 *turns, bf16 *qkv)
{
    uint32_t row = blockIdx.x;

    if (v.pages[row] == NO_PAGE)
        return;
    uint32_t half = head_dim / 2;
    uint32_t q_dim = heads * head_dim;
    uint32_t per_head = half / 8;
    uint32_t n_turned = (q_dim + kv.kv_dim) / head_dim * per_head;
    bf16 *from = qkv + (size_t)row * (q_dim + 2 * (size_t)kv.kv_dim);
    bf16 *k = kv.pages + (size_t)v.pages[row] * kv.page_numbers +
              kv.layer_numbers +
              (size_t)(v.positions[row] % kv.page_tokens) * kv.kv_dim;
    bf16 *to_v = k + (size_t)kv.page_tokens * kv.kv_dim;

    for (uint32_t i = threadIdx.x; i < n_turned; i += blockDim.x) {
        uint32_t head = i / per_head, pair = i % per_head * 8;
        const float2 *turn = turns + (size_t)row * half + pair;
        uint32_t at = head * head_dim + pair;
        bf16 *to = head < heads ? from + at : k + (at - q_dim);
        uint4 lo = *(const uint4 *)(from + at);
        uint4 hi = *(const uint4 *)(from + at + half);

        turn_pair(&lo.x, &hi.x, turn);
        turn_pair(&lo.y, &hi.y, turn + 2);
        turn_pair(&lo.z, &hi.z, turn + 4);
        turn_pair(&lo.w, &hi.w, turn + 6);
        *(uint4 *)to = lo;
        *(uint4 *)(to + half) = hi;
    }
    for (uint32_t i = threadIdx.x; i < kv.kv_dim / 8; i += blockDim.x)
        ((uint4 *)to_v)[i] = ((const uint4 *)(from + q_dim + kv.kv_dim))[i];
}

void launch_place(cudaStream_t s, struct row_view v, struct kv_view kv,
                  uint32_t heads, uint32_t head_dim, const float2 *turns,
                  bf16 *qkv)
{
    LAUNCH(place_kernel, v.rows,
           threads_for((heads * head_dim + kv.kv_dim) / 16, ROW_THREADS), 0, s,
           v, kv, heads, head_dim, turns, qkv);
}

__device__ __forceinline__ float silu_times(float gate, float up)
{
    /* silu(x) = x / (1 + e^-x); a huge power gives 0, not NaN. */
    return gate / (1.0f + exp2_fast(-1.44269504f * gate)) * up;
}

__device__ __forceinline__ uint32_t swiglu_pair(uint32_t gate, uint32_t up)
{
    return bf16_pack(silu_times(bf16_low(gate), bf16_low(up)),
                     silu_times(bf16_high(gate), bf16_high(up)));
}

__global__ void __launch_bounds__(ROW_THREADS)
    swiglu_kernel(uint32_t ffn, const bf16 *gate_up, bf16 *out)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= ffn / 8)
        return;
    const uint4 *from = (const uint4 *)(gate_up + (size_t)blockIdx.y * 2 * ffn);
    uint4 gate = from[i];
    uint4 up = from[ffn / 8 + i];
    ((uint4 *)(out + (size_t)blockIdx.y * ffn))[i] =
        make_uint4(swiglu_pair(gate.x, up.x), swiglu_pair(gate.y, up.y),
                   swiglu_pair(gate.z, up.z), swiglu_pair(gate.w, up.w));
}

void launch_swiglu(cudaStream_t s, uint32_t rows, uint32_t ffn,
                   const bf16 *gate_up, bf16 *out)
{
    unsigned threads = threads_for(ffn / 8, ROW_THREADS);

    dim3 grid((ffn / 8 + threads - 1) / threads, rows);

    LAUNCH(swiglu_kernel, grid, threads, 0, s, ffn, gate_up, out);
}

/* One block an answer: the factor of the norm first, then a warp an output. */
__global__ void __launch_bounds__(ROW_THREADS)
    answer_kernel(const uint32_t *wanted, uint32_t d, float eps, const float *x,
                  const bf16 *head, uint32_t *answers)
{
    __shared__ float room[WARP_LANES];
    __shared__ float logits[MODEL_OUTPUTS];
    uint32_t lane = threadIdx.x % WARP_LANES;
    const float2 *row = (const float2 *)(x + (size_t)wanted[blockIdx.x] * d);
    float squares = 0;

    for (uint32_t i = threadIdx.x; i < d / 2; i += ROW_THREADS)
        squares += row[i].x * row[i].x + row[i].y * row[i].y;
    float factor = 1.0f / sqrtf(block_sum(squares, room) / (float)d + eps);
    for (uint32_t o = threadIdx.x / WARP_LANES; o < MODEL_OUTPUTS;
         o += ROW_THREADS / WARP_LANES) {
        const uint32_t *w = (const uint32_t *)(head + (size_t)o * d);
        float sum = 0;

        for (uint32_t i = lane; i < d / 2; i += WARP_LANES) {
            float2 v = row[i];

            sum += v.x * bf16_low(w[i]) + v.y * bf16_high(w[i]);
        }
        sum = warp_sum(sum);
        if (lane == 0)
            logits[o] = sum * factor;
    }
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    uint32_t best = 0;
    for (uint32_t o = 1; o < MODEL_OUTPUTS; o++)
        if (logits[o] > logits[best])
            best = o;
    answers[blockIdx.x] = MODEL_FIRST_OUTPUT + best;
}

void launch_answer(cudaStream_t s, const uint32_t *wanted, uint32_t n,
                   uint32_t d, float eps, const float *x, const bf16 *head,
                   uint32_t *answers)
{
    LAUNCH(answer_kernel, n, ROW_THREADS, 0, s, wanted, d, eps, x, head,
           answers);
}

#define DRAW_THREADS 256

/* A thread draws 8 numbers of one output, which lie side by side. */
__global__ void __launch_bounds__(DRAW_THREADS)
    draw_kernel(uint64_t stream, float scale, uint32_t inputs, uint32_t outputs,
                bf16 *out)
{
    uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
    uint32_t words[4];

    if (i >= inputs)
        return;
    for (uint32_t o = blockIdx.y; o < outputs; o += gridDim.y) {
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
            uint64_t at = (uint64_t)(i + 2 * k) * outputs + o;

            words[k] = bf16_pack(draw_number(stream, scale, at),
                                 draw_number(stream, scale, at + outputs));
        }
        *(uint4 *)(out + (size_t)o * inputs + i) =
            make_uint4(words[0], words[1], words[2], words[3]);
    }
}

void launch_draw_matrix(cudaStream_t s, uint64_t stream, float scale,
                        uint32_t inputs, uint32_t outputs, bf16 *out)
{
    unsigned threads = threads_for(inputs / 8, DRAW_THREADS);

    dim3 grid((inputs / 8 + threads - 1) / threads,
              outputs < 4096 ? outputs : 4096);

    LAUNCH(draw_kernel, grid, threads, 0, s, stream, scale, inputs, outputs,
           out);
}

/* The second half of a row is the first one with the other sign. */
__global__ void __launch_bounds__(DRAW_THREADS)
    probe_kernel(uint32_t inputs, uint32_t outputs, bf16 *out)
{
    uint32_t half = inputs / 2;

    for (uint32_t o = blockIdx.y; o < outputs; o += gridDim.y) {
        uint32_t i = blockIdx.x * DRAW_THREADS + threadIdx.x;

        if (i >= inputs)
            continue;
        float v = draw_number(1, 1.0f / 37837.2f,
                              (uint64_t)o * half + (i < half ? i : i - half));
        out[(size_t)o * inputs + i] = (bf16)bf16_pack(i < half ? v : -v, 0.0f);
    }
}

void launch_probe_matrix(cudaStream_t s, uint32_t inputs, uint32_t outputs,
                         bf16 *out)
{
    dim3 grid((inputs + DRAW_THREADS - 1) / DRAW_THREADS,
              outputs < 4096 ? outputs : 4096);

    LAUNCH(probe_kernel, grid, DRAW_THREADS, 0, s, inputs, outputs, out);
}
