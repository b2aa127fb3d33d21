/* Options of subcommands beyond base/options.h. */
#ifndef TOOLS_REPLAY_OPTIONS_H
#define TOOLS_REPLAY_OPTIONS_H

#include <stddef.h>

#include "base/options.h"

/* A row in a macro of several rows; keeps the formatter's layout. */
#define OPTION_SPEC(...) \
    {                    \
        __VA_ARGS__      \
    }

/* Prints "conductor-replay NAME: message" to stderr, printf-style. Returns -1.
 */
int replay_complain(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints an error of the command line. Returns the exit status. */
#define replay_refuse(...) (replay_complain(__VA_ARGS__), OPTIONS_EXIT_USAGE)

/* Comma-separated values of an option: "1,2,3" or "random,global_cache". */
#define REPLAY_LIST_MAX 64
#define REPLAY_LIST_ERROR_BYTES 1024

struct replay_numbers {
    double values[REPLAY_LIST_MAX];
    size_t count;
};

struct replay_names {
    char text[1024]; /* holds the names, one after the other */
    const char *names[REPLAY_LIST_MAX];
    size_t count;
};

/*
 * Reads numbers, each from min to max. Returns 0, or -EINVAL with *list
 * undefined and a message in `error` that names the option and the value.
 */
[[nodiscard]] int replay_list_numbers(const char *option, const char *text,
                                      double min, double max,
                                      struct replay_numbers *list,
                                      char error[REPLAY_LIST_ERROR_BYTES]);

/*
 * Reads names, each at most once. `known` returns the i-th allowed name, NULL
 * beyond the last. Returns as replay_list_numbers().
 */
[[nodiscard]] int replay_list_names(const char *option, const char *text,
                                    const char *(*known)(size_t i),
                                    struct replay_names *list,
                                    char error[REPLAY_LIST_ERROR_BYTES]);

#endif
