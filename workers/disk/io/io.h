/* Asynchronous reads and writes of one file, a bounded number at once: through
 * io_uring where it was built in and the kernel allows it, else through pread
 * and pwrite on a few threads. Used by one thread. */
#ifndef WORKERS_DISK_IO_IO_H
#define WORKERS_DISK_IO_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/crew.h"

/* One read or write of the file. Owned by the caller, who keeps it and `buf` in
 * place and unchanged from submit until it is reaped. */
struct disk_op {
    bool write;
    void *buf;
    size_t bytes;
    uint64_t offset; /* in the file */
    int error;       /* set when reaped: 0, or a negative errno; -ENODATA: the
                        file ends before offset + bytes */

    size_t moved_bytes; /* private, like job */
    struct crew_job job;
};

struct disk_io;

/* Makes the I/O of the file `fd`, borrowed, with at most `depth` ops under way.
 * It runs on threads if `uring` is false or io_uring is not available. Returns
 * 0 and *out, owned; or a negative errno. */
[[nodiscard]] int disk_io_new(int fd, unsigned depth, bool uring,
                              struct disk_io **out);

/* Frees it. Nothing may be under way. NULL is a no-op. */
void disk_io_free(struct disk_io *io);

/* Returns "io_uring" or "threads"; static. */
const char *disk_io_name(const struct disk_io *io);

/* Returns an eventfd, owned by `io`, that is readable when an op may be done.
 * Clear it with disk_io_clear() before reaping. */
int disk_io_fd(const struct disk_io *io);

/* Makes disk_io_fd() not readable until the next op is done. */
void disk_io_clear(struct disk_io *io);

/* Makes disk_io_fd readable. */
void disk_io_wake(struct disk_io *io);

/* Submits `op`; at most `depth` may be under way. It may not begin before
 * disk_io_flush(). */
void disk_io_submit(struct disk_io *io, struct disk_op *op);

/* Hands all submitted ops to the kernel. Ops that it has no resources for now
 * go with the next flush. */
void disk_io_flush(struct disk_io *io);

/* Returns an op that is done, or NULL. With `wait`, blocks until an op is done,
 * unless none is under way. */
struct disk_op *disk_io_reap(struct disk_io *io, bool wait);

#endif
