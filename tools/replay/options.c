/* See options.h. */
#include "tools/replay/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

int replay_complain(const char *name, const char *format, ...)
{
    fprintf(stderr, "conductor-replay %s: ", name);
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return -1;
}

static int check_output(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

    if (fd >= 0) {
        close(fd);
        return unlink(path) == 0 ? 0 : -errno;
    }
    if (errno != EEXIST)
        return -errno;
    struct stat about;
    if (stat(path, &about) != 0 || access(path, W_OK) != 0)
        return -errno;
    return S_ISDIR(about.st_mode) ? -EISDIR : 0;
}

/* Returns whether two paths lead, or would lead, to one regular file. */
static bool same_file(const char *a, const char *b)
{
    struct stat x;
    struct stat y;
    int is_a = stat(a, &x);
    int is_b = stat(b, &y);

    if (is_a == 0 && is_b == 0) {
        return S_ISREG(x.st_mode) && x.st_dev == y.st_dev &&
               x.st_ino == y.st_ino;
    }
    const char *slash_a = strrchr(a, '/');
    const char *slash_b = strrchr(b, '/');
    const char *name_a = slash_a ? slash_a + 1 : a;
    const char *name_b = slash_b ? slash_b + 1 : b;
    if (is_a == is_b && strcmp(name_a, name_b) == 0) {
        char folder_a[4096];
        char folder_b[4096];

        snprintf(folder_a, sizeof folder_a, "%.*s.", (int)(name_a - a), a);
        snprintf(folder_b, sizeof folder_b, "%.*s.", (int)(name_b - b), b);
        return stat(folder_a, &x) == 0 && stat(folder_b, &y) == 0 &&
               x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    }
    return false;
}

/* Returns the option whose file an output would destroy; NULL = none. */
static const struct option_spec *shares_file(const struct option_table *table,
                                             const struct option_spec *output)
{
    const char *path = *(const char *const *)output->value;

    for (size_t i = 0; i < table->count; i++) {
        const struct option_spec *spec = &table->specs[i];
        bool text = spec->kind == OPTION_TEXT || spec->kind == OPTION_OUTPUT;
        const char *other = text ? *(const char *const *)spec->value : NULL;

        if (spec != output && other && same_file(path, other))
            return spec;
    }
    return NULL;
}

int options_check_outputs(const struct option_table *table, char *error,
                          size_t size)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct option_spec *spec = &table->specs[i];
        const char *path = spec->kind == OPTION_OUTPUT
                               ? *(const char *const *)spec->value
                               : NULL;
        int rc = path ? check_output(path) : 0;

        if (rc != 0)
            return error_say(error, size, rc, "--%s %s: %s", spec->name, path,
                             strerror(-rc));
        const struct option_spec *other =
            path ? shares_file(table, spec) : NULL;
        if (other)
            return error_say(error, size, -EINVAL,
                             "--%s %s: is the file of --%s", spec->name, path,
                             other->name);
    }
    return 0;
}

/* Not used by shells. */
#define RESULT_FD 90
#define RESULT_PATH "/dev/fd/90"

/* The user's spelling of RESULT_PATH. */
static char result_option[64];

const char *options_shown_path(const char *path)
{
    return strcmp(path, RESULT_PATH) == 0 ? result_option : path;
}

int options_claim_stdout(const struct option_table *table, char *error,
                         size_t size)
{
    const struct option_spec *claimed = NULL;

    for (size_t i = 0; i < table->count; i++) {
        const struct option_spec *spec = &table->specs[i];
        const char **path = spec->kind == OPTION_OUTPUT ? spec->value : NULL;

        if (!path || !*path || strcmp(*path, "-") != 0)
            continue;
        if (claimed)
            return error_say(error, size, -EINVAL,
                             "--%s -: standard output is that of --%s",
                             spec->name, claimed->name);
        if (dup2(STDOUT_FILENO, RESULT_FD) < 0 ||
            dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
            return error_say(error, size, -errno, "--%s -: %s", spec->name,
                             strerror(errno));
        claimed = spec;
        *path = RESULT_PATH;
        snprintf(result_option, sizeof result_option, "--%s -", spec->name);
    }
    return 0;
}
