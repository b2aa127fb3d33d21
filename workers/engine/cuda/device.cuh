/* The few instructions that the kernels use below CUDA C++, each with a branch
 * for the emulated card.
 *
 * Numbers in device memory are bfloat16 as bit patterns (`bf16`), or float.
 */
#ifndef WORKERS_CUDA_DEVICE_CUH
#define WORKERS_CUDA_DEVICE_CUH

#include <cuda_runtime.h>
#include <stdint.h>

typedef uint16_t bf16;

#ifdef CUDA_EMULATED
#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    emulate_start(grid, block, shared_bytes, stream, kernel, __VA_ARGS__)
#define SHARED_BYTES(name) unsigned char *name = emulate_shared()
#else
#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)
#define SHARED_BYTES(name) extern __shared__ __align__(128) unsigned char name[]
#endif

#define WARP_LANES 32
#define FULL_WARP 0xffffffffu

__device__ __forceinline__ float bf16_to_float(uint32_t v)
{
    return __uint_as_float(v << 16);
}

/* The two numbers of a pair; the first one is in the low half. */
__device__ __forceinline__ float bf16_low(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}

__device__ __forceinline__ float bf16_high(uint32_t pair)
{
    return __uint_as_float(pair & 0xffff0000u);
}

/* Two floats, rounded to nearest even, as a pair. */
__device__ __forceinline__ uint32_t bf16_pack(float low, float high)
{
#ifdef CUDA_EMULATED
    uint32_t l = __float_as_uint(low);
    uint32_t h = __float_as_uint(high);

    l = low != low ? 0x7fff0000u : l + 0x7fffu + (l >> 16 & 1);
    h = high != high ? 0x7fff0000u : h + 0x7fffu + (h >> 16 & 1);
    return l >> 16 | (h & 0xffff0000u);
#else
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#endif
}

/* 2^x, to 2 ulp; 0 for minus infinity. */
__device__ __forceinline__ float exp2_fast(float x)
{
#ifdef CUDA_EMULATED
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* d (16 x 8) += a (16 x 16, rows) b (16 x 8, columns) in float, by one warp.
 * With g = lane / 4 and t = lane % 4:
 *   a[0] is a(g, 2t..2t+1), a[1] a(g+8, 2t..), a[2] a(g, 2t+8..), a[3]
 *   a(g+8, 2t+8..); b[0] is b(2t..2t+1, g), b[1] b(2t+8.., g);
 *   d[0..1] is d(g, 2t..2t+1), d[2..3] is d(g+8, 2t..2t+1). */
__device__ __forceinline__ void mma_16816(float d[4], const uint32_t a[4],
                                          const uint32_t b[2])
{
#ifdef CUDA_EMULATED
    emulate_mma(d, a, b);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]),
                   "r"(b[1]));
#endif
}

/* Loads four 8 x 8 matrices of bfloat16 from shared memory into the fragments
 * of mma_16816(). Lane i names row i % 8 of matrix i / 8, 16 bytes aligned to
 * 16. out[j] of a lane is matrix j at (lane / 4, 2 (lane % 4) ..), or with
 * `_transposed` at (2 (lane % 4) .., lane / 4). */
__device__ __forceinline__ void load_matrices(uint32_t out[4], const bf16 *row)
{
#ifdef CUDA_EMULATED
    emulate_ldmatrix(out, row, false);
#else
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at)
                 : "memory");
#endif
}

__device__ __forceinline__ void load_matrices_transposed(uint32_t out[4],
                                                         const bf16 *row)
{
#ifdef CUDA_EMULATED
    emulate_ldmatrix(out, row, true);
#else
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at)
                 : "memory");
#endif
}

/* Begins to copy 16 bytes from device to shared memory, or to write zeros
 * there if not `valid`; `from` must be an address of the device in any case. */
__device__ __forceinline__ void copy16_async(void *shared, const void *from,
                                             bool valid)
{
#ifdef CUDA_EMULATED
    emulate_cp_async(shared, from, valid ? 16 : 0);
#else
    uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
    uint32_t bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :
                 : "r"(at), "l"(from), "r"(bytes)
                 : "memory");
#endif
}

/* Closes the group of copies that this thread began. */
__device__ __forceinline__ void copy_commit()
{
#ifdef CUDA_EMULATED
    emulate_cp_commit();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until at most `groups_left` groups of this thread are under way. Other
 * threads see the copies after the next __syncthreads(). */
template <int groups_left> __device__ __forceinline__ void copy_wait()
{
#ifdef CUDA_EMULATED
    emulate_cp_wait(groups_left);
#else
    asm volatile("cp.async.wait_group %0;" : : "n"(groups_left) : "memory");
#endif
}

/* Sum over the 32 lanes, the same in all of them; always added in one order. */
__device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        v += __shfl_xor_sync(FULL_WARP, v, lanes);
    return v;
}

/* Largest, and sum, over the 4 lanes that have one row of an mma result. */
__device__ __forceinline__ float quad_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(FULL_WARP, v, 1));
    return fmaxf(v, __shfl_xor_sync(FULL_WARP, v, 2));
}

__device__ __forceinline__ float quad_sum(float v)
{
    v += __shfl_xor_sync(FULL_WARP, v, 1);
    return v + __shfl_xor_sync(FULL_WARP, v, 2);
}

/* Sum over a block of whole warps, at most 32; `room` is shared, 32 floats.
 * The same in all threads. */
__device__ __forceinline__ float block_sum(float v, float *room)
{
    int lane = (int)threadIdx.x % WARP_LANES;
    int warp = (int)threadIdx.x / WARP_LANES;
    int warps = (int)blockDim.x / WARP_LANES;

    v = warp_sum(v);
    __syncthreads();
    if (lane == 0)
        room[warp] = v;
    __syncthreads();
    return warp_sum(lane < warps ? room[lane] : 0.0f);
}

/* Offset, in bf16, of 16-byte chunk `chunk` of row `row` in a tile in shared
 * memory whose rows have `width` numbers. Chunks are swapped so that the eight
 * rows of an 8 x 8 matrix lie in different banks. */
template <int width> __device__ __forceinline__ int tile_at(int row, int chunk)
{
    static_assert(width == 32 || width % 64 == 0, "rows of 64 or k x 128 B");
    int swap = width == 32 ? row / 2 % 4 : row % 8;
    return row * width + (chunk ^ swap) * 8;
}

#endif
