/* The pieces of a push: each is summed, granted to the decode worker and told
 * of, and then pinned until that has read it. */
#include <errno.h>
#include <stdlib.h>

#include "workers/transfer/engine/sum.h"
#include "workers/transfer/internal.h"

/* Rows of some tokens in one layer. */
struct push_piece {
    struct errand errand; /* while it is summed */
    TAILQ_ENTRY(push_piece) link;
    struct transfer *transfer;
    struct request *r; /* NULL: dropped while it was summed */
    uint32_t layer;
    uint32_t from_token, n_tokens;
    bool summed;
    bool told; /* granted under grant_id */
    uint64_t grant_id;
    uint32_t n_blocks;
    uint32_t ids[TRANSFER_PIECE_BLOCKS]; /* (n_blocks), pinned */
    uint64_t offsets[TRANSFER_PIECE_BLOCKS];
    uint32_t n_slices;
    struct row_slice slices[2 * TRANSFER_PIECE_BLOCKS];
    uint64_t sums[2 * TRANSFER_PIECE_BLOCKS]; /* (n_slices) */
    bool known[2 * TRANSFER_PIECE_BLOCKS];    /* which of these are made */
};

static void piece_free(struct push_piece *piece)
{
    struct kv_store *store = piece->transfer->config.store;

    while (piece->n_blocks > 0)
        kv_store_release(store, piece->ids[--piece->n_blocks]);
    free(piece);
}

static void piece_over(struct push_piece *piece)
{
    struct request_push *push = &piece->r->push;

    if (piece->told)
        guest_revoke(push->peer->guest, piece->grant_id);
    TAILQ_REMOVE(&push->pieces, piece, link);
    push->n_pieces--;
    piece->r = NULL;
    if (piece->summed)
        piece_free(piece);
}

void push_drop(struct request *r)
{
    if (!r->push.peer)
        return;
    while (!TAILQ_EMPTY(&r->push.pieces))
        piece_over(TAILQ_FIRST(&r->push.pieces));
    TAILQ_REMOVE(&r->push.peer->pushes, r, push.link);
    r->push.peer = NULL;
}

void push_end(struct transfer *t, struct request *r, const char *why)
{
    push_drop(r);
    t->ops->push_ended(t->arg, r, why);
}

static void sum(struct errand *e)
{
    struct push_piece *piece = (struct push_piece *)(void *)e; /* its first */
    const struct kv_store *store = piece->transfer->config.store;

    for (uint32_t i = 0; i < piece->n_slices; i++) {
        const struct row_slice *slice = &piece->slices[i];
        const char *block = kv_store_data(store, piece->ids[slice->block]);

        if (!piece->known[i])
            piece->sums[i] = sum_of(block + slice->offset, slice->bytes);
    }
}

/* Those that were made when the block was held, or came with it. */
static void take_known(struct push_piece *piece)
{
    const struct transfer *t = piece->transfer;
    const struct engine_kv_layout *l = t->config.layout;
    bool all = true;

    for (uint32_t i = 0; i < piece->n_slices; i++) {
        const struct row_slice *slice = &piece->slices[i];
        const uint64_t *sums =
            slice->bytes == l->block_bytes / l->layers
                ? layer_sums_known(t->sums, piece->ids[slice->block])
                : NULL;

        piece->known[i] = sums;
        if (sums)
            piece->sums[i] = sums[piece->layer];
        all &= piece->known[i];
    }
    piece->summed = all;
}

/* Tells the peer of the piece. 0 or what guest_grant() says. */
static int tell(struct push_piece *piece)
{
    struct transfer *t = piece->transfer;
    struct peer *p = piece->r->push.peer;
    int rc =
        guest_grant(p->guest, piece->ids, piece->n_blocks, &piece->grant_id);

    if (rc < 0)
        return rc;
    const struct msg_kv_layer m = {
        .layer = piece->layer,
        .from_token = piece->from_token,
        .n_tokens = piece->n_tokens,
        .grant_id = piece->grant_id,
        .n_blocks = piece->n_blocks,
        .offsets = (const uint8_t *)piece->offsets,
        .n_sums = piece->n_slices,
        .sums = (const uint8_t *)piece->sums,
    };
    piece->told = true;
    msg_kv_layer_pack(&t->buf, piece->r->id, &m);
    transfer_send(t, p->conn);
    return 0;
}

void push_pieces_tell(struct request *r)
{
    struct push_piece *piece;

    TAILQ_FOREACH(piece, &r->push.pieces, link)
    {
        if (!piece->summed)
            return;
        if (piece->told || tell(piece) == 0)
            continue;
        push_end(piece->transfer, r, "its KV cannot be granted to the peer");
        return;
    }
}

static void on_summed(struct errand *e)
{
    struct push_piece *piece = (struct push_piece *)(void *)e;
    struct transfer *t = piece->transfer;

    piece->summed = true;
    if (piece->r) {
        push_pieces_tell(piece->r);
        return;
    }
    piece_free(piece);
    t->ops->released(t->arg);
}

bool push_piece_begin(struct transfer *t, struct request *r, uint32_t n)
{
    const struct engine_kv_layout *l = t->config.layout;
    struct request_push *push = &r->push;
    struct push_piece *piece = calloc(1, sizeof(*piece));

    if (!piece)
        return false;
    piece->errand = (struct errand){.run = sum, .done = on_summed};
    piece->transfer = t;
    piece->r = r;
    piece->layer = push->layer;
    piece->from_token = push->from_token + push->sent_tokens;
    piece->n_tokens = n;
    piece->n_blocks = rows_blocks(l, piece->from_token, n);
    for (uint32_t i = 0; i < piece->n_blocks; i++) {
        uint32_t b = piece->from_token / l->block_tokens + i;

        piece->ids[i] = r->blocks.ids[b];
        piece->offsets[i] = rows_offset(t, r->blocks.data[b]);
        kv_store_pin(t->config.store, piece->ids[i]);
    }
    piece->n_slices =
        rows_cut(l, piece->layer, piece->from_token, n, piece->slices);
    take_known(piece);
    TAILQ_INSERT_TAIL(&push->pieces, piece, link);
    push->n_pieces++;
    if (!piece->summed)
        errands_add(t->errands, &piece->errand, true);
    return true;
}

bool push_piece_taken(struct request *r, uint64_t grant_id)
{
    struct push_piece *piece;

    TAILQ_FOREACH(piece, &r->push.pieces, link)
    {
        if (piece->told && piece->grant_id == grant_id)
            break;
    }
    if (piece)
        piece_over(piece);
    return piece;
}
