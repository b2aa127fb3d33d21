/* A memfd sealed so that only its owner can write it. */
#include "workers/transfer/engine/shm/slab.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* Has the kernel allocate and clear all pages now, huge pages if it has them
 * for files. Returns false if there are too few: touching the missing ones
 * would kill the process. */
static bool touch(void *memory, size_t bytes)
{
    madvise(memory, bytes, MADV_HUGEPAGE);
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
        return true;
    if (errno != EINVAL)
        return false;
    for (size_t i = 0; i < bytes; i += 4096) /* for kernels before 5.14 */
        ((volatile char *)memory)[i] = 0;
    return true;
}

void *shm_slab_new(size_t bytes, int *fd)
{
    *fd = memfd_create("conductor-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0)
        return NULL;
    void *memory = MAP_FAILED;
    if (ftruncate(*fd, (off_t)bytes) == 0)
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (memory == MAP_FAILED ||
        fcntl(*fd, F_ADD_SEALS,
              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE |
                  F_SEAL_SEAL) ||
        !touch(memory, bytes)) {
        if (memory != MAP_FAILED)
            munmap(memory, bytes);
        close(*fd);
        *fd = -1;
        return NULL;
    }
    return memory;
}

void shm_slab_free(void *memory, size_t bytes, int fd)
{
    if (!memory)
        return;
    munmap(memory, bytes);
    close(fd);
}
