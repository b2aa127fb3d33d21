/* Files that replace others. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/unit/suite.h"

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

static const struct suite_test tests[] = {
    {"a temporary file left behind", test_left_behind},
};
SUITE("file", tests)
