/* Receiving the KV of a request that is decoded here. Every layer's rows must
 * arrive in order and without a hole; that is checked, and so are all bounds,
 * before a byte is copied. An id alone proves nothing: a prefill worker that
 * still acts for an earlier conductor may use an id that is in use again. So
 * the prompt's digest must be the one that DECODE announced. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workers/transfer/internal.h"

static int refuse(struct inbound *in, uint64_t id, const char *why)
{
    msg_error_like_pack(&in->transfer->buf, FRAME_KV_REFUSE, id,
                        PROTO_E_INVALID, why);
    transfer_send(in->transfer, in->conn);
    return 0;
}

int receive_on_begin(struct inbound *in, uint64_t id, const uint8_t *payload,
                     size_t len)
{
    struct transfer *t = in->transfer;
    struct request *r = transfer_find(t, id);
    struct msg_kv_begin m;

    if (msg_kv_begin_unpack(payload, len, &m))
        return -EBADMSG;
    if (!r || r->state != REQUEST_ANNOUNCED)
        return refuse(in, id, "no such request is announced here");
    if (m.n_tokens != r->prompt.n_tokens || m.max_tokens != r->max_tokens)
        return refuse(in, id, "the request was announced with other lengths");
    if (m.prompt_digest != r->prompt.digest)
        return refuse(in, id, "the request was announced for another prompt");
    r->receive.next_token =
        calloc(t->config.layout->layers, sizeof(*r->receive.next_token));
    if (!r->receive.next_token)
        return refuse(in, id, "out of memory");
    r->receive.from = in;
    TAILQ_INSERT_TAIL(&in->receives, r, receive.link);
    request_set_state(r, REQUEST_KV_WAIT);
    t->ops->receive_begin(t->arg, r);
    return 0;
}

int transfer_grant(struct transfer *t, struct request *r)
{
    if (!r->receive.from || r->state != REQUEST_KV_WAIT)
        return -EINVAL;
    request_set_state(r, REQUEST_RECEIVING);
    msg_empty_pack(&t->buf, FRAME_KV_GRANT, r->id);
    transfer_send(t, r->receive.from->conn);
    return 0;
}

/* The request that `in` may send KV for now, or NULL: it was cancelled here
 * while its KV was on its way. */
static struct request *receive_of(const struct inbound *in, uint64_t id)
{
    struct request *r = transfer_find(in->transfer, id);

    return r && r->receive.from == in ? r : NULL;
}

static void copy_rows(const struct transfer *t, struct request *r,
                      const struct msg_kv_layer *m, enum engine_which which)
{
    const struct engine_kv_layout *layout = t->config.layout;
    const uint8_t *src = m->data;
    uint32_t from = m->from_token;
    uint32_t n = m->n_tokens;

    if (which == ENGINE_V)
        src += (size_t)n * layout->kv_row_bytes;
    while (n > 0) {
        uint32_t slot = from % layout->block_tokens;
        uint32_t room = layout->block_tokens - slot;
        uint32_t k = n < room ? n : room;
        size_t bytes = (size_t)k * layout->kv_row_bytes;

        memcpy(engine_kv_row(layout,
                             r->blocks.data[from / layout->block_tokens],
                             m->layer, which, slot),
               src, bytes);
        src += bytes;
        from += k;
        n -= k;
    }
}

int receive_on_layer(struct inbound *in, uint64_t id, const uint8_t *payload,
                     size_t len)
{
    const struct transfer *t = in->transfer;
    const struct engine_kv_layout *layout = t->config.layout;
    struct request *r = receive_of(in, id);
    struct msg_kv_layer m;

    if (msg_kv_layer_unpack(payload, len, &m))
        return -EBADMSG;
    if (!r)
        return 0;
    if (r->state != REQUEST_RECEIVING || m.layer >= layout->layers ||
        m.from_token != r->receive.next_token[m.layer] || m.n_tokens == 0 ||
        m.n_tokens > r->prompt.n_tokens - m.from_token ||
        m.n_data != 2 * (uint64_t)m.n_tokens * layout->kv_row_bytes)
        return -EBADMSG;
    copy_rows(t, r, &m, ENGINE_K);
    copy_rows(t, r, &m, ENGINE_V);
    r->receive.next_token[m.layer] += m.n_tokens;
    return 0;
}

int receive_on_end(struct inbound *in, uint64_t id, const uint8_t *payload,
                   size_t len)
{
    struct transfer *t = in->transfer;
    struct request *r = receive_of(in, id);
    struct msg_kv_end m;

    if (msg_kv_end_unpack(payload, len, &m) ||
        m.first_token >= t->config.layout->vocab)
        return -EBADMSG;
    if (!r)
        return 0;
    if (r->state != REQUEST_RECEIVING)
        return -EBADMSG;
    for (uint32_t i = 0; i < t->config.layout->layers; i++)
        if (r->receive.next_token[i] != r->prompt.n_tokens)
            return -EBADMSG;
    TAILQ_REMOVE(&in->receives, r, receive.link);
    r->receive.from = NULL;
    r->position = r->prompt.n_tokens;
    r->last_token = m.first_token;
    r->n_output = 1;
    t->ops->received(t->arg, r);
    return 0;
}
