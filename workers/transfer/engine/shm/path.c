/* Paths: mapping a peer's memory, and ops on it. */
#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/event_loop.h"
#include "workers/transfer/engine/shm/internal.h"

static struct shm_path *path_of(struct transport_path *p)
{
    return (struct shm_path *)(void *)p; /* its first member */
}

static void hang_up(struct shm_path *p)
{
    event_loop_drop(p->event);
    p->event = NULL;
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

void shm_path_free(struct shm_path *p)
{
    struct shm_op *op;

    hang_up(p);
    while ((op = TAILQ_FIRST(&p->live))) {
        TAILQ_REMOVE(&p->live, op, link);
        free(op);
    }
    for (uint32_t i = 0; i < p->n_regions; i++)
        munmap(p->regions[i].memory, p->regions[i].bytes);
    TAILQ_REMOVE(&p->shm->paths, p, link);
    free(p);
}

/* With the lock. */
static void fail(struct shm_path *p, int rc)
{
    struct shm_op *op, *next;

    if (p->rc == 0)
        p->rc = rc;
    for (op = TAILQ_FIRST(&p->live); op; op = next) {
        next = TAILQ_NEXT(op, link);
        shm_copy_drop(op, rc);
    }
    bell_ring(p->shm->bell);
}

/* What the peer says of itself is not trusted. */
static bool within(const struct shm_path *p, const struct shm_op *op)
{
    for (uint32_t i = 0; i < op->n; i++) {
        const struct transport_slice *slice = &op->slices[i];

        if (slice->region >= p->n_regions ||
            slice->bytes > p->regions[slice->region].bytes ||
            slice->offset > p->regions[slice->region].bytes - slice->bytes)
            return false;
    }
    return true;
}

static void on_files(evutil_socket_t fd, short what, void *arg)
{
    struct shm_path *p = arg;
    int n = what & EV_READ ? shm_door_take(fd, p->regions) : -ETIMEDOUT;

    hang_up(p);
    if (n > 0) {
        p->n_regions = (uint32_t)n;
        p->ops->stands(p->arg);
        return;
    }
    pthread_mutex_lock(&p->shm->lock);
    fail(p, n);
    pthread_mutex_unlock(&p->shm->lock);
}

/* Connects to the peer's socket. 0 or a negative errno. */
static int knock(struct shm_path *p, const uint8_t *descriptor)
{
    const struct timeval patience = {.tv_sec = SHM_PATIENCE_S};
    const uint8_t *name = descriptor + SHM_BOOT_BYTES;

    p->fd = shm_door_knock(name, name + SHM_NAME_BYTES);
    if (p->fd < 0)
        return p->fd;
    p->event = event_new(p->shm->event_base, p->fd, EV_READ, on_files, p);
    return p->event && event_add(p->event, &patience) == 0 ? 0 : -ENOMEM;
}

struct transport_path *shm_open_path(struct transport *transport,
                                     const struct transport_peer *peer,
                                     const struct transport_path_ops *ops,
                                     void *arg)
{
    struct shm *s = (struct shm *)(void *)transport;
    struct shm_path *p = NULL;

    if (peer->n_descriptor == SHM_DESCRIPTOR_BYTES &&
        memcmp(peer->descriptor, s->boot, SHM_BOOT_BYTES) == 0)
        p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->base.ops = transport->ops;
    p->shm = s;
    p->ops = ops;
    p->arg = arg;
    TAILQ_INIT(&p->live);
    TAILQ_INSERT_TAIL(&s->paths, p, link);
    if (knock(p, peer->descriptor) < 0) {
        shm_path_free(p);
        return NULL;
    }
    return &p->base;
}

int shm_read(struct transport_path *path, uint64_t op_id, uint64_t,
             const struct transport_slice *slices, uint32_t n)
{
    struct shm_path *p = path_of(path);
    struct shm_op *op =
        n > 0 && p->rc == 0 ? malloc(sizeof(*op) + n * sizeof(*slices)) : NULL;

    if (!op)
        return p->rc < 0 ? -ENOTCONN : (n == 0 ? -EINVAL : -ENOMEM);
    *op = (struct shm_op){.path = p, .id = op_id, .n = n};
    memcpy(op->slices, slices, n * sizeof(*slices));
    pthread_mutex_lock(&p->shm->lock);
    TAILQ_INSERT_TAIL(&p->live, op, link);
    if (within(p, op))
        shm_copy_add(op);
    else
        fail(p, -EPROTO);
    pthread_mutex_unlock(&p->shm->lock);
    return 0;
}

void shm_cancel(struct transport_path *path, uint64_t op_id)
{
    struct shm_path *p = path_of(path);
    struct shm_op *op;

    pthread_mutex_lock(&p->shm->lock);
    TAILQ_FOREACH(op, &p->live, link)
    {
        if (op->id == op_id)
            break;
    }
    if (op)
        shm_copy_drop(op, -ECANCELED);
    pthread_mutex_unlock(&p->shm->lock);
}

uint64_t shm_moved_bytes(const struct transport_path *path)
{
    const struct shm_path *p = (const struct shm_path *)(const void *)path;

    return atomic_load_explicit(&p->moved_bytes, memory_order_relaxed);
}

void shm_close(struct transport_path *path)
{
    struct shm_path *p = path_of(path);

    hang_up(p);
    p->closed = true;
    bell_ring(p->shm->bell);
}

static struct shm_op *take_finished(struct shm *s)
{
    pthread_mutex_lock(&s->lock);
    struct shm_op *op = TAILQ_FIRST(&s->finished);
    if (op)
        TAILQ_REMOVE(&s->finished, op, link);
    pthread_mutex_unlock(&s->lock);
    return op;
}

/* Ops that have finished meanwhile are told first: the bell has rung. */
static struct shm_path *take_over(struct shm *s)
{
    struct shm_path *p = NULL;

    pthread_mutex_lock(&s->lock);
    if (TAILQ_EMPTY(&s->finished)) {
        TAILQ_FOREACH(p, &s->paths, link)
        {
            if (p->closed || (p->rc < 0 && !p->told && TAILQ_EMPTY(&p->live)))
                break;
        }
    }
    if (p)
        p->told = true;
    pthread_mutex_unlock(&s->lock);
    return p;
}

void shm_paths_heard(struct shm *s)
{
    struct shm_op *op;
    struct shm_path *p;

    while ((op = take_finished(s))) {
        op->path->ops->done(op->path->arg, op->id, op->rc);
        free(op);
    }
    while ((p = take_over(s)))
        if (p->closed)
            shm_path_free(p);
        else
            p->ops->closed(p->arg, p->rc, strerror(-p->rc));
}
