/* Shared by the card's files. C++; users of the card take cuda_engine.h. */
#ifndef WORKERS_ENGINE_CUDA_CARD_H
#define WORKERS_ENGINE_CUDA_CARD_H

#include <errno.h>
#include <stdio.h>

#include "workers/engine/cuda/kernels.h"
#include "workers/engine/cuda/multiply.h"

/* Matrices of one layer, each [outputs][inputs]: q, k and v below each other
 * in one, gate and up in another. */
struct card_layer {
    bf16 *matrix[MULTIPLY_MATRICES];
};

/* Activations of a step, all [rows][...]; see kernels.h. */
struct card_scratch {
    float *x;          /* [d_model] the residual stream */
    bf16 *norm;        /* [d_model] */
    bf16 *qkv;         /* [q_dim + 2 kv_dim] */
    bf16 *attended;    /* [q_dim] */
    bf16 *gate_up;     /* [2 ffn] */
    bf16 *inner;       /* [ffn] */
    float2 *turns;     /* [head_dim / 2] */
    double *frequency; /* [head_dim / 2], not per row */
    float *partial;    /* [splits][heads][PARTIAL_FLOATS] */
    uint32_t *answers;
    unsigned char *batch; /* the batch's arrays, laid out as in host memory */
};

struct cuda_card {
    struct model_shape shape;
    uint64_t seed;
    uint32_t layers, block_tokens;
    uint32_t q_dim, kv_dim;
    size_t row_bytes, page_bytes; /* of KV */
    uint32_t prefill_rows;        /* most prompt rows, with padding */
    struct cuda_card_limits limits;
    struct cuda_batch batch;
    unsigned char *host; /* page-locked: arrays of `batch`, then answers */
    uint32_t *host_answers;
    uint64_t embed_stream;
    float embed_scale;
    unsigned char *weights; /* holds every matrix */
    struct card_layer *layer;
    bf16 *head;
    unsigned char *scratch_memory;
    struct card_scratch scratch;
    unsigned char *pages;
    struct multiply *multiply;
    cudaStream_t compute, load, store, share;
    cudaEvent_t *loaded, *placed, *stored; /* [layers] */
    cudaEvent_t tickets[CUDA_TICKETS];
    char name[64];
    char error[160];
};

/* Records a failure of `what`. Returns 0 for cudaSuccess, else -ENODEV. */
static inline int card_check(struct cuda_card *c, cudaError_t rc,
                             const char *what)
{
    if (rc == cudaSuccess)
        return 0;
    /* Clears the error: the runtime would report it to the next call, too. */
    (void)cudaGetLastError();
    snprintf(c->error, sizeof(c->error), "%s: %s", what,
             cudaGetErrorString(rc));
    return -ENODEV;
}

/* As card_check(), for kernel launches since the last check. */
static inline int card_check_launch(struct cuda_card *c, const char *what)
{
    return card_check(c, cudaGetLastError(), what);
}

static inline size_t card_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The matrices of a layer. */
void card_sizes(const struct cuda_card *c, struct multiply_size *sizes);

/* Place the weights, and the activations, in `memory`; NULL = only count.
 * Return the bytes they take. */
size_t card_place_weights(struct cuda_card *c, unsigned char *memory);
size_t card_place_scratch(struct cuda_card *c, unsigned char *memory);

/* Checks that the model fits the card's memory. Returns 0, -ENOMEM with a
 * message that names sizes and what would fit, or -ENODEV. */
int card_check_fits(const struct cuda_card *c,
                    const struct cuda_card_config *config, size_t weights,
                    size_t scratch, char *err, size_t err_bytes);

/* Bytes of the memory for pages, rounded up because a dmabuf covers whole host
 * pages. */
static inline size_t card_pages_bytes(const struct cuda_card *c)
{
    size_t unit = (size_t)64 << 10;

    return ((size_t)c->limits.pages * c->page_bytes + unit - 1) / unit * unit;
}

/* Allocates the pages: config->page_bytes, or all memory left. */
int card_make_pages(struct cuda_card *c, const struct cuda_card_config *config);

/* Places the batch's arrays in host memory `memory`; the card's have the same
 * offsets. Returns the bytes they take. */
size_t card_place_batch(struct cuda_card *c, unsigned char *memory);

#endif
