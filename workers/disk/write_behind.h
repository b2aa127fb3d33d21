/* Copies held blocks of the store to the disk tier in the background: a block
 * is queued as soon as it is held, and pinned until it is written. So evicting
 * it from memory later needs no write.
 *
 * The tier's queue has a bounded length. A block that finds it full is written
 * later, if still held then. */
#ifndef WORKERS_DISK_WRITE_BEHIND_H
#define WORKERS_DISK_WRITE_BEHIND_H

#include "workers/disk/tier/tier.h"
#include "workers/store/kv_store.h"

struct write_behind;

/* Returns how many blocks of a store of capacity_blocks may be pinned for
 * writing at once, for disk_tier_config.max_writes. The others are for
 * requests. */
uint32_t write_behind_max(uint32_t capacity_blocks);

/* Makes a write-behind from `store` to `tier`, both borrowed. disk_tier_poll()
 * calls `released`(arg) after each pin given back. Returns it owned, or NULL:
 * out of memory. Close the tier before freeing it: writes refer to it. */
[[nodiscard]] struct write_behind *write_behind_new(struct kv_store *store,
                                                    struct disk_tier *tier,
                                                    void (*released)(void *arg),
                                                    void *arg);

/* Frees it. NULL is a no-op. */
void write_behind_free(struct write_behind *wb);

/* Queues the block under `key`, if the store holds one, and its ancestors that
 * are not on disk yet. O(1) if all are on disk. Changes only pins. */
void write_behind_stored(struct write_behind *wb, uint64_t key);

/* Queues blocks that found the queue full. Call it several times a second. */
void write_behind_resume(struct write_behind *wb);

#endif
