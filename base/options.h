/*
 * One table of options drives the command line, --help, a configuration's
 * values and every message about them. A program builds its table beside the
 * struct that it fills.
 */
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Table rows leave out trailing members that they do not need. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* The exit status after a bad command line. */
#define OPTIONS_EXIT_USAGE 2

enum option_kind {
    OPTION_FLAG,    /* bool; takes no value */
    OPTION_TEXT,    /* const char *, not empty, borrowed from argv */
    OPTION_OUTPUT,  /* as TEXT: path of a file to write */
    OPTION_LIST,    /* struct option_list: may be repeated */
    OPTION_STRING,  /* char[size]: a copy; min to max bytes, unless max is 0 */
    OPTION_ADDRESS, /* struct address; min: the lowest port */
    OPTION_CHOICE,  /* uint8_t: min and the index in `choice` */
    OPTION_COUNT,   /* uint64_t, or int64_t where max fits it */
    OPTION_U32,     /* uint32_t */
    OPTION_NUMBER,  /* double */
};

/* Strings borrowed from argv; `items` has room for argc of them. */
struct option_list {
    const char **items;
    size_t count;
};

struct option_spec {
    const char *name; /* without dashes; "" = other arguments, a LIST */
    enum option_kind kind;
    void *value;         /* of the type for `kind`; holds the default, unless
                            `initial` says it */
    const char *metavar; /* the value's name in --help, or its unit */
    double min, max;
    const char *help; /* help text; after a final ':' the words of `choice`
                         follow; --help adds the default */
    /* The rest may be left out. */
    char letter;         /* -x; 0 = none */
    const char *initial; /* the default as text; NULL = what *value holds */
    double step;         /* numbers are multiples of it */
    bool required;       /* a TEXT, or a NUMBER whose default is 0 */
    size_t size;         /* of a STRING's array */
    bool reloads;        /* a reload may change it */
    /* The section of --help that begins with this row: --help shows only its
     * name, and `--help SECTION` its rows. NULL = the row belongs to the same
     * section as the row in front; --help shows the rows in front of the first
     * section. */
    const char *section;
    /* Allowed words of a CHOICE, TEXT or STRING, NULL after the last: one of
     * both. */
    const char *const *words;
    const char *(*choice)(size_t i);
    /* Checks a TEXT or STRING. Returns NULL if valid, else the requirement. */
    const char *(*check)(const char *text);
};

struct option_table {
    const struct option_spec *specs;
    size_t count;
};

/* The table of an array of rows. */
#define OPTION_TABLE(rows) \
    (&(const struct option_table){rows, sizeof(rows) / sizeof((rows)[0])})

/* Text of --help for a program or subcommand. */
struct option_usage {
    const char *name; /* with the program: "conductor-replay live" */
    const char *synopsis;
    const char *text;     /* description */
    const char *examples; /* one per line, indented by two */
    const char *footnote; /* after the examples, ends with '\n'; NULL = none */
    /* `--help TOPIC` calls `explain`; NULL = no topic. `--help all` shows all
     * rows of the table. */
    const char *topic;
    void (*explain)(FILE *out);
};

/* Returns the i-th allowed word, i at most their number; NULL behind the last,
 * or where any text is allowed. */
const char *option_word(const struct option_spec *spec, size_t i);

/* Sets the value from text. Returns 0; or -EINVAL with "must be ..." in `why`
 * (`size` bytes) and the value untouched. */
[[nodiscard]] int option_set(const struct option_spec *spec, const char *text,
                             char *why, size_t size);

/* Returns the option called name[0 .. bytes), or NULL. O(options). */
const struct option_spec *option_find(const struct option_table *table,
                                      const char *name, size_t bytes);

/* Returns the name in the table that is most like name[0 .. bytes), if at most
 * a third of its letters differ, or the first that begins so; NULL = none.
 * O(options x bytes^2). */
const char *option_nearest(const struct option_table *table, const char *name,
                           size_t bytes);

/* Prints text and a line end, wrapped at 80 columns.
 *   column  where the cursor is, and where each further line begins.
 *   prefix  begins further lines, filled up with blanks. */
void options_print_wrapped(FILE *file, const char *text, int column,
                           const char *prefix);

/* Writes an option's help, with the words of its choice after a final ':', to
 * `text` (`size` bytes). */
void option_help(const struct option_spec *spec, char *text, size_t size);

/*
 * Reads argv[1 .. argc) as `--name value`, `--name=value`, `-x value` or
 * `--name` into the table's values. Returns 0; 1 for --help, 2 for --version;
 * or -EINVAL with a message in `error` (`size` bytes) that names the option and
 * the value.
 */
[[nodiscard]] int options_parse(const struct option_table *table, int argc,
                                char **argv, char *error, size_t size);

/* As options_parse(), for main(): prints help, version or errors, and checks
 * required options. Returns 0, or -1 with the exit status in *status. */
[[nodiscard]] int options_start(const struct option_usage *usage,
                                const struct option_table *table, int argc,
                                char **argv, int *status);

/* Prints to stderr which required option is missing, and how to get help. */
void options_missing(const char *program, const char *option);

/* Prints "PROGRAM: message" to stderr, printf-style. Returns
 * OPTIONS_EXIT_USAGE. */
int options_complain(const char *program, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
