/* Ops: their turns, and their end and that of their paths. */
#include "workers/transfer/engine/ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop/loop.h"

static struct op_path *path_of(struct transport_path *p)
{
    return (struct op_path *)(void *)p; /* p is its first member */
}

static void stop_waiting(struct op *op)
{
    if (op->waits)
        TAILQ_REMOVE(op->path->turns, op, turn);
    op->waits = false;
}

static void finish(struct op *op)
{
    struct op_set *s = op->path->set;

    TAILQ_REMOVE(&op->path->live, op, link);
    TAILQ_INSERT_TAIL(&s->finished, op, link);
    loop_ring(&s->bell);
}

/* Ends the op with rc, unless it is ending already, as soon as none of its
 * parts is in flight. */
static void stop(struct op *op, int rc)
{
    if (op->rc == 0)
        op->rc = rc;
    stop_waiting(op);
    if (op->flying == 0)
        finish(op);
}

void op_part_over(struct op *op, int rc)
{
    op->flying--;
    if (rc < 0)
        stop(op, rc);
    else if (!op->waits && op->flying == 0)
        finish(op);
}

void op_path_fail(struct op_path *p, int rc)
{
    struct op *op, *next;

    if (p->rc == 0)
        p->rc = rc;
    for (op = TAILQ_FIRST(&p->live); op; op = next) {
        next = TAILQ_NEXT(op, link);
        stop(op, rc);
    }
    p->set->wake(p->set);
    loop_ring(&p->set->bell);
}

/* Returns the bytes of the slice's part that begins at at_bytes. With
 * checksums, a part is a whole number of summed pieces. */
static uint64_t part_bytes(const struct transport_slice *slice,
                           uint64_t at_bytes)
{
    uint64_t left = slice->bytes - at_bytes, most = OP_PART_BYTES;

    if (slice->sums && slice->sum_bytes > most)
        most = slice->sum_bytes;
    else if (slice->sums)
        most -= most % slice->sum_bytes;
    return left < most ? left : most;
}

bool op_next(struct op_list *turns, struct op_part *part)
{
    struct op *op = TAILQ_FIRST(turns);

    if (!op)
        return false;
    const struct transport_slice *slice = &op->slices[op->slice];
    uint64_t at = op->at_bytes;
    *part = (struct op_part){
        .op = op,
        .local = (uint8_t *)slice->local + at,
        .region = slice->region,
        .offset = slice->offset + at,
        .bytes = part_bytes(slice, at),
        .sums = slice->sums ? slice->sums + at / slice->sum_bytes : NULL,
        .sum_bytes = slice->sum_bytes,
    };
    op->flying++;
    op->at_bytes += part->bytes;
    if (op->at_bytes == slice->bytes) {
        op->slice++;
        op->at_bytes = 0;
    }
    TAILQ_REMOVE(turns, op, turn);
    op->waits = op->slice < op->n;
    if (op->waits)
        TAILQ_INSERT_TAIL(turns, op, turn);
    return true;
}

void op_path_init(struct op_path *p, struct op_set *s,
                  const struct transport *transport, struct op_list *turns,
                  const struct transport_path_ops *ops, void *arg)
{
    p->base.ops = transport->ops;
    p->set = s;
    p->turns = turns;
    p->ops = ops;
    p->arg = arg;
    TAILQ_INIT(&p->live);
    pthread_mutex_lock(&s->lock);
    TAILQ_INSERT_TAIL(&s->paths, p, link);
    pthread_mutex_unlock(&s->lock);
}

static void free_ops(struct op_list *list)
{
    struct op *op;

    while ((op = TAILQ_FIRST(list))) {
        TAILQ_REMOVE(list, op, link);
        free(op);
    }
}

void op_path_free(struct op_path *p)
{
    p->set->hang_up(p);
    free_ops(&p->live);
    TAILQ_REMOVE(&p->set->paths, p, link);
    p->set->free(p);
}

int op_path_read(struct transport_path *path, uint64_t op_id, uint64_t grant_id,
                 const struct transport_slice *slices, uint32_t n)
{
    struct op_path *p = path_of(path);
    struct op *op = malloc(sizeof(*op) + n * sizeof(*slices));

    if (!op || n == 0) {
        free(op);
        return n == 0 ? -EINVAL : -ENOMEM;
    }
    *op = (struct op){
        .path = p, .id = op_id, .grant_id = grant_id, .waits = true, .n = n};
    memcpy(op->slices, slices, n * sizeof(*slices));
    pthread_mutex_lock(&p->set->lock);
    int rc = p->rc < 0 ? -ENOTCONN : 0;
    if (rc == 0) {
        TAILQ_INSERT_TAIL(&p->live, op, link);
        TAILQ_INSERT_TAIL(p->turns, op, turn);
    }
    pthread_mutex_unlock(&p->set->lock);
    if (rc < 0)
        free(op);
    else
        p->set->wake(p->set);
    return rc;
}

void op_path_cancel(struct transport_path *path, uint64_t op_id)
{
    struct op_path *p = path_of(path);
    struct op *op;

    pthread_mutex_lock(&p->set->lock);
    TAILQ_FOREACH(op, &p->live, link)
    {
        if (op->id == op_id)
            break;
    }
    if (op)
        stop(op, -ECANCELED);
    pthread_mutex_unlock(&p->set->lock);
    p->set->wake(p->set);
}

uint64_t op_path_moved_bytes(const struct transport_path *path)
{
    const struct op_path *p = (const struct op_path *)(const void *)path;

    return atomic_load_explicit(&p->moved_bytes, memory_order_relaxed);
}

void op_path_close(struct transport_path *path)
{
    struct op_path *p = path_of(path);

    p->set->hang_up(p);
    pthread_mutex_lock(&p->set->lock);
    p->closed = true;
    pthread_mutex_unlock(&p->set->lock);
    p->set->wake(p->set);
    loop_ring(&p->set->bell);
}

int op_set_init(struct op_set *s, struct loop *loop, void (*heard)(void *arg),
                void *arg)
{
    TAILQ_INIT(&s->paths);
    TAILQ_INIT(&s->finished);
    pthread_mutex_init(&s->lock, NULL);
    return loop_bell_init(loop, &s->bell, false, heard, arg);
}

void op_set_fini(struct op_set *s)
{
    free_ops(&s->finished);
    while (!TAILQ_EMPTY(&s->paths))
        op_path_free(TAILQ_FIRST(&s->paths));
    loop_bell_fini(&s->bell);
    pthread_mutex_destroy(&s->lock);
}

static struct op *take_finished(struct op_set *s)
{
    pthread_mutex_lock(&s->lock);
    struct op *op = TAILQ_FIRST(&s->finished);
    if (op)
        TAILQ_REMOVE(&s->finished, op, link);
    pthread_mutex_unlock(&s->lock);
    return op;
}

static bool news_of(const struct op_path *p)
{
    return p->n_users == 0 && TAILQ_EMPTY(&p->live) &&
           (p->closed || (p->rc < 0 && !p->told));
}

/* Returns a path that is closed or has failed, or NULL. Ops that finished
 * meanwhile are reported first: the bell has rung again for them. */
static struct op_path *take_over(struct op_set *s)
{
    struct op_path *p = NULL;

    pthread_mutex_lock(&s->lock);
    if (TAILQ_EMPTY(&s->finished)) {
        TAILQ_FOREACH(p, &s->paths, link)
        {
            if (news_of(p))
                break;
        }
    }
    if (p)
        p->told = true;
    pthread_mutex_unlock(&s->lock);
    return p;
}

void op_set_heard(struct op_set *s)
{
    struct op *op;
    struct op_path *p;

    while ((op = take_finished(s))) {
        op->path->ops->done(op->path->arg, op->id, op->rc);
        free(op);
    }
    while ((p = take_over(s))) {
        if (!p->closed) {
            s->hang_up(p);
            p->ops->closed(p->arg, p->rc, strerror(-p->rc));
            continue;
        }
        pthread_mutex_lock(&s->lock);
        op_path_free(p);
        pthread_mutex_unlock(&s->lock);
    }
}
