/* The file of the disk tier: lays it out, creates it, opens it, and refuses
 * files that do not fit. Keeps no state of blocks and does no I/O of data.
 *
 *   0        4096     8192                     data_offset
 *   +--------+--------+--------+----+----------+--------+----+----------+
 *   | header | header | slot 0 | .. | slot n-1 | data 0 | .. | data n-1 |
 *   |        | again  | header |    | header   |        |    |          |
 *   +--------+--------+--------+----+----------+--------+----+----------+
 *                     each page_bytes           each stride_bytes
 *
 * All numbers are little-endian. The last 8 bytes of each header are the
 * XXH3-64 of all bytes before them.
 *
 *   header       u64 magic, u32 version, u32 slots, u64 file id,
 *                u64 fingerprint, u64 block_bytes, u32 block_tokens, u32 layers
 *   slot header  u64 magic, u64 file id, u32 slot, u32 parent's slot,
 *                u64 parent's number, u64 parent's key, u64 key, u64 number,
 *                u64 order, u32[] tokens, u64[] XXH3-64 of each layer
 *
 * A slot's number belongs to one write and never repeats, so that a child names
 * the contents of its parent's slot that it belongs to. The order rises with
 * every write. A slot header with another file id counts as empty: it is left
 * over from an earlier file. */
#ifndef WORKERS_DISK_SLAB_SLAB_H
#define WORKERS_DISK_SLAB_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire.h"

/* No slot. */
#define DISK_SLOT_NONE UINT32_MAX

/* O_DIRECT needs offsets, sizes and addresses to be multiples of this. */
#define DISK_ALIGN_BYTES 4096u

/* The kind of blocks in a slab. An existing file opens only with the same. */
struct disk_geometry {
    uint64_t fingerprint;  /* of the model and its KV */
    uint64_t block_bytes;  /* KV of one block; a multiple of layers */
    uint32_t block_tokens; /* tokens in one block */
    uint32_t layers;       /* equal parts of a block */
};

struct disk_slab_config {
    const char *path; /* borrowed for the call */
    uint64_t bytes;   /* largest size of the file */
    struct disk_geometry geometry;
    bool direct;      /* use O_DIRECT if it works */
    uint64_t file_id; /* a random number: the id of a file that is made */
};

/* An open slab. Plain data; only this folder changes it. */
struct disk_slab {
    struct disk_geometry geometry;
    int fd;
    bool direct;         /* O_DIRECT is on */
    uint32_t slots;      /* number of blocks it has room for */
    uint32_t page_bytes; /* of one slot header */
    uint64_t stride_bytes;
    uint64_t data_offset;
    uint64_t file_bytes;
    uint64_t file_id;
};

/* The header of one slot in memory. */
struct disk_slot {
    uint32_t parent_slot;   /* DISK_SLOT_NONE = first block of a prompt */
    uint64_t parent_number; /* 0 without a parent, like parent_key */
    uint64_t parent_key;
    uint64_t key;
    uint64_t number;
    uint64_t order;
    uint32_t *tokens; /* (block_tokens) */
    uint64_t *sums;   /* (layers) */
};

/* Returns how many blocks of `g` fit into a file of `bytes`; 0 also if a size
 * in `g` is 0 or out of range. */
uint32_t disk_slab_slots(const struct disk_geometry *g, uint64_t bytes);

/* Returns the size of a file with `slots` blocks of `g`; `slots` is at most the
 * result of disk_slab_slots(). */
uint64_t disk_slab_bytes(const struct disk_geometry *g, uint32_t slots);

/* Opens the slab, or makes it if the file is missing or empty. A truncated slab
 * gets its size back, and headers of blocks whose data it has lost, even in
 * part, are erased; the log says how many. The calling thread blocks.
 * Returns 0 and *out, which the caller closes; or a negative errno with a
 * message about the file in err[err_bytes]: -EINVAL (not a regular file,
 * foreign, other geometry or size, too small for one block), -EACCES, -EBUSY
 * (in use), -ENOSPC, or the system's error. The file is then unchanged, except
 * for headers that were erased or repaired. */
[[nodiscard]] int disk_slab_open(const struct disk_slab_config *config,
                                 struct disk_slab *out, char *err,
                                 size_t err_bytes);

/* Closes it. */
void disk_slab_close(struct disk_slab *slab);

/* Called for each slot whose header is undamaged. `s` is borrowed for the
 * call. */
typedef void disk_slab_found_fn(void *arg, uint32_t slot,
                                const struct disk_slot *s);

/* Reads all slot headers in one pass, and calls `found` for each undamaged one.
 * Returns the number of damaged ones, or a negative errno. Waits for the
 * disk. */
[[nodiscard]] int64_t disk_slab_scan(const struct disk_slab *slab,
                                     disk_slab_found_fn *found, void *arg);

/* Encodes the header `s` of `slot` into page[page_bytes]. `scratch` is an
 * initialised buffer of at least page_bytes. Returns 0, or -ENOMEM. */
[[nodiscard]] int disk_slab_encode(const struct disk_slab *slab, uint32_t slot,
                                   const struct disk_slot *s,
                                   struct wire_buf *scratch, void *page);

/* Erases the header of `slot` on disk. Waits for one small write. Returns 0, or
 * a negative errno. */
[[nodiscard]] int disk_slab_erase(const struct disk_slab *slab, uint32_t slot);

/* Returns the offset in the file of the header of `slot`, in bytes. */
uint64_t disk_slab_page_offset(const struct disk_slab *slab, uint32_t slot);

/* Returns the offset in the file of the data of `slot`, in bytes. */
uint64_t disk_slab_data_offset(const struct disk_slab *slab, uint32_t slot);

#endif
