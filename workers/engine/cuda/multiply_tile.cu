/* Our own matrix product, used where cuBLASLt is missing or has no algorithm
 * whose rows are independent of each other. Every sum runs over the inputs
 * from the first to the last, in one warp.
 *
 *   y[rows][outputs] = x[rows][inputs] w[outputs][inputs]^T
 *
 * Tiles of x and w, 32 inputs wide, pass through a ring of STAGES buffers. */
#include "workers/engine/cuda/kernels.h"

#define DEPTH 32 /* inputs of a tile */
#define STAGES 4

/* `edge` rows and outputs to a block, of `warp_rows` x 32 to a warp. */
template <int edge, int warp_rows> struct tile_plan {
    static constexpr int warps_down = edge / warp_rows;
    static constexpr int warps_across = edge / 32;
    static constexpr int threads = warps_down * warps_across * WARP_LANES;
    static constexpr size_t shared = sizeof(bf16) * STAGES * 2 * edge * DEPTH;
};

/* Begins to copy columns [from, from + DEPTH) of rows [row, row + edge) of a
 * matrix that is `inputs` wide and has `rows` rows; zeros behind the last. */
template <int edge, int threads>
__device__ __forceinline__ void load_tile(bf16 *tile, const bf16 *matrix,
                                          uint32_t row, uint32_t rows,
                                          uint32_t inputs, uint32_t from)
{
#pragma unroll
    for (int k = 0; k < edge * (DEPTH / 8) / threads; k++) {
        int i = k * threads + (int)threadIdx.x;
        uint32_t r = row + (uint32_t)(i / (DEPTH / 8));
        int chunk = i % (DEPTH / 8);
        bool valid = r < rows;

        copy16_async(tile + tile_at<DEPTH>(i / (DEPTH / 8), chunk),
                     matrix + (size_t)(valid ? r : 0) * inputs + from +
                         chunk * 8,
                     valid);
    }
}

template <int m_tiles>
__device__ __forceinline__ void multiply_step(float sum[m_tiles][4][4],
                                              const bf16 *x, const bf16 *w,
                                              int x_row, int w_row, int lane)
{
#pragma unroll
    for (int d = 0; d < DEPTH / 16; d++) {
        uint32_t a[m_tiles][4];
#pragma unroll

        for (int m = 0; m < m_tiles; m++)
            load_matrices(a[m], x + tile_at<DEPTH>(x_row + m * 16 + lane % 16,
                                                   d * 2 + lane / 16));
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
            uint32_t b[4];

            load_matrices(
                b, w + tile_at<DEPTH>(w_row + n * 8 + lane / 16 * 8 + lane % 8,
                                      d * 2 + lane / 8 % 2));
#pragma unroll
            for (int m = 0; m < m_tiles; m++) {
                mma_16816(sum[m][n], a[m], b);
                mma_16816(sum[m][n + 1], a[m], b + 2);
            }
        }
    }
}

__device__ __forceinline__ void put(bf16 *y, float a, float b)
{
    *(uint32_t *)y = bf16_pack(a, b);
}

__device__ __forceinline__ void put(float *y, float a, float b)
{
    float2 v = *(float2 *)y;

    *(float2 *)y = make_float2(v.x + a, v.y + b);
}

template <int edge, int warp_rows, class number>
__global__ void __launch_bounds__(tile_plan<edge, warp_rows>::threads)
    multiply_kernel(uint32_t rows, uint32_t inputs, uint32_t outputs,
                    const bf16 *x, const bf16 *w, number *y)
{
    typedef tile_plan<edge, warp_rows> plan;
    constexpr int m_tiles = warp_rows / 16;
    SHARED_BYTES(memory);
    bf16 *ring = (bf16 *)memory;
    uint32_t row = blockIdx.x * edge, output = blockIdx.y * edge;
    int lane = (int)threadIdx.x % WARP_LANES;
    int warp = (int)threadIdx.x / WARP_LANES;
    int x_row = warp / plan::warps_across * warp_rows;
    int w_row = warp % plan::warps_across * 32;
    int steps = (int)(inputs / DEPTH);
    float sum[m_tiles][4][4];

#pragma unroll
    for (int m = 0; m < m_tiles; m++)
#pragma unroll
        for (int i = 0; i < 16; i++)
            sum[m][i / 4][i % 4] = 0;
    for (int i = 0; i < STAGES - 1; i++) {
        bf16 *tile = ring + i * 2 * edge * DEPTH;

        if (i < steps) {
            load_tile<edge, plan::threads>(tile, x, row, rows, inputs,
                                           (uint32_t)i * DEPTH);
            load_tile<edge, plan::threads>(tile + edge * DEPTH, w, output,
                                           outputs, inputs,
                                           (uint32_t)i * DEPTH);
        }
        copy_commit();
    }
    for (int i = 0; i < steps; i++) {
        const bf16 *tile = ring + i % STAGES * 2 * edge * DEPTH;
        int next = i + STAGES - 1;

        copy_wait<STAGES - 2>();
        __syncthreads();
        if (next < steps) {
            bf16 *to = ring + next % STAGES * 2 * edge * DEPTH;

            load_tile<edge, plan::threads>(to, x, row, rows, inputs,
                                           (uint32_t)next * DEPTH);
            load_tile<edge, plan::threads>(to + edge * DEPTH, w, output,
                                           outputs, inputs,
                                           (uint32_t)next * DEPTH);
        }
        copy_commit();
        multiply_step<m_tiles>(sum, tile, tile + edge * DEPTH, x_row, w_row,
                               lane);
    }
    copy_wait<0>();
#pragma unroll
    for (int m = 0; m < m_tiles; m++)
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                uint32_t at =
                    row + (uint32_t)(x_row + m * 16 + r * 8 + lane / 4);
                uint32_t o = output + (uint32_t)(w_row + n * 8 + lane % 4 * 2);

                if (at < rows && o < outputs)
                    put(y + (size_t)at * outputs + o, sum[m][n][2 * r],
                        sum[m][n][2 * r + 1]);
            }
}

template <int edge, int warp_rows, class number>
static void launch(cudaStream_t s, uint32_t rows, uint32_t inputs,
                   uint32_t outputs, const bf16 *x, const bf16 *w, number *y)
{
    typedef tile_plan<edge, warp_rows> plan;
    auto kernel = multiply_kernel<edge, warp_rows, number>;
    dim3 grid((rows + edge - 1) / edge, (outputs + edge - 1) / edge);

    LAUNCH(kernel, grid, plan::threads, plan::shared, s, rows, inputs, outputs,
           x, w, y);
}

void launch_multiply(cudaStream_t s, bool wide, uint32_t rows, uint32_t inputs,
                     uint32_t outputs, const bf16 *x, const bf16 *w, bf16 *y)
{
    if (wide)
        launch<128, 64>(s, rows, inputs, outputs, x, w, y);
    else
        launch<64, 32>(s, rows, inputs, outputs, x, w, y);
}

void launch_multiply_add(cudaStream_t s, bool wide, uint32_t rows,
                         uint32_t inputs, uint32_t outputs, const bf16 *x,
                         const bf16 *w, float *y)
{
    if (wide)
        launch<128, 64>(s, rows, inputs, outputs, x, w, y);
    else
        launch<64, 32>(s, rows, inputs, outputs, x, w, y);
}

template <class number> static cudaError_t prepare(void)
{
    auto kernel = multiply_kernel<128, 64, number>;

    return cudaFuncSetAttribute(kernel,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)tile_plan<128, 64>::shared);
}

cudaError_t multiply_prepare(void)
{
    cudaError_t rc = prepare<bf16>();

    return rc == cudaSuccess ? prepare<float>() : rc;
}
