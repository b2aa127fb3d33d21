/* What the files of the slab share. Nobody else includes this. */
#ifndef WORKERS_DISK_SLAB_INTERNAL_H
#define WORKERS_DISK_SLAB_INTERNAL_H

#include "workers/disk/slab.h"

/* Bytes of one slot header of a geometry. */
uint32_t disk_slab_page_bytes(const struct disk_geometry *g);

/* Fill in all sizes and offsets. */
void disk_slab_lay_out(struct disk_slab *slab, const struct disk_geometry *g,
                       uint32_t slots);

/* Whether the checksum at the end of page[bytes] is right. */
bool disk_slab_sealed(const void *page, size_t bytes);

/* Make page[bytes] of what `b` holds, zeroes and the checksum; `b` is used up.
 * 0, or -ENOMEM. */
int disk_slab_seal(struct wire_buf *b, void *page, size_t bytes)
    __attribute__((warn_unused_result));

#endif
