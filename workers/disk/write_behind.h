/* Copies held blocks of the store to the disk tier in the background: a block
 * is queued as soon as it is held, and pinned until it is written. So evicting
 * it from memory later needs no write.
 *
 * The queue is the tier's, of bounded length. A block that finds it full is
 * written later, if it is still held by then. */
#ifndef WORKERS_DISK_WRITE_BEHIND_H
#define WORKERS_DISK_WRITE_BEHIND_H

#include "workers/disk/tier/tier.h"
#include "workers/store/kv_store.h"

struct write_behind;

/* Returns how many blocks of a store of capacity_blocks may be pinned for
 * writing at once, for disk_tier_config.max_writes. The rest is for requests.
 */
uint32_t write_behind_max(uint32_t capacity_blocks);

/* Make a write-behind from `store` to `tier`, both borrowed. disk_tier_poll()
 * calls `released`(arg) after each pin given back. Returns it owned, or NULL:
 * out of memory. Close the tier first, as its writes refer to the result. */
[[nodiscard]] struct write_behind *write_behind_new(struct kv_store *store,
                                                    struct disk_tier *tier,
                                                    void (*released)(void *arg),
                                                    void *arg);

/* Free it. NULL is a no-op. */
void write_behind_free(struct write_behind *wb);

/* Queue the block under `key`, if the store holds one, and its ancestors that
 * are not on disk yet. O(1) if all are on disk. Changes only pins. */
void write_behind_stored(struct write_behind *wb, uint64_t key);

/* Queue blocks that found the queue full. Call it several times a second. */
void write_behind_resume(struct write_behind *wb);

#endif
