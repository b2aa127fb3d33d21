/* See options.h. */
#include "tools/replay/options.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct option_spec *find(const struct option_table *table,
                                      const char *name, size_t bytes)
{
    for (size_t i = 0; i < table->count; i++) {
        const char *known = table->specs[i].name;

        if (strlen(known) == bytes && memcmp(known, name, bytes) == 0)
            return &table->specs[i];
    }
    return NULL;
}

static int set_number(const struct option_spec *spec, const char *text,
                      char *error, size_t size)
{
    char *end = NULL;
    double x = strtod(text, &end);
    bool whole = spec->kind == OPTION_COUNT;

    if (end == text || *end != '\0' || !(x >= spec->min && x <= spec->max) ||
        (whole &&
         (floor(x) != x || strspn(text, "0123456789") != strlen(text)))) {
        snprintf(error, size, "--%s %s: must be a%s number from %.15g to %.15g",
                 spec->name, text, whole ? " whole" : "", spec->min, spec->max);
        return -EINVAL;
    }
    if (whole)
        *(uint64_t *)spec->value = strtoull(text, NULL, 10);
    else
        *(double *)spec->value = x;
    return 0;
}

static int set_value(const struct option_spec *spec, const char *text,
                     char *error, size_t size)
{
    if (spec->kind != OPTION_TEXT && spec->kind != OPTION_OUTPUT)
        return set_number(spec, text, error, size);
    *(const char **)spec->value = text;
    return 0;
}

int options_parse(const struct option_table *table, int argc, char **argv,
                  char *error, size_t size)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return 1;
        const char *name = argv[i] + 2;
        const char *equals = strchr(argv[i], '=');
        size_t bytes = equals ? (size_t)(equals - argv[i]) : strlen(argv[i]);
        const struct option_spec *spec = strncmp(argv[i], "--", 2) == 0
                                             ? find(table, name, bytes - 2)
                                             : NULL;
        if (!spec) {
            snprintf(error, size, "unknown option '%s'", argv[i]);
            return -EINVAL;
        }
        if (spec->kind == OPTION_FLAG) {
            if (equals) {
                snprintf(error, size, "--%s takes no value", spec->name);
                return -EINVAL;
            }
            *(bool *)spec->value = true;
            continue;
        }
        if (!equals && i + 1 >= argc) {
            snprintf(error, size, "--%s needs a value", spec->name);
            return -EINVAL;
        }
        const char *text = equals ? equals + 1 : argv[++i];
        int rc = set_value(spec, text, error, size);
        if (rc != 0)
            return rc;
    }
    return 0;
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

/* Whether two paths lead, or would lead, to one regular file. */
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

/* The option whose file an output would destroy; NULL: none. */
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

        if (rc != 0) {
            snprintf(error, size, "--%s %s: %s", spec->name, path,
                     strerror(-rc));
            return rc;
        }
        const struct option_spec *other =
            path ? shares_file(table, spec) : NULL;
        if (other) {
            snprintf(error, size, "--%s %s: is the file of --%s", spec->name,
                     path, other->name);
            return -EINVAL;
        }
    }
    return 0;
}

void options_print(const struct option_table *table, FILE *file)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct option_spec *spec = &table->specs[i];
        char left[64];

        snprintf(left, sizeof left, "--%s %s", spec->name,
                 spec->metavar ? spec->metavar : "");
        fprintf(file, "  %-22s %s\n", left, spec->help);
    }
}
