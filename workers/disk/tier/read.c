/* Reads of the disk tier: cuts them into pieces and verifies each layer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workers/disk/tier/internal.h"

bool disk_reads_begin(struct disk_tier *t, struct disk_piece *p)
{
    struct disk_job *r = TAILQ_FIRST(&t->reads);

    if (!r)
        return false;
    disk_job_begin(t, r, p);
    if (disk_job_begun(r))
        TAILQ_REMOVE(&t->reads, r, link);
    return true;
}

/* --- ending ------------------------------------------------------------ */

/* Begins no more pieces of `r`. */
static void stop(struct disk_tier *t, struct disk_job *r, int rc)
{
    if (r->error == 0)
        r->error = rc;
    if (!disk_job_begun(r))
        TAILQ_REMOVE(&t->reads, r, link);
    r->to_layer = r->next_layer;
}

static void fail_read(struct disk_tier *t, struct disk_job *r, int rc,
                      const char *why)
{
    stop(t, r, rc);
    if (kv_store_is_held(t->index, r->ref.slot))
        disk_tier_condemn(t, r->ref, why);
}

static void verify(struct disk_tier *t, const struct disk_piece *p)
{
    struct disk_job *r = p->job;
    const struct slot_meta *meta = disk_slot_meta(t, r->ref.slot);

    for (uint32_t i = 0; i < p->n_layers && r->error == 0; i++)
        if (disk_layer_sum(t, r->block, p->layer + i) !=
            meta->sums[p->layer + i])
            fail_read(t, r, -EBADMSG, "its data do not match their checksum");
}

void disk_reads_piece_over(struct disk_tier *t, struct disk_piece *p)
{
    struct disk_job *r = p->job;

    r->under_way--;
    t->stats.read_bytes += p->op.moved_bytes;
    if (p->op.error)
        fail_read(t, r, p->op.error,
                  p->op.error == -ENODATA ? "the file ends before it"
                                          : strerror(-p->op.error));
    else
        verify(t, p);
    if (r->under_way == 0 && disk_job_begun(r))
        TAILQ_INSERT_TAIL(&t->ended, r, link);
}

void disk_tier_cancel(struct disk_tier *t, struct disk_job *read)
{
    bool begun = disk_job_begun(read);

    stop(t, read, -ECANCELED);
    if (begun || read->under_way > 0)
        return; /* its last piece puts it into `ended`, or has done so */
    TAILQ_INSERT_TAIL(&t->ended, read, link);
    disk_io_wake(t->io);
}

void disk_reads_deliver(struct disk_tier *t)
{
    struct disk_job *r;

    while ((r = TAILQ_FIRST(&t->ended))) {
        struct disk_job ended = *r;

        TAILQ_REMOVE(&t->ended, r, link);
        free(r);
        kv_store_release(t->index, ended.ref.slot);
        t->n_reads--;
        ended.done(ended.arg, ended.error);
    }
}

void disk_reads_cancel_all(struct disk_tier *t)
{
    struct disk_job *r;

    /* A read with all pieces under way ends by itself. */
    while ((r = TAILQ_FIRST(&t->reads)))
        disk_tier_cancel(t, r);
}
