/* Reads, writes and eviction of the disk tier; what is in the file is the job
 * of test_disk_slab.c. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "disk_rig.h"
#include "tests/unit/disk_check.h"
#include "tests/unit/suite.h"

#define SMALL 4096u              /* bytes of a layer */
#define LARGE (3u * 512u * 1024) /* 1.5 pieces */

/* Every way of doing I/O that there is: with and without io_uring, O_DIRECT. */
static void test_ways(void)
{
    struct disk_rig rig;
    struct rig_prompt p;

    disk_rig_prompt(&p, 1, 0);
    for (int i = 0; i < 6; i++) {
        /* The last two: layers that O_DIRECT cannot read. */
        disk_rig_init(&rig, i < 2 ? SMALL : i < 4 ? LARGE : 100, 9);
        rig.config.uring = i % 2;
        rig.config.direct = i != 3;
        CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
        if (i % 2 == 0)
            CU_ASSERT_PTR_NOT_NULL(strstr(disk_tier_way(rig.t), "threads"));
        if (i >= 3)
            CU_ASSERT_PTR_NOT_NULL(strstr(disk_tier_way(rig.t), "page cache"));
        CU_ASSERT_EQUAL(disk_rig_write(&rig, &p, 0, RIG_CHAIN), 0);
        for (uint32_t k = 0; k < RIG_CHAIN; k++) {
            CU_ASSERT_EQUAL(disk_rig_read(&rig, &p, k, 0, 3), 0);
            CU_ASSERT_EQUAL(disk_rig_read(&rig, &p, k, 0, 1), 0);
            CU_ASSERT_EQUAL(disk_rig_read(&rig, &p, k, 1, 3), 0);
        }
        disk_rig_reopen(&rig);
        CU_ASSERT_EQUAL(disk_rig_read(&rig, &p, 7, 2, 3), 0);
        disk_rig_fini(&rig);
    }
}

#define DISK_RIG_TEST(test, ...)                                            \
    SUITE_TEST(test, struct disk_rig, rig, disk_rig_init(rig, __VA_ARGS__), \
               disk_rig_fini(rig))

/* Damage in the second piece of a large block. */
DISK_RIG_TEST(test_damage_in_pieces, LARGE, 4)
{
    struct rig_prompt p;

    disk_rig_prompt(&p, 1, 0);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(rig), 0);
    CU_ASSERT_EQUAL(disk_rig_write(rig, &p, 0, 3), 0);
    disk_rig_flip(rig, disk_rig_data_offset(rig, disk_rig_slot(rig, &p, 1)) +
                           2 * LARGE + (1 << 20) + 5);
    CU_ASSERT_EQUAL(disk_rig_read(rig, &p, 1, 0, 2), 0);
    CU_ASSERT_EQUAL(disk_rig_match(rig, &p), 3);
    CU_ASSERT_EQUAL(disk_rig_read(rig, &p, 1, 0, 3), -EBADMSG);
    CU_ASSERT_EQUAL(disk_rig_match(rig, &p), 1);
}

/* Somebody cuts the file while it is in use. */
DISK_RIG_TEST(test_cut_while_open, SMALL, 9)
{
    struct rig_prompt p;

    disk_rig_prompt(&p, 1, 0);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(rig), 0);
    CU_ASSERT_EQUAL(disk_rig_write(rig, &p, 0, RIG_CHAIN), 0);
    uint64_t at = disk_rig_data_offset(rig, disk_rig_slot(rig, &p, 6));
    CU_ASSERT_EQUAL(truncate(rig->path, (off_t)at), 0);
    CU_ASSERT_EQUAL(disk_rig_read(rig, &p, 5, 0, 3), 0);
    CU_ASSERT_EQUAL(disk_rig_read(rig, &p, 6, 0, 3), -ENODATA);
    CU_ASSERT_EQUAL(disk_rig_match(rig, &p), 6);
}

/* A write that the system refuses: said once, the block is not there, and
 * after a pause it goes on. */
DISK_RIG_TEST(test_write_fails, SMALL, 9)
{
    struct rig_prompt p;
    struct rlimit old;

    disk_rig_prompt(&p, 1, 0);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(rig), 0);
    CU_ASSERT_EQUAL(disk_rig_write(rig, &p, 0, 2), 0);
    signal(SIGXFSZ, SIG_IGN);
    CU_ASSERT_EQUAL(getrlimit(RLIMIT_FSIZE, &old), 0);
    struct rlimit none = {.rlim_cur = 4096, .rlim_max = old.rlim_max};
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &none), 0);
    CU_ASSERT_EQUAL(disk_rig_write(rig, &p, 2, 3), -EFBIG);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &old), 0);
    CU_ASSERT_EQUAL(disk_rig_match(rig, &p), 2);
    CU_ASSERT_EQUAL(disk_rig_write(rig, &p, 2, 3), -EBUSY);
    CU_ASSERT_EQUAL(disk_rig_read(rig, &p, 1, 0, 3), 0);
}

DISK_RIG_TEST(test_bad_calls, SMALL, 3)
{
    struct rig_prompt p;
    struct rig_prompt twin;
    struct disk_ref ref;
    struct disk_ref refs[RIG_CHAIN];

    disk_rig_prompt(&p, 1, 0);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(rig), 0);
    CU_ASSERT_EQUAL(disk_rig_write(rig, &p, 0, 2), 0);
    char *m = disk_rig_block(rig, 0);
    CU_ASSERT_EQUAL(disk_rig_write(rig, &p, 1, 2), -EEXIST);
    /* The keys of another prompt by accident. */
    disk_rig_prompt(&twin, 2, 0);
    memcpy(twin.keys, p.keys, sizeof(twin.keys));
    CU_ASSERT_EQUAL(disk_rig_match(rig, &twin), 0);
    CU_ASSERT_EQUAL(disk_rig_write(rig, &twin, 0, 1), -ENOTUNIQ);
    /* A parent that is not there. */
    CU_ASSERT_EQUAL(disk_tier_match(rig->t, p.keys, p.tokens, 2, refs), 2);
    ref = (struct disk_ref){.slot = refs[1].slot, .number = 1000};
    CU_ASSERT_EQUAL(
        disk_tier_write(rig->t, ref, 5, p.tokens, m, disk_rig_done, rig, &ref),
        -ESTALE);
    ref = (struct disk_ref){.slot = 1000, .number = 1};
    CU_ASSERT_EQUAL(
        disk_tier_read(rig->t, ref, 0, 1, m, disk_rig_done, rig, NULL),
        -ESTALE);
    CU_ASSERT_EQUAL(
        disk_tier_read(rig->t, refs[0], 1, 1, m, disk_rig_done, rig, NULL),
        -EINVAL);
    CU_ASSERT_EQUAL(
        disk_tier_read(rig->t, refs[0], 0, 4, m, disk_rig_done, rig, NULL),
        -EINVAL);
    if (disk_tier_align(rig->t) > 1) {
        CU_ASSERT_EQUAL(disk_tier_read(rig->t, refs[0], 0, 1, m + 64,
                                       disk_rig_done, rig, NULL),
                        -EINVAL);
        CU_ASSERT_EQUAL(disk_tier_write(rig->t, DISK_REF_NONE, 5, p.tokens,
                                        m + 64, disk_rig_done, rig, &ref),
                        -EINVAL);
    }
    CU_ASSERT_EQUAL(rig->n_done, 2);
    disk_tier_unpin(rig->t, refs[0]);
    disk_tier_unpin(rig->t, refs[1]);
}

/* Leaf first, the one that was not used for longest, never what is pinned or
 * is the parent of what is being written. */
DISK_RIG_TEST(test_eviction, SMALL, 4)
{
    struct rig_prompt p, q, r;
    struct disk_ref refs[RIG_CHAIN];
    struct disk_ref ref;

    disk_rig_prompt(&p, 1, 0);
    disk_rig_prompt(&q, 2, 0);
    disk_rig_prompt(&r, 3, 0);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(rig), 0);
    CU_ASSERT_EQUAL(disk_rig_write(rig, &p, 0, 3), 0);
    CU_ASSERT_EQUAL(disk_rig_write(rig, &q, 0, 1), 0);
    CU_ASSERT_EQUAL(disk_rig_write(rig, &q, 1, 2), 0);
    CU_ASSERT_EQUAL(disk_rig_match(rig, &p), 2);
    CU_ASSERT_EQUAL(disk_rig_match(rig, &q), 2);
    /* p is used: now q's leaf goes, though it came later. */
    CU_ASSERT_EQUAL(disk_rig_match(rig, &p), 2);
    CU_ASSERT_EQUAL(disk_rig_write(rig, &r, 0, 1), 0);
    CU_ASSERT_EQUAL(disk_rig_match(rig, &q), 1);
    CU_ASSERT_EQUAL(disk_rig_match(rig, &p), 2);
    /* All pinned but one. */
    CU_ASSERT_EQUAL(disk_tier_match(rig->t, p.keys, p.tokens, 8, refs), 2);
    CU_ASSERT_EQUAL(disk_tier_match(rig->t, q.keys, q.tokens, 8, refs + 2), 1);
    CU_ASSERT_EQUAL(
        disk_tier_write(rig->t, refs[2], q.keys[1], q.tokens + RIG_TOKENS,
                        disk_rig_block(rig, 0), disk_rig_done, rig, &ref),
        0);
    CU_ASSERT(disk_tier_has(rig->t, ref));
    CU_ASSERT_EQUAL(disk_tier_write(rig->t, DISK_REF_NONE, r.keys[0], r.tokens,
                                    disk_rig_block(rig, 0), disk_rig_done, rig,
                                    &ref),
                    -ENOSPC);
    for (int i = 0; i < 3; i++)
        disk_tier_unpin(rig->t, refs[i]);
    disk_rig_settle(rig);
    CU_ASSERT_EQUAL(disk_rig_match(rig, &q), 2);
}

/* A chain is given in one go: each block while its parent is being written. */
DISK_RIG_TEST(test_queues, LARGE, 9)
{
    struct rig_prompt p;
    struct disk_ref parent = DISK_REF_NONE;
    struct disk_ref refs[RIG_CHAIN];
    struct disk_job *reads[RIG_CHAIN];

    rig->config.max_writes = 6;
    rig->config.max_reads = 7;
    disk_rig_prompt(&p, 1, 0);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(rig), 0);
    for (uint32_t i = 0; i < 7; i++) {
        disk_rig_fill(rig, &p, i, disk_rig_block(rig, i));
        CU_ASSERT_EQUAL(disk_tier_write(rig->t, parent, p.keys[i],
                                        p.tokens + i * RIG_TOKENS,
                                        disk_rig_block(rig, i), disk_rig_done,
                                        rig, &parent),
                        i < 6 ? 0 : -EBUSY);
        disk_tier_check(rig->t);
    }
    CU_ASSERT_EQUAL(rig->n_done, 0);
    disk_rig_settle(rig);
    CU_ASSERT_EQUAL(rig->n_done, 6);
    CU_ASSERT_EQUAL(disk_rig_write(rig, &p, 6, 8), 0);

    CU_ASSERT_EQUAL(disk_tier_match(rig->t, p.keys, p.tokens, 8, refs), 8);
    memset(rig->memory, 0, (size_t)8 * rig->config.geometry.block_bytes);
    rig->n_done = 0;
    for (uint32_t i = 0; i < 8; i++)
        CU_ASSERT_EQUAL(disk_tier_read(rig->t, refs[i], 0, 3,
                                       disk_rig_block(rig, i), disk_rig_done,
                                       rig, &reads[i]),
                        i < 7 ? 0 : -EBUSY);
    /* One that waits and one under way; callbacks come later, once. */
    disk_tier_cancel(rig->t, reads[6]);
    disk_tier_cancel(rig->t, reads[0]);
    CU_ASSERT_EQUAL(rig->n_done, 0);
    disk_tier_check(rig->t);
    disk_rig_settle(rig);
    CU_ASSERT_EQUAL(rig->n_done, 7);
    for (uint32_t i = 1; i < 6; i++)
        CU_ASSERT(disk_rig_is(rig, &p, i, 0, 3, disk_rig_block(rig, i)));
    for (uint32_t i = 0; i < 8; i++)
        disk_tier_unpin(rig->t, refs[i]);
    CU_ASSERT_EQUAL(disk_rig_match(rig, &p), 8);
    struct disk_tier_stats s;
    disk_tier_stats(rig->t, &s);
    CU_ASSERT(s.read_bytes > 0);
}

/* Closing in the middle: all callbacks come, nothing touches memory later. */
static void test_close_busy(void)
{
    struct disk_rig rig;
    struct rig_prompt p;
    struct disk_ref parent = DISK_REF_NONE;
    struct disk_ref refs[2];

    for (int i = 0; i < 2; i++) {
        disk_rig_init(&rig, LARGE, 9);
        rig.config.uring = i;
        disk_rig_prompt(&p, 1, 0);
        CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
        CU_ASSERT_EQUAL(disk_rig_write(&rig, &p, 0, 2), 0);
        CU_ASSERT_EQUAL(disk_tier_match(rig.t, p.keys, p.tokens, 2, refs), 2);
        parent = refs[1];
        rig.n_done = 0;
        for (uint32_t k = 2; k < 8; k++)
            CU_ASSERT_EQUAL(disk_tier_write(rig.t, parent, p.keys[k],
                                            p.tokens + k * RIG_TOKENS,
                                            disk_rig_block(&rig, k),
                                            disk_rig_done, &rig, &parent),
                            0);
        for (uint32_t k = 0; k < 20; k++)
            CU_ASSERT_EQUAL(disk_tier_read(rig.t, refs[0], 0, 3,
                                           disk_rig_block(&rig, 0),
                                           disk_rig_done, &rig, NULL),
                            0);
        disk_tier_close(rig.t);
        rig.t = NULL;
        CU_ASSERT_EQUAL(rig.n_done, 26);
        CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
        uint32_t n = disk_rig_match(&rig, &p);
        CU_ASSERT(n >= 2);
        CU_ASSERT_EQUAL(disk_rig_read(&rig, &p, 1, 0, 3), 0);
        disk_rig_fini(&rig);
    }
}

/* --- killed at any time ------------------------------------------------- */

/* Writes prompt after prompt into a slab that holds two of them. */
static void write_for_ever(struct disk_rig *rig)
{
    struct rig_prompt p;

    if (disk_rig_open(rig) < 0)
        _exit(3);
    for (uint32_t seed = 1;; seed = seed % 5 + 1) {
        disk_rig_prompt(&p, seed, seed % 3);
        uint32_t n = disk_rig_match(rig, &p);
        if (disk_rig_write(rig, &p, n, RIG_CHAIN) < 0)
            _exit(4);
    }
}

DISK_RIG_TEST(test_killed, 16 * SMALL, 2 * RIG_CHAIN)
{
    struct rig_prompt p;
    uint32_t found = 0;

    for (int i = 0; i < 8; i++) {
        pid_t pid = fork();

        CU_ASSERT_FATAL(pid >= 0);
        if (pid == 0)
            write_for_ever(rig);
        struct timespec pause = {.tv_nsec = 30000000 + i * 1234567};
        nanosleep(&pause, NULL);
        int status;
        kill(pid, SIGKILL);
        CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
        CU_ASSERT(WIFSIGNALED(status));
        CU_ASSERT_EQUAL_FATAL(disk_rig_open(rig), 0);
        for (uint32_t seed = 1; seed <= 5; seed++) {
            disk_rig_prompt(&p, seed, seed % 3);
            for (uint32_t k = 0; k < disk_rig_match(rig, &p); k++) {
                int rc = disk_rig_read(rig, &p, k, 0, 3);

                CU_ASSERT(rc == 0 || rc == -EBADMSG);
                found += rc == 0;
            }
        }
        disk_tier_close(rig->t);
        rig->t = NULL;
    }
    CU_ASSERT(found > 30);
}

static const struct suite_test tests[] = {
    {"ways of I/O", test_ways},
    {"damage in pieces", test_damage_in_pieces},
    {"cut while open", test_cut_while_open},
    {"a write fails", test_write_fails},
    {"bad calls", test_bad_calls},
    {"eviction", test_eviction},
    {"queues and cancel", test_queues},
    {"closing while busy", test_close_busy},
    {"killed", test_killed},
};

int main(void)
{
    log_init("test", LOG_ERROR); /* damage is what these tests make */
    return SUITE_RUN("disk_tier", tests);
}
