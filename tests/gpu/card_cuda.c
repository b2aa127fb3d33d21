/* The card, through the CUDA runtime and cuBLAS, without the engine. */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/bench_rig.h"
#include "tests/gpu/card.h"

#define TRIES 7
#define EACH 5 /* launches in one try */
/* Of the matrix product: half a second in all, at clocks that last. A card runs
 * faster for some milliseconds than it can while it computes prompts. */
#define EACH_PRODUCT 50
#define SIDE 8192
#define COPY_BYTES ((size_t)1 << 30)

/* What a measurement holds; all zero at first. */
struct job {
    cudaStream_t stream;
    cudaEvent_t from;
    cudaEvent_t to;
    cublasHandle_t blas;
    void *memory[3];
    void *host; /* page-locked */
    size_t bytes;
    enum card_copy way;
};

/* Puts one piece of work on the stream. */
typedef cudaError_t job_fn(struct job *j);

static int failed(const char *what, cudaError_t rc, char *err, size_t err_bytes)
{
    snprintf(err, err_bytes, "%s: %s", what, cudaGetErrorString(rc));
    return rc == cudaErrorMemoryAllocation ? -ENOMEM : -EIO;
}

static cudaError_t job_init(struct job *j, size_t bytes, unsigned buffers)
{
    cudaError_t rc =
        cudaStreamCreateWithFlags(&j->stream, cudaStreamNonBlocking);

    if (rc == cudaSuccess)
        rc = cudaEventCreate(&j->from);
    if (rc == cudaSuccess)
        rc = cudaEventCreate(&j->to);
    for (unsigned i = 0; rc == cudaSuccess && i < buffers; i++)
        rc = cudaMalloc(&j->memory[i], bytes);
    j->bytes = bytes;
    return rc;
}

static void job_fini(struct job *j)
{
    for (unsigned i = 0; i < 3; i++)
        (void)cudaFree(j->memory[i]);
    if (j->host)
        (void)cudaFreeHost(j->host);
    if (j->blas)
        (void)cublasDestroy(j->blas);
    if (j->from)
        (void)cudaEventDestroy(j->from);
    if (j->to)
        (void)cudaEventDestroy(j->to);
    if (j->stream)
        (void)cudaStreamDestroy(j->stream);
}

/* Milliseconds of `each` launches. */
static cudaError_t time_once(struct job *j, job_fn *work, int each, float *ms)
{
    cudaError_t rc = cudaEventRecord(j->from, j->stream);

    for (int i = 0; rc == cudaSuccess && i < each; i++)
        rc = work(j);
    if (rc == cudaSuccess)
        rc = cudaEventRecord(j->to, j->stream);
    if (rc == cudaSuccess)
        rc = cudaEventSynchronize(j->to);
    if (rc == cudaSuccess)
        rc = cudaEventElapsedTime(ms, j->from, j->to);
    return rc;
}

/* Median seconds of one launch, after a warm-up of as many. */
static cudaError_t time_job(struct job *j, job_fn *work, int each,
                            double *seconds)
{
    double tries[TRIES + 1];

    for (int i = 0; i <= TRIES; i++) {
        float ms = 0;
        cudaError_t rc = time_once(j, work, each, &ms);

        if (rc != cudaSuccess)
            return rc;
        tries[i] = (double)ms * 1e-3 / each;
    }
    *seconds = bench_median(tries + 1, TRIES);
    return cudaSuccess;
}

/* Random bfloat16 in (-1, 1): a product of zeros is faster than a real one. */
static int fill_random(struct job *j, char *err, size_t err_bytes)
{
    size_t n = j->bytes / sizeof(uint16_t);
    uint16_t *random = malloc(j->bytes);
    uint64_t state = 1;
    cudaError_t rc = cudaSuccess;

    if (!random) {
        snprintf(err, err_bytes, "%s", strerror(ENOMEM));
        return -ENOMEM;
    }
    for (unsigned m = 0; rc == cudaSuccess && m < 2; m++) {
        for (size_t i = 0; i < n; i++) {
            state =
                state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            float x = (float)(int32_t)(state >> 32) * 0x1p-31f;
            uint32_t bits;
            memcpy(&bits, &x, sizeof(bits));
            random[i] = (uint16_t)(bits >> 16);
        }
        rc = cudaMemcpy(j->memory[m], random, j->bytes, cudaMemcpyHostToDevice);
    }
    if (rc == cudaSuccess)
        rc = cudaDeviceSynchronize();
    free(random);
    return rc == cudaSuccess ? 0 : failed("cudaMemcpy", rc, err, err_bytes);
}

static cudaError_t multiply_once(struct job *j)
{
    const float one = 1;
    const float zero = 0;
    cublasStatus_t rc = cublasGemmEx(
        j->blas, CUBLAS_OP_N, CUBLAS_OP_N, SIDE, SIDE, SIDE, &one, j->memory[0],
        CUDA_R_16BF, SIDE, j->memory[1], CUDA_R_16BF, SIDE, &zero, j->memory[2],
        CUDA_R_16BF, SIDE, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);

    return rc == CUBLAS_STATUS_SUCCESS ? cudaSuccess : cudaErrorUnknown;
}

static int cuda_multiply(double *flops_per_s, char *err, size_t err_bytes)
{
    struct job j = {0};
    double seconds = 0;
    cudaError_t rc = job_init(&j, (size_t)2 * SIDE * SIDE, 3);
    int result = 0;

    if (rc == cudaSuccess &&
        (cublasCreate(&j.blas) != CUBLAS_STATUS_SUCCESS ||
         cublasSetStream(j.blas, j.stream) != CUBLAS_STATUS_SUCCESS))
        rc = cudaErrorUnknown;
    if (rc == cudaSuccess)
        result = fill_random(&j, err, err_bytes);
    if (rc == cudaSuccess && result == 0)
        rc = time_job(&j, multiply_once, EACH_PRODUCT, &seconds);
    if (rc != cudaSuccess)
        result = failed("matrix product", rc, err, err_bytes);
    if (result == 0)
        *flops_per_s = 2.0 * SIDE * SIDE * SIDE / seconds;
    job_fini(&j);
    return result;
}

static cudaError_t move_once(struct job *j)
{
    return cudaMemcpyAsync(j->memory[0], j->memory[1], j->bytes,
                           cudaMemcpyDeviceToDevice, j->stream);
}

static cudaError_t copy_once(struct job *j)
{
    return j->way == CARD_TO_DEVICE
               ? cudaMemcpyAsync(j->memory[0], j->host, j->bytes,
                                 cudaMemcpyHostToDevice, j->stream)
               : cudaMemcpyAsync(j->host, j->memory[0], j->bytes,
                                 cudaMemcpyDeviceToHost, j->stream);
}

static int cuda_memory(double *bytes_per_s, char *err, size_t err_bytes)
{
    struct job j = {0};
    double seconds = 0;
    cudaError_t rc = job_init(&j, COPY_BYTES, 2);

    if (rc == cudaSuccess)
        rc = cudaMemset(j.memory[1], 1, COPY_BYTES);
    if (rc == cudaSuccess)
        rc = cudaDeviceSynchronize();
    if (rc == cudaSuccess)
        rc = time_job(&j, move_once, EACH, &seconds);
    job_fini(&j);
    if (rc != cudaSuccess)
        return failed("copy within the card", rc, err, err_bytes);
    *bytes_per_s = 2.0 * COPY_BYTES / seconds;
    return 0;
}

static int cuda_copy(enum card_copy way, size_t bytes, double *bytes_per_s,
                     char *err, size_t err_bytes)
{
    struct job j = {.way = way};
    double seconds = 0;
    cudaError_t rc = job_init(&j, bytes, 1);

    if (rc == cudaSuccess)
        rc = cudaMallocHost(&j.host, bytes);
    if (rc == cudaSuccess)
        rc = cudaMemset(j.memory[0], 0, bytes);
    if (rc == cudaSuccess)
        rc = cudaDeviceSynchronize();
    if (rc == cudaSuccess)
        rc = time_job(&j, copy_once, 1, &seconds);
    job_fini(&j);
    if (rc != cudaSuccess)
        return failed("copy to or from the card", rc, err, err_bytes);
    *bytes_per_s = (double)bytes / seconds;
    return 0;
}

static int cuda_name(char *name, size_t name_bytes, char *err, size_t err_bytes)
{
    struct cudaDeviceProp properties;
    int device = 0;
    cudaError_t rc = cudaGetDevice(&device);

    if (rc == cudaSuccess)
        rc = cudaGetDeviceProperties(&properties, device);
    if (rc != cudaSuccess)
        return failed("no card", rc, err, err_bytes);
    snprintf(name, name_bytes, "%s", properties.name);
    return 0;
}

const struct card card_cuda = {
    .gpu = true,
    .copies = true,
    .name = cuda_name,
    .multiply = cuda_multiply,
    .memory = cuda_memory,
    .copy = cuda_copy,
};
