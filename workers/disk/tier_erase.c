/* Erasing headers of the disk tier: of blocks that were dropped, and of slots
 * in which a write was not brought to an end. */
#include <string.h>

#include "base/log.h"
#include "workers/disk/tier_internal.h"

void disk_erases_add(struct disk_tier *t, uint32_t slot)
{
    disk_slot_meta(t, slot)->next_erase = DISK_SLOT_NONE;
    if (t->first_erase == DISK_SLOT_NONE)
        t->first_erase = slot;
    else
        disk_slot_meta(t, t->last_erase)->next_erase = slot;
    t->last_erase = slot;
}

/* The next slot, or DISK_SLOT_NONE. */
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
    p->index = slot;
    p->op.write = true;
    p->op.buf = t->blank;
    p->op.bytes = t->slab.page_bytes;
    p->op.offset = disk_slab_page_offset(&t->slab, slot);
    return true;
}

/* A header that stays does no harm: its data do not fit its checksums. */
static void erased(struct disk_tier *t, uint32_t slot, int rc)
{
    if (rc < 0)
        log_debug("%s: the header of slot %u cannot be erased: %s", t->path,
                  slot, strerror(-rc));
    kv_store_release(t->index, slot);
}

void disk_erases_piece_over(struct disk_tier *t, struct disk_piece *p)
{
    erased(t, p->index, p->op.error);
}

void disk_erases_finish(struct disk_tier *t)
{
    uint32_t slot;

    while ((slot = take_first(t)) != DISK_SLOT_NONE)
        erased(t, slot, disk_slab_erase(&t->slab, slot));
}
