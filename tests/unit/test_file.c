/* Files that replace others. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/unit/suite.h"

/* In place of the C library's: until a file has its name its writer holds a
 * lock, or another process might remove it. */
int rename(const char *from, const char *to)
{
    int fd = open(from, O_RDONLY);

    CU_ASSERT_NOT_EQUAL(flock(fd, LOCK_EX | LOCK_NB), 0);
    close(fd);
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

/* A process that was killed while it saved leaves its temporary file; one with
 * the same process id, as in a container, can save. */
static void test_left_behind(void)
{
    char folder[] = "/tmp/test_file_XXXXXX";
    char path[64];
    struct file_output killed, next;

    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/file", folder);
    CU_ASSERT_EQUAL_FATAL(file_output_open(&killed, path), 0);
    fclose(killed.file);
    CU_ASSERT_EQUAL_FATAL(file_output_open(&next, path), 0);
    fputs("whole", next.file);
    CU_ASSERT_EQUAL(file_output_close(&next, true), 0);
    CU_ASSERT_EQUAL(unlink(path), 0);
    CU_ASSERT_EQUAL(unlink(killed.temporary), 0);
    CU_ASSERT_EQUAL(rmdir(folder), 0);
}

/* Writes an empty file NAME.PID.TIME.tmp beside the path, `ago_s` old by its
 * name. live: the file is still being written, by this output. */
static void leave(const char *path, long ago_s, const char *end,
                  struct file_output *live, char *left, size_t size)
{
    snprintf(left, size, "%s.%d.%lld000000007%s", path, 7,
             (long long)time(NULL) - ago_s, end);
    if (live) {
        CU_ASSERT_EQUAL_FATAL(file_output_open(live, path), 0);
        CU_ASSERT_EQUAL_FATAL(rename(live->temporary, left), 0);
        return;
    }
    FILE *f = fopen(left, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fclose(f);
}

/* The next one that saves the same file removes it, but nothing else. */
static void test_removed(void)
{
    static const struct {
        bool alive;
        long ago_s;
        const char *end;
        bool stays;
    } cases[] = {
        {false, 3700, ".tmp", false}, {false, 100, ".tmp", true},
        {true, 3700, ".tmp", true},   {false, 3700, ".tmp2", true},
        {false, 3700, "", true},
    };
    char folder[] = "/tmp/test_file_XXXXXX";
    char path[64], left[200];
    struct file_output next, live;

    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/file", folder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        leave(path, cases[i].ago_s, cases[i].end, cases[i].alive ? &live : NULL,
              left, sizeof left);
        CU_ASSERT_EQUAL_FATAL(file_output_open(&next, path), 0);
        CU_ASSERT_EQUAL(file_output_close(&next, true), 0);
        CU_ASSERT_EQUAL(access(left, F_OK) == 0, cases[i].stays);
        unlink(left);
        if (cases[i].alive)
            CU_ASSERT_EQUAL(file_output_close(&live, false), 0);
    }
    /* A temporary file of another path stays. */
    leave(path, 3700, ".tmp", NULL, left, sizeof left);
    path[strlen(path) - 1] = '\0';
    CU_ASSERT_EQUAL_FATAL(file_output_open(&next, path), 0);
    CU_ASSERT_EQUAL(file_output_close(&next, true), 0);
    CU_ASSERT_EQUAL(unlink(left), 0);
    CU_ASSERT_EQUAL(unlink(path), 0);
    strcat(path, "e");
    CU_ASSERT_EQUAL(unlink(path), 0);
    CU_ASSERT_EQUAL(rmdir(folder), 0);
}

static const struct suite_test tests[] = {
    {"a temporary file left behind", test_left_behind},
    {"one of long ago is removed", test_removed},
};
SUITE("file", tests)
