/* Taking a card: memory, weights, streams. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workers/cuda/card.h"

extern "C" {
#include "workers/engine_cpu_weights.h"
}

#define GIB 0x1p30
/* Left to the driver: its own memory grows when kernels are loaded. */
#define RESERVE_BYTES ((size_t)256 << 20)
#define WORKSPACE_BYTES ((size_t)32 << 20)
#define MIN_SPLITS 8192
#define MIN_TABLE 65536
#define ALIGN_BYTES 256

int card_check(struct cuda_card *c, cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess)
        return 0;
    snprintf(c->error, sizeof(c->error), "%s: %s", what,
             cudaGetErrorString(rc));
    return -ENODEV;
}

int card_check_launch(struct cuda_card *c, const char *what)
{
    return card_check(c, cudaGetLastError(), what);
}

/* Hands out pieces of one allocation; with `memory` NULL it only counts. */
struct arena {
    unsigned char *memory;
    size_t used;
};

template <class item> static void take(struct arena *a, item **p, size_t n)
{
    *p = a->memory ? (item *)(a->memory + a->used) : NULL;
    a->used += (n * sizeof(item) + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static uint32_t round_up(uint32_t n, uint32_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static void sizes_of(const struct cuda_card *c, struct multiply_size *sizes)
{
    const struct model_shape *s = &c->shape;

    sizes[MULTIPLY_QKV] = {s->d_model, c->q_dim + 2 * c->kv_dim};
    sizes[MULTIPLY_GATE_UP] = {s->d_model, 2 * s->ffn};
    sizes[MULTIPLY_O] = {c->q_dim, s->d_model};
    sizes[MULTIPLY_DOWN] = {s->ffn, s->d_model};
}

static size_t place_weights(struct cuda_card *c, unsigned char *memory)
{
    struct arena a = {memory, 0};
    struct multiply_size sizes[MULTIPLY_MATRICES];

    sizes_of(c, sizes);
    for (uint32_t l = 0; l < c->layers; l++)
        for (int m = 0; m < MULTIPLY_MATRICES; m++)
            take(&a, &c->layer[l].matrix[m],
                 (size_t)sizes[m].inputs * sizes[m].outputs);
    take(&a, &c->head, (size_t)MODEL_OUTPUTS * c->shape.d_model);
    return a.used;
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t place_scratch(struct cuda_card *c, unsigned char *memory)
{
    struct arena a = {memory, 0};
    const struct model_shape *s = &c->shape;
    struct card_scratch *t = &c->scratch;
    size_t rows = c->limits.rows;

    take(&a, &t->x, rows * s->d_model);
    take(&a, &t->norm, rows * s->d_model);
    take(&a, &t->qkv, rows * (c->q_dim + 2 * (size_t)c->kv_dim));
    take(&a, &t->attended, rows * c->q_dim);
    /* These two are what the check of the products works in: room for the
     * widest x and y. */
    take(&a, &t->gate_up,
         rows * max_size(max_size(2 * (size_t)s->ffn, 2 * (size_t)s->d_model),
                         c->q_dim + 2 * (size_t)c->kv_dim));
    take(&a, &t->inner,
         rows * max_size(max_size(s->ffn, s->d_model), c->q_dim));
    take(&a, &t->turns, rows * (s->head_dim / 2));
    take(&a, &t->frequency, s->head_dim / 2);
    take(&a, &t->partial,
         (size_t)c->limits.splits * s->heads *
             PARTIAL_FLOATS((size_t)s->head_dim));
    take(&a, &t->answers, rows);
    take(&a, &t->batch, card_place_batch(c, NULL));
    return a.used;
}

size_t card_place_batch(struct cuda_card *c, unsigned char *memory)
{
    struct arena a = {memory, 0};
    struct cuda_batch *b = &c->batch;
    size_t rows = c->limits.rows;

    take(&a, &b->tokens, rows);
    take(&a, &b->positions, rows);
    take(&a, &b->pages, rows);
    take(&a, &b->decodes, rows);
    take(&a, &b->wanted, rows);
    take(&a, &b->tiles, rows);
    take(&a, &b->splits, c->limits.splits);
    take(&a, &b->table, c->limits.table);
    return a.used;
}

/* What the kernels can do. */
static int check_shape(const struct model_shape *s, char *err, size_t err_bytes)
{
    uint32_t group = s->heads / s->kv_heads;
    const char *what = NULL;

    if (s->head_dim != 32 && s->head_dim != 128)
        what = "head_dim must be 32 or 128";
    else if (group > 16 || (group & (group - 1)) != 0)
        what = "heads / kv_heads must be 1, 2, 4, 8 or 16";
    else if (s->d_model % 32 || s->ffn % 32 || s->d_model > NORM_MAX)
        what = "d_model and ffn must be multiples of 32, d_model at most 8192";
    if (!what)
        return 0;
    snprintf(err, err_bytes, "cuda: model %s: %s", s->name, what);
    return -EINVAL;
}

int cuda_card_present(char *err, size_t err_bytes)
{
    int n = 0;
    cudaError_t rc = cudaGetDeviceCount(&n);

    if (rc == cudaSuccess && n > 0)
        return 0;
    (void)cudaGetLastError();
    snprintf(err, err_bytes,
             "cuda: no card: %s; see what nvidia-smi and CUDA_VISIBLE_DEVICES "
             "say, or use --engine cpu",
             rc == cudaSuccess ? "none is visible" : cudaGetErrorString(rc));
    return -ENODEV;
}

static uint64_t least_page_bytes(const struct cuda_card *c,
                                 const struct cuda_card_config *config)
{
    uint64_t pages =
        (config->step_tokens + c->block_tokens - 1) / c->block_tokens + 1;
    uint64_t least = pages * c->page_bytes;

    return config->page_bytes > least ? config->page_bytes : least;
}

/* The most layers that would fit in `have` bytes. */
static uint32_t fitting_layers(const struct cuda_card *c, size_t weights,
                               size_t scratch, size_t have)
{
    size_t a_layer = weights / c->layers;
    size_t rest = scratch + WORKSPACE_BYTES + RESERVE_BYTES;

    return have > rest ? (uint32_t)((have - rest) / (a_layer + a_layer / 4))
                       : 0;
}

/* Says that the model does not fit, with what there is and what would. */
static int check_fits(const struct cuda_card *c,
                      const struct cuda_card_config *config, size_t weights,
                      size_t scratch, char *err, size_t err_bytes)
{
    size_t have, total;
    double kv = (double)least_page_bytes(c, config);
    double need = (double)weights + (double)scratch + kv +
                  (double)(WORKSPACE_BYTES + RESERVE_BYTES);

    if (cudaMemGetInfo(&have, &total) != cudaSuccess) {
        snprintf(err, err_bytes, "cuda: %s: %s", c->name,
                 cudaGetErrorString(cudaGetLastError()));
        return -ENODEV;
    }
    if (need <= (double)have)
        return 0;
    uint32_t fit = fitting_layers(c, weights, scratch, have);
    int n = snprintf(
        err, err_bytes,
        "cuda: model %s with %u layers needs %.2f GiB on the card (weights "
        "%.2f, step of %u tokens %.2f, KV at least %.2f), and %s has %.2f GiB "
        "free of %.2f: ",
        c->shape.name, c->layers, need / GIB, (double)weights / GIB,
        config->step_tokens, (double)scratch / GIB, kv / GIB, c->name,
        (double)have / GIB, (double)total / GIB);
    if (n < 0 || (size_t)n >= err_bytes)
        return -ENOMEM;
    if (fit > 0 && fit < c->layers)
        snprintf(err + n, err_bytes - (size_t)n,
                 "take --layers %u, a smaller model, or end what else uses it",
                 fit);
    else
        snprintf(err + n, err_bytes - (size_t)n,
                 "take a smaller model or step, or end what else uses it");
    return -ENOMEM;
}

static int make_streams(struct cuda_card *c)
{
    cudaStream_t *streams[] = {&c->compute, &c->load, &c->store};
    size_t n = c->layers;
    int rc = 0;

    c->loaded = (cudaEvent_t *)calloc(3 * n, sizeof(cudaEvent_t));
    if (!c->loaded)
        return -ENOMEM;
    c->placed = c->loaded + n;
    c->stored = c->placed + n;
    for (int i = 0; i < 3 && rc == 0; i++)
        rc = card_check(
            c, cudaStreamCreateWithFlags(streams[i], cudaStreamNonBlocking),
            "a stream");
    for (size_t i = 0; i < 3 * n && rc == 0; i++)
        rc = card_check(
            c, cudaEventCreateWithFlags(&c->loaded[i], cudaEventDisableTiming),
            "an event");
    for (size_t i = 0; i < CUDA_TICKETS && rc == 0; i++)
        rc = card_check(
            c, cudaEventCreateWithFlags(&c->tickets[i], cudaEventDisableTiming),
            "an event");
    return rc;
}

/* Draws a tensor into rows [first_output ..) of a matrix. */
static void draw(struct cuda_card *c, enum weight_tensor t, uint32_t layer,
                 bf16 *matrix, uint32_t first_output)
{
    uint32_t inputs, outputs;

    weights_size(&c->shape, t, &inputs, &outputs);
    launch_draw_matrix(c->compute, weights_stream(c->seed, t, layer),
                       weights_scale(&c->shape, t), inputs, outputs,
                       matrix + (size_t)first_output * inputs);
}

static int draw_weights(struct cuda_card *c)
{
    for (uint32_t l = 0; l < c->layers; l++) {
        bf16 **m = c->layer[l].matrix;
        draw(c, WEIGHT_Q, l, m[MULTIPLY_QKV], 0);
        draw(c, WEIGHT_K, l, m[MULTIPLY_QKV], c->q_dim);
        draw(c, WEIGHT_V, l, m[MULTIPLY_QKV], c->q_dim + c->kv_dim);
        draw(c, WEIGHT_GATE, l, m[MULTIPLY_GATE_UP], 0);
        draw(c, WEIGHT_UP, l, m[MULTIPLY_GATE_UP], c->shape.ffn);
        draw(c, WEIGHT_O, l, m[MULTIPLY_O], 0);
        draw(c, WEIGHT_DOWN, l, m[MULTIPLY_DOWN], 0);
    }
    draw(c, WEIGHT_HEAD, 0, c->head, 0);
    c->embed_stream = weights_stream(c->seed, WEIGHT_EMBEDDING, 0);
    c->embed_scale = weights_scale(&c->shape, WEIGHT_EMBEDDING);
    int rc = card_check_launch(c, "weights");
    if (rc < 0)
        return rc;
    return card_check(c, cudaStreamSynchronize(c->compute), "weights");
}

static int copy_frequencies(struct cuda_card *c)
{
    uint32_t half = c->shape.head_dim / 2;
    double frequency[64];

    for (uint32_t i = 0; i < half; i++)
        frequency[i] = pow((double)c->shape.rope_theta,
                           -2.0 * (double)i / (double)c->shape.head_dim);
    return card_check(c,
                      cudaMemcpy(c->scratch.frequency, frequency,
                                 half * sizeof(double), cudaMemcpyHostToDevice),
                      "frequencies");
}

static int make_multiply(struct cuda_card *c)
{
    struct multiply_size sizes[MULTIPLY_MATRICES];

    sizes_of(c, sizes);
    c->multiply =
        multiply_new(c->compute, sizes, c->layer[0].matrix, c->prefill_rows,
                     c->scratch.inner, (float *)c->scratch.gate_up);
    if (c->multiply)
        return 0;
    snprintf(c->error, sizeof(c->error), "no matrix product works");
    return -ENODEV;
}

static int make_pages(struct cuda_card *c,
                      const struct cuda_card_config *config)
{
    size_t have, total;
    int rc = card_check(c, cudaMemGetInfo(&have, &total), "memory");

    if (rc < 0)
        return rc;
    size_t bytes = have > RESERVE_BYTES ? have - RESERVE_BYTES : 0;
    if (config->page_bytes > 0)
        bytes = config->page_bytes;
    c->limits.pages = (uint32_t)(bytes / c->page_bytes);
    if ((uint64_t)c->limits.pages * c->page_bytes <
        least_page_bytes(c, config) - (config->page_bytes ? c->page_bytes : 0))
        return card_check(c, cudaErrorMemoryAllocation, "pages");
    return card_check(
        c, cudaMalloc((void **)&c->pages, c->limits.pages * c->page_bytes),
        "pages");
}

static int make_host(struct cuda_card *c)
{
    size_t bytes = card_place_batch(c, NULL);
    size_t answers = c->limits.rows * sizeof(uint32_t);

    c->host = (unsigned char *)cuda_card_host_alloc(c, bytes + answers);
    if (!c->host)
        return -ENOMEM;
    card_place_batch(c, c->host);
    c->host_answers = (uint32_t *)(c->host + bytes);
    return 0;
}

static int fill_card(struct cuda_card *c, const struct cuda_card_config *config,
                     char *err, size_t err_bytes)
{
    size_t weights = place_weights(c, NULL), scratch = place_scratch(c, NULL);
    int rc = check_fits(c, config, weights, scratch, err, err_bytes);

    if (rc < 0)
        return rc;
    if ((rc = make_streams(c)) == 0 &&
        (rc = card_check(c, attend_prefill_prepare(), "kernels")) == 0 &&
        (rc = card_check(c, attend_decode_prepare(), "kernels")) == 0 &&
        (rc = card_check(c, multiply_prepare(), "kernels")) == 0 &&
        (rc = card_check(c, cudaMalloc((void **)&c->weights, weights),
                         "weights")) == 0 &&
        (rc = card_check(c, cudaMalloc((void **)&c->scratch_memory, scratch),
                         "scratch memory")) == 0) {
        place_weights(c, c->weights);
        place_scratch(c, c->scratch_memory);
        /* The check of the products overwrites the first layer. */
        if ((rc = make_host(c)) == 0 && (rc = make_multiply(c)) == 0 &&
            (rc = draw_weights(c)) == 0 && (rc = copy_frequencies(c)) == 0)
            rc = make_pages(c, config);
    }
    if (rc < 0)
        snprintf(err, err_bytes, "cuda: %s: %s", c->name,
                 c->error[0] ? c->error : strerror(-rc));
    return rc;
}

/* The first card that is visible. */
static int find_card(struct cuda_card *c, char *err, size_t err_bytes)
{
    struct cudaDeviceProp p;

    if (cuda_card_present(err, err_bytes) < 0)
        return -ENODEV;
    if (cudaSetDevice(0) != cudaSuccess ||
        cudaGetDeviceProperties(&p, 0) != cudaSuccess) {
        snprintf(err, err_bytes, "cuda: the card does not answer: %s",
                 cudaGetErrorString(cudaGetLastError()));
        return -ENODEV;
    }
    snprintf(c->name, sizeof(c->name), "%.60s", p.name);
    if (p.major >= 8)
        return 0;
    snprintf(err, err_bytes,
             "cuda: %s has compute capability %d.%d: 8.0 or later is needed",
             c->name, p.major, p.minor);
    return -ENODEV;
}

struct cuda_card *cuda_card_open(const struct cuda_card_config *config,
                                 char *err, size_t err_bytes)
{
    const struct model_shape *s = config->shape;
    struct cuda_card *c;

    if (check_shape(s, err, err_bytes) < 0)
        return NULL;
    c = (struct cuda_card *)calloc(1, sizeof(*c));
    if (c)
        c->layer =
            (struct card_layer *)calloc(config->layers, sizeof(*c->layer));
    if (!c || !c->layer) {
        snprintf(err, err_bytes, "cuda: %s", strerror(ENOMEM));
        free(c);
        return NULL;
    }
    c->shape = *s;
    c->seed = config->seed;
    c->layers = config->layers;
    c->block_tokens = config->block_tokens;
    c->q_dim = s->heads * s->head_dim;
    c->kv_dim = s->kv_heads * s->head_dim;
    c->row_bytes = c->kv_dim * sizeof(bf16);
    c->page_bytes = (size_t)c->layers * 2 * c->block_tokens * c->row_bytes;
    c->prefill_rows = round_up(config->step_tokens, CUDA_PREFILL_ROWS);
    /* Prompts and decodes together are step_tokens; each kind is padded. */
    c->limits.rows = round_up(config->step_tokens, CUDA_DECODE_ROWS) +
                     CUDA_PREFILL_ROWS + CUDA_DECODE_ROWS;
    c->limits.splits =
        (uint32_t)max_size(MIN_SPLITS, s->window_tokens / CUDA_SPLIT_KEYS + 1);
    c->limits.table =
        (uint32_t)max_size(MIN_TABLE, s->window_tokens / c->block_tokens + 1);
    if (find_card(c, err, err_bytes) < 0 ||
        fill_card(c, config, err, err_bytes) < 0) {
        cuda_card_close(c);
        return NULL;
    }
    return c;
}

void cuda_card_close(struct cuda_card *c)
{
    if (!c)
        return;
    (void)cudaDeviceSynchronize();
    multiply_free(c->multiply);
    cudaFree(c->pages);
    cudaFree(c->scratch_memory);
    cudaFree(c->weights);
    if (c->host)
        cudaFreeHost(c->host);
    for (size_t i = 0; c->loaded && i < 3 * (size_t)c->layers; i++)
        if (c->loaded[i])
            cudaEventDestroy(c->loaded[i]);
    for (size_t i = 0; i < CUDA_TICKETS; i++)
        if (c->tickets[i])
            cudaEventDestroy(c->tickets[i]);
    if (c->compute)
        cudaStreamDestroy(c->compute);
    if (c->load)
        cudaStreamDestroy(c->load);
    if (c->store)
        cudaStreamDestroy(c->store);
    free(c->loaded);
    free(c->layer);
    free(c);
}

const struct cuda_card_limits *cuda_card_limits(const struct cuda_card *c)
{
    return &c->limits;
}

struct cuda_batch *cuda_card_batch(struct cuda_card *c)
{
    return &c->batch;
}

const char *cuda_card_error(const struct cuda_card *c)
{
    return c->error;
}

const char *cuda_card_name(const struct cuda_card *c)
{
    return c->name;
}

const char *cuda_card_multiply(const struct cuda_card *c)
{
    return multiply_name(c->multiply);
}

void *cuda_card_host_alloc(struct cuda_card *c, size_t bytes)
{
    void *p = NULL;
    cudaError_t rc = cudaHostAlloc(&p, bytes, cudaHostAllocPortable);

    if (rc == cudaSuccess)
        return p;
    (void)cudaGetLastError();
    (void)card_check(c, rc, "page-locked host memory");
    return NULL;
}

void cuda_card_host_free(struct cuda_card *, void *memory)
{
    if (memory)
        cudaFreeHost(memory);
}
