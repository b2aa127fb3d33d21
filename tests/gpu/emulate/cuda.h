/* What the engine takes of the driver's header; see cuda_runtime.h. */
#ifndef EMULATE_CUDA_H
#define EMULATE_CUDA_H

enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };
enum CUmemRangeHandleType { CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1 };
typedef unsigned long long CUdeviceptr;

#endif
