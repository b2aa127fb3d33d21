/* A step on the card: its kernels, copies and events, layer by layer. */
#include <errno.h>
#include <string.h>

#include "workers/engine/cuda/card.h"

/* Device address of an array of the batch, which has the same offset as in
 * host memory. */
template <class item>
static item *on_card(const struct cuda_card *c, item *in_host)
{
    return (item *)(c->scratch.batch + ((unsigned char *)in_host - c->host));
}

static uint32_t total_rows(const struct cuda_card *c)
{
    return c->batch.prefill_rows + c->batch.decode_rows;
}

static struct row_view rows_of(const struct cuda_card *c)
{
    const struct cuda_batch *b = &c->batch;

    return {on_card(c, b->tokens), on_card(c, b->positions),
            on_card(c, b->pages), total_rows(c)};
}

static struct kv_view kv_of(const struct cuda_card *c, uint32_t layer)
{
    return {(bf16 *)c->pages, c->page_bytes / sizeof(bf16),
            (size_t)layer * 2 * c->block_tokens * c->kv_dim, c->block_tokens,
            c->kv_dim};
}

/* A product for all rows of the batch: prompt rows and decode rows
 * separately. */
template <class number>
static int multiply(struct cuda_card *c, uint32_t layer,
                    enum multiply_matrix matrix, uint32_t inputs,
                    uint32_t outputs, const bf16 *x, number *y)
{
    const struct cuda_batch *b = &c->batch;
    const bf16 *w = c->layer[layer].matrix[matrix];
    int rc = 0;

    if (b->prefill_rows > 0)
        rc = multiply_run(c->multiply, c->compute, MULTIPLY_PREFILL, matrix,
                          b->prefill_rows, x, w, y);
    if (b->decode_rows > 0 && rc == 0)
        rc = multiply_run(c->multiply, c->compute, MULTIPLY_DECODE, matrix,
                          b->decode_rows, x + (size_t)b->prefill_rows * inputs,
                          w, y + (size_t)b->prefill_rows * outputs);
    return rc < 0 ? card_check(c, cudaErrorLaunchFailure, "a matrix product")
                  : 0;
}

int cuda_card_begin(struct cuda_card *c)
{
    const struct cuda_batch *b = &c->batch;
    const struct model_shape *s = &c->shape;
    size_t bytes = (size_t)((unsigned char *)(b->table + b->n_table) - c->host);
    int rc = card_check(c,
                        cudaMemcpyAsync(c->scratch.batch, c->host, bytes,
                                        cudaMemcpyHostToDevice, c->compute),
                        "the description of a step");

    if (rc < 0)
        return rc;
    launch_embed(c->compute, rows_of(c), c->embed_stream, c->embed_scale,
                 s->d_model, c->scratch.x);
    launch_angles(c->compute, rows_of(c), c->scratch.frequency, s->head_dim / 2,
                  c->scratch.turns);
    return card_check_launch(c, "embeddings");
}

int cuda_card_place(struct cuda_card *c, uint32_t layer)
{
    const struct model_shape *s = &c->shape;
    struct card_scratch *t = &c->scratch;

    launch_norm(c->compute, total_rows(c), s->d_model, s->norm_eps, t->x,
                t->norm);
    int rc = multiply(c, layer, MULTIPLY_QKV, s->d_model,
                      c->q_dim + 2 * c->kv_dim, t->norm, t->qkv);
    if (rc < 0)
        return rc;
    launch_place(c->compute, rows_of(c), kv_of(c, layer), s->heads, s->head_dim,
                 t->turns, t->qkv);
    rc = card_check_launch(c, "keys and values");
    if (rc < 0)
        return rc;
    return card_check(c, cudaEventRecord(c->placed[layer], c->compute),
                      "an event");
}

static int attention(struct cuda_card *c, uint32_t layer)
{
    const struct cuda_batch *b = &c->batch;
    const struct attend_view a = {c->shape.heads,      c->shape.kv_heads,
                                  c->shape.head_dim,   c->scratch.qkv,
                                  c->scratch.attended, on_card(c, b->table)};
    struct kv_view kv = kv_of(c, layer);
    int rc = 0;

    if (b->n_tiles > 0)
        rc = launch_attend_prefill(c->compute, &a, kv, on_card(c, b->tiles),
                                   b->n_tiles);
    if (b->n_decodes > 0 && rc == 0)
        rc = launch_attend_decode(c->compute, &a, kv, b->prefill_rows,
                                  on_card(c, b->splits), b->n_splits,
                                  on_card(c, b->decodes), b->n_decodes,
                                  c->scratch.partial);
    return rc < 0 ? card_check(c, cudaErrorInvalidValue, "attention")
                  : card_check_launch(c, "attention");
}

int cuda_card_attend(struct cuda_card *c, uint32_t layer)
{
    const struct model_shape *s = &c->shape;
    struct card_scratch *t = &c->scratch;
    int rc = attention(c, layer);

    if (rc < 0)
        return rc;
    rc =
        multiply(c, layer, MULTIPLY_O, c->q_dim, s->d_model, t->attended, t->x);
    if (rc < 0)
        return rc;
    launch_norm(c->compute, total_rows(c), s->d_model, s->norm_eps, t->x,
                t->norm);
    rc = multiply(c, layer, MULTIPLY_GATE_UP, s->d_model, 2 * s->ffn, t->norm,
                  t->gate_up);
    if (rc < 0)
        return rc;
    launch_swiglu(c->compute, total_rows(c), s->ffn, t->gate_up, t->inner);
    rc = multiply(c, layer, MULTIPLY_DOWN, s->ffn, s->d_model, t->inner, t->x);
    return rc < 0 ? rc : card_check_launch(c, "a layer");
}

int cuda_card_finish(struct cuda_card *c, uint32_t *answers)
{
    const struct cuda_batch *b = &c->batch;
    size_t bytes = b->n_wanted * sizeof(*answers);
    int rc = 0;

    if (b->n_wanted > 0) {
        launch_answer(c->compute, on_card(c, b->wanted), b->n_wanted,
                      c->shape.d_model, c->shape.norm_eps, c->scratch.x,
                      c->head, c->scratch.answers);
        rc = card_check_launch(c, "answers");
        if (rc == 0)
            rc = card_check(c,
                            cudaMemcpyAsync(c->host_answers, c->scratch.answers,
                                            bytes, cudaMemcpyDeviceToHost,
                                            c->compute),
                            "answers");
    }
    if (rc == 0)
        rc = card_check(c, cudaStreamSynchronize(c->compute), "a step");
    if (rc == 0)
        memcpy(answers, c->host_answers, bytes);
    return rc;
}

/* --- copies ------------------------------------------------------------- */

static int copy(struct cuda_card *c, const struct cuda_piece *p, bool up)
{
    size_t first = (size_t)p->from_layer * 2 * c->block_tokens + p->from_slot;
    size_t pitch = c->block_tokens * c->row_bytes;
    size_t width = (p->to_slot - p->from_slot) * c->row_bytes;
    size_t height = (size_t)(p->to_layer - p->from_layer) * 2;
    unsigned char *host = (unsigned char *)p->block + first * c->row_bytes;
    unsigned char *card =
        c->pages + (size_t)p->page * c->page_bytes + first * c->row_bytes;
    void *to = up ? card : host;
    const void *from = up ? host : card;
    cudaMemcpyKind kind = up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    cudaStream_t s = up ? c->load : c->store;

    if (p->n_blocks > 1)
        return card_check(c,
                          cudaMemcpy2DAsync(to, c->page_bytes, from,
                                            c->page_bytes, width * height,
                                            p->n_blocks, kind, s),
                          "a copy");
    if (width == pitch)
        return card_check(c, cudaMemcpyAsync(to, from, width * height, kind, s),
                          "a copy");
    return card_check(
        c, cudaMemcpy2DAsync(to, pitch, from, pitch, width, height, kind, s),
        "a copy");
}

int cuda_card_upload(struct cuda_card *c, const struct cuda_piece *piece)
{
    return copy(c, piece, true);
}

int cuda_card_download(struct cuda_card *c, const struct cuda_piece *piece)
{
    return copy(c, piece, false);
}

int cuda_card_loaded(struct cuda_card *c, uint32_t layer)
{
    int rc =
        card_check(c, cudaEventRecord(c->loaded[layer], c->load), "an event");

    if (rc < 0)
        return rc;
    return card_check(c, cudaStreamWaitEvent(c->compute, c->loaded[layer]),
                      "an event");
}

int cuda_card_store(struct cuda_card *c, uint32_t layer)
{
    return card_check(c, cudaStreamWaitEvent(c->store, c->placed[layer]),
                      "an event");
}

int cuda_card_mark_stored(struct cuda_card *c, uint32_t layer)
{
    return card_check(c, cudaEventRecord(c->stored[layer], c->store),
                      "an event");
}

static int event_over(struct cuda_card *c, cudaEvent_t e, bool wait)
{
    cudaError_t rc = wait ? cudaEventSynchronize(e) : cudaEventQuery(e);

    if (rc == cudaErrorNotReady) {
        /* Clear it: the check of the next launch would see it. */
        (void)cudaGetLastError();
        return 0;
    }
    int failed = card_check(c, rc, "a copy");
    return failed < 0 ? failed : 1;
}

int cuda_card_stored(struct cuda_card *c, uint32_t layer, bool wait)
{
    return event_over(c, c->stored[layer], wait);
}

int cuda_card_wait_stored(struct cuda_card *c)
{
    return card_check(c, cudaStreamSynchronize(c->store), "a copy");
}

int cuda_card_wait(struct cuda_card *c)
{
    int rc = card_check(c, cudaStreamSynchronize(c->load), "a copy");

    if (rc == 0)
        rc = card_check(c, cudaStreamSynchronize(c->compute), "a step");
    return rc == 0 ? cuda_card_wait_stored(c) : rc;
}

int cuda_card_ticket(struct cuda_card *c, uint32_t ticket)
{
    return card_check(c, cudaEventRecord(c->tickets[ticket], c->load),
                      "an event");
}

int cuda_card_ticket_over(struct cuda_card *c, uint32_t ticket, bool wait)
{
    return event_over(c, c->tickets[ticket], wait);
}

int cuda_card_after_ticket(struct cuda_card *c, uint32_t ticket)
{
    return card_check(c, cudaStreamWaitEvent(c->compute, c->tickets[ticket]),
                      "an event");
}
