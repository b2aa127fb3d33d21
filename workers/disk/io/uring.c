/* Disk I/O through io_uring. */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>

#include "workers/disk/io/internal.h"

/* Most bytes of one entry of the ring; the rest of an op follows in others. */
#define MOST_BYTES (1u << 30)

struct uring {
    struct io_uring ring;
    int fd;
};

static int uring_make(int fd, unsigned depth, int event_fd, void **out)
{
    struct uring *u = calloc(1, sizeof(*u));
    int rc;

    if (!u)
        return -ENOMEM;
    u->fd = fd;
    rc = io_uring_queue_init(depth, &u->ring, 0);
    if (rc < 0)
        goto free_u;
    rc = io_uring_register_eventfd(&u->ring, event_fd);
    if (rc < 0)
        goto exit_ring;
    *out = u;
    return 0;
exit_ring:
    io_uring_queue_exit(&u->ring);
free_u:
    free(u);
    return rc;
}

static void uring_free(void *way)
{
    struct uring *u = way;

    io_uring_queue_exit(&u->ring);
    free(u);
}

/* There is always a free entry: the ring has one for each op that can be under
 * way, and an op uses one entry at a time. */
static void uring_submit(void *way, struct disk_op *op)
{
    struct uring *u = way;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    char *at = (char *)op->buf + op->moved_bytes;
    size_t rest = op->bytes - op->moved_bytes;
    unsigned left = rest < MOST_BYTES ? (unsigned)rest : MOST_BYTES;
    uint64_t offset = op->offset + op->moved_bytes;

    if (op->write)
        io_uring_prep_write(sqe, u->fd, at, left, offset);
    else
        io_uring_prep_read(sqe, u->fd, at, left, offset);
    io_uring_sqe_set_data(sqe, op);
}

static void uring_flush(void *way)
{
    struct uring *u = way;

    /* Entries that fail for lack of resources stay in the ring. */
    if (io_uring_sq_ready(&u->ring) > 0)
        io_uring_submit(&u->ring);
}

static struct disk_op *uring_reap(void *way, bool wait)
{
    struct uring *u = way;
    struct io_uring_cqe *cqe;

    for (;;) {
        if (io_uring_peek_cqe(&u->ring, &cqe) < 0) {
            if (!wait)
                return NULL;
            /* Try again on any error: an op is under way and will end. */
            io_uring_submit_and_wait(&u->ring, 1);
            continue;
        }
        struct disk_op *op = io_uring_cqe_get_data(cqe);
        int result = cqe->res;
        io_uring_cqe_seen(&u->ring, cqe);
        if (disk_io_advance(op, result))
            return op;
        uring_submit(u, op);
        uring_flush(u);
    }
}

const struct disk_io_way disk_io_uring = {
    .name = "io_uring",
    .make = uring_make,
    .free = uring_free,
    .submit = uring_submit,
    .flush = uring_flush,
    .reap = uring_reap,
};
