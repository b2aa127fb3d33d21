/* Copies held blocks of the store to the disk tier in the background: a block
 * is queued as soon as it is held, and pinned until it is written. So eviction
 * from memory costs no write.
 *
 * The queue is the tier's, of bounded length. A block that finds it full is
 * written later, if it is still held by then. */
#ifndef WORKERS_DISK_WRITE_BEHIND_H
#define WORKERS_DISK_WRITE_BEHIND_H

#include "workers/disk/tier/tier.h"
#include "workers/store/kv_store.h"

struct write_behind;

/* Writes that a store of so many blocks may have pinned at once, so that enough
 * is left for requests. For disk_tier_config.max_writes. */
uint32_t write_behind_max(uint32_t capacity_blocks);

/* Make one between `store` and `tier`, both borrowed. `released`(arg) is called
 * after pins were given back, from disk_tier_poll. Returns it owned, or NULL:
 * out of memory. Close the tier before it is freed: its writes refer to it. */
[[nodiscard]] struct write_behind *write_behind_new(struct kv_store *store,
                                                    struct disk_tier *tier,
                                                    void (*released)(void *arg),
                                                    void *arg);

/* Free it. NULL is a no-op. */
void write_behind_free(struct write_behind *wb);

/* The store may hold a block under `key`: write it, and those in front of it
 * that are not on disk yet. O(1) if they are. Changes pins only. */
void write_behind_stored(struct write_behind *wb, uint64_t key);

/* Write the blocks that found the queue full; call it some times a second. */
void write_behind_resume(struct write_behind *wb);

#endif
