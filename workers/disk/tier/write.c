/* Writes of the disk tier: the data first, then the header, which commits it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "workers/disk/tier/internal.h"

/* Pause after a failed write: a full or broken disk must not fill the log. */
#define WRITE_PAUSE_US 10000000

/* --- beginning --------------------------------------------------------- */

static void begin_data(struct disk_tier *t, struct disk_job *w,
                       struct disk_piece *p)
{
    struct slot_meta *meta = disk_slot_meta(t, w->ref.slot);

    disk_job_begin(t, w, p);
    /* Sums piece by piece, so that a large block does not delay the loop. */
    for (uint32_t i = p->layer; i < w->next_layer; i++)
        meta->sums[i] = disk_layer_sum(t, w->block, i);
}

static int encode_header(struct disk_tier *t, const struct disk_job *w)
{
    struct slot_meta *meta = disk_slot_meta(t, w->ref.slot);
    struct disk_slot s = {
        .parent_slot = w->parent,
        .key = w->key,
        .number = meta->number,
        .order = meta->order,
        /* Never written to: the struct also serves for decoding. */
        .tokens = (uint32_t *)(uintptr_t)w->tokens,
        .sums = meta->sums,
    };

    if (w->parent != DISK_SLOT_NONE) {
        s.parent_number = disk_slot_meta(t, w->parent)->number;
        s.parent_key = kv_store_key(t->index, w->parent);
    }
    return disk_slab_encode(&t->slab, w->ref.slot, &s, &t->scratch, t->page);
}

static bool begin_header(struct disk_tier *t, struct disk_job *w,
                         struct disk_piece *p)
{
    int rc = encode_header(t, w);

    if (rc < 0) {
        w->error = rc;
        disk_io_wake(t->io);
        return false;
    }
    p->job = w;
    p->n_layers = 0;
    p->op = (struct disk_op){.write = true,
                             .buf = t->page,
                             .bytes = t->slab.page_bytes,
                             .offset =
                                 disk_slab_page_offset(&t->slab, w->ref.slot)};
    w->header_begun = true;
    w->under_way++;
    return true;
}

bool disk_writes_begin(struct disk_tier *t, struct disk_piece *p)
{
    struct disk_job *w = TAILQ_FIRST(&t->writes);

    if (w && w->error == 0 && disk_job_begun(w) && w->under_way == 0 &&
        !w->header_begun)
        return begin_header(t, w, p);
    for (uint32_t i = 0; w && i < DISK_WRITE_WINDOW; i++) {
        if (w->error == 0 && !disk_job_begun(w)) {
            begin_data(t, w, p);
            return true;
        }
        w = TAILQ_NEXT(w, link);
    }
    return false;
}

/* --- ending ------------------------------------------------------------ */

static void fail_write(struct disk_tier *t, struct disk_job *w, int rc)
{
    int64_t now_us = disk_now_us(t);

    if (w->error == 0)
        w->error = rc;
    if (rc == -ECANCELED || now_us < t->write_again_at_us)
        return;
    log_warn("%s: a block cannot be written: %s; nothing is written for %d s",
             t->path, strerror(-rc), WRITE_PAUSE_US / 1000000);
    t->write_again_at_us = now_us + WRITE_PAUSE_US;
}

void disk_writes_piece_over(struct disk_tier *t, struct disk_piece *p)
{
    p->job->under_way--;
    t->stats.written_bytes += p->op.moved_bytes;
    if (p->op.error)
        fail_write(t, p->job, p->op.error);
}

/* Returns whether no piece of `w` is under way or still to begin. */
static bool is_over(const struct disk_job *w)
{
    return w->under_way == 0 && (w->error || w->header_begun);
}

/* Makes `w`, whose header is on disk, a held block. */
static int commit(struct disk_tier *t, const struct disk_job *w)
{
    uint32_t held;

    switch (kv_store_commit(t->index, w->ref.slot, w->parent, w->key, w->tokens,
                            &held)) {
    case KV_COMMITTED:
        return 0;
    case KV_DUPLICATE: /* look() prevents it; harmless anyway */
        kv_store_release(t->index, held);
        return -EEXIST;
    case KV_COLLISION:
        return -ENOTUNIQ;
    case KV_ORPHAN:
        return -ESTALE;
    }
    return -EINVAL;
}

/* Returns whether the parent of `w` is not held: not yet, or no longer. */
static bool parent_lost(const struct disk_tier *t, const struct disk_job *w)
{
    return w->parent != DISK_SLOT_NONE &&
           !kv_store_is_held(t->index, w->parent);
}

/* Frees the slot of a failed write. If its data were touched, the old block's
 * header must be erased. (After a crash it is still there, but then its
 * checksums do not match.) */
static void clean_up(struct disk_tier *t, const struct disk_job *w)
{
    if (w->next_layer == 0)
        kv_store_release(t->index, w->ref.slot);
    else
        disk_erases_add(t, w->ref.slot);
}

void disk_writes_deliver(struct disk_tier *t)
{
    struct disk_job *w;

    while ((w = TAILQ_FIRST(&t->writes))) {
        struct disk_job ended = *w;

        /* No write precedes the first one, so its parent, if not held now,
         * never will be. */
        if (w->error == 0 && !is_over(w) && parent_lost(t, w))
            w->error = -ESTALE;
        if (!is_over(w))
            return;
        int rc = w->error ? w->error : commit(t, w);
        TAILQ_REMOVE(&t->writes, w, link);
        free(w);
        if (rc < 0)
            clean_up(t, &ended);
        else
            kv_store_release(t->index, ended.ref.slot);
        if (ended.parent != DISK_SLOT_NONE)
            kv_store_release(t->index, ended.parent);
        t->n_writes--;
        ended.done(ended.arg, rc);
    }
}

void disk_writes_cancel_all(struct disk_tier *t)
{
    struct disk_job *w;

    TAILQ_FOREACH(w, &t->writes, link)
    {
        if (w->error == 0 && !w->header_begun)
            w->error = -ECANCELED;
    }
}
