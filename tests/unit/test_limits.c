/* Limits of control groups: the least of a group and of all above it. */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conductor/service/report/limits.h"
#include "tests/unit/suite.h"

#define MOST 1e6

static char root[] = "/tmp/limits_XXXXXX", groups[100];

/* Writes a file below the root, and makes the folders of its path. */
static void put(const char *path, const char *text)
{
    char full[300];

    snprintf(full, sizeof(full), "%s/%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(full, 0700);
        *at = '/';
    }
    FILE *f = fopen(full, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT(fputs(text, f) >= 0 && fclose(f) == 0);
}

static void memory_is(const char *of, double limit)
{
    put("groups", of);
    CU_ASSERT_EQUAL(limits_memory(root, groups, MOST), limit);
}

static void test_memory(void)
{
    CU_ASSERT_EQUAL(limits_memory(root, "/no/file", MOST), MOST);
    memory_is("", MOST);
    put("a/b/c/memory.max", "max\n");
    put("a/b/memory.max", "5000\n");
    put("a/memory.max", "7000\n");
    put("a2/memory.max", "0\n");
    put("a2/b/memory.max", "rubbish\n");
    put("a3/memory.max", "2000000\n");
    memory_is("0::/a/b/c\n", 5000);
    memory_is("0::/a/b\n", 5000);
    memory_is("0::/a\n", 7000);
    memory_is("0::/\n", MOST);
    memory_is("0::/a2/b\n", MOST);
    memory_is("0::/a3\n", MOST);
    memory_is("0::/not/there\n", MOST);
    /* A container sees its own group as the root. */
    put("memory.max", "6000\n");
    memory_is("0::/not/there\n", 6000);
    memory_is("0::/a/b/c\n", 5000);
    memory_is("0::/\n", 6000);
}

static void test_version_1(void)
{
    put("memory.max", "max\n");
    put("memory/x/memory.limit_in_bytes", "3000\n");
    put("memory/x/y/memory.limit_in_bytes", "9223372036854771712\n");
    memory_is("4:memory:/x/y\n3:cpu,cpuacct:/x\n0::/\n", 3000);
    memory_is("12:pids:/x\n", MOST);
    put("memory/memory.limit_in_bytes", "2000\n");
    memory_is("4:memory:/x/y\n", 2000);
}

static void test_cpus(void)
{
    put("p/q/cpu.max", "max 100000\n");
    put("p/cpu.max", "150000 100000\n");
    put("groups", "0::/p/q\n");
    CU_ASSERT_EQUAL(limits_cpus(root, groups, 4), 1.5);
    CU_ASSERT_EQUAL(limits_cpus(root, groups, 1), 1);
    put("cpu.max", "50000 100000\n");
    CU_ASSERT_EQUAL(limits_cpus(root, groups, 4), 0.5);
    put("cpu.max", "50000 0\n");
    CU_ASSERT_EQUAL(limits_cpus(root, groups, 4), 1.5);
}

/* A path longer than a line is cut and does no harm. */
static void test_long(void)
{
    char *of = malloc(20000);

    CU_ASSERT_PTR_NOT_NULL_FATAL(of);
    memset(of, 'x', 19999);
    memcpy(of, "0::/", 4);
    of[19999] = '\0';
    memory_is(of, MOST);
    free(of);
}

static const struct suite_test tests[] = {
    {"memory", test_memory},
    {"version_1", test_version_1},
    {"cpus", test_cpus},
    {"long", test_long},
};

static int remove_one(const char *path, const struct stat *, int, struct FTW *)
{
    return remove(path);
}

int main(void)
{
    if (!mkdtemp(root))
        return EXIT_FAILURE;
    snprintf(groups, sizeof(groups), "%s/groups", root);
    int status = SUITE_RUN("limits", tests);
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return status;
}
