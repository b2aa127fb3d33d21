/* What the ways of doing disk I/O share. Nobody else includes this. */
#ifndef WORKERS_DISK_IO_INTERNAL_H
#define WORKERS_DISK_IO_INTERNAL_H

#include "workers/disk/io/io.h"

/* One way; see the functions of the same names in io.h. `event_fd` is
 * borrowed: it is to be made readable when a piece is done. */
struct disk_io_way {
    const char *name;
    int (*make)(int fd, unsigned depth, int event_fd, void **out);
    void (*free)(void *way);
    void (*submit)(void *way, struct disk_op *op);
    void (*flush)(void *way);
    struct disk_op *(*reap)(void *way, bool wait);
};

extern const struct disk_io_way disk_io_threads;
extern const struct disk_io_way disk_io_uring; /* with CONDUCTOR_URING */

/* Take in what one call of the system said about `op`: bytes moved, or a
 * negative errno. True if the piece is over; false: what is behind moved_bytes
 * must be asked for once more. */
bool disk_io_advance(struct disk_op *op, int64_t result);

#endif
