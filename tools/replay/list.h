/* Comma-separated values of an option: "1,2,3" or "random,global_cache". */
#ifndef TOOLS_REPLAY_LIST_H
#define TOOLS_REPLAY_LIST_H

#include <stddef.h>

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
