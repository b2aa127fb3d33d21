/* A machine that loses power while a slab is made: the file is never refused
 * afterwards. What was written and not synced is lost here; what changes the
 * file's size is kept, as a journal keeps it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk_rig.h"
#include "tests/unit/suite.h"

#define PENDING_BYTES 65536u
#define CUT 77 /* exit status of a process that lost its power */

/* What the next calls of this process do. */
static struct {
    bool on;
    int left; /* calls until the power goes */
    char bytes[PENDING_BYTES];
    size_t n;
    off_t at;
} disk;

static void spend(void)
{
    if (disk.on && disk.left-- == 0)
        _exit(CUT);
}

/* These stand in front of libc's. */
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    spend();
    if (!disk.on)
        return syscall(SYS_pwrite64, fd, bytes, n, at);
    if (disk.n > 0 || n > PENDING_BYTES)
        abort();
    memcpy(disk.bytes, bytes, n);
    disk.n = n;
    disk.at = at;
    return (ssize_t)n;
}

int fsync(int fd)
{
    struct stat st;

    spend();
    /* Of a file; a folder has nothing that is kept back here. */
    if (disk.n > 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        syscall(SYS_pwrite64, fd, disk.bytes, disk.n, disk.at) > 0)
        disk.n = 0;
    return 0;
}

int posix_fallocate(int fd, off_t at, off_t n)
{
    spend();
    return syscall(SYS_fallocate, fd, 0, at, n) < 0 ? errno : 0;
}

/* Opens the slab in a process whose power goes after `calls` calls. Returns
 * its exit status. */
static int open_without_power(const struct disk_rig *rig, int calls)
{
    char err[512];
    struct disk_tier *tier;
    pid_t child = fork();
    int status = -1;

    CU_ASSERT_FATAL(child >= 0);
    if (child == 0) {
        disk.on = true;
        disk.left = calls;
        int rc = disk_tier_open(&rig->config, &tier, err, sizeof(err));
        _exit(rc == 0 ? 0 : 1);
    }
    CU_ASSERT_EQUAL_FATAL(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_new_file(void)
{
    int status = CUT;

    for (int calls = 0; status == CUT && calls < 20; calls++) {
        struct disk_rig rig;

        disk_rig_init(&rig, 4096, 12);
        status = open_without_power(&rig, calls);
        int rc = disk_rig_open(&rig);
        if (rc != 0)
            printf("\n    after %d calls: %s", calls, rig.err);
        CU_ASSERT_EQUAL(rc, 0);
        disk_rig_fini(&rig);
        CU_ASSERT(status == CUT || calls >= 3);
    }
    CU_ASSERT_EQUAL(status, 0);
}

static const struct suite_test tests[] = {
    {"a new file survives a loss of power", test_new_file},
};
SUITE("disk_power", tests)
