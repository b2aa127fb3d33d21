/* The disk tier: KV blocks of one worker in one preallocated file.
 *
 * Blocks are written in the background, and are read into the memory of
 * requests that need them, whole or by layers. A restart finds them again.
 *
 * Wrong KV is impossible. The index is a kv_store: a block matches only if its
 * tokens are equal and its parent is exactly the block that matched before it;
 * after a restart, the slot and the number of the write identify the parent. A
 * read compares each layer with the checksum that was taken when it was
 * written; a damaged block is dropped, with all blocks behind it, and the read
 * fails.
 *
 * Blocks are evicted by LRU, leaf first: never while pinned, and never before
 * their children. Reads go before writes. Used by one thread; nothing blocks
 * but open and close. Callbacks come from disk_tier_poll and disk_tier_close
 * only.
 */
#ifndef WORKERS_DISK_TIER_TIER_H
#define WORKERS_DISK_TIER_TIER_H

#include "workers/disk/slab/slab.h"
#include "workers/store/kv_store.h"

struct disk_tier;
struct disk_job;

struct disk_tier_config {
    const char *path; /* borrowed for the call */
    uint64_t bytes;   /* of the file, at most */
    struct disk_geometry geometry;
    uint32_t max_reads;      /* accepted and not over, at least 1 */
    uint32_t max_writes;     /* the same */
    uint32_t event_capacity; /* as in kv_store_config */
    bool direct;             /* O_DIRECT, if it can be had */
    bool uring;              /* io_uring, if it can be had */
};

/* One block in the tier, for good: another block in the same slot has another
 * number. */
struct disk_ref {
    uint32_t slot;   /* DISK_SLOT_NONE: no block */
    uint64_t number; /* 0: no block */
};

/* The parent of a first block. */
#define DISK_REF_NONE ((struct disk_ref){.slot = DISK_SLOT_NONE})

struct disk_tier_stats {
    uint32_t capacity_blocks;
    uint32_t held_blocks;
    uint32_t reads; /* accepted and not over */
    uint32_t writes;
    uint64_t read_bytes; /* since the tier was opened */
    uint64_t written_bytes;
    uint64_t damaged_blocks; /* dropped because of what was read */
    uint64_t evicted_blocks;
};

/* A read or a write is over: rc is 0 or a negative errno, see there. The memory
 * is the caller's again. The callback may call every function of this header
 * except poll and close. */
typedef void disk_tier_done_fn(void *arg, int rc);

/* Open the tier with the blocks in its file, or create the file. `config` is
 * borrowed for the call. Returns 0 and *out, owned; or a negative errno with a
 * message in err[err_bytes]: see disk_slab_open. Blocks; reads all headers. */
[[nodiscard]] int disk_tier_open(const struct disk_tier_config *config,
                                 struct disk_tier **out, char *err,
                                 size_t err_bytes);

/* Close it. Waits for the I/O under way; reads and writes that are not over end
 * with -ECANCELED. NULL is a no-op. */
void disk_tier_close(struct disk_tier *t);

/* How it does I/O, in words, for logs; static. */
const char *disk_tier_way(const struct disk_tier *t);

/* Memory for I/O must be aligned to this many bytes; 1: any will do. */
uint32_t disk_tier_align(const struct disk_tier *t);

/* A descriptor that is readable when disk_tier_poll has something to do. */
int disk_tier_fd(const struct disk_tier *t);

/* Take in finished I/O, call back, begin what can begin. */
void disk_tier_poll(struct disk_tier *t);

/* The index: read its events, inventory and statistics; change nothing. Its
 * ids are slots. */
struct kv_store *disk_tier_index(struct disk_tier *t);

/* Find the leading run of `n_blocks` blocks that is held, as kv_store_match
 * does. Writes `refs` (n_blocks), each with one more pin for the caller, and
 * returns how many matched. O(run). */
uint32_t disk_tier_match(struct disk_tier *t, const uint64_t *keys,
                         const uint32_t *tokens, uint32_t n_blocks,
                         struct disk_ref *refs);

/* Give back one pin. O(log n). */
void disk_tier_unpin(struct disk_tier *t, struct disk_ref ref);

/* Whether `ref` is held, or being written. */
bool disk_tier_has(const struct disk_tier *t, struct disk_ref ref);

/* Read layers [from_layer, to_layer) of `ref`, on which the caller has a pin,
 * to where they belong in the block's memory `block` (block_bytes, aligned to
 * disk_tier_align), which is the tier's until `done` was called, once, with
 *   0            all is there and verified
 *   -ECANCELED   disk_tier_cancel, or the tier was closed
 *   -EBADMSG     the data are damaged, as was logged; the block was dropped
 *   other        the system's error, as was logged; the block was dropped
 * Reads begin in the order of the calls. Returns 0, and if `read` is not NULL
 * a handle for disk_tier_cancel; -EBUSY: max_reads; -ESTALE: the block was
 * dropped; -EINVAL: no such layers, or unaligned. */
[[nodiscard]] int disk_tier_read(struct disk_tier *t, struct disk_ref ref,
                                 uint32_t from_layer, uint32_t to_layer,
                                 void *block, disk_tier_done_fn *done,
                                 void *arg, struct disk_job **read);

/* End a read that is not over: `done` comes as soon as the system has let go of
 * the memory, from a later poll. */
void disk_tier_cancel(struct disk_tier *t, struct disk_job *read);

/* Write a block of `tokens` (block_tokens) and `data` (block_bytes, aligned to
 * disk_tier_align) under `key` behind `parent`, which is held or being written,
 * or DISK_REF_NONE. Both are borrowed and must not change until `done` was
 * called; then the block is held, unless rc < 0: -ECANCELED (the tier was
 * closed), -ESTALE (the parent was lost), or the system's error, as was logged.
 * Writes end in the order of the calls. May evict. Returns 0 and *ref;
 *   -EEXIST   it is held already: *ref
 *   -EBUSY    max_writes; or writing failed a short time ago
 *   -ENOSPC   pinned blocks leave no slot
 *   -ENOTUNIQ the key belongs to another block
 *   -ESTALE   the parent is not there
 *   -EINVAL   unaligned */
[[nodiscard]] int disk_tier_write(struct disk_tier *t, struct disk_ref parent,
                                  uint64_t key, const uint32_t *tokens,
                                  const void *data, disk_tier_done_fn *done,
                                  void *arg, struct disk_ref *ref);

/* Fill `stats`. */
void disk_tier_stats(const struct disk_tier *t, struct disk_tier_stats *stats);

#endif
