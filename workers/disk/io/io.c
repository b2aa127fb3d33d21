/* Disk I/O: chooses io_uring or threads, and does what both need. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "workers/disk/io/internal.h"

struct disk_io {
    const struct disk_io_way *way;
    void *state;
    int event_fd;
    unsigned n_under_way;
};

bool disk_io_advance(struct disk_op *op, int64_t result)
{
    if (result == -EINTR || result == -EAGAIN)
        return false;
    if (result < 0)
        op->error = (int)result;
    else if (result == 0)
        op->error = op->write ? -ENOSPC : -ENODATA;
    else
        op->moved_bytes += (size_t)result;
    return result <= 0 || op->moved_bytes >= op->bytes;
}

static int make_way(struct disk_io *io, int fd, unsigned depth, bool uring)
{
#ifdef CONDUCTOR_URING
    if (uring) {
        io->way = &disk_io_uring;
        int rc = io->way->make(fd, depth, io->event_fd, &io->state);
        if (rc == 0)
            return 0;
        log_warn("io_uring cannot be used (%s): disk I/O runs on threads",
                 strerror(-rc));
    }
#else
    (void)uring;
#endif
    io->way = &disk_io_threads;
    return io->way->make(fd, depth, io->event_fd, &io->state);
}

int disk_io_new(int fd, unsigned depth, bool uring, struct disk_io **out)
{
    struct disk_io *io = calloc(1, sizeof(*io));
    int rc;

    if (!io)
        return -ENOMEM;
    io->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (io->event_fd < 0) {
        rc = -errno;
        goto free_io;
    }
    rc = make_way(io, fd, depth, uring);
    if (rc < 0)
        goto close_event;
    *out = io;
    return 0;
close_event:
    close(io->event_fd);
free_io:
    free(io);
    return rc;
}

void disk_io_free(struct disk_io *io)
{
    if (!io)
        return;
    io->way->free(io->state);
    close(io->event_fd);
    free(io);
}

const char *disk_io_name(const struct disk_io *io)
{
    return io->way->name;
}

int disk_io_fd(const struct disk_io *io)
{
    return io->event_fd;
}

void disk_io_clear(struct disk_io *io)
{
    uint64_t n;
    ssize_t got = read(io->event_fd, &n, sizeof(n));

    (void)got; /* fails only if the counter is 0 already */
}

void disk_io_wake(struct disk_io *io)
{
    uint64_t one = 1;
    ssize_t put = write(io->event_fd, &one, sizeof(one));

    (void)put; /* fails only if the counter is full, thus readable */
}

void disk_io_submit(struct disk_io *io, struct disk_op *op)
{
    op->error = 0;
    op->moved_bytes = 0;
    io->n_under_way++;
    io->way->submit(io->state, op);
}

void disk_io_flush(struct disk_io *io)
{
    io->way->flush(io->state);
}

struct disk_op *disk_io_reap(struct disk_io *io, bool wait)
{
    if (io->n_under_way == 0)
        return NULL;
    struct disk_op *op = io->way->reap(io->state, wait);
    if (op)
        io->n_under_way--;
    return op;
}
