/* A table of options drives parsing and --help of every subcommand. */
#ifndef TOOLS_REPLAY_OPTIONS_H
#define TOOLS_REPLAY_OPTIONS_H

#include <stddef.h>
#include <stdio.h>

enum option_kind {
    OPTION_FLAG,   /* bool */
    OPTION_TEXT,   /* const char *, borrowed from argv */
    OPTION_OUTPUT, /* as TEXT: the path of a file to write */
    OPTION_COUNT,  /* uint64_t */
    OPTION_NUMBER, /* double */
};

struct option_spec {
    const char *name; /* without the dashes */
    enum option_kind kind;
    void *value;         /* as kind says; holds the default */
    const char *metavar; /* what --help calls the value */
    double min;          /* of COUNT and NUMBER */
    double max;
    const char *help; /* one line, with unit and default */
};

struct option_table {
    const struct option_spec *specs;
    size_t count;
};

/*
 * Reads argv[1 .. argc) as `--name value`, `--name=value` or `--name` into the
 * tables' values. Returns 0; 1 when --help was asked for; or -EINVAL with a
 * message in `error` (`size` bytes) that names the option and the value.
 */
int options_parse(const struct option_table *table, int argc, char **argv,
                  char *error, size_t size) __attribute__((warn_unused_result));

/*
 * Whether the files of all OUTPUT options can be written, before the work whose
 * result they are to hold. Files that exist are not changed; others are made
 * and removed. A file of two outputs, or of an output and a TEXT option, is an
 * error. Returns 0 or a negative errno with a message in `error`.
 */
int options_check_outputs(const struct option_table *table, char *error,
                          size_t size) __attribute__((warn_unused_result));

/* Prints one line per option to `file`. */
void options_print(const struct option_table *table, FILE *file);

#endif
