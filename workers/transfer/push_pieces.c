/* The pieces of a push: each is summed, granted and announced to the decode
 * worker, and pinned until this worker has read it. */
#include <stdlib.h>

#include "workers/transfer/engine/sum.h"
#include "workers/transfer/internal.h"

struct push_piece {
    struct errand errand; /* must be first; makes the checksums */
    TAILQ_ENTRY(push_piece) link;
    struct transfer *transfer;
    struct request *r; /* NULL = request dropped while it was summed */
    struct rows rows;
    bool summed;
    bool told; /* granted under grant_id, and KV_LAYER was sent */
    uint64_t grant_id;
    bool known[2 * TRANSFER_PIECE_BLOCKS]; /* known ones of rows.sums */
};

static void piece_free(struct push_piece *piece)
{
    rows_unpin(piece->transfer, &piece->rows);
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
    struct push_piece *piece = (struct push_piece *)(void *)e;
    struct rows *rows = &piece->rows;

    for (uint32_t i = 0; i < rows->n_slices; i++)
        if (!piece->known[i])
            rows->sums[i] = sum_of(rows->slices[i].at, rows->slices[i].bytes);
}

/* Takes checksums of whole blocks that layer_sums already has. */
static void take_known(struct push_piece *piece)
{
    const struct transfer *t = piece->transfer;
    const struct engine_kv_layout *l = t->config.layout;
    struct rows *rows = &piece->rows;
    bool all = true;

    for (uint32_t i = 0; i < rows->n_slices; i++) {
        const struct row_slice *slice = &rows->slices[i];
        const uint64_t *sums =
            slice->bytes == l->block_bytes / l->layers
                ? layer_sums_known(t->sums, rows->ids[slice->block])
                : NULL;

        piece->known[i] = sums;
        if (sums)
            rows->sums[i] = sums[rows->layer];
        all &= piece->known[i];
    }
    piece->summed = all;
}

/* Grants the piece and sends KV_LAYER. Returns the result of guest_grant(). */
static int tell(struct push_piece *piece)
{
    struct transfer *t = piece->transfer;
    struct peer *p = piece->r->push.peer;
    const struct rows *rows = &piece->rows;
    uint64_t offsets[TRANSFER_PIECE_BLOCKS];
    int rc = guest_grant(p->guest, rows->ids, rows->n_blocks, &piece->grant_id);

    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < rows->n_blocks; i++)
        offsets[i] =
            rows_offset(t, kv_store_data(t->config.store, rows->ids[i]));
    const struct msg_kv_layer m = {
        .layer = rows->layer,
        .from_token = rows->from_token,
        .n_tokens = rows->n_tokens,
        .grant_id = piece->grant_id,
        .n_blocks = rows->n_blocks,
        .offsets = (const uint8_t *)offsets,
        .n_sums = rows->n_slices,
        .sums = (const uint8_t *)rows->sums,
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
    struct request_push *push = &r->push;
    struct push_piece *piece = calloc(1, sizeof(*piece));

    if (!piece)
        return false;
    piece->errand = (struct errand){.run = sum, .done = on_summed};
    piece->transfer = t;
    piece->r = r;
    rows_pin(t, r, push->layer, push->from_token + push->sent_tokens, n,
             &piece->rows);
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
