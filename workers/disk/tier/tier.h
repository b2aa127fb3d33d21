/* The disk tier: KV blocks of one worker in one preallocated file.
 *
 * Writes blocks in the background, and reads them, whole or by layers, into the
 * memory of requests. Finds them again after a restart.
 *
 * Wrong KV is impossible. The index is a kv_store: a block matches only if its
 * tokens are equal and its parent is exactly the block matched before it; after
 * a restart, the slot and the number of the write identify the parent. A read
 * compares each layer with the checksum taken at its write; a damaged block is
 * dropped, with all blocks behind it, and the read fails.
 *
 * Blocks are evicted by LRU, leaf first: never while pinned, and never before
 * their children. Reads go before writes. Used by one thread; only open and
 * close wait for the disk. Callbacks come only from disk_tier_poll() and
 * disk_tier_close(). */
#ifndef WORKERS_DISK_TIER_TIER_H
#define WORKERS_DISK_TIER_TIER_H

#include "workers/disk/slab/slab.h"
#include "workers/store/kv_store.h"

struct disk_tier;
struct loop;
struct disk_job;

struct disk_tier_config {
    struct loop *loop; /* borrowed; for these two only */
    int64_t (*now_us)(const struct loop *loop); /* loop_now_us() */
    uint64_t (*random)(struct loop *loop);      /* loop_random() */
    const char *path;                           /* borrowed for the call */
    uint64_t bytes;                             /* largest size of the file */
    struct disk_geometry geometry;
    uint32_t max_reads;      /* open at once, at least 1 */
    uint32_t max_writes;     /* open at once, at least 1 */
    uint32_t event_capacity; /* as in kv_store_config */
    bool direct;             /* use O_DIRECT if it works */
    bool uring;              /* use io_uring if it is available */
};

/* A block in the tier. A later block in the same slot has another number, so a
 * reference never means a different block. */
struct disk_ref {
    uint32_t slot;   /* DISK_SLOT_NONE = no block */
    uint64_t number; /* 0 = no block */
};

/* The parent of a first block. */
#define DISK_REF_NONE ((struct disk_ref){.slot = DISK_SLOT_NONE})

struct disk_tier_stats {
    uint32_t capacity_blocks;
    uint32_t held_blocks;
    uint32_t reads; /* open now, like writes */
    uint32_t writes;
    uint64_t read_bytes; /* since the tier was opened */
    uint64_t written_bytes;
    uint64_t damaged_blocks; /* dropped after a bad read */
    uint64_t evicted_blocks;
};

/* Called when a read or a write is over; disk_tier_read() and disk_tier_write()
 * list the values of rc. Its memory is the caller's again. May call all
 * functions of this header except disk_tier_poll() and disk_tier_close(). */
typedef void disk_tier_done_fn(void *arg, int rc);

/* Opens the tier with the blocks in its file, or create the file. `config` is
 * borrowed for the call. Waits while it reads all headers. Returns 0 and *out,
 * owned; or a negative errno as disk_slab_open(), with a message in
 * err[err_bytes]. */
[[nodiscard]] int disk_tier_open(const struct disk_tier_config *config,
                                 struct disk_tier **out, char *err,
                                 size_t err_bytes);

/* Closes the tier. Waits for the I/O under way; other reads and writes end with
 * -ECANCELED. NULL is a no-op. */
void disk_tier_close(struct disk_tier *t);

/* Returns how the tier does its I/O, as a text for logs; static. */
const char *disk_tier_way(const struct disk_tier *t);

/* Returns the alignment in bytes that memory for I/O needs; 1 = any. */
uint32_t disk_tier_align(const struct disk_tier *t);

/* Returns a descriptor, owned by the tier, that is readable when
 * disk_tier_poll() has something to do. */
int disk_tier_fd(const struct disk_tier *t);

/* Takes in finished I/O, calls back, and begins the next pieces. */
void disk_tier_poll(struct disk_tier *t);

/* Returns the index, borrowed, whose block ids are slots: for its events,
 * inventory and statistics. Don't change it. */
struct kv_store *disk_tier_index(struct disk_tier *t);

/* Finds the leading blocks of a prompt that are held, as kv_store_match() does.
 * Writes `refs` (n_blocks), each with one more pin for the caller. Returns the
 * number of blocks found. O(blocks found). */
uint32_t disk_tier_match(struct disk_tier *t, const uint64_t *keys,
                         const uint32_t *tokens, uint32_t n_blocks,
                         struct disk_ref *refs);

/* Gives back one pin. O(log n). */
void disk_tier_unpin(struct disk_tier *t, struct disk_ref ref);

/* Returns whether `ref` is held or being written. */
bool disk_tier_has(const struct disk_tier *t, struct disk_ref ref);

/* Reads layers [from_layer, to_layer) of `ref`, on which the caller has a pin,
 * into their places in `block` (block_bytes, aligned to disk_tier_align()). The
 * tier owns that memory until it calls `done`, once, with
 *   0            all layers are read and verified
 *   -ECANCELED   disk_tier_cancel(), or the tier was closed
 *   -EBADMSG     the data are damaged; logged, and the block was dropped
 *   other        the system's error; logged, and the block was dropped
 * Reads begin in the order of the calls. Returns 0, and *read for
 * disk_tier_cancel() unless `read` is NULL; -EBUSY: max_reads are open, or no
 * memory; -ESTALE: the block was dropped; -EINVAL: no such layers, or not
 * aligned. */
[[nodiscard]] int disk_tier_read(struct disk_tier *t, struct disk_ref ref,
                                 uint32_t from_layer, uint32_t to_layer,
                                 void *block, disk_tier_done_fn *done,
                                 void *arg, struct disk_job **read);

/* Cancels a read whose `done` was not called yet. A later disk_tier_poll()
 * calls it once the kernel no longer uses the memory. */
void disk_tier_cancel(struct disk_tier *t, struct disk_job *read);

/* Writes a block of `tokens` (block_tokens) and `data` (block_bytes, aligned to
 * disk_tier_align()) under `key` behind `parent`, which is held or being
 * written, or DISK_REF_NONE. `tokens` and `data` are borrowed and must not
 * change until `done` is called. The block is then held, unless rc < 0:
 * -ECANCELED (the tier was closed), -ESTALE (the parent was lost), or the
 * system's error, which was logged. Writes end in the order of the calls. May
 * evict. Returns 0 and *ref, or
 *   -EEXIST   the block is held already; sets *ref
 *   -EBUSY    max_writes are open, no memory, or a write failed within 10 s
 *   -ENOSPC   all slots are pinned
 *   -ENOTUNIQ another block has the key
 *   -ESTALE   the parent is not in the tier
 *   -EINVAL   `data` is not aligned */
[[nodiscard]] int disk_tier_write(struct disk_tier *t, struct disk_ref parent,
                                  uint64_t key, const uint32_t *tokens,
                                  const void *data, disk_tier_done_fn *done,
                                  void *arg, struct disk_ref *ref);

/* Fills `stats`. */
void disk_tier_stats(const struct disk_tier *t, struct disk_tier_stats *stats);

#endif
