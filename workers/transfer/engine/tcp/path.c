/* The ops of a path. They are asked for in turn, a part of each, so that a
 * short one does not wait for a long one in front of it. */
#include <errno.h>
#include <stdlib.h>

#include "workers/transfer/engine/part.h"
#include "workers/transfer/engine/tcp/internal.h"

static void stop_waiting(struct tcp_op *op)
{
    if (op->waits)
        TAILQ_REMOVE(&op->path->waiting, op, turn);
    op->waits = false;
}

static void finish(struct tcp_op *op)
{
    struct tcp *t = op->path->tcp;

    TAILQ_REMOVE(&op->path->live, op, link);
    TAILQ_INSERT_TAIL(&t->finished, op, link);
    bell_ring(t->bell);
}

void tcp_op_stop(struct tcp_op *op, int rc)
{
    if (op->rc == 0)
        op->rc = rc;
    if (!op->waits)
        return; /* parts of it are in flight */
    stop_waiting(op);
    if (op->flying == 0)
        finish(op);
}

void tcp_op_part_over(struct tcp_op *op, int rc)
{
    op->flying--;
    if (rc < 0 && op->rc == 0)
        op->rc = rc;
    if (rc < 0)
        stop_waiting(op);
    if (!op->waits && op->flying == 0)
        finish(op);
}

void tcp_path_fail(struct tcp_path *p, int rc)
{
    struct tcp_op *op;

    if (p->rc == 0)
        p->rc = rc;
    while ((op = TAILQ_FIRST(&p->waiting)))
        tcp_op_stop(op, rc);
    tcp_io_wake(p->tcp); /* its other streams end, too */
    bell_ring(p->tcp->bell);
}

static void cut(const struct tcp_op *op, struct tcp_part *part)
{
    const struct transport_slice *slice = &op->slices[op->slice];
    uint64_t at = op->at_bytes;

    part->request = (struct tcp_request){
        .kind = TCP_READ,
        .region = slice->region,
        .grant_id = op->grant_id,
        .offset = slice->offset + at,
        .bytes = transport_part_bytes(slice, at, TCP_PART_BYTES),
    };
    part->local = (uint8_t *)slice->local + at;
    part->sum_bytes = slice->sum_bytes;
    part->sums = slice->sums ? slice->sums + at / slice->sum_bytes : NULL;
}

bool tcp_path_next(struct tcp_path *p, struct tcp_part *part)
{
    struct tcp_op *op = TAILQ_FIRST(&p->waiting);

    if (!op)
        return false;
    cut(op, part);
    part->op = op;
    op->flying++;
    op->at_bytes += part->request.bytes;
    stop_waiting(op);
    if (op->at_bytes == op->slices[op->slice].bytes) {
        op->slice++;
        op->at_bytes = 0;
    }
    if (op->slice == op->n)
        return true;
    op->waits = true;
    TAILQ_INSERT_TAIL(&p->waiting, op, turn);
    return true;
}
