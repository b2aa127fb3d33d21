/* The file of the disk tier: its layout, and how it is created, opened again
 * and refused. No state of blocks, no I/O of data.
 *
 *   0        4096     8192                     data_offset
 *   +--------+--------+--------+----+----------+--------+----+----------+
 *   | header | header | slot 0 | .. | slot n-1 | data 0 | .. | data n-1 |
 *   |        | again  | header |    | header   |        |    |          |
 *   +--------+--------+--------+----+----------+--------+----+----------+
 *                     each header_bytes         each stride_bytes
 *
 * All numbers are little-endian. The last 8 bytes of each header are the
 * XXH3-64 of what is in front of them.
 *
 *   header       u64 magic, u32 version, u32 slots, u64 file id,
 *                u64 fingerprint, u64 block_bytes, u32 block_tokens, u32 layers
 *   slot header  u64 magic, u64 file id, u32 slot, u32 parent's slot,
 *                u64 parent's number, u64 parent's key, u64 key, u64 number,
 *                u64 order, u32[] tokens, u64[] XXH3-64 of each layer
 *
 * The number of a slot belongs to one write and never repeats, so that a child
 * knows which contents of its parent's slot it belongs to. The order rises with
 * every write. A slot header with another file id counts as empty: it is left
 * over from an earlier file.
 */
#ifndef WORKERS_DISK_SLAB_SLAB_H
#define WORKERS_DISK_SLAB_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire.h"

/* No slot. */
#define DISK_SLOT_NONE UINT32_MAX

/* What O_DIRECT wants offsets, sizes and memory to be multiples of. */
#define DISK_ALIGN_BYTES 4096u

/* What the slab holds; all must be the same to open it again. */
struct disk_geometry {
    uint64_t fingerprint;  /* of the model and its KV */
    uint64_t block_bytes;  /* KV of one block; a multiple of layers */
    uint32_t block_tokens; /* tokens in one block */
    uint32_t layers;       /* equal parts of a block */
};

struct disk_slab_config {
    const char *path; /* borrowed for the call */
    uint64_t bytes;   /* of the file, at most */
    struct disk_geometry geometry;
    bool direct; /* O_DIRECT, if it can be had */
};

/* An open slab. Plain data; nobody but slab.c changes it. */
struct disk_slab {
    struct disk_geometry geometry;
    int fd;
    bool direct;         /* O_DIRECT is on */
    uint32_t slots;      /* blocks that it holds */
    uint32_t page_bytes; /* of one slot header */
    uint64_t stride_bytes;
    uint64_t data_offset;
    uint64_t file_bytes;
    uint64_t file_id;
};

/* The header of one slot in memory. */
struct disk_slot {
    uint32_t parent_slot;   /* DISK_SLOT_NONE: the first block of a prompt */
    uint64_t parent_number; /* 0 without parent, as parent_key */
    uint64_t parent_key;
    uint64_t key;
    uint64_t number;
    uint64_t order;
    uint32_t *tokens; /* (block_tokens) */
    uint64_t *sums;   /* (layers) */
};

/* How many blocks of `g` a file of `bytes` holds. 0: not one, or a size in
 * `g` is 0 or absurd. */
uint32_t disk_slab_slots(const struct disk_geometry *g, uint64_t bytes);

/* Bytes of a file with `slots` blocks, which disk_slab_slots said. */
uint64_t disk_slab_bytes(const struct disk_geometry *g, uint32_t slots);

/* Open the slab, or make it if there is no file or an empty one. A truncated
 * slab gets its size back, and the headers of blocks whose data it has lost,
 * even in part, are erased; the log says how many.
 * Returns 0 and *out, to be closed; or a negative errno with a message about
 * the file in err[err_bytes], and the file is unchanged, except for headers
 * that were erased or mended: -EINVAL (not a regular file, foreign, of another
 * geometry or size, too small for one block), -EACCES, -EBUSY (in use),
 * -ENOSPC, or what the system said. Blocks: a new file is allocated. */
[[nodiscard]] int disk_slab_open(const struct disk_slab_config *config,
                                 struct disk_slab *out, char *err,
                                 size_t err_bytes);

/* Close it. */
void disk_slab_close(struct disk_slab *slab);

/* Called for a slot whose header is whole. `s` is borrowed for the call. */
typedef void disk_slab_found_fn(void *arg, uint32_t slot,
                                const struct disk_slot *s);

/* Read all slot headers, and report those that are whole. Returns the number of
 * damaged ones, or a negative errno. Blocks; one pass over the headers. */
[[nodiscard]] int64_t disk_slab_scan(const struct disk_slab *slab,
                                     disk_slab_found_fn *found, void *arg);

/* Write the header of `slot` into page[page_bytes]. `scratch` is an initialised
 * buffer of at least page_bytes. 0, or -ENOMEM. */
[[nodiscard]] int disk_slab_encode(const struct disk_slab *slab, uint32_t slot,
                                   const struct disk_slot *s,
                                   struct wire_buf *scratch, void *page);

/* Make the header of `slot` empty, now. Blocks for one small write. 0, or a
 * negative errno. */
[[nodiscard]] int disk_slab_erase(const struct disk_slab *slab, uint32_t slot);

/* Where in the file the header of `slot` is. */
uint64_t disk_slab_page_offset(const struct disk_slab *slab, uint32_t slot);

/* Where in the file the data of `slot` is. */
uint64_t disk_slab_data_offset(const struct disk_slab *slab, uint32_t slot);

#endif
