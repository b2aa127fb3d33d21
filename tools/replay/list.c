/* See list.h. */
#include "tools/replay/list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/options.h"

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
