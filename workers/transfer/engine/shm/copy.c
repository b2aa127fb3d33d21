/* Threads that copy parts of ops out of mapped memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workers/transfer/engine/shm/internal.h"

static bool ended(struct shm *s, const struct op *op)
{
    pthread_mutex_lock(&s->set.lock);
    bool yes = op->rc < 0;
    pthread_mutex_unlock(&s->set.lock);
    return yes;
}

/* Reads a part from the peer's GPU, through this worker's GPU. */
static int copy_card(struct shm_path *p, const struct op_part *part,
                     struct sum_run *sum)
{
    const struct shm_region *r = &p->regions[part->region];
    uint32_t page;
    int rc = r->card->ops->read(r->card, r->memory + part->offset, part->local,
                                part->bytes, &page);

    if (rc < 0)
        return rc;
    sum_run_begin(sum, part->sums, part->sum_bytes);
    sum_run_add(sum, part->local, part->bytes);
    atomic_fetch_add_explicit(&p->base.moved_bytes, part->bytes,
                              memory_order_relaxed);
    bool ok = sum_run_ok(sum);
    r->card->ops->read_over(r->card, part->local, part->bytes, page,
                            ok && part->sums);
    return ok ? 0 : -EILSEQ;
}

static int copy(struct shm *s, const struct op_part *part, struct sum_run *sum)
{
    struct shm_path *p = (struct shm_path *)(void *)part->op->path;
    const uint8_t *from = p->regions[part->region].memory + part->offset;
    uint64_t n;

    if (p->regions[part->region].card)
        return ended(s, part->op) ? -ECANCELED : copy_card(p, part, sum);

    sum_run_begin(sum, part->sums, part->sum_bytes);
    for (uint64_t at = 0; at < part->bytes; at += n) {
        n = part->bytes - at;
        if (n > SHM_CHUNK_BYTES)
            n = SHM_CHUNK_BYTES;
        if (ended(s, part->op))
            return -ECANCELED;
        memcpy(part->local + at, from + at, n);
        sum_run_add(sum, part->local + at, n);
        atomic_fetch_add_explicit(&p->base.moved_bytes, n,
                                  memory_order_relaxed);
    }
    return sum_run_ok(sum) ? 0 : -EILSEQ;
}

static void *run(void *arg)
{
    struct shm_thread *thread = arg;
    struct shm *s = thread->shm;
    struct op_part part;

    pthread_mutex_lock(&s->set.lock);
    while (!s->leaving) {
        if (!op_next(&s->todo, &part)) {
            pthread_cond_wait(&s->more, &s->set.lock);
            continue;
        }
        pthread_mutex_unlock(&s->set.lock);
        int rc = copy(s, &part, thread->sum);
        pthread_mutex_lock(&s->set.lock);
        op_part_over(part.op, rc);
    }
    pthread_mutex_unlock(&s->set.lock);
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
    pthread_mutex_lock(&s->set.lock);
    s->leaving = true;
    pthread_cond_broadcast(&s->more);
    pthread_mutex_unlock(&s->set.lock);
    while (s->n_threads > 0)
        pthread_join(s->threads[--s->n_threads].thread, NULL);
    for (uint32_t i = 0; i < SHM_THREADS; i++)
        sum_run_free(s->threads[i].sum);
}
