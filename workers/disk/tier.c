/* The disk tier: opening, closing, and the pump that hands out the pieces. */
#include "workers/disk/tier.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/clock.h"
#include "base/log.h"
#include "workers/disk/tier_internal.h"

#define SAY_PAUSE_US 5000000

struct slot_meta *disk_slot_meta(const struct disk_tier *t, uint32_t slot)
{
    return kv_store_data(t->index, slot);
}

uint64_t disk_layer_sum(const struct disk_tier *t, const char *block,
                        uint32_t layer)
{
    return XXH3_64bits(block + layer * t->layer_bytes, t->layer_bytes);
}

/* A disk that loses much would otherwise fill the log: one block is named, and
 * next time how many were not. */
static void say_dropped(struct disk_tier *t, uint32_t slot, const char *why)
{
    int64_t now_us = clock_now_us();

    if (now_us < t->say_again_at_us) {
        t->unsaid++;
        return;
    }
    log_warn("%s: block %016llx in slot %u is dropped: %s; and %llu others "
             "since the last such line",
             t->path, (unsigned long long)kv_store_key(t->index, slot), slot,
             why, (unsigned long long)t->unsaid);
    t->unsaid = 0;
    t->say_again_at_us = now_us + SAY_PAUSE_US;
}

void disk_tier_condemn(struct disk_tier *t, struct disk_ref ref,
                       const char *why)
{
    say_dropped(t, ref.slot, why);
    t->stats.damaged_blocks++;
    /* Those behind it are orphans after a restart, so one header is enough. */
    kv_store_pin(t->index, ref.slot);
    disk_erases_add(t, ref.slot);
    kv_store_drop(t->index, ref.slot);
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
        rc = disk_reads_init(t);
    if (rc == 0)
        rc = disk_writes_init(t);
    if (rc == 0)
        rc = disk_tier_restore(t);
    if (rc == 0)
        rc = disk_io_new(t->slab.fd, DISK_DEPTH, t->config.uring, &t->io);
    if (rc == 0 && getrandom(&t->number_base, sizeof(t->number_base), 0) < 0)
        rc = -errno;
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
    TAILQ_INIT(&t->free_reads);
    TAILQ_INIT(&t->writes);
    TAILQ_INIT(&t->free_writes);
    t->path = strdup(config->path);
    if (t->path) {
        struct disk_slab_config c = {
            .path = config->path,
            .bytes = config->bytes,
            .geometry = config->geometry,
            .direct = config->direct,
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

static void reap(struct disk_tier *t, bool wait, struct disk_pieces *came);
static void take_in(struct disk_tier *t, struct disk_pieces *came);

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
    free(t->read_pool);
    free(t->read_maps);
    free(t->write_pool);
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

uint32_t disk_tier_align(const struct disk_tier *t)
{
    return t->slab.direct ? DISK_ALIGN_BYTES : 1;
}

int disk_tier_fd(const struct disk_tier *t)
{
    return disk_io_fd(t->io);
}

struct kv_store *disk_tier_index(struct disk_tier *t)
{
    return t->index;
}

/* --- going on ---------------------------------------------------------- */

/* Puts all that is over into `came`; with `wait`, at least one. */
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
        if (p->read)
            disk_reads_piece_over(t, p);
        else if (!p->write)
            disk_erases_piece_over(t, p);
        else
            disk_writes_piece_over(t, p);
        STAILQ_INSERT_HEAD(&t->free_pieces, p, link);
    }
}

/* Reads first; writes as far as they do not stand in their way. */
static bool begin_one(struct disk_tier *t, struct disk_piece *p)
{
    uint32_t write_depth =
        t->n_reads > 0 ? DISK_WRITE_DEPTH_READING : DISK_WRITE_DEPTH;

    p->read = NULL;
    p->write = NULL;
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

void disk_tier_pump(struct disk_tier *t)
{
    if (!t->in_poll && !t->closing)
        begin_all(t);
}

void disk_tier_poll(struct disk_tier *t)
{
    struct disk_pieces came;

    disk_io_clear(t->io);
    t->in_poll = true;
    reap(t, false, &came);
    begin_all(t); /* the disk first, then the sums */
    take_in(t, &came);
    disk_reads_deliver(t);
    disk_writes_deliver(t);
    t->in_poll = false;
    begin_all(t);
}

/* --- blocks ------------------------------------------------------------ */

uint32_t disk_tier_match(struct disk_tier *t, const uint64_t *keys,
                         const uint32_t *tokens, uint32_t n_blocks,
                         struct disk_ref *refs)
{
    uint32_t block_tokens = t->slab.geometry.block_tokens;
    uint32_t parent = DISK_SLOT_NONE;
    uint32_t n = 0;

    for (; n < n_blocks; n++) {
        uint32_t slot = kv_store_find(t->index, keys[n], parent,
                                      tokens + (size_t)n * block_tokens);

        if (slot == KV_BLOCK_NONE)
            break;
        kv_store_pin(t->index, slot);
        refs[n] = (struct disk_ref){.slot = slot,
                                    .number = kv_store_number(t->index, slot)};
        parent = slot;
    }
    return n;
}

void disk_tier_unpin(struct disk_tier *t, struct disk_ref ref)
{
    kv_store_release(t->index, ref.slot);
}

bool disk_tier_has(const struct disk_tier *t, struct disk_ref ref)
{
    const struct disk_write *w;

    if (ref.slot >= t->slab.slots ||
        kv_store_number(t->index, ref.slot) != ref.number)
        return false;
    if (kv_store_is_held(t->index, ref.slot))
        return true;
    TAILQ_FOREACH(w, &t->writes, link)
    {
        if (w->slot == ref.slot)
            return !w->over && w->error == 0;
    }
    return false;
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
    if (t->rate_us > 0)
        stats->read_bytes_per_s = (uint64_t)(1e6 * t->rate_bytes / t->rate_us);
}
