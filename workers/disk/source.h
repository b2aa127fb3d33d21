/* The disk tier as a source of the loader: blocks of a prompt are read into the
 * blocks of its request. */
#ifndef WORKERS_DISK_SOURCE_H
#define WORKERS_DISK_SOURCE_H

#include "workers/disk/tier/tier.h"
#include "workers/load/loader.h"

/* The source, added if the loader does not have it. `loader` and `tier` are
 * borrowed for its life; close the tier before the loader is freed. NULL: the
 * loader has no room for it. */
[[nodiscard]] struct loader_source *disk_source(struct loader *loader,
                                                struct disk_tier *tier);

/* Leading blocks of r's prompt that the tier can send, at most to_block.
 * O(blocks). */
uint32_t disk_source_blocks(struct disk_tier *tier, const struct request *r,
                            uint32_t to_block);

#endif
