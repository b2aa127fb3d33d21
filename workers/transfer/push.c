/* Pushes a prefill's KV to its decode worker, layer by layer, while later
 * layers and chunks are computed.
 *
 * KV is sent in ranges of tokens, in order: first the reused tokens, then all
 * tokens computed meanwhile, or the chunk under way as far as its layers are
 * written. A range is sent layer by layer, in pieces: each is summed, granted
 * and announced (KV_LAYER) to the decode worker, which reads it and answers
 * KV_TAKEN. Its blocks are pinned until then. */
#include <errno.h>

#include "workers/transfer/internal.h"

/* Returns the request `id` if it pushes to `p`, or NULL: its push is over. */
static struct request *push_of(const struct peer *p, uint64_t id)
{
    struct request *r = transfer_find(p->transfer, id);

    return r && r->push.peer == p ? r : NULL;
}

bool transfer_pushes(const struct request *r)
{
    return r->push.peer;
}

void push_send_begin(struct peer *p, struct request *r)
{
    struct msg_kv_begin m = {.n_tokens = r->prompt.n_tokens,
                             .max_tokens = r->max_tokens,
                             .prompt_digest = r->prompt.digest};

    if (!p->guest)
        p->guest = guest_new(p->transfer, p->conn, p->host, TRANSFER_CONNECTED);
    msg_kv_begin_pack(&p->transfer->buf, r->id, &m);
    transfer_send(p->transfer, p->conn);
}

int transfer_push(struct transfer *t, struct request *r, int64_t now_us)
{
    struct peer *p = transfer_peer(t, r->push.host, r->push.port);

    if (!p)
        return -ENOBUFS;
    r->push.peer = p;
    r->push.since_us = now_us;
    TAILQ_INIT(&r->push.pieces);
    TAILQ_INSERT_TAIL(&p->pushes, r, push.link);
    if (p->welcome)
        push_send_begin(p, r);
    return 0;
}

int push_on_refuse(struct peer *p, uint64_t id, const uint8_t *payload,
                   size_t len)
{
    struct request *r = push_of(p, id);
    struct msg_error m;

    if (msg_error_unpack(payload, len, &m))
        return -EBADMSG;
    if (r)
        push_end(p->transfer, r, m.text);
    return 0;
}

/* Chooses the next range. Returns false if all computed KV was sent. */
static bool next_range(const struct transfer *t, struct request *r)
{
    struct request_push *push = &r->push;

    if (push->from_token < r->position)
        push->end_token = r->position;
    else if (push->from_token == r->position &&
             t->ops->layers_done(t->arg, r) > 0)
        push->end_token = r->position + r->step.n_tokens;
    else
        return false;
    push->layer = 0;
    push->sent_tokens = 0;
    return true;
}

/* Returns how many of the n tokens from `from` on are put into one piece: if
 * not all fit, up to the end of a block if one is in reach. */
static uint32_t piece_tokens(const struct engine_kv_layout *l, uint32_t from,
                             uint32_t n)
{
    uint32_t most = TRANSFER_PIECE_BYTES / 2 / l->kv_row_bytes;
    uint32_t slot = from % l->block_tokens;

    if (most == 0)
        most = 1;
    if (most > TRANSFER_PIECE_BLOCKS * l->block_tokens - slot)
        most = TRANSFER_PIECE_BLOCKS * l->block_tokens - slot;
    if (n <= most)
        return n;
    uint32_t beyond = (from + most) % l->block_tokens;
    return beyond < most ? most - beyond : most;
}

/* Advances to the next layer, or to the end of the range, if this layer was
 * sent. */
static void step_on(const struct transfer *t, struct request_push *push)
{
    if (push->from_token + push->sent_tokens < push->end_token)
        return;
    push->sent_tokens = 0;
    push->layer++;
    if (push->layer == t->config.layout->layers)
        push->from_token = push->end_token;
}

static bool piece_ready(const struct transfer *t, const struct request *r)
{
    return r->push.end_token <= r->position ||
           (r->push.end_token <= r->position + r->step.n_tokens &&
            r->push.layer < t->ops->layers_done(t->arg, r));
}

/* Begins the next piece. Returns false if none may be sent now. */
static bool send_next(struct transfer *t, struct request *r)
{
    struct request_push *push = &r->push;

    if (!push->granted || frame_conn_full(push->peer->conn) ||
        push->n_pieces == TRANSFER_PIECES_MAX ||
        (push->from_token >= push->end_token && !next_range(t, r)) ||
        !piece_ready(t, r))
        return false;
    uint32_t from = push->from_token + push->sent_tokens;
    uint32_t n = piece_tokens(t->config.layout, from, push->end_token - from);
    if (!push_piece_begin(t, r, n))
        return false;
    push->sent_tokens += n;
    step_on(t, push);
    return true;
}

/* Returns whether the prefill is done and the peer has read all of its KV. */
static bool all_taken(const struct request *r)
{
    return r->n_output > 0 && r->push.n_pieces == 0 &&
           r->push.from_token == r->prompt.n_tokens;
}

/* Sends the pieces of `r` that are ready, or KV_END after the last one. */
static void pump_one(struct peer *p, struct request *r)
{
    struct transfer *t = p->transfer;

    while (send_next(t, r))
        ;
    if (!all_taken(r)) {
        push_pieces_tell(r);
        return;
    }
    struct msg_kv_end m = {.first_token = r->last_token};
    msg_kv_end_pack(&t->buf, r->id, &m);
    transfer_send(t, p->conn);
    push_end(t, r, NULL);
}

void push_pump(struct peer *p)
{
    struct request *r = TAILQ_FIRST(&p->pushes);

    while (r) {
        struct request *next = TAILQ_NEXT(r, push.link);

        pump_one(p, r);
        r = next;
    }
}

void transfer_push_poke(struct transfer *t)
{
    struct peer *p;

    TAILQ_FOREACH(p, &t->peers, link)
    {
        push_pump(p);
    }
}

int push_on_grant(struct peer *p, uint64_t id, int64_t now_us)
{
    struct request *r = push_of(p, id);

    if (!r)
        return 0; /* cancelled here while the grant was on its way */
    r->push.granted = true;
    p->progress_us = now_us;
    pump_one(p, r);
    return 0;
}

int push_on_taken(struct peer *p, uint64_t id, const uint8_t *payload,
                  size_t len, int64_t now_us)
{
    struct request *r = push_of(p, id);
    struct msg_kv_taken m;

    if (msg_kv_taken_unpack(payload, len, &m))
        return -EBADMSG;
    if (!r || !push_piece_taken(r, m.grant_id))
        return 0; /* the push or the piece is over here */
    p->progress_us = now_us;
    pump_one(p, r);
    return 0;
}
