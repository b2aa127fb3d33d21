/* Shared by the files of the slab; private to them. */
#ifndef WORKERS_DISK_SLAB_INTERNAL_H
#define WORKERS_DISK_SLAB_INTERNAL_H

#include "base/error.h"
#include "proto/codec.h"
#include "workers/disk/slab/slab.h"

#define DISK_FILE_MAGIC 0x424c534456434e43u /* "CNCVDSLB" */
#define DISK_FILE_VERSION 1u

/* A file that is being opened. */
struct disk_opening {
    const struct disk_slab_config *config;
    struct disk_slab slab;
    bool created; /* the file did not exist */
    bool fresh;   /* the file has no undamaged header */
    uint64_t size_bytes;
    char *err;
    size_t err_bytes;
};

/* Returns rc and writes a message that begins with the path into o->err. */
#define disk_slab_fail(o, rc, format, ...)               \
    error_say((o)->err, (o)->err_bytes, rc, "%s" format, \
              (o)->config->path __VA_OPT__(, ) __VA_ARGS__)

/* Returns the same for a system error: the message is "PATH what: strerror". */
#define disk_slab_error(o, rc, what) \
    disk_slab_fail(o, rc, what ": %s", strerror(-(rc)))

/* The header of the file. */
struct disk_header {
    uint64_t magic;
    uint32_t version;
    uint32_t slots;
    uint64_t file_id;
    struct disk_geometry geometry;
};

/* Packs or unpacks a file header, depending on `c`. */
void disk_header_fields(struct codec *c, struct disk_header *h);

/* Returns `bytes` in MiB, for messages. */
double disk_slab_mib(uint64_t bytes);

/* Writes the file headers, erases the slot headers of blocks that a truncated
 * file has lost, and gives the file its size. Returns 0, or a negative errno
 * with a message; the file then has its old size. After a power loss at any
 * time the file is empty or has a header. */
[[nodiscard]] int disk_slab_fill(struct disk_opening *o);

/* Fills in all sizes and offsets. */
void disk_slab_lay_out(struct disk_slab *slab, const struct disk_geometry *g,
                       uint32_t slots);

/* Returns whether the checksum at the end of page[bytes] is right. */
bool disk_slab_sealed(const void *page, size_t bytes);

/* Fills page[bytes] with the bytes of `b`, zeroes and the checksum; changes
 * `b`. Returns 0, or -ENOMEM. */
[[nodiscard]] int disk_slab_seal(struct wire_buf *b, void *page, size_t bytes);

#endif
