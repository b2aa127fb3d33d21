/* Paths, on the loop's thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workers/transfer/engine/tcp/internal.h"

static struct tcp_path *path_of(struct transport_path *p)
{
    return (struct tcp_path *)(void *)p; /* its first member */
}

static void drop_dials(struct tcp_path *p)
{
    for (uint32_t i = 0; i < TCP_STREAMS_MAX; i++)
        tcp_dial_free(p->dials[i]);
}

void tcp_path_free(struct tcp_path *p)
{
    struct tcp_op *op;

    drop_dials(p);
    while ((op = TAILQ_FIRST(&p->live))) {
        TAILQ_REMOVE(&p->live, op, link);
        free(op);
    }
    TAILQ_REMOVE(&p->tcp->paths, p, link);
    free(p);
}

struct transport_path *tcp_open(struct transport *transport,
                                const struct transport_peer *peer,
                                const struct transport_path_ops *ops, void *arg)
{
    struct tcp *t = (struct tcp *)(void *)transport;
    struct tcp_path *p =
        peer->n_descriptor == TCP_TOKEN_BYTES ? calloc(1, sizeof(*p)) : NULL;

    if (!p)
        return NULL;
    p->base.ops = transport->ops;
    p->tcp = t;
    p->ops = ops;
    p->arg = arg;
    memcpy(p->token, peer->descriptor, TCP_TOKEN_BYTES);
    TAILQ_INIT(&p->live);
    TAILQ_INIT(&p->waiting);
    pthread_mutex_lock(&t->lock);
    TAILQ_INSERT_TAIL(&t->paths, p, link);
    pthread_mutex_unlock(&t->lock);
    for (uint32_t i = 0; i < t->config.streams; i++) {
        if (tcp_dial(p, peer->host, peer->port, i) == 0)
            continue;
        pthread_mutex_lock(&t->lock);
        tcp_path_free(p);
        pthread_mutex_unlock(&t->lock);
        return NULL;
    }
    return &p->base;
}

int tcp_read(struct transport_path *path, uint64_t op_id, uint64_t grant_id,
             const struct transport_slice *slices, uint32_t n)
{
    struct tcp_path *p = path_of(path);
    struct tcp *t = p->tcp;
    struct tcp_op *op = malloc(sizeof(*op) + n * sizeof(*slices));

    if (!op || n == 0) {
        free(op);
        return n == 0 ? -EINVAL : -ENOMEM;
    }
    *op = (struct tcp_op){
        .path = p, .id = op_id, .grant_id = grant_id, .waits = true, .n = n};
    memcpy(op->slices, slices, n * sizeof(*slices));
    pthread_mutex_lock(&t->lock);
    int rc = p->rc < 0 ? -ENOTCONN : 0;
    if (rc == 0) {
        TAILQ_INSERT_TAIL(&p->live, op, link);
        TAILQ_INSERT_TAIL(&p->waiting, op, turn);
    }
    pthread_mutex_unlock(&t->lock);
    if (rc < 0)
        free(op);
    else
        tcp_io_wake(t);
    return rc;
}

void tcp_cancel(struct transport_path *path, uint64_t op_id)
{
    struct tcp_path *p = path_of(path);
    struct tcp_op *op;

    pthread_mutex_lock(&p->tcp->lock);
    TAILQ_FOREACH(op, &p->live, link)
    {
        if (op->id == op_id)
            break;
    }
    if (op)
        tcp_op_stop(op, -ECANCELED);
    pthread_mutex_unlock(&p->tcp->lock);
    tcp_io_wake(p->tcp);
}

void tcp_close(struct transport_path *path)
{
    struct tcp_path *p = path_of(path);

    drop_dials(p);
    pthread_mutex_lock(&p->tcp->lock);
    p->closed = true;
    pthread_mutex_unlock(&p->tcp->lock);
    tcp_io_wake(p->tcp);
    bell_ring(p->tcp->bell);
}

uint64_t tcp_moved_bytes(const struct transport_path *path)
{
    const struct tcp_path *p = (const struct tcp_path *)(const void *)path;

    return atomic_load_explicit(&p->moved_bytes, memory_order_relaxed);
}

static struct tcp_op *take_finished(struct tcp *t)
{
    pthread_mutex_lock(&t->lock);
    struct tcp_op *op = TAILQ_FIRST(&t->finished);
    if (op)
        TAILQ_REMOVE(&t->finished, op, link);
    pthread_mutex_unlock(&t->lock);
    return op;
}

static bool news_of(const struct tcp_path *p)
{
    return p->n_streams == 0 && (p->closed || (p->rc < 0 && !p->told));
}

/* Ops that have finished meanwhile are told first: the bell has rung. */
static struct tcp_path *take_over(struct tcp *t)
{
    struct tcp_path *p = NULL;

    pthread_mutex_lock(&t->lock);
    if (TAILQ_EMPTY(&t->finished)) {
        TAILQ_FOREACH(p, &t->paths, link)
        {
            if (news_of(p) && TAILQ_EMPTY(&p->live))
                break;
        }
    }
    if (p)
        p->told = true;
    pthread_mutex_unlock(&t->lock);
    return p;
}

void tcp_paths_heard(struct tcp *t)
{
    struct tcp_op *op;
    struct tcp_path *p;

    while ((op = take_finished(t))) {
        op->path->ops->done(op->path->arg, op->id, op->rc);
        free(op);
    }
    while ((p = take_over(t))) {
        if (!p->closed) {
            drop_dials(p);
            p->ops->closed(p->arg, p->rc, strerror(-p->rc));
            continue;
        }
        pthread_mutex_lock(&t->lock);
        tcp_path_free(p);
        pthread_mutex_unlock(&t->lock);
    }
}
