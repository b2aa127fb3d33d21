/* Receives the KV of a request that is decoded here: the prefill worker
 * announces pieces (KV_LAYER), which are read from its memory and verified.
 * Before a byte is read, all bounds are checked, and that each layer's rows
 * come in order without a hole. A request id alone proves nothing: a prefill
 * worker that acts for an earlier conductor may use another request's id. So
 * the prompt's digest must equal the one in DECODE. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workers/transfer/internal.h"

struct receive_piece {
    TAILQ_ENTRY(receive_piece) link; /* in r->receive.pieces */
    TAILQ_ENTRY(receive_piece) all;  /* in in->pieces */
    struct transfer *transfer;
    struct inbound *in; /* NULL = the connection is gone */
    struct request *r;  /* NULL = no longer received; waits for its op */
    uint64_t request_id;
    struct route_op *op; /* NULL = not being read */
    struct rows rows;
    uint32_t tries;
    uint64_t grant_id;
    struct transport_slice slices[2 * TRANSFER_PIECE_BLOCKS];
};

static int refuse(struct inbound *in, uint64_t id, const char *why)
{
    msg_error_like_pack(&in->transfer->buf, FRAME_KV_REFUSE, id,
                        PROTO_E_INVALID, why);
    transfer_send(in->transfer, in->conn);
    return 0;
}

static void ask_for_room(struct transfer *t, struct request *r)
{
    request_set_state(r, REQUEST_KV_WAIT);
    t->ops->receive_begin(t->arg, r);
}

int receive_on_begin(struct inbound *in, uint64_t id, const uint8_t *payload,
                     size_t len)
{
    struct transfer *t = in->transfer;
    struct request *r = transfer_find(t, id);
    struct msg_kv_begin m;

    if (msg_kv_begin_unpack(payload, len, &m))
        return -EBADMSG;
    if (!r || r->state != REQUEST_ANNOUNCED || r->receive.from)
        return refuse(in, id, "no such request is announced here");
    if (m.n_tokens != r->prompt.n_tokens || m.max_tokens != r->max_tokens)
        return refuse(in, id, "the request was announced with other lengths");
    if (m.prompt_digest != r->prompt.digest)
        return refuse(in, id, "the request was announced for another prompt");
    if (!route_hopes(in->route))
        return refuse(in, id, "both have no transport in common");
    r->receive.next_token =
        calloc(t->config.layout->layers, sizeof(*r->receive.next_token));
    if (!r->receive.next_token)
        return refuse(in, id, "out of memory");
    r->receive.from = in;
    TAILQ_INIT(&r->receive.pieces);
    TAILQ_INSERT_TAIL(&in->receives, r, receive.link);
    if (route_stands(in->route))
        ask_for_room(t, r);
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

static void piece_free(struct receive_piece *piece)
{
    rows_unpin(piece->transfer, &piece->rows);
    free(piece);
}

/* Sends KV_TAKEN: no read under the grant is left here. */
static void send_taken(struct inbound *in, uint64_t id, uint64_t grant_id)
{
    const struct msg_kv_taken m = {.grant_id = grant_id};

    msg_kv_taken_pack(&in->transfer->buf, id, &m);
    transfer_send(in->transfer, in->conn);
}

static void unlink_piece(struct receive_piece *piece)
{
    if (!piece->r)
        return;
    TAILQ_REMOVE(&piece->r->receive.pieces, piece, link);
    piece->r->receive.n_pieces--;
    piece->r = NULL;
}

static void piece_over(struct receive_piece *piece)
{
    struct transfer *t = piece->transfer;

    unlink_piece(piece);
    if (piece->in) {
        TAILQ_REMOVE(&piece->in->pieces, piece, all);
        send_taken(piece->in, piece->request_id, piece->grant_id);
    }
    piece_free(piece);
    t->ops->released(t->arg);
}

void receive_drop(struct request *r)
{
    struct receive_piece *piece;

    if (!r->receive.from)
        return;
    while ((piece = TAILQ_FIRST(&r->receive.pieces))) {
        unlink_piece(piece);
        if (piece->op)
            route_cancel(piece->op); /* on_read() ends the piece */
        else
            piece_over(piece);
    }
    TAILQ_REMOVE(&r->receive.from->receives, r, receive.link);
    r->receive.from = NULL;
}

static void fail(struct request *r, const char *why)
{
    struct transfer *t = r->receive.from->transfer;

    receive_drop(r);
    t->ops->receive_failed(t->arg, r, why);
}

static void on_read(void *arg, int rc);

static void read_piece(struct receive_piece *piece)
{
    int rc = route_read(piece->in->route, piece->grant_id, piece->slices,
                        piece->rows.n_slices, on_read, piece, &piece->op);

    if (rc < 0)
        fail(piece->r, "its KV cannot be read");
}

static void on_read(void *arg, int rc)
{
    struct receive_piece *piece = arg;
    struct request *r = piece->r;

    piece->op = NULL;
    if (!r || rc == 0) {
        piece_over(piece);
    } else if (rc == -EILSEQ && ++piece->tries < TRANSFER_TRIES) {
        log_warn("request %llu: layer %u of tokens %u to %u came with wrong "
                 "checksums, and is read again",
                 (unsigned long long)r->id, piece->rows.layer,
                 piece->rows.from_token,
                 piece->rows.from_token + piece->rows.n_tokens);
        read_piece(piece);
    } else if (rc == -EILSEQ) {
        fail(r, "its KV does not match its checksums");
    }
    /* Other errors: the sender revoked the grant, or its connection ends. */
}

/* Returns the request `id` if `in` pushes it, or NULL: it was cancelled here
 * while its KV was on its way. */
static struct request *receive_of(const struct inbound *in, uint64_t id)
{
    struct request *r = transfer_find(in->transfer, id);

    return r && r->receive.from == in ? r : NULL;
}

/* Returns whether `m` has the next rows of its layer, within bounds. */
static bool in_order(const struct transfer *t, const struct request *r,
                     const struct msg_kv_layer *m)
{
    return m->layer < t->config.layout->layers &&
           m->from_token == r->receive.next_token[m->layer] &&
           m->n_tokens > 0 &&
           m->n_tokens <= r->prompt.n_tokens - m->from_token &&
           r->receive.n_pieces < TRANSFER_PIECES_MAX &&
           rows_blocks(t->config.layout, m->from_token, m->n_tokens) <=
               TRANSFER_PIECE_BLOCKS;
}

static struct receive_piece *piece_new(struct inbound *in, struct request *r,
                                       const struct msg_kv_layer *m)
{
    struct transfer *t = in->transfer;
    struct receive_piece *piece = calloc(1, sizeof(*piece));

    if (!piece)
        return NULL;
    piece->transfer = t;
    piece->in = in;
    piece->r = r;
    piece->request_id = r->id;
    rows_pin(t, r, m->layer, m->from_token, m->n_tokens, &piece->rows);
    TAILQ_INSERT_TAIL(&in->pieces, piece, all);
    TAILQ_INSERT_TAIL(&r->receive.pieces, piece, link);
    r->receive.n_pieces++;
    r->receive.next_token[m->layer] += m->n_tokens;
    return piece;
}

/* Fills in the piece's slices: their places there and here, and their sums.
 * Returns 0, or -EBADMSG: `m` has other blocks or slices. */
static int place(struct receive_piece *piece, const struct msg_kv_layer *m)
{
    struct rows *rows = &piece->rows;

    piece->grant_id = m->grant_id;
    if (m->n_blocks != rows->n_blocks || m->n_sums != rows->n_slices)
        return -EBADMSG;
    for (uint32_t i = 0; i < rows->n_slices; i++) {
        const struct row_slice *slice = &rows->slices[i];

        rows->sums[i] = wire_u64_at(m->sums, i);
        piece->slices[i] = (struct transport_slice){
            .local = slice->at,
            .region = m->region,
            .offset = wire_u64_at(m->offsets, slice->block) + slice->offset,
            .bytes = slice->bytes,
            .sums = &rows->sums[i],
            .sum_bytes = slice->bytes,
        };
    }
    return 0;
}

int receive_on_layer(struct inbound *in, uint64_t id, const uint8_t *payload,
                     size_t len)
{
    struct request *r = receive_of(in, id);
    struct msg_kv_layer m;

    if (msg_kv_layer_unpack(payload, len, &m))
        return -EBADMSG;
    if (!r) {
        send_taken(in, id, m.grant_id);
        return 0;
    }
    if (r->state != REQUEST_RECEIVING || !in_order(in->transfer, r, &m))
        return -EBADMSG;
    struct receive_piece *piece = piece_new(in, r, &m);
    if (!piece)
        return -ENOMEM;
    if (place(piece, &m) < 0)
        return -EBADMSG;
    read_piece(piece);
    return 0;
}

/* Asks for room for the begun requests if the route is connected, else fails
 * them. */
static void on_ready(void *arg)
{
    struct inbound *in = arg;
    struct request *r, *next;

    for (r = TAILQ_FIRST(&in->receives); r; r = next) {
        next = TAILQ_NEXT(r, receive.link);
        if (route_stands(in->route))
            ask_for_room(in->transfer, r);
        else
            fail(r, "no transport to the prefill worker is connected");
    }
}

int receive_on_transports(struct inbound *in, const uint8_t *payload,
                          size_t len)
{
    const struct msg_hello *hello = &in->handshake.hello;
    char host[MSG_HOST_MAX];
    const struct route_to to = {
        .conn = in->conn,
        .id = TRANSFER_CONNECTED,
        .host = hello->peer_host[0] ? hello->peer_host : host,
        .port = hello->peer_port,
        .ready = on_ready,
        .arg = in,
    };

    if (frame_conn_peer_host(in->conn, host, sizeof(host)))
        return -ENOTCONN;
    return route_on_transports(in->transfer, &in->route, &to, payload, len);
}

void receive_shut(struct inbound *in, const char *reason)
{
    struct receive_piece *piece;
    struct request *r;

    while ((piece = TAILQ_FIRST(&in->pieces))) {
        TAILQ_REMOVE(&in->pieces, piece, all);
        piece->in = NULL;
    }
    while ((r = TAILQ_FIRST(&in->receives)))
        if (reason)
            fail(r, reason);
        else
            receive_drop(r);
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
    if (r->receive.n_pieces > 0)
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
