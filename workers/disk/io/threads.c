/* Disk I/O by pread and pwrite on a few threads: works everywhere. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "workers/disk/io/internal.h"

struct threads {
    int fd, event_fd;
    struct crew *crew;
};

static struct disk_op *op_of(struct crew_job *job)
{
    return job ? (struct disk_op *)(void *)((char *)job -
                                            offsetof(struct disk_op, job))
               : NULL;
}

static int64_t move_bytes(int fd, const struct disk_op *op)
{
    char *at = (char *)op->buf + op->moved_bytes;
    size_t left = op->bytes - op->moved_bytes;
    off_t offset = (off_t)(op->offset + op->moved_bytes);
    ssize_t n =
        op->write ? pwrite(fd, at, left, offset) : pread(fd, at, left, offset);

    return n < 0 ? -errno : n;
}

static void run(void *arg, struct crew_job *job)
{
    const struct threads *t = arg;
    struct disk_op *op = op_of(job);

    while (!disk_io_advance(op, move_bytes(t->fd, op)))
        ;
}

static void over(void *arg)
{
    const struct threads *t = arg;
    uint64_t one = 1;

    /* fails only if the counter is full: it is readable */
    (void)!write(t->event_fd, &one, sizeof(one));
}

static void threads_free(void *way)
{
    struct threads *t = way;

    crew_free(t->crew);
    free(t);
}

static int threads_make(int fd, unsigned depth, int event_fd, void **out)
{
    static const struct crew_ops ops = {run, over};
    struct threads *t = calloc(1, sizeof(*t));

    if (!t)
        return -ENOMEM;
    t->fd = fd;
    t->event_fd = event_fd;
    int rc = crew_new(NULL, depth, &ops, t, &t->crew);
    if (rc < 0) {
        free(t);
        return rc;
    }
    *out = t;
    return 0;
}

static void threads_submit(void *way, struct disk_op *op)
{
    struct threads *t = way;

    crew_add(t->crew, &op->job, false);
}

/* threads_submit() has begun them already. */
static void threads_flush(void *)
{
}

static struct disk_op *threads_reap(void *way, bool wait)
{
    struct threads *t = way;

    return op_of(crew_over(t->crew, wait));
}

const struct disk_io_way disk_io_threads = {
    .name = "threads",
    .make = threads_make,
    .free = threads_free,
    .submit = threads_submit,
    .flush = threads_flush,
    .reap = threads_reap,
};
