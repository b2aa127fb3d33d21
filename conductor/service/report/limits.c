/* See limits.h. */
#include "conductor/service/report/limits.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Returns a file's limit, or `most` if that is less or there is no limit. A
 * file has a number, a number divided by a second one, or "max". */
static double read_limit(const char *path, double most)
{
    double of = 1, limit = 0;
    FILE *f = fopen(path, "re");

    if (f && fscanf(f, "%lf %lf", &limit, &of) < 1)
        limit = 0;
    if (f)
        fclose(f);
    return limit > 0 && of > 0 && limit / of < most ? limit / of : most;
}

/* Returns the least limit of a group and of all above it.
 *   group  "/a/b", from the root of the tree; written */
static double least(const char *root, const char *tree, char *group,
                    const char *file, double most)
{
    char path[PATH_MAX + 100], *end = group + strlen(group);

    for (;;) {
        *end = '\0';
        snprintf(path, sizeof(path), "%s%s%s/%s", root, tree, group, file);
        most = read_limit(path, most);
        if (end == group)
            return most;
        while (end > group && *--end != '/')
            ;
    }
}

/* Returns the least limit of the group and its parents, as limits_memory().
 *   file                  in groups of version 2
 *   old_name, old_file    of a controller of version 1; NULL = not read */
static double limit_of(const char *root, const char *groups, double most,
                       const char *file, const char *old_name,
                       const char *old_file)
{
    char line[PATH_MAX + 100], tree[40] = "";
    FILE *f = fopen(groups, "re");

    while (f && fgets(line, sizeof(line), f)) {
        char *group = strchr(line, '/');

        line[strcspn(line, "\n")] = '\0';
        if (group && strncmp(line, "0::", 3) == 0)
            most = least(root, "", group, file, most);
        else if (group && old_name && strstr(line, old_name)) {
            snprintf(tree, sizeof(tree), "/%.*s",
                     (int)strcspn(old_name + 1, ":"), old_name + 1);
            most = least(root, tree, group, old_file, most);
        }
    }
    if (f)
        fclose(f);
    return most;
}

double limits_memory(const char *root, const char *groups, double most)
{
    return limit_of(root, groups, most, "memory.max",
                    ":memory:", "memory.limit_in_bytes");
}

double limits_cpus(const char *root, const char *groups, double most)
{
    return limit_of(root, groups, most, "cpu.max", NULL, NULL);
}
