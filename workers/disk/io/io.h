/* Asynchronous reads and writes of one file, a bounded number at once: through
 * io_uring where it was built in and the kernel allows it, else through pread
 * and pwrite on a few threads. Used by one thread. */
#ifndef WORKERS_DISK_IO_IO_H
#define WORKERS_DISK_IO_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/crew.h"

/* One piece of the file to read or to write. The caller owns it; from submit
 * until it is reaped it must neither move nor change, nor may its memory go. */
struct disk_op {
    bool write;
    void *buf;
    size_t bytes;
    uint64_t offset; /* in the file */
    int error;       /* set when reaped: 0, or a negative errno; -ENODATA: the
                        file ends before the piece does */

    size_t moved_bytes; /* private, as is all below */
    struct crew_job job;
};

struct disk_io;

/* Make one for `fd`, borrowed, with at most `depth` pieces under way. If
 * `uring` is false, or io_uring is not available, it runs on threads. Returns 0
 * and *out, owned; or a negative errno. */
[[nodiscard]] int disk_io_new(int fd, unsigned depth, bool uring,
                              struct disk_io **out);

/* Free it. Nothing may be under way. NULL is a no-op. */
void disk_io_free(struct disk_io *io);

/* "io_uring", or "threads"; static. */
const char *disk_io_name(const struct disk_io *io);

/* An eventfd that is readable when something may be reaped; clear it with
 * disk_io_clear before reaping. Owned by `io`. */
int disk_io_fd(const struct disk_io *io);

/* Make disk_io_fd not readable, until the next piece is done. */
void disk_io_clear(struct disk_io *io);

/* Make disk_io_fd readable. */
void disk_io_wake(struct disk_io *io);

/* Begin `op`; at most `depth` may be under way. It may wait for disk_io_flush
 * before anything happens. */
void disk_io_submit(struct disk_io *io, struct disk_op *op);

/* Hand all that was submitted to the kernel. If it has no resources just now,
 * the rest goes with the next flush. */
void disk_io_flush(struct disk_io *io);

/* A piece that is done, or NULL. With `wait`, and if any is under way, it
 * blocks until there is one. */
struct disk_op *disk_io_reap(struct disk_io *io, bool wait);

#endif
