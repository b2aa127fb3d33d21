/* Places memory on a card, and checks whether it fits. */
#include <errno.h>
#include <stdio.h>

#include "workers/engine/cuda/card.h"

#define GIB 0x1p30
/* Left to the driver, whose own memory grows when kernels are loaded. */
#define RESERVE_BYTES ((size_t)256 << 20)
#define ALIGN_BYTES 256

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

void card_sizes(const struct cuda_card *c, struct multiply_size *sizes)
{
    const struct model_shape *s = &c->shape;

    sizes[MULTIPLY_QKV] = {s->d_model, c->q_dim + 2 * c->kv_dim};
    sizes[MULTIPLY_GATE_UP] = {s->d_model, 2 * s->ffn};
    sizes[MULTIPLY_O] = {c->q_dim, s->d_model};
    sizes[MULTIPLY_DOWN] = {s->ffn, s->d_model};
}

size_t card_place_weights(struct cuda_card *c, unsigned char *memory)
{
    struct arena a = {memory, 0};
    struct multiply_size sizes[MULTIPLY_MATRICES];

    card_sizes(c, sizes);
    for (uint32_t l = 0; l < c->layers; l++)
        for (int m = 0; m < MULTIPLY_MATRICES; m++)
            take(&a, &c->layer[l].matrix[m],
                 (size_t)sizes[m].inputs * sizes[m].outputs);
    take(&a, &c->head, (size_t)MODEL_OUTPUTS * c->shape.d_model);
    return a.used;
}

size_t card_place_scratch(struct cuda_card *c, unsigned char *memory)
{
    struct arena a = {memory, 0};
    const struct model_shape *s = &c->shape;
    struct card_scratch *t = &c->scratch;
    size_t rows = c->limits.rows;

    take(&a, &t->x, rows * s->d_model);
    take(&a, &t->norm, rows * s->d_model);
    take(&a, &t->qkv, rows * (c->q_dim + 2 * (size_t)c->kv_dim));
    take(&a, &t->attended, rows * c->q_dim);
    /* The check of the products uses these two as scratch memory: room for the
     * widest x and y. */
    take(&a, &t->gate_up,
         rows * card_max(card_max(2 * (size_t)s->ffn, 2 * (size_t)s->d_model),
                         c->q_dim + 2 * (size_t)c->kv_dim));
    take(&a, &t->inner,
         rows * card_max(card_max(s->ffn, s->d_model), c->q_dim));
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

static uint64_t least_page_bytes(const struct cuda_card *c,
                                 const struct cuda_card_config *config)
{
    uint64_t pages =
        (config->step_tokens + c->block_tokens - 1) / c->block_tokens + 1;
    uint64_t least = pages * c->page_bytes;

    return config->page_bytes > least ? config->page_bytes : least;
}

/* Returns the most layers that would fit in `have` bytes. */
static uint32_t fitting_layers(const struct cuda_card *c, size_t weights,
                               size_t scratch, size_t have)
{
    size_t a_layer = weights / c->layers;
    size_t rest = scratch + MULTIPLY_WORKSPACE_BYTES + RESERVE_BYTES;

    return have > rest ? (uint32_t)((have - rest) / (a_layer + a_layer / 4))
                       : 0;
}

int card_check_fits(const struct cuda_card *c,
                    const struct cuda_card_config *config, size_t weights,
                    size_t scratch, char *err, size_t err_bytes)
{
    size_t have, total;
    double kv = (double)least_page_bytes(c, config);
    double need = (double)weights + (double)scratch + kv +
                  (double)(MULTIPLY_WORKSPACE_BYTES + RESERVE_BYTES);

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
        snprintf(
            err + n, err_bytes - (size_t)n,
            "take --layers %u, a smaller model, or end the card's other users",
            fit);
    else
        snprintf(err + n, err_bytes - (size_t)n,
                 "take a smaller model or step, or end the card's other users");
    return -ENOMEM;
}

int card_make_pages(struct cuda_card *c, const struct cuda_card_config *config)
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
    return card_check(c, cudaMalloc((void **)&c->pages, card_pages_bytes(c)),
                      "pages");
}
