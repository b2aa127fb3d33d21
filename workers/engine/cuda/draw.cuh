/* Weights from a seed on the card: the function of engine/cpu/weights.h, whose
 * integers are the same everywhere. */
#ifndef WORKERS_CUDA_DRAW_CUH
#define WORKERS_CUDA_DRAW_CUH

#include "workers/engine/cuda/device.cuh"

/* Number `index` of the tensor with this stream (weights_stream()) and scale
 * (weights_scale()). */
__device__ __forceinline__ float draw_number(uint64_t stream, float scale,
                                             uint64_t index)
{
    uint64_t z = stream + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    int32_t raw = (int32_t)((z & 0xffff) + (z >> 16 & 0xffff) +
                            (z >> 32 & 0xffff) + (z >> 48));
    return (float)(raw - 131070) * scale;
}

#endif
