/* Disk I/O by pread and pwrite on a few threads: works everywhere. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "workers/disk/io/internal.h"

#define THREADS_MAX 4u

STAILQ_HEAD(op_list, disk_op);

struct threads {
    int fd;
    int event_fd;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t more;  /* todo is not empty, or leaving */
    pthread_cond_t ended; /* done is not empty */
    struct op_list todo;
    struct op_list done;
    bool leaving;
    unsigned n;
    pthread_t ids[THREADS_MAX];
};

static int64_t move_bytes(int fd, const struct disk_op *op)
{
    char *at = (char *)op->buf + op->moved_bytes;
    size_t left = op->bytes - op->moved_bytes;
    off_t offset = (off_t)(op->offset + op->moved_bytes);
    ssize_t n =
        op->write ? pwrite(fd, at, left, offset) : pread(fd, at, left, offset);

    return n < 0 ? -errno : n;
}

static void run_op(struct threads *t, struct disk_op *op)
{
    uint64_t one = 1;

    while (!disk_io_advance(op, move_bytes(t->fd, op)))
        ;
    pthread_mutex_lock(&t->lock);
    STAILQ_INSERT_TAIL(&t->done, op, link);
    pthread_cond_signal(&t->ended);
    pthread_mutex_unlock(&t->lock);
    ssize_t put = write(t->event_fd, &one, sizeof(one));
    (void)put; /* full: it is readable */
}

static void *run(void *arg)
{
    struct threads *t = arg;

    for (;;) {
        pthread_mutex_lock(&t->lock);
        while (STAILQ_EMPTY(&t->todo) && !t->leaving)
            pthread_cond_wait(&t->more, &t->lock);
        struct disk_op *op = STAILQ_FIRST(&t->todo);
        if (op)
            STAILQ_REMOVE_HEAD(&t->todo, link);
        pthread_mutex_unlock(&t->lock);
        if (!op)
            return NULL;
        run_op(t, op);
    }
}

static void threads_free(void *way)
{
    struct threads *t = way;

    pthread_mutex_lock(&t->lock);
    t->leaving = true;
    pthread_cond_broadcast(&t->more);
    pthread_mutex_unlock(&t->lock);
    for (unsigned i = 0; i < t->n; i++)
        pthread_join(t->ids[i], NULL);
    pthread_cond_destroy(&t->more);
    pthread_cond_destroy(&t->ended);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static int threads_make(int fd, unsigned depth, int event_fd, void **out)
{
    struct threads *t = calloc(1, sizeof(*t));

    if (!t)
        return -ENOMEM;
    t->fd = fd;
    t->event_fd = event_fd;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->more, NULL);
    pthread_cond_init(&t->ended, NULL);
    STAILQ_INIT(&t->todo);
    STAILQ_INIT(&t->done);
    unsigned want = depth < THREADS_MAX ? depth : THREADS_MAX;
    while (t->n < want) {
        int rc = pthread_create(&t->ids[t->n], NULL, run, t);

        if (rc == 0) {
            t->n++;
            continue;
        }
        if (t->n > 0)
            break; /* fewer will do */
        threads_free(t);
        return -rc;
    }
    *out = t;
    return 0;
}

static void threads_submit(void *way, struct disk_op *op)
{
    struct threads *t = way;

    pthread_mutex_lock(&t->lock);
    STAILQ_INSERT_TAIL(&t->todo, op, link);
    pthread_cond_signal(&t->more);
    pthread_mutex_unlock(&t->lock);
}

/* They have begun already. */
static void threads_flush(void *)
{
}

static struct disk_op *threads_reap(void *way, bool wait)
{
    struct threads *t = way;

    pthread_mutex_lock(&t->lock);
    while (wait && STAILQ_EMPTY(&t->done))
        pthread_cond_wait(&t->ended, &t->lock);
    struct disk_op *op = STAILQ_FIRST(&t->done);
    if (op)
        STAILQ_REMOVE_HEAD(&t->done, link);
    pthread_mutex_unlock(&t->lock);
    return op;
}

const struct disk_io_way disk_io_threads = {
    .name = "threads",
    .make = threads_make,
    .free = threads_free,
    .submit = threads_submit,
    .flush = threads_flush,
    .reap = threads_reap,
};
