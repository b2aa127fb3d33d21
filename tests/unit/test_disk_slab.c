/* The file of the disk tier: found again, refused, truncated. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "disk_rig.h"
#include "tests/unit/suite.h"

#define LAYER_BYTES 4096u

/* Space is asked for so often. Asking for more than there is fills the file
 * system for a moment. */
static int n_allocations;

int posix_fallocate(int fd, off_t at, off_t n)
{
    n_allocations++;
    return syscall(SYS_fallocate, fd, 0, at, n) < 0 ? errno : 0;
}

/* A slab with the whole of prompt 1. */
static void filled(struct disk_rig *rig, struct rig_prompt *p)
{
    disk_rig_init(rig, LAYER_BYTES, 12);
    disk_rig_prompt(p, 1, 3);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(rig), 0);
    CU_ASSERT_EQUAL_FATAL(disk_rig_write(rig, p, 0, RIG_CHAIN), 0);
}

static void close_tier(struct disk_rig *rig)
{
    disk_tier_close(rig->t);
    rig->t = NULL;
}

static void test_sizes(void)
{
    struct disk_geometry g = {
        .block_bytes = 12288, .block_tokens = 2, .layers = 3};

    CU_ASSERT_EQUAL(disk_slab_slots(&g, 0), 0);
    CU_ASSERT_EQUAL(disk_slab_slots(&g, 8192 + 4096 + 12288 - 1), 0);
    CU_ASSERT_EQUAL(disk_slab_slots(&g, 8192 + 4096 + 12288), 1);
    CU_ASSERT_EQUAL(disk_slab_slots(&g, UINT64_MAX), 0);
    CU_ASSERT_EQUAL(disk_slab_slots(&g, INT64_MAX), 1u << 30);
    CU_ASSERT_EQUAL(disk_slab_bytes(&g, 5), 8192 + 5 * (4096 + 12288));
    for (int i = 0; i < 4; i++) {
        struct disk_geometry bad = g;

        bad.block_bytes = i == 0 ? 0 : i == 1 ? 12289 : 12288;
        bad.block_tokens = i == 2 ? 0 : 2;
        bad.layers = i == 3 ? 0 : 3;
        CU_ASSERT_EQUAL(disk_slab_slots(&bad, 1u << 20), 0);
    }
}

static void test_restart(void)
{
    struct disk_rig rig;
    struct rig_prompt p;
    struct rig_prompt q;
    struct kv_store_event e;
    uint32_t cursor = KV_BLOCK_NONE;
    uint32_t n = 0;

    filled(&rig, &p);
    disk_rig_prompt(&q, 2, 3); /* shares 3 blocks */
    CU_ASSERT_EQUAL(disk_rig_write(&rig, &q, 3, 5), 0);
    for (int i = 0; i < 3; i++) {
        disk_rig_reopen(&rig);
        CU_ASSERT_EQUAL(disk_rig_match(&rig, &p), RIG_CHAIN);
        CU_ASSERT_EQUAL(disk_rig_match(&rig, &q), 5);
        CU_ASSERT(!kv_store_next_event(disk_tier_index(rig.t), &e));
        CU_ASSERT(!kv_store_take_resync(disk_tier_index(rig.t)));
    }
    while (kv_store_inventory(disk_tier_index(rig.t), &cursor, &e))
        n++;
    CU_ASSERT_EQUAL(n, RIG_CHAIN + 2);
    for (uint32_t i = 0; i < RIG_CHAIN; i++)
        CU_ASSERT_EQUAL(disk_rig_read(&rig, &p, i, 0, 3), 0);
    CU_ASSERT_EQUAL(disk_rig_read(&rig, &q, 4, 0, 3), 0);
    disk_rig_fini(&rig);
}

/* The order of the LRU comes through a restart: what was written last stays. */
static void test_restart_lru(void)
{
    struct disk_rig rig;
    struct rig_prompt p[5];

    disk_rig_init(&rig, LAYER_BYTES, 4);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
    for (uint32_t i = 0; i < 5; i++)
        disk_rig_prompt(&p[i], i + 1, 0);
    for (uint32_t i = 0; i < 4; i++)
        CU_ASSERT_EQUAL(disk_rig_write(&rig, &p[i], 0, 1), 0);
    disk_rig_reopen(&rig);
    CU_ASSERT_EQUAL(disk_rig_write(&rig, &p[4], 0, 1), 0);
    CU_ASSERT_EQUAL(disk_rig_match(&rig, &p[0]), 0);
    CU_ASSERT_EQUAL(disk_rig_match(&rig, &p[1]), 1);
    disk_rig_fini(&rig);
}

/* Opening must fail with `rc` and text that has `what`, and leave the file as
 * it is. */
static void refused(struct disk_rig *rig, int rc, const char *what)
{
    struct stat before = {0};
    struct stat after = {0};
    bool there = stat(rig->path, &before) == 0;

    CU_ASSERT_EQUAL(disk_rig_open(rig), rc);
    CU_ASSERT_PTR_NOT_NULL(strstr(rig->err, rig->path));
    CU_ASSERT_PTR_NOT_NULL(strstr(rig->err, what));
    if (!strstr(rig->err, what))
        printf("\n    %s\n", rig->err);
    CU_ASSERT_EQUAL(stat(rig->path, &after) == 0, there);
    CU_ASSERT_EQUAL(before.st_size, after.st_size);
}

static void put_file(const struct disk_rig *rig, const void *bytes, size_t n)
{
    FILE *f = fopen(rig->path, "w");

    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void test_refused(void)
{
    struct disk_rig rig;
    struct rig_prompt p;

    disk_rig_init(&rig, LAYER_BYTES, 12);
    put_file(&rig, "somebody's letters\n", 19);
    refused(&rig, -EINVAL, "is not a slab");
    char *zeroes = calloc(1, 100000);
    put_file(&rig, zeroes, 100000);
    free(zeroes);
    refused(&rig, -EINVAL, "is not a slab");
    unlink(rig.path);
    CU_ASSERT_EQUAL(mkdir(rig.path, 0700), 0);
    refused(&rig, -EINVAL, "no regular file");
    rmdir(rig.path);
    uint64_t bytes = rig.config.bytes;
    rig.config.bytes = 8192;
    refused(&rig, -EINVAL, "ask for at least 1 MiB");
    struct statvfs fs;
    CU_ASSERT_EQUAL_FATAL(statvfs(rig.folder, &fs), 0);
    rig.config.bytes = 2 * (uint64_t)fs.f_bavail * fs.f_frsize + (1 << 30);
    n_allocations = 0;
    refused(&rig, -ENOSPC, "at most");
    CU_ASSERT_EQUAL(n_allocations, 0);
    rig.config.bytes = bytes;
    disk_rig_fini(&rig);

    filled(&rig, &p);
    struct disk_tier *first = rig.t;
    refused(&rig, -EBUSY, "in use by another process");
    rig.t = first;
    close_tier(&rig);
    chmod(rig.path, 0444);
    refused(&rig, -EACCES, "read-only");
    chmod(rig.path, 0600);
    const char *path = rig.path;
    rig.config.path = "/nowhere/slab";
    CU_ASSERT_EQUAL(disk_rig_open(&rig), -ENOENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(rig.err, "/nowhere/slab"));
    rig.config.path = path;
    disk_rig_fini(&rig);
}

static void test_other_geometry(void)
{
    struct disk_rig rig;
    struct rig_prompt p;

    filled(&rig, &p);
    close_tier(&rig);
    struct disk_tier_config good = rig.config;
    rig.config.geometry.fingerprint++;
    refused(&rig, -EINVAL, "another model");
    rig.config = good;
    rig.config.geometry.block_tokens *= 2;
    refused(&rig, -EINVAL, "holds blocks of 2 tokens");
    rig.config = good;
    rig.config.geometry.layers = 1;
    refused(&rig, -EINVAL, "3 layers");
    rig.config = good;
    rig.config.geometry.block_bytes *= 2;
    refused(&rig, -EINVAL, "12288 bytes");
    rig.config = good;
    rig.config.bytes *= 2;
    refused(&rig, -EINVAL, "was made for 12 blocks");
    rig.config = good;
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
    CU_ASSERT_EQUAL(disk_rig_match(&rig, &p), RIG_CHAIN);
    disk_rig_fini(&rig);
}

/* Cut anywhere, it is opened, and what is left is right. */
static void test_truncated(void)
{
    struct disk_rig rig;
    struct rig_prompt p;
    static const off_t cuts[] = {1,     4095,  4096,  8191,   8192,  9000,
                                 16384, 57343, 57344, 100000, 155647};

    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        filled(&rig, &p);
        close_tier(&rig);
        CU_ASSERT_EQUAL_FATAL(truncate(rig.path, cuts[i]), 0);
        int rc = disk_rig_open(&rig);
        if (cuts[i] < 8) { /* not even the magic number is left */
            CU_ASSERT_EQUAL(rc, -EINVAL);
            disk_rig_fini(&rig);
            continue;
        }
        CU_ASSERT_EQUAL_FATAL(rc, 0);
        /* What the cut left whole is found, and nothing else, also when the
         * file has its size again. */
        uint32_t n = 0;
        while (n < RIG_CHAIN &&
               disk_rig_data_offset(&rig, n) + 12288 <= (uint64_t)cuts[i])
            n++;
        CU_ASSERT_EQUAL(disk_rig_match(&rig, &p), n);
        disk_rig_reopen(&rig);
        CU_ASSERT_EQUAL_FATAL(disk_rig_match(&rig, &p), n);
        for (uint32_t k = 0; k < n; k++)
            CU_ASSERT_EQUAL(disk_rig_read(&rig, &p, k, 0, 3), 0);
        CU_ASSERT_EQUAL(disk_rig_write(&rig, &p, n, RIG_CHAIN), 0);
        disk_rig_reopen(&rig);
        CU_ASSERT_EQUAL(disk_rig_match(&rig, &p), RIG_CHAIN);
        CU_ASSERT_EQUAL(disk_rig_read(&rig, &p, 7, 0, 3), 0);
        disk_rig_fini(&rig);
    }
}

static const struct suite_test tests[] = {
    {"sizes", test_sizes},
    {"restart", test_restart},
    {"restart keeps the order", test_restart_lru},
    {"refused", test_refused},
    {"other geometry", test_other_geometry},
    {"truncated", test_truncated},
};

int main(void)
{
    log_init("test", LOG_ERROR); /* damage is what these tests make */
    return SUITE_RUN("disk_slab", tests);
}
