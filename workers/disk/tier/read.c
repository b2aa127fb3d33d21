/* Reads of the disk tier: cut into pieces, put together, verified by layer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "workers/disk/tier/internal.h"

#define MAP_BITS 64u
/* The rate is that of about so many bytes that were read last. */
#define RATE_BYTES (256.0 * 1048576)
#define RATE_EVERY_US 100000

static uint32_t pieces_of(uint64_t bytes)
{
    return (uint32_t)((bytes + DISK_PIECE_BYTES - 1) / DISK_PIECE_BYTES);
}

int disk_reads_init(struct disk_tier *t)
{
    uint32_t n = t->config.max_reads;
    size_t words =
        (pieces_of(t->slab.geometry.block_bytes) + MAP_BITS - 1) / MAP_BITS;

    t->read_pool = calloc(n, sizeof(*t->read_pool));
    t->read_maps = calloc(n, words * sizeof(*t->read_maps));
    if (!t->read_pool || !t->read_maps)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        t->read_pool[i].there = t->read_maps + i * words;
        TAILQ_INSERT_TAIL(&t->free_reads, &t->read_pool[i], link);
    }
    return 0;
}

/* --- the rate ---------------------------------------------------------- */

static void count_rate(struct disk_tier *t, int64_t now_us)
{
    t->rate_bytes += (double)t->busy_bytes;
    t->rate_us += (double)(now_us - t->busy_since_us);
    if (t->rate_bytes > RATE_BYTES) {
        t->rate_bytes /= 2;
        t->rate_us /= 2;
    }
    t->busy_bytes = 0;
    t->busy_since_us = now_us;
}

static void rate_begin(struct disk_tier *t)
{
    if (t->n_reads == 1)
        t->busy_since_us = clock_now_us();
}

/* After a read is over. A short time counts with what follows. */
static void rate_end(struct disk_tier *t)
{
    int64_t now_us = clock_now_us();

    if (t->n_reads == 0 || now_us - t->busy_since_us > RATE_EVERY_US)
        count_rate(t, now_us);
}

/* --- beginning --------------------------------------------------------- */

static void start_map(struct disk_read *r)
{
    uint32_t words = (pieces_of(r->bytes) + MAP_BITS - 1) / MAP_BITS;

    memset(r->there, 0, words * sizeof(*r->there));
}

int disk_reads_add(struct disk_tier *t, struct disk_ref ref,
                   uint32_t from_layer, uint32_t to_layer, void *block,
                   disk_tier_done_fn *done, void *arg, struct disk_read **read)
{
    struct disk_read *r = TAILQ_FIRST(&t->free_reads);
    uint64_t skip_bytes = from_layer * t->layer_bytes;

    if (from_layer >= to_layer || to_layer > t->slab.geometry.layers ||
        (uintptr_t)block % disk_tier_align(t))
        return -EINVAL;
    if (ref.slot >= t->slab.slots || !kv_store_is_held(t->index, ref.slot) ||
        kv_store_number(t->index, ref.slot) != ref.number)
        return -ESTALE;
    if (!r || t->closing)
        return -EBUSY;
    TAILQ_REMOVE(&t->free_reads, r, link);
    *r = (struct disk_read){
        .ref = ref,
        .file_offset = disk_slab_data_offset(&t->slab, ref.slot) + skip_bytes,
        .dst = (char *)block + skip_bytes,
        .bytes = (to_layer - from_layer) * t->layer_bytes,
        .from_layer = from_layer,
        .layer = from_layer,
        .queued = true,
        .there = r->there,
        .done = done,
        .arg = arg,
    };
    start_map(r);
    kv_store_pin(t->index, ref.slot);
    TAILQ_INSERT_TAIL(&t->reads, r, link);
    t->n_reads++;
    rate_begin(t);
    if (read)
        *read = r;
    return 0;
}

bool disk_reads_begin(struct disk_tier *t, struct disk_piece *p)
{
    struct disk_read *r = TAILQ_FIRST(&t->reads);

    if (!r)
        return false;
    uint64_t left = r->bytes - r->begun_bytes;
    p->read = r;
    p->index = (uint32_t)(r->begun_bytes / DISK_PIECE_BYTES);
    p->op.write = false;
    p->op.buf = r->dst + r->begun_bytes;
    p->op.bytes = left < DISK_PIECE_BYTES ? left : DISK_PIECE_BYTES;
    p->op.offset = r->file_offset + r->begun_bytes;
    r->begun_bytes += p->op.bytes;
    r->under_way++;
    if (r->begun_bytes == r->bytes) {
        TAILQ_REMOVE(&t->reads, r, link);
        r->queued = false;
    }
    return true;
}

/* --- ending ------------------------------------------------------------ */

/* Begins no more of `r`. */
static void unqueue(struct disk_tier *t, struct disk_read *r)
{
    if (r->queued)
        TAILQ_REMOVE(&t->reads, r, link);
    r->queued = false;
}

/* `r` has no piece under way and will begin none. */
static void end_read(struct disk_tier *t, struct disk_read *r)
{
    TAILQ_INSERT_TAIL(&t->ended, r, link);
}

static void fail_read(struct disk_tier *t, struct disk_read *r, int rc,
                      const char *why)
{
    if (r->error == 0)
        r->error = rc;
    unqueue(t, r);
    if (kv_store_is_held(t->index, r->ref.slot))
        disk_tier_condemn(t, r->ref, why);
}

/* Verifies the layers that are complete now. */
static void verify(struct disk_tier *t, struct disk_read *r)
{
    const struct slot_meta *meta = disk_slot_meta(t, r->ref.slot);
    uint64_t there = (uint64_t)r->next_piece * DISK_PIECE_BYTES;
    const char *block = r->dst - r->from_layer * t->layer_bytes;

    if (there > r->bytes)
        there = r->bytes;
    while ((r->layer + 1 - r->from_layer) * t->layer_bytes <= there &&
           r->error == 0) {
        if (disk_layer_sum(t, block, r->layer) != meta->sums[r->layer])
            fail_read(t, r, -EBADMSG, "its data do not fit their checksum");
        r->layer++;
    }
}

static void piece_is_there(struct disk_tier *t, struct disk_read *r,
                           uint32_t index)
{
    r->there[index / MAP_BITS] |= 1ull << index % MAP_BITS;
    while (r->next_piece < pieces_of(r->bytes) &&
           r->there[r->next_piece / MAP_BITS] >> r->next_piece % MAP_BITS & 1)
        r->next_piece++;
    verify(t, r);
}

void disk_reads_piece_over(struct disk_tier *t, struct disk_piece *p)
{
    struct disk_read *r = p->read;

    r->under_way--;
    t->stats.read_bytes += p->op.moved_bytes;
    t->busy_bytes += p->op.moved_bytes;
    if (p->op.error)
        fail_read(t, r, p->op.error,
                  p->op.error == -ENODATA ? "the file ends in front of it"
                                          : strerror(-p->op.error));
    else if (r->error == 0)
        piece_is_there(t, r, p->index);
    if (r->under_way == 0 && !r->queued)
        end_read(t, r);
}

void disk_tier_cancel(struct disk_tier *t, struct disk_read *read)
{
    if (read->error == 0)
        read->error = -ECANCELED;
    if (!read->queued)
        return; /* its last piece ends it, or has ended it */
    unqueue(t, read);
    if (read->under_way > 0)
        return;
    end_read(t, read);
    disk_io_wake(t->io);
}

void disk_reads_deliver(struct disk_tier *t)
{
    struct disk_read *r;

    while ((r = TAILQ_FIRST(&t->ended))) {
        disk_tier_done_fn *done = r->done;
        void *arg = r->arg;
        int rc = r->error;

        TAILQ_REMOVE(&t->ended, r, link);
        kv_store_release(t->index, r->ref.slot);
        t->n_reads--;
        rate_end(t);
        TAILQ_INSERT_HEAD(&t->free_reads, r, link);
        done(arg, rc);
    }
}

void disk_reads_cancel_all(struct disk_tier *t)
{
    struct disk_read *r;

    /* Those whose pieces are all under way end well. */
    while ((r = TAILQ_FIRST(&t->reads)))
        disk_tier_cancel(t, r);
}
