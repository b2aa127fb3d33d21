/* Shared by the implementations of disk I/O; private to them. */
#ifndef WORKERS_DISK_IO_INTERNAL_H
#define WORKERS_DISK_IO_INTERNAL_H

#include "workers/disk/io/io.h"

/* One implementation; io.h describes the functions under the same names.
 * make() borrows `event_fd` and makes it readable when an op is done. */
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

/* Notes the result of one system call for `op`: bytes moved, or a negative
 * errno. Returns true if the op is over; if false, submit the rest, from
 * moved_bytes on. */
bool disk_io_advance(struct disk_op *op, int64_t result);

#endif
