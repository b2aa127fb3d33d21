/* The disk tier as a source of the loader: reads blocks of a prompt from disk
 * into the blocks of its request. */
#ifndef WORKERS_DISK_SOURCE_H
#define WORKERS_DISK_SOURCE_H

#include "workers/disk/tier/tier.h"
#include "workers/load/loader.h"

/* Returns the loader's source for `tier`, added if missing and owned by the
 * loader, or NULL: the loader has no room. Both are borrowed; close the tier
 * before the loader is freed. */
[[nodiscard]] struct loader_source *disk_source(struct loader *loader,
                                                struct disk_tier *tier);

/* Returns how many leading blocks of r's prompt the tier holds, at most
 * to_block. O(blocks). */
uint32_t disk_source_blocks(struct disk_tier *tier, const struct request *r,
                            uint32_t to_block);

#endif
