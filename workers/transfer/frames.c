/* Sends frames and finds requests, for all jobs. */
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
