/* What the options of subcommands need beyond base/options.h. */
#ifndef TOOLS_REPLAY_OPTIONS_H
#define TOOLS_REPLAY_OPTIONS_H

#include "base/options.h"

/* A row in a macro of several rows, which the formatter spreads otherwise. */
#define OPTION_SPEC(...) \
    {                    \
        __VA_ARGS__      \
    }

/* Prints "conductor-replay NAME: message" to stderr, printf-style. Returns -1.
 */
int replay_complain(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* As replay_complain(), of the command line. Returns the exit status. */
#define replay_refuse(...) (replay_complain(__VA_ARGS__), OPTIONS_EXIT_USAGE)

/*
 * Whether the files of all OUTPUT options can be written, before the work whose
 * result they are to hold. Files that exist are not changed; others are made
 * and removed. A file of two outputs, or of an output and a TEXT option, is an
 * error. Returns 0 or a negative errno with a message in `error`.
 */
[[nodiscard]] int options_check_outputs(const struct option_table *table,
                                        char *error, size_t size);

/*
 * Lets an OUTPUT option whose path is "-" write to standard output; the text
 * that a command prints goes to standard error then. Such a path becomes
 * /dev/fd/N. Call before anything is printed. Returns 0, or -EINVAL with a
 * message in `error` if two outputs ask for it.
 */
[[nodiscard]] int options_claim_stdout(const struct option_table *table,
                                       char *error, size_t size);

/* How messages call an output: its path, or "--NAME -" where it is standard
 * output. */
const char *options_shown_path(const char *path);

#endif
