/* Opens a card: memory, weights, streams. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workers/engine/cuda/card.h"

extern "C" {
#include "workers/engine/cpu/weights.h"
}

#define MIN_SPLITS 8192
#define MIN_TABLE 65536

/* Checks that the kernels support the shape. */
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
    int driver = -1;
    cudaError_t rc = cudaGetDeviceCount(&n);

    if (rc == cudaSuccess && n > 0)
        return 0;
    (void)cudaGetLastError();
    /* The runtime reports a missing driver as too old. */
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
        snprintf(err, err_bytes,
                 "cuda: no card: no CUDA driver was found; install one, or use "
                 "--engine cpu");
        return -ENODEV;
    }
    snprintf(err, err_bytes,
             "cuda: no card: %s; see what nvidia-smi and CUDA_VISIBLE_DEVICES "
             "say, or use --engine cpu",
             rc == cudaSuccess ? "none is visible" : cudaGetErrorString(rc));
    return -ENODEV;
}

static int make_streams(struct cuda_card *c)
{
    cudaStream_t *streams[] = {&c->compute, &c->load, &c->store, &c->share};
    size_t n = c->layers;
    int rc = 0;

    c->loaded = (cudaEvent_t *)calloc(3 * n, sizeof(cudaEvent_t));
    if (!c->loaded)
        return -ENOMEM;
    c->placed = c->loaded + n;
    c->stored = c->placed + n;
    for (int i = 0; i < 4 && rc == 0; i++)
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
    /* A plain copy may end after the call, and our streams do not wait for
     * it. */
    int rc = card_check(c,
                        cudaMemcpyAsync(c->scratch.frequency, frequency,
                                        half * sizeof(double),
                                        cudaMemcpyHostToDevice, c->compute),
                        "frequencies");
    if (rc < 0)
        return rc;
    return card_check(c, cudaStreamSynchronize(c->compute), "frequencies");
}

static int make_multiply(struct cuda_card *c)
{
    struct multiply_size sizes[MULTIPLY_MATRICES];

    card_sizes(c, sizes);
    c->multiply =
        multiply_new(c->compute, sizes, c->layer[0].matrix, c->prefill_rows,
                     c->scratch.inner, (float *)c->scratch.gate_up);
    if (c->multiply)
        return 0;
    snprintf(c->error, sizeof(c->error), "no matrix product works");
    return -ENODEV;
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
    size_t weights = card_place_weights(c, NULL),
           scratch = card_place_scratch(c, NULL);
    int rc = card_check_fits(c, config, weights, scratch, err, err_bytes);

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
        card_place_weights(c, c->weights);
        card_place_scratch(c, c->scratch_memory);
        /* Draw after make_multiply(), whose check overwrites the first
         * layer. */
        if ((rc = make_host(c)) == 0 && (rc = make_multiply(c)) == 0 &&
            (rc = draw_weights(c)) == 0 && (rc = copy_frequencies(c)) == 0)
            rc = card_make_pages(c, config);
    }
    if (rc < 0)
        snprintf(err, err_bytes, "cuda: %s: %s", c->name,
                 c->error[0] ? c->error : strerror(-rc));
    return rc;
}

/* Takes the first visible card. */
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
    c->prefill_rows = cuda_round_up(config->step_tokens, CUDA_PREFILL_ROWS);
    /* Prompts and decodes together are step_tokens; each kind is padded. */
    c->limits.rows = cuda_round_up(config->step_tokens, CUDA_DECODE_ROWS) +
                     CUDA_PREFILL_ROWS + CUDA_DECODE_ROWS;
    c->limits.splits =
        (uint32_t)card_max(MIN_SPLITS, s->window_tokens / CUDA_SPLIT_KEYS + 1);
    c->limits.table =
        (uint32_t)card_max(MIN_TABLE, s->window_tokens / c->block_tokens + 1);
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
    if (c->share)
        cudaStreamDestroy(c->share);
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
    (void)card_check(c, rc, "page-locked host memory");
    return NULL;
}

void cuda_card_host_free(struct cuda_card *, void *memory)
{
    if (memory)
        cudaFreeHost(memory);
}
