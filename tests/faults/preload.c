/* Fails calls of a program that is started with it in LD_PRELOAD, while files
 * of the folder FAULT_FOLDER say so: "eio": reads and writes at an offset, as
 * of a disk, end with EIO; "jump": the clock is an hour later. There is no
 * io_uring, so that the disk is read and written through these calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define JUMP_S 3600

static int is(const char *what)
{
    const char *folder = getenv("FAULT_FOLDER");
    char path[4096];

    if (!folder)
        return 0;
    snprintf(path, sizeof(path), "%s/%s", folder, what);
    return access(path, F_OK) == 0;
}

static int eio(void)
{
    if (!is("eio"))
        return 0;
    errno = EIO;
    return 1;
}

ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread");

    return eio() ? -1 : real(fd, to, n, at);
}

ssize_t pread64(int fd, void *to, size_t n, off64_t at)
{
    return pread(fd, to, n, at);
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at)
{
    ssize_t (*real)(int, const void *, size_t, off_t) =
        dlsym(RTLD_NEXT, "pwrite");

    return eio() ? -1 : real(fd, from, n, at);
}

ssize_t pwrite64(int fd, const void *from, size_t n, off64_t at)
{
    return pwrite(fd, from, n, at);
}

int clock_gettime(clockid_t id, struct timespec *out)
{
    static int (*real)(clockid_t, struct timespec *);

    if (!real)
        real = dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real(id, out);

    if (rc == 0 && is("jump"))
        out->tv_sec += JUMP_S;
    return rc;
}

int io_uring_queue_init(unsigned entries, void *ring, unsigned flags)
{
    (void)entries;
    (void)ring;
    (void)flags;
    return -ENOSYS;
}
