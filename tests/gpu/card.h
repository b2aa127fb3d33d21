/* The limits of the device that an engine computes on, measured apart from the
 * engine: what its figures are held against. "cuda": the card, through the
 * CUDA runtime and cuBLAS. Every other engine: this machine's processor, for a
 * trial of the benches; those limits are of one core.
 */
#ifndef TESTS_GPU_CARD_H
#define TESTS_GPU_CARD_H

#include <stdbool.h>
#include <stddef.h>

enum card_copy { CARD_TO_DEVICE, CARD_TO_HOST };

/* To be asked before there is an engine, which may take all memory of the card.
 * All functions return 0, or a negative errno with a message in
 * err[err_bytes], and take the median of several tries after a warm-up. */
struct card {
    bool gpu;    /* a real one */
    bool copies; /* the engine computes in memory of its own */
    /* Writes the device's name into name[name_bytes]. */
    int (*name)(char *name, size_t name_bytes, char *err, size_t err_bytes);
    /* Floating-point operations a second of a large square matrix product of
     * random numbers: bfloat16 with float32 sums on a card, float32 else. */
    int (*multiply)(double *flops_per_s, char *err, size_t err_bytes);
    /* Bytes a second of a large copy within the device's memory, read and
     * written bytes both counted. */
    int (*memory)(double *bytes_per_s, char *err, size_t err_bytes);
    /* Bytes a second of copies of `bytes` between page-locked host memory and
     * the device, as one piece. */
    int (*copy)(enum card_copy way, size_t bytes, double *bytes_per_s,
                char *err, size_t err_bytes);
};

extern const struct card card_host;
extern const struct card card_emulated; /* engine "cuda" without a card */
#ifdef CONDUCTOR_CUDA
extern const struct card card_cuda;
#endif

#endif
