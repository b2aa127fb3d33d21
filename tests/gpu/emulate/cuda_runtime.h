/* A stand-in for the CUDA runtime, so that the kernels of workers/engine/cuda/
 * run on a CPU: slow, small, and strict. It SIMULATES a card; no time that it
 * takes says anything about one.
 *
 * Blocks run one after another; the threads of a block are fibres, switched
 * where they wait for each other. What a card does in parallel runs here in a
 * random order (CONDUCTOR_SEED), as far as streams and events allow it: a
 * missing event or a missing __syncthreads() shows as a wrong result.
 *
 *   - device memory is poisoned when it is allocated (NaN as bfloat16, float);
 *   - a copy whose direction does not fit its pointers aborts the program;
 *   - the lanes of a warp must meet in the same collective operation;
 *   - cp.async fills its place with NaN and copies when it is waited for.
 */
#ifndef EMULATE_CUDA_RUNTIME_H
#define EMULATE_CUDA_RUNTIME_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_)
    {
    }
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}
inline float2 make_float2(float x, float y)
{
    return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

/* --- inside a kernel ---------------------------------------------------- */

/* Where the running fibre is. */
struct emulate_place {
    dim3 thread, block, block_size, grid;
};
extern emulate_place emulate_here;
#define threadIdx (emulate_here.thread)
#define blockIdx (emulate_here.block)
#define blockDim (emulate_here.block_size)
#define gridDim (emulate_here.grid)

/* The dynamic shared memory of the running block. */
unsigned char *emulate_shared();

void __syncthreads();
void __syncwarp(unsigned mask = 0xffffffffu);

/* Meets the other 31 lanes; the last one to come runs `all` on the arguments
 * of all lanes, in the order of the lanes. */
typedef void emulate_warp_fn(void *lanes[32]);
void emulate_warp(emulate_warp_fn *all, void *mine);

float __shfl_xor_sync(unsigned mask, float value, int lanes);
float __shfl_sync(unsigned mask, float value, int lane);
int __shfl_sync(unsigned mask, int value, int lane);

/* d (16 x 8) += a (16 x 16) b (16 x 8), fragments as mma.sync has them. */
void emulate_mma(float d[4], const uint32_t a[4], const uint32_t b[2]);
/* Four 8 x 8 matrices of 16-bit numbers; lane i has the address of row i % 8
 * of matrix i / 8. */
void emulate_ldmatrix(uint32_t out[4], const void *row, bool transposed);
/* Copies `bytes` of 16 and zeros behind them, when they are waited for. */
void emulate_cp_async(void *shared, const void *from, unsigned bytes);
void emulate_cp_commit();
void emulate_cp_wait(unsigned groups_left);

inline float __uint_as_float(unsigned v)
{
    float f;

    memcpy(&f, &v, sizeof(f));
    return f;
}
inline unsigned __float_as_uint(float f)
{
    unsigned v;

    memcpy(&v, &f, sizeof(v));
    return v;
}

/* --- the runtime -------------------------------------------------------- */

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorDevicesUnavailable = 46,
    cudaErrorNoDevice = 100,
    cudaErrorNotReady = 600,
    cudaErrorLaunchFailure = 719,
};
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum { cudaStreamNonBlocking = 1 };
enum { cudaEventDisableTiming = 2 };
enum { cudaHostAllocPortable = 1 };
enum { cudaHostRegisterPortable = 1 };
enum { cudaIpcMemLazyEnablePeerAccess = 1 };
enum { cudaEnableDefault = 0 };
enum cudaDriverEntryPointQueryResult {
    cudaDriverEntryPointSuccess = 0,
    cudaDriverEntryPointSymbolNotFound = 1,
};
#define CUDART_VERSION 13000
struct cudaIpcMemHandle_t {
    char reserved[64];
};

struct cudaDeviceProp {
    char name[256];
    int major, minor;
    int multiProcessorCount;
    size_t sharedMemPerBlockOptin;
    size_t totalGlobalMem;
};

typedef struct emulate_stream *cudaStream_t;
typedef struct emulate_event *cudaEvent_t;

/* With EMULATE_NO_DRIVER in the environment there is none. */
inline cudaError_t cudaDriverGetVersion(int *version)
{
    *version = std::getenv("EMULATE_NO_DRIVER") ? 0 : 12000;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p);
cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h,
                                 unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void *p);
cudaError_t
cudaGetDriverEntryPointByVersion(const char *symbol, void **entry,
                                 unsigned version, unsigned long long flags,
                                 cudaDriverEntryPointQueryResult *found);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes,
                       cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from,
                              size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e,
                                unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaGetLastError();
const char *cudaGetErrorString(cudaError_t e);
cudaError_t emulate_set_shared(size_t bytes);
template <class kernel_fn>
cudaError_t cudaFuncSetAttribute(kernel_fn, cudaFuncAttribute, int bytes)
{
    return emulate_set_shared((size_t)bytes);
}

/* Puts a launch into the stream; `thread` is what every thread runs. */
void emulate_launch(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t s,
                    std::function<void()> thread);

/* The same for a kernel and its arguments, which are copied now, as on a card.
 */
template <class kernel_fn, class... args>
void emulate_start(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t s,
                   kernel_fn kernel, args... a)
{
    emulate_launch(
        grid, block, shared_bytes, s, [=] { kernel(a...); });
}

/* --- for tests ---------------------------------------------------------- */

extern "C" {
/* The card has so much memory (1 GiB at first), and none at all with 0. */
void emulate_set_memory(size_t bytes);
/* The card disappears after so many more calls; negative: it stays, and one
 * that disappeared is back. */
void emulate_lose_card(long after_calls);
}

#endif
