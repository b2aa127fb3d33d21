/* The two instructions that the kernels build on, alone: which lane holds which
 * numbers, after the tables of the PTX ISA ("Matrix Fragments for mma.m16n8k16
 * with floating point type", "Warp-level matrix load instruction: ldmatrix").
 * A card shows whether device.cuh has understood them, and the emulated one
 * whether it computes what a card does. */
#ifndef TESTS_GPU_FRAGMENTS_CUH
#define TESTS_GPU_FRAGMENTS_CUH

#include "workers/engine/cuda/device.cuh"

/* Numbers of a lane: a_i, i < 8; b_i and c_i, i < 4. */
__host__ __device__ inline int a_row(int lane, int i)
{
    return (i < 2) || (4 <= i && i < 6) ? lane / 4 : lane / 4 + 8;
}
__host__ __device__ inline int a_column(int lane, int i)
{
    return lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8);
}
__host__ __device__ inline int b_row(int lane, int i)
{
    return lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8);
}
__host__ __device__ inline int b_column(int lane, int)
{
    return lane / 4;
}
__host__ __device__ inline int c_row(int lane, int i)
{
    return i < 2 ? lane / 4 : lane / 4 + 8;
}
__host__ __device__ inline int c_column(int lane, int i)
{
    return lane % 4 * 2 + (i & 1);
}

/* c[16][8] += a[16][16] b[16][8], by one warp. */
__global__ void fragment_mma_kernel(const bf16 *a, const bf16 *b, float *c)
{
    int lane = (int)threadIdx.x;
    uint32_t x[4], y[2];
    float z[4];

    for (int i = 0; i < 8; i += 2)
        x[i / 2] = a[a_row(lane, i) * 16 + a_column(lane, i)] |
                   (uint32_t)a[a_row(lane, i + 1) * 16 + a_column(lane, i + 1)]
                       << 16;
    for (int i = 0; i < 4; i += 2)
        y[i / 2] = b[b_row(lane, i) * 8 + b_column(lane, i)] |
                   (uint32_t)b[b_row(lane, i + 1) * 8 + b_column(lane, i + 1)]
                       << 16;
    for (int i = 0; i < 4; i++)
        z[i] = c[c_row(lane, i) * 8 + c_column(lane, i)];
    mma_16816(z, x, y);
    for (int i = 0; i < 4; i++)
        c[c_row(lane, i) * 8 + c_column(lane, i)] = z[i];
}

/* What each lane gets of the matrices m[4][8][8]: out[2][32][4], transposed in
 * the second half. */
__global__ void fragment_load_kernel(const bf16 *m, uint32_t *out)
{
    SHARED_BYTES(memory);
    bf16 *tile = (bf16 *)memory;
    int lane = (int)threadIdx.x;
    uint32_t got[4];

    for (int i = lane; i < 4 * 64; i += WARP_LANES)
        tile[i] = m[i];
    __syncwarp();
    load_matrices(got, tile + lane * 8);
    for (int j = 0; j < 4; j++)
        out[lane * 4 + j] = got[j];
    load_matrices_transposed(got, tile + lane * 8);
    for (int j = 0; j < 4; j++)
        out[(WARP_LANES + lane) * 4 + j] = got[j];
}

#endif
