/* The disk tier: opens and closes it, takes reads and writes, hands their
 * pieces to the disk. */
#include "workers/disk/tier/tier.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workers/disk/tier/internal.h"

/* --- pieces that are over ----------------------------------------------- */

/* Moves all finished pieces to `came`; with `wait`, at least one. */
static void reap(struct disk_tier *t, bool wait, struct disk_pieces *came)
{
    struct disk_op *op;

    STAILQ_INIT(came);
    while ((op = disk_io_reap(t->io, wait))) {
        struct disk_piece *p = (struct disk_piece *)op;

        t->n_under_way--;
        t->n_write_pieces -= p->op.write;
        STAILQ_INSERT_TAIL(came, p, link);
        wait = false;
    }
}

static void take_in(struct disk_tier *t, struct disk_pieces *came)
{
    struct disk_piece *p;

    while ((p = STAILQ_FIRST(came))) {
        STAILQ_REMOVE_HEAD(came, link);
        if (!p->job)
            disk_erases_piece_over(t, p);
        else if (p->job->write)
            disk_writes_piece_over(t, p);
        else
            disk_reads_piece_over(t, p);
        STAILQ_INSERT_HEAD(&t->free_pieces, p, link);
    }
}

/* --- opening and closing ----------------------------------------------- */

static int make_index(struct disk_tier *t)
{
    struct kv_store_config c = {
        .capacity_blocks = t->slab.slots,
        .block_tokens = t->slab.geometry.block_tokens,
        .block_bytes = sizeof(struct slot_meta) +
                       t->slab.geometry.layers * sizeof(uint64_t),
        .event_capacity = t->config.event_capacity,
    };

    return kv_store_new(&c, &t->index);
}

static int make_rest(struct disk_tier *t)
{
    t->page = aligned_alloc(DISK_ALIGN_BYTES, t->slab.page_bytes);
    t->blank = aligned_alloc(DISK_ALIGN_BYTES, t->slab.page_bytes);
    t->first_erase = DISK_SLOT_NONE;
    wire_buf_init(&t->scratch, t->slab.page_bytes);
    t->layer_bytes = t->slab.geometry.block_bytes / t->slab.geometry.layers;
    STAILQ_INIT(&t->free_pieces);
    for (uint32_t i = 0; i < DISK_PIECES; i++)
        STAILQ_INSERT_TAIL(&t->free_pieces, &t->pieces[i], link);
    if (!t->page || !t->blank)
        return -ENOMEM;
    memset(t->blank, 0, t->slab.page_bytes);
    int rc = make_index(t);
    if (rc == 0)
        rc = disk_tier_restore(t);
    if (rc == 0)
        rc = disk_io_new(t->slab.fd, DISK_DEPTH, t->config.uring, &t->io);
    t->number_base = t->config.random(t->config.loop);
    return rc;
}

int disk_tier_open(const struct disk_tier_config *config,
                   struct disk_tier **out, char *err, size_t err_bytes)
{
    struct disk_tier *t = calloc(1, sizeof(*t));
    int rc = -ENOMEM;

    snprintf(err, err_bytes, "out of memory");
    if (!t)
        return rc;
    t->config = *config;
    t->slab.fd = -1;
    TAILQ_INIT(&t->reads);
    TAILQ_INIT(&t->ended);
    TAILQ_INIT(&t->writes);
    t->path = strdup(config->path);
    if (t->path) {
        struct disk_slab_config c = {
            .path = config->path,
            .bytes = config->bytes,
            .geometry = config->geometry,
            .direct = config->direct,
            .file_id = config->random(config->loop),
        };
        rc = disk_slab_open(&c, &t->slab, err, err_bytes);
        if (rc == 0 && (rc = make_rest(t)) < 0)
            snprintf(err, err_bytes, "%s: %s", t->path, strerror(-rc));
    }
    if (rc < 0) {
        disk_tier_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

void disk_tier_close(struct disk_tier *t)
{
    struct disk_pieces came;

    if (!t)
        return;
    t->closing = true;
    if (t->io) {
        disk_reads_cancel_all(t);
        disk_writes_cancel_all(t);
        disk_io_flush(t->io);
        while (t->n_under_way > 0) {
            reap(t, true, &came);
            take_in(t, &came);
        }
        disk_reads_deliver(t);
        disk_writes_deliver(t);
        disk_erases_finish(t);
    }
    disk_io_free(t->io);
    kv_store_free(t->index);
    disk_slab_close(&t->slab);
    wire_buf_fini(&t->scratch);
    free(t->page);
    free(t->blank);
    free(t->path);
    free(t);
}

const char *disk_tier_way(const struct disk_tier *t)
{
    bool uring = strcmp(disk_io_name(t->io), "io_uring") == 0;

    if (t->slab.direct)
        return uring ? "io_uring, O_DIRECT" : "threads, O_DIRECT";
    return uring ? "io_uring, page cache" : "threads, page cache";
}

int disk_tier_fd(const struct disk_tier *t)
{
    return disk_io_fd(t->io);
}

struct kv_store *disk_tier_index(struct disk_tier *t)
{
    return t->index;
}

/* --- beginning pieces ---------------------------------------------------- */

/* Makes `p` the next piece: first of a read, then of a write; few writes run
 * beside reads. Returns false if nothing can begin. */
static bool begin_one(struct disk_tier *t, struct disk_piece *p)
{
    uint32_t write_depth =
        t->n_reads > 0 ? DISK_WRITE_DEPTH_READING : DISK_WRITE_DEPTH;

    if (disk_reads_begin(t, p))
        return true;
    if (t->n_write_pieces >= write_depth)
        return false;
    if (!disk_erases_begin(t, p) && !disk_writes_begin(t, p))
        return false;
    t->n_write_pieces++;
    return true;
}

static void begin_all(struct disk_tier *t)
{
    struct disk_piece *p;

    while (t->n_under_way < DISK_DEPTH && (p = STAILQ_FIRST(&t->free_pieces)) &&
           begin_one(t, p)) {
        STAILQ_REMOVE_HEAD(&t->free_pieces, link);
        t->n_under_way++;
        disk_io_submit(t->io, &p->op);
    }
    disk_io_flush(t->io);
}

/* Begins all pieces that can begin, unless disk_tier_poll() is about to. */
static void pump(struct disk_tier *t)
{
    if (!t->in_poll && !t->closing)
        begin_all(t);
}

/* --- accepting reads and writes ---------------------------------------- */

int disk_tier_read(struct disk_tier *t, struct disk_ref ref,
                   uint32_t from_layer, uint32_t to_layer, void *block,
                   disk_tier_done_fn *done, void *arg, struct disk_job **read)
{
    if (from_layer >= to_layer || to_layer > t->slab.geometry.layers ||
        (uintptr_t)block % disk_tier_align(t))
        return -EINVAL;
    if (ref.slot >= t->slab.slots || !kv_store_is_held(t->index, ref.slot) ||
        kv_store_number(t->index, ref.slot) != ref.number)
        return -ESTALE;
    if (t->n_reads == t->config.max_reads || t->closing)
        return -EBUSY;
    struct disk_job *r = malloc(sizeof(*r));
    if (!r)
        return -EBUSY;
    *r = (struct disk_job){.ref = ref,
                           .block = block,
                           .next_layer = from_layer,
                           .to_layer = to_layer,
                           .done = done,
                           .arg = arg};
    kv_store_pin(t->index, ref.slot);
    TAILQ_INSERT_TAIL(&t->reads, r, link);
    t->n_reads++;
    if (read)
        *read = r;
    pump(t);
    return 0;
}

/* Returns 0 if the block can be written, or an error of disk_tier_write(). */
static int look(const struct disk_tier *t, struct disk_ref parent, uint64_t key,
                const uint32_t *tokens, struct disk_ref *ref)
{
    const struct disk_job *w;

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

/* Allocates a slot for a block behind `parent`, which gets a pin. Returns 0, or
 * -ENOSPC. */
static int take_slot(struct disk_tier *t, uint32_t parent, struct disk_ref *ref)
{
    if (parent != DISK_SLOT_NONE)
        kv_store_pin(t->index, parent);
    if (kv_store_alloc(t->index, 1, &ref->slot) < 0) {
        if (parent != DISK_SLOT_NONE)
            kv_store_release(t->index, parent);
        return -ENOSPC;
    }
    struct slot_meta *meta = disk_slot_meta(t, ref->slot);
    meta->order = t->next_order++;
    meta->number = t->number_base + meta->order;
    ref->number = kv_store_number(t->index, ref->slot);
    return 0;
}

int disk_tier_write(struct disk_tier *t, struct disk_ref parent, uint64_t key,
                    const uint32_t *tokens, const void *data,
                    disk_tier_done_fn *done, void *arg, struct disk_ref *ref)
{
    if ((uintptr_t)data % disk_tier_align(t))
        return -EINVAL;
    int rc = look(t, parent, key, tokens, ref);
    if (rc < 0)
        return rc;
    if (t->n_writes == t->config.max_writes || t->closing ||
        disk_now_us(t) < t->write_again_at_us)
        return -EBUSY;
    struct disk_job *w = malloc(sizeof(*w));
    rc = w ? take_slot(t, parent.slot, ref) : -EBUSY;
    if (rc < 0) {
        free(w);
        return rc;
    }
    *w = (struct disk_job){.write = true,
                           .ref = *ref,
                           .parent = parent.slot,
                           .key = key,
                           .tokens = tokens,
                           .block = (void *)(uintptr_t)data,
                           .to_layer = t->slab.geometry.layers,
                           .done = done,
                           .arg = arg};
    TAILQ_INSERT_TAIL(&t->writes, w, link);
    t->n_writes++;
    pump(t);
    return 0;
}

/* --- poll, statistics -------------------------------------------------- */

void disk_tier_poll(struct disk_tier *t)
{
    struct disk_pieces came;

    disk_io_clear(t->io);
    t->in_poll = true;
    reap(t, false, &came);
    begin_all(t); /* so that the disk works while the checksums are computed */
    take_in(t, &came);
    disk_reads_deliver(t);
    disk_writes_deliver(t);
    t->in_poll = false;
    begin_all(t);
}

void disk_tier_stats(const struct disk_tier *t, struct disk_tier_stats *stats)
{
    struct kv_store_stats s;

    kv_store_stats(t->index, &s);
    *stats = t->stats;
    stats->capacity_blocks = s.capacity_blocks;
    stats->held_blocks = s.held_blocks;
    stats->evicted_blocks = s.evicted_blocks;
    stats->reads = t->n_reads;
    stats->writes = t->n_writes;
}
