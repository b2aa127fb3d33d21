/* See options.h and command.h. */
#include "tools/replay/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "tools/plot/plot.h"
#include "tools/replay/command.h"

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

#define NAME_BYTES 64

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

/*
 * Checks that the files of all OUTPUT options can be written, before the work
 * begins. Existing files are not changed; others are created and removed. It is
 * an error if two outputs, or an output and a TEXT option, name one file.
 * Returns 0 or a negative errno with a message in `error`.
 */
static int check_outputs(const struct option_table *table, char *error,
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

/* Returns the name of an output in messages. */
static const char *shown_path(const char *path)
{
    return strcmp(path, RESULT_PATH) == 0 ? "standard output" : path;
}

/*
 * Lets an OUTPUT option with path "-" write to standard output; all text that
 * the command prints then goes to standard error. The path becomes /dev/fd/N.
 * Call it before anything is printed. Returns 0, or -EINVAL with a message in
 * `error` if two outputs have path "-".
 */
static int claim_stdout(const struct option_table *table, char *error,
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
    }
    return 0;
}

int replay_complain_output(const char *name, const char *path, int rc)
{
    return rc == 0 ? 0
                   : replay_complain(name, "%s: %s", shown_path(path),
                                     plot_error(rc));
}

void replay_missing(const char *name, const char *option)
{
    char program[NAME_BYTES];

    snprintf(program, sizeof program, "conductor-replay %s", name);
    options_missing(program, option);
}

int replay_parse(const struct option_usage *usage,
                 const struct option_table *table, int argc, char **argv,
                 int *status)
{
    char error[256], name[NAME_BYTES];
    struct option_usage all = *usage;

    all.name = name;
    snprintf(name, sizeof name, "conductor-replay %s", usage->name);
    if (options_start(&all, table, argc, argv, status) != 0)
        return -1;
    if (claim_stdout(table, error, sizeof error) == 0 &&
        check_outputs(table, error, sizeof error) == 0)
        return 0;
    *status = 1;
    return replay_complain(usage->name, "%s", error);
}

int replay_list_numbers(const char *option, const char *text, double min,
                        double max, struct replay_numbers *list,
                        char error[REPLAY_LIST_ERROR_BYTES])
{
    list->count = 0;
    for (const char *from = text;; from++) {
        char *end = NULL;
        double x = strtod(from, &end);

        if (end == from || (*end != ',' && *end != '\0') ||
            !(x >= min && x <= max))
            return error_say(error, REPLAY_LIST_ERROR_BYTES, -EINVAL,
                             "--%s %.80s: must be numbers from %.15g to %.15g, "
                             "separated by commas",
                             option, text, min, max);
        if (list->count == REPLAY_LIST_MAX)
            return error_say(error, REPLAY_LIST_ERROR_BYTES, -EINVAL,
                             "--%s: more than %d numbers", option,
                             REPLAY_LIST_MAX);
        list->values[list->count++] = x;
        if (*end == '\0')
            return 0;
        from = end;
    }
}

int replay_list_names(const char *option, const char *text,
                      const char *(*known)(size_t i), struct replay_names *list,
                      char error[REPLAY_LIST_ERROR_BYTES])
{
    const char *name;
    const struct option_spec one = {
        .kind = OPTION_TEXT, .value = &name, .choice = known};
    char why[REPLAY_LIST_ERROR_BYTES] = "too long";

    list->count = 0;
    snprintf(list->text, sizeof list->text, "%s", text);
    char *rest = list->text;
    while (rest) {
        const char *word = strsep(&rest, ",");

        if (strchr(word, ' '))
            return error_say(error, REPLAY_LIST_ERROR_BYTES, -EINVAL,
                             "--%s \"%.40s\": names are separated by commas "
                             "without blanks",
                             option, word);
        if (list->count == REPLAY_LIST_MAX ||
            option_set(&one, word, why, sizeof why) != 0)
            return error_say(error, REPLAY_LIST_ERROR_BYTES, -EINVAL,
                             "--%s %.40s: %s", option, word, why);
        for (size_t i = 0; i < list->count; i++) {
            if (strcmp(list->names[i], name) == 0)
                return error_say(error, REPLAY_LIST_ERROR_BYTES, -EINVAL,
                                 "--%s %s: comes twice", option, name);
        }
        list->names[list->count++] = name;
    }
    return 0;
}
