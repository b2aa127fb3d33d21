/* Copies blocks to the disk tier.
 *
 * A block on disk needs its parent on disk. A note maps a block of the store to
 * its place in the tier. The note has the allocation numbers of both, so that
 * one about earlier contents is recognized. */
#include "workers/disk/write_behind.h"

#include <errno.h>
#include <stdlib.h>

#define WRITES_MAX 256u
/* At most 1 / PINNED_SHARE of the store may be pinned for writing. */
#define PINNED_SHARE 8u

/* The place of a block of the store in the tier. The block is pinned in the
 * store while it is being written. */
struct note {
    struct write_behind *wb;
    uint64_t number; /* kv_store_number() of the block; 0 = no note */
    struct disk_ref ref;
};

struct write_behind {
    struct kv_store *store;
    struct disk_tier *tier;
    void (*released)(void *arg);
    void *arg;
    struct note *notes; /* (capacity_blocks) */
    uint32_t *chain;    /* (capacity_blocks) scratch */
    bool holds_all;     /* the tier has at least as many blocks as the store */
    /* The first block that found the queue full; number 0 = none. Blocks
     * committed after it may not be on disk, either. */
    uint32_t behind_id;
    uint64_t behind_number;
};

uint32_t write_behind_max(uint32_t capacity_blocks)
{
    uint32_t n = capacity_blocks / PINNED_SHARE;

    return n < 1 ? 1 : n > WRITES_MAX ? WRITES_MAX : n;
}

struct write_behind *write_behind_new(struct kv_store *store,
                                      struct disk_tier *tier,
                                      void (*released)(void *arg), void *arg)
{
    struct write_behind *wb = calloc(1, sizeof(*wb));
    struct kv_store_stats s;
    struct kv_store_stats disk;

    if (!wb)
        return NULL;
    kv_store_stats(store, &s);
    kv_store_stats(disk_tier_index(tier), &disk);
    wb->holds_all = disk.capacity_blocks >= s.capacity_blocks;
    wb->store = store;
    wb->tier = tier;
    wb->released = released;
    wb->arg = arg;
    wb->notes = calloc(s.capacity_blocks, sizeof(*wb->notes));
    wb->chain = calloc(s.capacity_blocks, sizeof(*wb->chain));
    if (wb->notes && wb->chain)
        return wb;
    write_behind_free(wb);
    return NULL;
}

void write_behind_free(struct write_behind *wb)
{
    if (!wb)
        return;
    free(wb->notes);
    free(wb->chain);
    free(wb);
}

/* Returns where held block `id` is, or is being written, in the tier. */
static struct disk_ref on_disk(const struct write_behind *wb, uint32_t id)
{
    const struct note *note = &wb->notes[id];

    if (note->number == kv_store_number(wb->store, id) &&
        disk_tier_has(wb->tier, note->ref))
        return note->ref;
    return DISK_REF_NONE;
}

/* The tier logs a failure and then lacks the block, which voids the note. */
static void on_written(void *arg, int)
{
    const struct note *note = arg;
    struct write_behind *wb = note->wb;

    kv_store_release(wb->store, (uint32_t)(note - wb->notes));
    wb->released(wb->arg);
}

/* Queues block `id` behind `parent`. Returns 0 if it is on disk or queued. */
static int write_one(struct write_behind *wb, uint32_t id,
                     struct disk_ref parent)
{
    struct note *note = &wb->notes[id];
    struct disk_ref ref;

    int rc =
        disk_tier_write(wb->tier, parent, kv_store_key(wb->store, id),
                        kv_store_tokens(wb->store, id),
                        kv_store_data(wb->store, id), on_written, note, &ref);
    if (rc == 0)
        kv_store_pin(wb->store, id);
    if (rc < 0 && rc != -EEXIST)
        return rc;
    *note = (struct note){wb, kv_store_number(wb->store, id), ref};
    return 0;
}

/* Queues `id` and its ancestors not on disk, ancestors first. */
static int write_chain(struct write_behind *wb, uint32_t id)
{
    struct disk_ref parent = DISK_REF_NONE;
    uint32_t n = 0;

    while (id != KV_BLOCK_NONE) {
        parent = on_disk(wb, id);
        if (parent.number != 0)
            break;
        wb->chain[n++] = id;
        id = kv_store_parent(wb->store, id);
    }
    while (n > 0) {
        id = wb->chain[--n];
        int rc = write_one(wb, id, parent);
        if (rc < 0)
            return rc;
        parent = wb->notes[id].ref;
    }
    return 0;
}

/* Returns 0, or -EBUSY if the queue is full: then notes `id` as behind. */
static int write_or_note(struct write_behind *wb, uint32_t id)
{
    int rc = write_chain(wb, id);

    /* If another block on disk has its key, this one stays in memory only. */
    if (rc != -EBUSY && rc != -ENOSPC)
        return 0;
    wb->behind_id = id;
    wb->behind_number = kv_store_number(wb->store, id);
    return -EBUSY;
}

void write_behind_stored(struct write_behind *wb, uint64_t key)
{
    uint32_t id = kv_store_find_key(wb->store, key);

    /* write_behind_resume() reaches it, after the block that is behind. */
    if (id == KV_BLOCK_NONE || wb->behind_number != 0)
        return;
    write_or_note(wb, id);
}

void write_behind_resume(struct write_behind *wb)
{
    struct kv_store_event e;
    uint32_t id = wb->behind_id;
    uint64_t number = wb->behind_number;

    if (number == 0)
        return;
    wb->behind_number = 0;
    if (!kv_store_is_held(wb->store, id) ||
        kv_store_number(wb->store, id) != number) {
        /* It was evicted: restart with the oldest block. A tier smaller than
         * the store would then evict the blocks it needs next: start with the
         * first block that was allocated later. */
        id = KV_BLOCK_NONE;
        do {
            if (!kv_store_inventory(wb->store, &id, &e))
                return;
        } while (!wb->holds_all && kv_store_number(wb->store, id) <= number);
    }
    do {
        if (write_or_note(wb, id) < 0)
            return;
    } while (kv_store_inventory(wb->store, &id, &e));
}
