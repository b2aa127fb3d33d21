/* The option table: what options there are, and where config.c keeps their
 * values. Private to config.c and config_options.c. */
#ifndef CONDUCTOR_CONFIG_OPTIONS_H
#define CONDUCTOR_CONFIG_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

enum option_type {
    OPTION_STRING,
    OPTION_ADDRESS,
    OPTION_POLICY,
    OPTION_QUEUE_ORDER,
    OPTION_LOG_LEVEL,
    OPTION_INT, /* from here on numbers */
    OPTION_NUMBER
};

struct option_def {
    const char *name;
    enum option_type type;
    size_t offset;
    const char *unit;
    double min, max; /* of numbers; of a string's length, unless max is 0 */
    double step;     /* numbers are multiples of it; 0: any */
    const char *initial;
    const char *help;
};

/* config_option(i): the i-th option, static, or NULL behind the last one. */
const struct option_def *config_option(size_t i);

/* config_option_find(name): the option of that name, static, or NULL.
 * O(options). */
const struct option_def *config_option_find(const char *name);

/* config_option_is_text(o): whether its value is a string, else a number. */
bool config_option_is_text(const struct option_def *o);

#endif
