/* Moves pieces of a fetch over a transport: asks the peer for layers of a block
 * (FETCH_WANT), gets their place and checksums (FETCH_GRANT), and reads them
 * from there into the block. */
#include <errno.h>
#include <stdlib.h>

#include "workers/transfer/internal.h"

_Static_assert(LOADER_PIECES_MAX <= TRANSFER_WANTS_MAX,
               "all that a source is asked for may be wanted at once");

struct move {
    TAILQ_ENTRY(move) link;
    struct fetch *fetch;
    struct loader_piece *piece;
    bool wanted;         /* FETCH_WANT was sent */
    struct route_op *op; /* NULL = no read is under way; else the transport may
                            write into the piece's memory */
    uint64_t sums[];     /* (n_layers) */
};

struct fetch *fetch_of(const struct peer *p, uint64_t id)
{
    struct fetch *f;

    TAILQ_FOREACH(f, &p->fetches, link)
    {
        if (f->id == id && !f->closed)
            return f;
    }
    return NULL;
}

static void move_free(struct move *m)
{
    TAILQ_REMOVE(&m->fetch->moves, m, link);
    free(m);
}

/* Frees `f`, which has no read under way. Sends CANCEL, so that the peer unpins
 * its blocks. */
static void gone(struct fetch *f)
{
    struct peer *p = f->peer;

    if (p) {
        TAILQ_REMOVE(&p->fetches, f, link);
        if (f->asked && !fetch_of(p, f->id)) {
            msg_empty_pack(&p->transfer->buf, FRAME_CANCEL, f->id);
            transfer_send(p->transfer, p->conn);
        }
    }
    free(f);
}

int move_add(struct fetch *f, struct loader_piece *piece)
{
    struct move *m =
        calloc(1, sizeof(*m) + piece->n_layers * sizeof(m->sums[0]));

    if (!m)
        return -ENOMEM;
    m->fetch = f;
    m->piece = piece;
    TAILQ_INSERT_TAIL(&f->moves, m, link);
    return 0;
}

void move_pump(struct fetch *f)
{
    struct transfer *t = f->peer->transfer;
    struct move *m;

    if (!route_stands(f->peer->route))
        return;
    TAILQ_FOREACH(m, &f->moves, link)
    {
        if (m->wanted)
            continue;
        const struct msg_fetch_want want = {.block = m->piece->block,
                                            .from_layer = m->piece->from_layer,
                                            .n_layers = m->piece->n_layers};
        msg_fetch_want_pack(&t->buf, f->id, &want);
        transfer_send(t, f->peer->conn);
        m->wanted = true;
    }
}

/* Keeps the verified checksums, so that they need not be computed for peers. */
static void know(const struct fetch *f, const struct move *m)
{
    const struct loader_piece *piece = m->piece;

    for (uint32_t i = 0; i < piece->n_layers; i++)
        layer_sums_know(f->transfer->sums, piece->id, piece->from_layer + i,
                        m->sums[i]);
}

static void on_moved(void *arg, int rc)
{
    struct move *m = arg;
    struct fetch *f = m->fetch;
    struct loader_piece *piece = m->piece;

    if (rc == 0)
        know(f, m);
    move_free(m);
    loader_done(piece, rc);
    if (f->closed && TAILQ_EMPTY(&f->moves))
        gone(f);
}

static struct move *wanted(const struct fetch *f,
                           const struct msg_fetch_grant *g)
{
    struct move *m;

    TAILQ_FOREACH(m, &f->moves, link)
    {
        if (m->wanted && !m->op && m->piece->block == g->block &&
            m->piece->from_layer == g->from_layer &&
            m->piece->n_layers == g->n_layers)
            return m;
    }
    return NULL;
}

static void begin(struct peer *p, struct move *m,
                  const struct msg_fetch_grant *g)
{
    const struct transport_slice slice = {
        .local = m->piece->data,
        .region = g->region,
        .offset = g->offset,
        .bytes = m->piece->bytes,
        .sums = m->sums,
        .sum_bytes = m->piece->bytes / m->piece->n_layers,
    };

    for (uint32_t i = 0; i < g->n_layers; i++)
        m->sums[i] = wire_u64_at(g->sums, i);
    int rc = route_read(p->route, g->grant_id, &slice, 1, on_moved, m, &m->op);
    if (rc < 0)
        on_moved(m, rc);
}

int move_on_grant(struct peer *p, uint64_t id, const uint8_t *payload,
                  size_t len, int64_t now_us)
{
    struct fetch *f = fetch_of(p, id);
    struct msg_fetch_grant g;

    if (msg_fetch_grant_unpack(payload, len, &g))
        return -EBADMSG;
    if (!f || !f->chain)
        return 0; /* for an ended fetch, perhaps with the same id */
    struct move *m = wanted(f, &g);
    if (!m)
        return -EBADMSG;
    p->progress_us = now_us;
    begin(p, m, &g);
    return 0;
}

/* Takes a piece without a read under way out of `f`; NULL = none. */
static struct loader_piece *take(struct fetch *f)
{
    struct move *m;

    TAILQ_FOREACH(m, &f->moves, link)
    {
        if (m->op)
            continue;
        struct loader_piece *piece = m->piece;
        move_free(m);
        return piece;
    }
    return NULL;
}

void move_end(struct fetch *f, int rc)
{
    struct loader_piece *piece;
    struct move *m, *next;

    f->closed = true;
    while ((piece = take(f)))
        loader_done(piece, rc);
    for (m = TAILQ_FIRST(&f->moves); m; m = next) {
        next = TAILQ_NEXT(m, link);
        route_cancel(m->op);
    }
    if (TAILQ_EMPTY(&f->moves))
        gone(f);
}
