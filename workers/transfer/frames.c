/* What every job needs to talk: sending a frame, refusing one, and whose it is.
 */
#include <stdio.h>

#include "workers/transfer/internal.h"

void transfer_send(struct transfer *t, struct frame_conn *conn)
{
    frame_conn_send(conn, &t->buf);
    wire_buf_reset(&t->buf);
}

void transfer_bad_frame(struct frame_conn *conn, const struct frame_header *h,
                        const char *why)
{
    char text[MSG_TEXT_MAX];

    snprintf(text, sizeof(text), "frame %s (type %u, %u bytes): %s",
             frame_type_name(h->type), h->type, h->length, why);
    frame_conn_refuse(conn, PROTO_E_BAD_FRAME, text);
}

struct request *transfer_find(const struct transfer *t, uint64_t id)
{
    return t->ops->find(t->arg, id);
}
