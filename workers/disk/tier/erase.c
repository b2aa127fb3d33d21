/* Erases headers of the disk tier: of dropped blocks, and of slots whose write
 * failed. */
#include <string.h>

#include "base/log.h"
#include "workers/disk/tier/internal.h"

#define SAY_PAUSE_US 5000000

void disk_erases_add(struct disk_tier *t, uint32_t slot)
{
    disk_slot_meta(t, slot)->next_erase = DISK_SLOT_NONE;
    if (t->first_erase == DISK_SLOT_NONE)
        t->first_erase = slot;
    else
        disk_slot_meta(t, t->last_erase)->next_erase = slot;
    t->last_erase = slot;
}

/* Takes the first slot out of the queue; DISK_SLOT_NONE if it is empty. */
static uint32_t take_first(struct disk_tier *t)
{
    uint32_t slot = t->first_erase;

    if (slot != DISK_SLOT_NONE)
        t->first_erase = disk_slot_meta(t, slot)->next_erase;
    return slot;
}

bool disk_erases_begin(struct disk_tier *t, struct disk_piece *p)
{
    uint32_t slot = take_first(t);

    if (slot == DISK_SLOT_NONE)
        return false;
    p->job = NULL;
    p->slot = slot;
    p->op = (struct disk_op){.write = true,
                             .buf = t->blank,
                             .bytes = t->slab.page_bytes,
                             .offset = disk_slab_page_offset(&t->slab, slot)};
    return true;
}

/* A header that could not be erased does no harm: its data are damaged, so the
 * checksums do not match. */
static void erased(struct disk_tier *t, uint32_t slot, int rc)
{
    if (rc < 0)
        log_debug("%s: the header of slot %u cannot be erased: %s", t->path,
                  slot, strerror(-rc));
    kv_store_release(t->index, slot);
}

void disk_erases_piece_over(struct disk_tier *t, struct disk_piece *p)
{
    erased(t, p->slot, p->op.error);
}

void disk_erases_finish(struct disk_tier *t)
{
    uint32_t slot;

    while ((slot = take_first(t)) != DISK_SLOT_NONE)
        erased(t, slot, disk_slab_erase(&t->slab, slot));
}

/* Logs at most one dropped block every 5 s, with the number of blocks dropped
 * in between, so that a failing disk does not fill the log. */
static void say_dropped(struct disk_tier *t, uint32_t slot, const char *why)
{
    int64_t now_us = disk_now_us(t);

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
    /* Erasing one header is enough: after a restart the blocks behind it have
     * no parent and are not found. */
    kv_store_pin(t->index, ref.slot);
    disk_erases_add(t, ref.slot);
    kv_store_drop(t->index, ref.slot);
}
