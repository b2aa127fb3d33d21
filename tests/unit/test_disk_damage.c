/* Damage of every kind to the file of the disk tier: what is damaged is a miss,
 * the rest stays, and nothing wrong is ever said to be good. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "disk_rig.h"
#include "tests/unit/suite.h"

#define LAYER_BYTES 4096u

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

/* Every byte of a slot header that means something. The block and those
 * behind it are a miss, those in front stay. */
static void test_damaged_header(void)
{
    struct disk_rig rig;
    struct rig_prompt p;
    struct disk_tier_stats s;

    filled(&rig, &p);
    for (uint64_t at = 0; at < 4096; at += at < 112 ? 1 : 131) {
        uint64_t offset =
            disk_rig_page_offset(&rig, disk_rig_slot(&rig, &p, 4)) + at;

        close_tier(&rig);
        disk_rig_flip(&rig, offset);
        CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
        CU_ASSERT_EQUAL_FATAL(disk_rig_match(&rig, &p), 4);
        disk_tier_stats(rig.t, &s);
        CU_ASSERT_EQUAL(s.held_blocks, 4);
        close_tier(&rig);
        disk_rig_flip(&rig, offset);
        CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
        CU_ASSERT_EQUAL_FATAL(disk_rig_match(&rig, &p), RIG_CHAIN);
    }
    disk_rig_fini(&rig);
}

/* One of the two file headers is enough; without both it begins anew. */
static void test_damaged_file_header(void)
{
    struct disk_rig rig;
    struct rig_prompt p;

    filled(&rig, &p);
    for (uint64_t at = 0; at < 8192; at += at % 4096 < 64 ? 1 : 509) {
        close_tier(&rig);
        disk_rig_flip(&rig, at);
        CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
        CU_ASSERT_EQUAL_FATAL(disk_rig_match(&rig, &p), RIG_CHAIN);
    }
    close_tier(&rig);
    disk_rig_flip(&rig, 20);
    disk_rig_flip(&rig, 4096 + 21);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
    CU_ASSERT_EQUAL(disk_rig_match(&rig, &p), 0);
    CU_ASSERT_EQUAL(disk_rig_write(&rig, &p, 0, 3), 0);
    disk_rig_reopen(&rig);
    CU_ASSERT_EQUAL(disk_rig_match(&rig, &p), 3);
    disk_rig_fini(&rig);
}

/* A damaged byte of data: reads of its layer fail and drop the block and what
 * is behind, also over a restart; other layers are right. */
static void test_damaged_data(void)
{
    struct disk_rig rig;
    struct rig_prompt p;
    struct disk_tier_stats s;

    for (uint64_t at = 0; at < 3 * LAYER_BYTES; at += 2047) {
        uint32_t layer = (uint32_t)(at / LAYER_BYTES);

        filled(&rig, &p);
        disk_rig_flip(
            &rig, disk_rig_data_offset(&rig, disk_rig_slot(&rig, &p, 5)) + at);
        disk_rig_reopen(&rig);
        for (uint32_t l = 0; l < 3; l++)
            if (l != layer)
                CU_ASSERT_EQUAL(disk_rig_read(&rig, &p, 5, l, l + 1), 0);
        CU_ASSERT_EQUAL(disk_rig_read(&rig, &p, 5, layer, layer + 1), -EBADMSG);
        CU_ASSERT_EQUAL(disk_rig_match(&rig, &p), 5);
        disk_tier_stats(rig.t, &s);
        CU_ASSERT_EQUAL(s.held_blocks, 5);
        CU_ASSERT_EQUAL(s.damaged_blocks, 1);
        disk_rig_reopen(&rig);
        CU_ASSERT_EQUAL(disk_rig_match(&rig, &p), 5);
        CU_ASSERT_EQUAL(disk_rig_write(&rig, &p, 5, RIG_CHAIN), 0);
        CU_ASSERT_EQUAL(disk_rig_read(&rig, &p, 5, 0, 3), 0);
        disk_rig_fini(&rig);
    }
}

/* Lines that were written to `file`. */
static int count_lines(FILE *file)
{
    int n = 0;

    rewind(file);
    for (int c; (c = getc(file)) != EOF;)
        n += c == '\n';
    return n;
}

/* Many damaged blocks at a time are one line of the log. */
static void test_one_line_for_many(void)
{
    struct disk_rig rig;
    struct rig_prompt p;
    struct disk_tier_stats s;
    FILE *log = tmpfile();
    int keep = dup(STDERR_FILENO);

    CU_ASSERT_FATAL(log && keep >= 0);
    filled(&rig, &p);
    for (uint32_t i = 2; i < RIG_CHAIN; i++)
        disk_rig_flip(&rig,
                      disk_rig_data_offset(&rig, disk_rig_slot(&rig, &p, i)));
    log_init("test", LOG_WARN);
    CU_ASSERT_FATAL(dup2(fileno(log), STDERR_FILENO) >= 0);
    for (uint32_t i = RIG_CHAIN; i-- > 2;)
        CU_ASSERT_EQUAL(disk_rig_read(&rig, &p, i, 0, 3), -EBADMSG);
    CU_ASSERT_FATAL(dup2(keep, STDERR_FILENO) >= 0);
    log_init("test", LOG_ERROR);
    disk_tier_stats(rig.t, &s);
    CU_ASSERT_EQUAL(s.damaged_blocks, RIG_CHAIN - 2);
    CU_ASSERT_EQUAL(count_lines(log), 1);
    close(keep);
    fclose(log);
    disk_rig_fini(&rig);
}

/* Writes by this thread, which is what the event loop waits for. The tier makes
 * all others through io_uring or on threads of its own. */
static int blocking_writes;

ssize_t pwrite(int fd, const void *buf, size_t bytes, off_t offset)
{
    blocking_writes += gettid() == getpid();
    return syscall(SYS_pwrite64, fd, buf, bytes, offset);
}

static bool is_blank(const struct disk_rig *rig, uint32_t slot)
{
    char page[4096];
    int fd = open(rig->path, O_RDONLY);
    bool blank = true;

    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(
        pread(fd, page, 4096, (off_t)disk_rig_page_offset(rig, slot)), 4096);
    for (int i = 0; i < 4096; i++)
        blank = blank && page[i] == 0;
    close(fd);
    return blank;
}

/* Damage is found on the event loop, which does not wait until the header is
 * erased; the slot is written again only then. */
static void test_erased_later(void)
{
    struct disk_rig rig;
    struct rig_prompt p;

    for (int uring = 0; uring < 2; uring++) {
        filled(&rig, &p);
        rig.config.uring = uring;
        disk_rig_reopen(&rig);
        uint32_t slot = disk_rig_slot(&rig, &p, 5);
        disk_rig_flip(&rig, disk_rig_data_offset(&rig, slot));
        blocking_writes = 0;
        CU_ASSERT_EQUAL(disk_rig_read(&rig, &p, 5, 0, 3), -EBADMSG);
        CU_ASSERT_EQUAL(blocking_writes, 0);
        disk_rig_reopen(&rig);
        CU_ASSERT(is_blank(&rig, slot));
        blocking_writes = 0;
        CU_ASSERT_EQUAL(disk_rig_write(&rig, &p, 5, RIG_CHAIN), 0);
        CU_ASSERT_EQUAL(blocking_writes, 0);
        disk_rig_flip(&rig, disk_rig_data_offset(
                                &rig, disk_rig_slot(&rig, &p, RIG_CHAIN - 1)));
        blocking_writes = 0;
        CU_ASSERT_EQUAL(disk_rig_read(&rig, &p, RIG_CHAIN - 1, 0, 3), -EBADMSG);
        CU_ASSERT_EQUAL(disk_rig_write(&rig, &p, RIG_CHAIN - 1, RIG_CHAIN), 0);
        CU_ASSERT_EQUAL(blocking_writes, 0);
        disk_rig_reopen(&rig);
        CU_ASSERT_EQUAL(disk_rig_match(&rig, &p), RIG_CHAIN);
        for (uint32_t i = 0; i < RIG_CHAIN; i++)
            CU_ASSERT_EQUAL(disk_rig_read(&rig, &p, i, 0, 3), 0);
        disk_rig_fini(&rig);
    }
}

/* The header of an older block whose data were overwritten in part: what a
 * crash leaves in the middle of a write. */
static void test_torn_write(void)
{
    struct disk_rig rig;
    struct rig_prompt p;
    char page[4096];

    filled(&rig, &p);
    uint64_t page_at = disk_rig_page_offset(&rig, disk_rig_slot(&rig, &p, 7));
    uint64_t data_at = disk_rig_data_offset(&rig, disk_rig_slot(&rig, &p, 7));
    close_tier(&rig);
    int fd = open(rig.path, O_RDWR);
    memset(page, 0xa5, sizeof(page));
    CU_ASSERT_EQUAL(pwrite(fd, page, 512, (off_t)data_at + 4096), 512);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
    CU_ASSERT_EQUAL(disk_rig_match(&rig, &p), 8);
    CU_ASSERT_EQUAL(disk_rig_read(&rig, &p, 7, 0, 3), -EBADMSG);
    CU_ASSERT_EQUAL(disk_rig_match(&rig, &p), 7);
    CU_ASSERT_EQUAL(disk_rig_write(&rig, &p, 7, 8), 0);
    /* Half a header. */
    page_at = disk_rig_page_offset(&rig, disk_rig_slot(&rig, &p, 7));
    close_tier(&rig);
    CU_ASSERT_EQUAL(pwrite(fd, page, 64, (off_t)page_at + 64), 64);
    CU_ASSERT_EQUAL(close(fd), 0);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
    CU_ASSERT_EQUAL(disk_rig_match(&rig, &p), 7);
    disk_rig_fini(&rig);
}

/* A whole header in another slot than its own, and one that refers to a parent
 * of another time. */
static void test_misplaced(void)
{
    struct disk_rig rig;
    struct rig_prompt p;
    struct rig_prompt q;
    char old[4096];
    char page[4096];

    filled(&rig, &p);
    uint64_t root_at = disk_rig_page_offset(&rig, disk_rig_slot(&rig, &p, 0));
    uint64_t leaf_at = disk_rig_page_offset(&rig, disk_rig_slot(&rig, &p, 7));
    close_tier(&rig);
    int fd = open(rig.path, O_RDWR);
    CU_ASSERT_EQUAL(pread(fd, page, 4096, (off_t)leaf_at), 4096);
    CU_ASSERT_EQUAL(pwrite(fd, page, 4096, (off_t)leaf_at + 4096), 4096);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
    CU_ASSERT_EQUAL(disk_rig_match(&rig, &p), 8);
    close_tier(&rig);
    /* Take the root away, and put a twin with the same key, tokens and KV to
     * its place: its number is new, so what was behind it is lost. */
    CU_ASSERT_EQUAL(pread(fd, old, 4096, (off_t)root_at), 4096);
    memset(page, 0, sizeof(page));
    CU_ASSERT_EQUAL(pwrite(fd, page, 4096, (off_t)root_at), 4096);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
    CU_ASSERT_EQUAL(disk_rig_match(&rig, &p), 0);
    CU_ASSERT_EQUAL(disk_rig_write(&rig, &p, 0, 1), 0);
    CU_ASSERT_EQUAL(disk_rig_page_offset(&rig, disk_rig_slot(&rig, &p, 0)),
                    root_at);
    disk_rig_reopen(&rig);
    CU_ASSERT_EQUAL(disk_rig_match(&rig, &p), 1);
    close_tier(&rig);
    /* The old root again: it is whole, and so all comes back. */
    CU_ASSERT_EQUAL(pwrite(fd, old, 4096, (off_t)root_at), 4096);
    CU_ASSERT_EQUAL(close(fd), 0);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
    CU_ASSERT_EQUAL(disk_rig_match(&rig, &p), 8);
    disk_rig_prompt(&q, 3, 0);
    CU_ASSERT_EQUAL(disk_rig_match(&rig, &q), 0);
    disk_rig_fini(&rig);
}

static void copy_page(const struct disk_rig *rig, uint32_t slot, char *page,
                      bool back)
{
    int fd = open(rig->path, O_RDWR);
    off_t at = (off_t)disk_rig_page_offset(rig, slot);

    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(
        back ? pwrite(fd, page, 4096, at) : pread(fd, page, 4096, at), 4096);
    close(fd);
}

/* A child that could not be read for a while finds another block in its
 * parent's slot: same key, other tokens. */
static void test_other_parent(void)
{
    struct disk_rig rig;
    struct rig_prompt p;
    struct rig_prompt twin;
    char child[4096];
    char zero[4096] = {0};

    disk_rig_init(&rig, LAYER_BYTES, 4);
    disk_rig_prompt(&p, 1, 0);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
    CU_ASSERT_EQUAL(disk_rig_write(&rig, &p, 0, 2), 0);
    uint32_t slots[2] = {disk_rig_slot(&rig, &p, 0),
                         disk_rig_slot(&rig, &p, 1)};
    close_tier(&rig);
    copy_page(&rig, slots[1], child, false);
    copy_page(&rig, slots[1], zero, true);
    copy_page(&rig, slots[0], zero, true);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
    disk_rig_prompt(&twin, 2, 0);
    memcpy(twin.keys, p.keys, sizeof(p.keys));
    memcpy(twin.tokens + RIG_TOKENS, p.tokens + RIG_TOKENS,
           sizeof(p.tokens) - RIG_TOKENS * sizeof(p.tokens[0]));
    CU_ASSERT_EQUAL(disk_rig_write(&rig, &twin, 0, 1), 0);
    CU_ASSERT_EQUAL(disk_rig_slot(&rig, &twin, 0), slots[0]);
    close_tier(&rig);
    copy_page(&rig, slots[1], child, true);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
    CU_ASSERT_EQUAL(disk_rig_match(&rig, &twin), 1);
    CU_ASSERT_EQUAL(disk_rig_match(&rig, &p), 0);
    disk_rig_fini(&rig);
}

/* A block that was evicted, and was written again: a crash may leave the old
 * header there. The newer one has children. */
static void test_twice(void)
{
    struct disk_rig rig;
    struct rig_prompt p[4];
    char page[4096];

    disk_rig_init(&rig, LAYER_BYTES, 3);
    for (uint32_t i = 0; i < 4; i++)
        disk_rig_prompt(&p[i], i + 1, 0);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
    for (uint32_t i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(disk_rig_write(&rig, &p[i], 0, 1), 0);
    uint32_t slot = disk_rig_slot(&rig, &p[0], 0);
    copy_page(&rig, slot, page, false);
    for (uint32_t i = 1; i < 3; i++)
        CU_ASSERT_EQUAL(disk_rig_match(&rig, &p[i]), 1); /* used later */
    CU_ASSERT_EQUAL(disk_rig_write(&rig, &p[3], 0, 1), 0);
    CU_ASSERT_EQUAL(disk_rig_slot(&rig, &p[3], 0), slot);
    CU_ASSERT_EQUAL(disk_rig_write(&rig, &p[0], 0, 2), 0);
    close_tier(&rig);
    copy_page(&rig, slot, page, true);
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(&rig), 0);
    CU_ASSERT_EQUAL(disk_rig_match(&rig, &p[0]), 2);
    CU_ASSERT_EQUAL(disk_rig_read(&rig, &p[0], 1, 0, 3), 0);
    CU_ASSERT_EQUAL(disk_rig_read(&rig, &p[0], 0, 0, 3), 0);
    disk_rig_fini(&rig);
}

static const struct suite_test tests[] = {
    {"damaged slot header", test_damaged_header},
    {"damaged file header", test_damaged_file_header},
    {"damaged data", test_damaged_data},
    {"one line for many", test_one_line_for_many},
    {"erased later", test_erased_later},
    {"torn write", test_torn_write},
    {"misplaced header", test_misplaced},
    {"another parent", test_other_parent},
    {"there twice", test_twice},
};

int main(void)
{
    log_init("test", LOG_ERROR); /* damage is what these tests make */
    return SUITE_RUN("disk_damage", tests);
}
