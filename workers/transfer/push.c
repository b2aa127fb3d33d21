/* Pushing a prefill's KV to its decode worker, layer by layer, while later
 * layers and chunks compute.
 *
 * KV goes in ranges of tokens, in order: first what was reused, then whatever
 * has been computed meanwhile, or the chunk under way as far as its layers are
 * written. Within a range it goes layer by layer. */
#include <errno.h>

#include "workers/transfer/internal.h"

/* The request that pushes to `p` under that id, or NULL: it is over here. */
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
    TAILQ_INSERT_TAIL(&p->pushes, r, push.link);
    if (p->welcome)
        push_send_begin(p, r);
    return 0;
}

void push_end(struct transfer *t, struct request *r, const char *why)
{
    TAILQ_REMOVE(&r->push.peer->pushes, r, push.link);
    r->push.peer = NULL;
    t->ops->push_ended(t->arg, r, why);
}

int push_on_grant(struct peer *p, uint64_t id, int64_t now_us)
{
    struct request *r = push_of(p, id);

    if (!r)
        return 0; /* cancelled here while the grant was on its way */
    r->push.granted = true;
    p->progress_us = now_us;
    push_pump(p, now_us);
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

/* Chooses the next range. False: nothing is computed beyond what was sent. */
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

/* The K or V rows of tokens [from, from + n) in one layer, block by block. */
static void send_rows(struct peer *p, struct request *r,
                      enum engine_which which, uint32_t from, uint32_t n)
{
    const struct engine_kv_layout *layout = p->transfer->config.layout;

    while (n > 0) {
        uint32_t slot = from % layout->block_tokens;
        uint32_t room = layout->block_tokens - slot;
        uint32_t k = n < room ? n : room;

        uint32_t b = from / layout->block_tokens;

        transfer_send_kv(p->transfer, p->conn, r->blocks.ids[b],
                         engine_kv_row(layout, r->blocks.data[b], r->push.layer,
                                       which, slot),
                         (size_t)k * layout->kv_row_bytes);
        from += k;
        n -= k;
    }
}

/* One frame of the range's current layer. */
static void send_piece(struct peer *p, struct request *r)
{
    struct request_push *push = &r->push;
    struct transfer *t = p->transfer;
    uint32_t row_bytes = t->config.layout->kv_row_bytes;
    uint32_t most = TRANSFER_PIECE_BYTES / 2 / row_bytes;
    uint32_t from = push->from_token + push->sent_tokens;
    uint32_t n = push->end_token - from;

    if (most == 0)
        most = 1;
    if (n > most)
        n = most;
    struct msg_kv_layer m = {.layer = push->layer,
                             .from_token = from,
                             .n_tokens = n,
                             .n_data = 2 * n * row_bytes};
    msg_kv_layer_pack(&t->buf, r->id, &m);
    transfer_send(t, p->conn);
    send_rows(p, r, ENGINE_K, from, n);
    send_rows(p, r, ENGINE_V, from, n);
    push->sent_tokens += n;
}

/* Moves on to the next layer or range where the current one was sent. */
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

/* Returns true if all was sent. */
static bool pump_one(struct peer *p, struct request *r, int64_t now_us)
{
    struct request_push *push = &r->push;
    struct transfer *t = p->transfer;

    if (!push->granted)
        return false;
    while (!frame_conn_full(p->conn)) {
        if (push->from_token >= push->end_token && !next_range(t, r))
            break;
        if (!piece_ready(t, r))
            break;
        send_piece(p, r);
        step_on(t, push);
        p->progress_us = now_us;
    }
    if (push->from_token < r->prompt.n_tokens || r->n_output == 0)
        return false;
    struct msg_kv_end m = {.first_token = r->last_token};
    msg_kv_end_pack(&t->buf, r->id, &m);
    transfer_send(t, p->conn);
    return true;
}

void push_pump(struct peer *p, int64_t now_us)
{
    struct request *r = TAILQ_FIRST(&p->pushes);

    while (r) {
        struct request *next = TAILQ_NEXT(r, push.link);

        if (pump_one(p, r, now_us))
            push_end(p->transfer, r, NULL);
        r = next;
    }
}

void transfer_push_poke(struct transfer *t, int64_t now_us)
{
    struct peer *p;

    TAILQ_FOREACH(p, &t->peers, link)
    {
        push_pump(p, now_us);
    }
}
