/* Threads that copy, a part of each op in turn. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workers/transfer/engine/part.h"
#include "workers/transfer/engine/shm/internal.h"

static void finish(struct shm_op *op)
{
    struct shm *s = op->path->shm;

    TAILQ_REMOVE(&op->path->live, op, link);
    TAILQ_INSERT_TAIL(&s->finished, op, link);
    bell_ring(s->bell);
}

void shm_copy_add(struct shm_op *op)
{
    struct shm *s = op->path->shm;

    op->waits = true;
    TAILQ_INSERT_TAIL(&s->todo, op, turn);
    pthread_cond_signal(&s->more);
}

/* Notes why it ends, if it does not yet; nothing more of it is copied. */
static void stop(struct shm_op *op, int rc)
{
    if (op->rc == 0)
        op->rc = rc;
    if (op->waits)
        TAILQ_REMOVE(&op->path->shm->todo, op, turn);
    op->waits = false;
}

void shm_copy_drop(struct shm_op *op, int rc)
{
    stop(op, rc);
    if (op->flying == 0)
        finish(op);
}

/* Takes the next part of the next op, which then waits for its next turn. */
static void take(struct shm *s, struct shm_part *part)
{
    struct shm_op *op = TAILQ_FIRST(&s->todo);
    const struct transport_slice *slice = &op->slices[op->slice];
    uint64_t at = op->at_bytes;

    *part = (struct shm_part){
        .op = op,
        .to = (uint8_t *)slice->local + at,
        .from = op->path->regions[slice->region].memory + slice->offset + at,
        .bytes = transport_part_bytes(slice, at, SHM_PART_BYTES),
        .sums = slice->sums ? slice->sums + at / slice->sum_bytes : NULL,
        .sum_bytes = slice->sum_bytes,
    };
    TAILQ_REMOVE(&s->todo, op, turn);
    op->flying++;
    op->at_bytes += part->bytes;
    if (op->at_bytes == slice->bytes) {
        op->slice++;
        op->at_bytes = 0;
    }
    op->waits = op->slice < op->n;
    if (op->waits)
        TAILQ_INSERT_TAIL(&s->todo, op, turn);
}

static bool ended(struct shm *s, const struct shm_op *op)
{
    pthread_mutex_lock(&s->lock);
    bool yes = op->rc < 0;
    pthread_mutex_unlock(&s->lock);
    return yes;
}

static int copy(struct shm *s, const struct shm_part *part, struct sum_run *sum)
{
    uint64_t n;

    sum_run_begin(sum, part->sums, part->sum_bytes);
    for (uint64_t at = 0; at < part->bytes; at += n) {
        n = part->bytes - at;
        if (n > SHM_CHUNK_BYTES)
            n = SHM_CHUNK_BYTES;
        if (ended(s, part->op))
            return -ECANCELED;
        memcpy(part->to + at, part->from + at, n);
        sum_run_add(sum, part->to + at, n);
        atomic_fetch_add_explicit(&part->op->path->moved_bytes, n,
                                  memory_order_relaxed);
    }
    return sum_run_ok(sum) ? 0 : -EILSEQ;
}

static void part_over(struct shm_op *op, int rc)
{
    op->flying--;
    if (rc < 0)
        stop(op, rc);
    if (!op->waits && op->flying == 0)
        finish(op);
}

static void *run(void *arg)
{
    struct shm_thread *thread = arg;
    struct shm *s = thread->shm;
    struct shm_part part;

    pthread_mutex_lock(&s->lock);
    while (!s->leaving) {
        if (TAILQ_EMPTY(&s->todo)) {
            pthread_cond_wait(&s->more, &s->lock);
            continue;
        }
        take(s, &part);
        pthread_mutex_unlock(&s->lock);
        int rc = copy(s, &part, thread->sum);
        pthread_mutex_lock(&s->lock);
        part_over(part.op, rc);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int shm_copy_start(struct shm *s)
{
    for (; s->n_threads < SHM_THREADS; s->n_threads++) {
        struct shm_thread *thread = &s->threads[s->n_threads];

        thread->shm = s;
        thread->sum = sum_run_new();
        if (!thread->sum || pthread_create(&thread->thread, NULL, run, thread))
            return -ENOMEM;
    }
    return 0;
}

void shm_copy_stop(struct shm *s)
{
    pthread_mutex_lock(&s->lock);
    s->leaving = true;
    pthread_cond_broadcast(&s->more);
    pthread_mutex_unlock(&s->lock);
    while (s->n_threads > 0)
        pthread_join(s->threads[--s->n_threads].thread, NULL);
    for (uint32_t i = 0; i < SHM_THREADS; i++)
        sum_run_free(s->threads[i].sum);
}
