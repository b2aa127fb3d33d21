/* Writes of the disk tier: data first, then the header that makes it a block.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "workers/disk/tier/internal.h"

/* After a failure nothing is written for so long: a full or broken disk must
 * not fill the log. */
#define WRITE_PAUSE_US 10000000

int disk_writes_init(struct disk_tier *t)
{
    t->write_pool = calloc(t->config.max_writes, sizeof(*t->write_pool));
    if (!t->write_pool)
        return -ENOMEM;
    for (uint32_t i = 0; i < t->config.max_writes; i++)
        TAILQ_INSERT_TAIL(&t->free_writes, &t->write_pool[i], link);
    return 0;
}

/* Looks for the block itself, or for what stands in its way. */
static int look(const struct disk_tier *t, struct disk_ref parent, uint64_t key,
                const uint32_t *tokens, struct disk_ref *ref)
{
    const struct disk_write *w;

    if (parent.slot != DISK_SLOT_NONE && !disk_tier_has(t, parent))
        return -ESTALE;
    uint32_t other = kv_store_find(t->index, key, parent.slot, tokens);
    if (other != KV_BLOCK_NONE) {
        *ref = (struct disk_ref){.slot = other,
                                 .number = kv_store_number(t->index, other)};
        return -EEXIST;
    }
    if (kv_store_find_key(t->index, key) != KV_BLOCK_NONE)
        return -ENOTUNIQ;
    TAILQ_FOREACH(w, &t->writes, link)
    {
        if (w->key == key)
            return -ENOTUNIQ;
    }
    return 0;
}

int disk_writes_add(struct disk_tier *t, struct disk_ref parent, uint64_t key,
                    const uint32_t *tokens, const void *data,
                    disk_tier_done_fn *done, void *arg, struct disk_ref *ref)
{
    struct disk_write *w = TAILQ_FIRST(&t->free_writes);
    uint32_t slot;

    if ((uintptr_t)data % disk_tier_align(t))
        return -EINVAL;
    int rc = look(t, parent, key, tokens, ref);
    if (rc < 0)
        return rc;
    if (!w || t->closing || clock_now_us() < t->write_again_at_us)
        return -EBUSY;
    if (parent.slot != DISK_SLOT_NONE)
        kv_store_pin(t->index, parent.slot);
    if (kv_store_alloc(t->index, 1, &slot) < 0) {
        if (parent.slot != DISK_SLOT_NONE)
            kv_store_release(t->index, parent.slot);
        return -ENOSPC;
    }
    TAILQ_REMOVE(&t->free_writes, w, link);
    *w = (struct disk_write){.slot = slot,
                             .parent = parent.slot,
                             .key = key,
                             .tokens = tokens,
                             .data = data,
                             .done = done,
                             .arg = arg};
    struct slot_meta *meta = disk_slot_meta(t, slot);
    meta->order = t->next_order++;
    meta->number = t->number_base + meta->order;
    TAILQ_INSERT_TAIL(&t->writes, w, link);
    t->n_writes++;
    *ref = (struct disk_ref){.slot = slot,
                             .number = kv_store_number(t->index, slot)};
    return 0;
}

/* --- beginning --------------------------------------------------------- */

static void begin_data(struct disk_tier *t, struct disk_write *w,
                       struct disk_piece *p)
{
    uint64_t left = t->slab.geometry.block_bytes - w->begun_bytes;
    struct slot_meta *meta = disk_slot_meta(t, w->slot);

    p->write = w;
    p->header = false;
    p->op.write = true;
    /* It is only read; the structure serves both ways. */
    p->op.buf = (void *)(uintptr_t)(w->data + w->begun_bytes);
    p->op.bytes = left < DISK_PIECE_BYTES ? left : DISK_PIECE_BYTES;
    p->op.offset = disk_slab_data_offset(&t->slab, w->slot) + w->begun_bytes;
    w->begun_bytes += p->op.bytes;
    w->under_way++;
    /* As the pieces go, so that a large block does not stop the loop. */
    for (; w->summed * t->layer_bytes < w->begun_bytes; w->summed++)
        meta->sums[w->summed] = disk_layer_sum(t, w->data, w->summed);
}

static int encode_header(struct disk_tier *t, const struct disk_write *w)
{
    struct slot_meta *meta = disk_slot_meta(t, w->slot);
    struct disk_slot s = {
        .parent_slot = w->parent,
        .key = w->key,
        .number = meta->number,
        .order = meta->order,
        /* Only read; the structure serves both ways. */
        .tokens = (uint32_t *)(uintptr_t)w->tokens,
        .sums = meta->sums,
    };

    if (w->parent != DISK_SLOT_NONE) {
        s.parent_number = disk_slot_meta(t, w->parent)->number;
        s.parent_key = kv_store_key(t->index, w->parent);
    }
    return disk_slab_encode(&t->slab, w->slot, &s, &t->scratch, t->page);
}

static bool begin_header(struct disk_tier *t, struct disk_write *w,
                         struct disk_piece *p)
{
    int rc = encode_header(t, w);

    if (rc < 0) {
        w->error = rc;
        w->over = true;
        disk_io_wake(t->io);
        return false;
    }
    p->write = w;
    p->header = true;
    p->op.write = true;
    p->op.buf = t->page;
    p->op.bytes = t->slab.page_bytes;
    p->op.offset = disk_slab_page_offset(&t->slab, w->slot);
    w->header_begun = true;
    w->under_way++;
    return true;
}

bool disk_writes_begin(struct disk_tier *t, struct disk_piece *p)
{
    uint64_t block_bytes = t->slab.geometry.block_bytes;
    struct disk_write *w = TAILQ_FIRST(&t->writes);

    if (w && w->error == 0 && w->done_bytes == block_bytes && !w->header_begun)
        return begin_header(t, w, p);
    for (uint32_t i = 0; w && i < DISK_WRITE_WINDOW; i++) {
        if (w->error == 0 && w->begun_bytes < block_bytes) {
            begin_data(t, w, p);
            return true;
        }
        w = TAILQ_NEXT(w, link);
    }
    return false;
}

/* --- ending ------------------------------------------------------------ */

static void fail_write(struct disk_tier *t, struct disk_write *w, int rc)
{
    int64_t now_us = clock_now_us();

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
    struct disk_write *w = p->write;

    w->under_way--;
    t->stats.written_bytes += p->op.moved_bytes;
    if (p->op.error)
        fail_write(t, w, p->op.error);
    else if (p->header)
        w->over = true;
    else
        w->done_bytes += p->op.bytes;
    if (w->error && w->under_way == 0)
        w->over = true;
}

/* The header of `w` is on disk: it is a block. */
static int commit(struct disk_tier *t, const struct disk_write *w)
{
    uint32_t held;

    switch (kv_store_commit(t->index, w->slot, w->parent, w->key, w->tokens,
                            &held)) {
    case KV_COMMITTED:
        return 0;
    case KV_DUPLICATE: /* kept out by `look`, but it would do no harm */
        kv_store_release(t->index, held);
        return -EEXIST;
    case KV_COLLISION:
        return -ENOTUNIQ;
    case KV_ORPHAN:
        return -ESTALE;
    }
    return -EINVAL;
}

/* The parent of a write may have failed, or was dropped. */
static bool parent_lost(const struct disk_tier *t, const struct disk_write *w)
{
    return w->parent != DISK_SLOT_NONE &&
           !kv_store_is_held(t->index, w->parent);
}

/* Gives back the slot of a write that failed. It still has the header of the
 * block that was there before, but no longer its data. (After a crash that is
 * so as well; then the checksums show it.) */
static void clean_up(struct disk_tier *t, const struct disk_write *w)
{
    if (w->begun_bytes == 0)
        kv_store_release(t->index, w->slot);
    else
        disk_erases_add(t, w->slot);
}

void disk_writes_deliver(struct disk_tier *t)
{
    struct disk_write *w;

    while ((w = TAILQ_FIRST(&t->writes))) {
        /* The first one has no write in front: its parent will not come. */
        if (w->error == 0 && !w->over && parent_lost(t, w))
            w->error = -ESTALE;
        if (w->error && w->under_way == 0)
            w->over = true;
        if (!w->over)
            return;
        int rc = w->error ? w->error : commit(t, w);
        disk_tier_done_fn *done = w->done;
        void *arg = w->arg;
        TAILQ_REMOVE(&t->writes, w, link);
        if (rc < 0)
            clean_up(t, w);
        else
            kv_store_release(t->index, w->slot);
        if (w->parent != DISK_SLOT_NONE)
            kv_store_release(t->index, w->parent);
        t->n_writes--;
        TAILQ_INSERT_HEAD(&t->free_writes, w, link);
        done(arg, rc);
    }
}

void disk_writes_cancel_all(struct disk_tier *t)
{
    struct disk_write *w;

    TAILQ_FOREACH(w, &t->writes, link)
    {
        if (w->error == 0 && !w->header_begun)
            w->error = -ECANCELED;
    }
}
