/* See list.h. */
#include "tools/replay/list.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int replay_list_numbers(const char *option, const char *text, double min,
                        double max, struct replay_numbers *list,
                        char error[REPLAY_LIST_ERROR_BYTES])
{
    list->count = 0;
    for (const char *from = text;; from++) {
        char *end = NULL;
        double x = strtod(from, &end);

        if (end == from || (*end != ',' && *end != '\0') ||
            !(x >= min && x <= max)) {
            snprintf(error, REPLAY_LIST_ERROR_BYTES,
                     "--%s %.80s: must be numbers from %.15g to %.15g, "
                     "separated by commas",
                     option, text, min, max);
            return -EINVAL;
        }
        if (list->count == REPLAY_LIST_MAX) {
            snprintf(error, REPLAY_LIST_ERROR_BYTES,
                     "--%s: more than %d numbers", option, REPLAY_LIST_MAX);
            return -EINVAL;
        }
        list->values[list->count++] = x;
        if (*end == '\0')
            return 0;
        from = end;
    }
}

static bool is_known(const char *(*known)(size_t i), const char *name)
{
    const char *k;

    for (size_t i = 0; (k = known(i)); i++)
        if (strcmp(k, name) == 0)
            return true;
    return false;
}

static int refuse_name(const char *option, const char *name,
                       const char *(*known)(size_t i),
                       char error[REPLAY_LIST_ERROR_BYTES])
{
    const char *k;
    int n = snprintf(error, REPLAY_LIST_ERROR_BYTES,
                     "--%s %.40s: is not one of", option, name);

    for (size_t i = 0; (k = known(i)); i++)
        if (n < REPLAY_LIST_ERROR_BYTES)
            n += snprintf(error + n, REPLAY_LIST_ERROR_BYTES - (size_t)n, " %s",
                          k);
    return -EINVAL;
}

int replay_list_names(const char *option, const char *text,
                      const char *(*known)(size_t i), struct replay_names *list,
                      char error[REPLAY_LIST_ERROR_BYTES])
{
    list->count = 0;
    if (strlen(text) >= sizeof list->text)
        return refuse_name(option, text, known, error);
    strcpy(list->text, text);
    char *rest = list->text;
    while (rest) {
        char *name = strsep(&rest, ",");

        if (!is_known(known, name) || list->count == REPLAY_LIST_MAX)
            return refuse_name(option, name, known, error);
        for (size_t i = 0; i < list->count; i++) {
            if (strcmp(list->names[i], name) == 0) {
                snprintf(error, REPLAY_LIST_ERROR_BYTES, "--%s %s: comes twice",
                         option, name);
                return -EINVAL;
            }
        }
        list->names[list->count++] = name;
    }
    return 0;
}
