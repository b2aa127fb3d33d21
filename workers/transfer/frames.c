/* What every job needs: sending frames and KV, finding its request. */
#include <stddef.h>
#include <stdlib.h>

#include "workers/transfer/internal.h"

void transfer_send(struct transfer *t, struct frame_conn *conn)
{
    frame_conn_send(conn, &t->buf);
    wire_buf_reset(&t->buf);
}

struct request *transfer_find(const struct transfer *t, uint64_t id)
{
    return t->ops->find(t->arg, id);
}

/* A block whose memory the output of a connection reads. */
struct lent_block {
    struct frame_loan loan;
    struct transfer *transfer;
    uint32_t id; /* with a pin */
};

static void on_sent(struct frame_loan *loan)
{
    struct lent_block *b =
        (struct lent_block *)(void *)((char *)loan -
                                      offsetof(struct lent_block, loan));
    struct transfer *t = b->transfer;

    kv_store_release(t->config.store, b->id);
    free(b);
    t->ops->released(t->arg);
}

void transfer_send_kv(struct transfer *t, struct frame_conn *conn, uint32_t id,
                      const void *data, size_t n)
{
    struct lent_block *b = n < TRANSFER_COPY_BYTES ? NULL : malloc(sizeof(*b));

    if (!b) {
        frame_conn_send_bytes(conn, data, n);
        return;
    }
    *b = (struct lent_block){{on_sent}, t, id};
    kv_store_pin(t->config.store, id);
    frame_conn_lend(conn, data, n, &b->loan);
}
