/* The next byte of a walk, and the errors that walk.c and check.c both report.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "conductor/json/walk.h"

#define SHOWN_BYTES 24

int json_walk_fail(struct json_walk *w, const char *format, ...)
{
    va_list args;

    w->error_at = (size_t)(w->p - w->body);
    w->error_param = w->param;
    va_start(args, format);
    vsnprintf(w->error, sizeof(w->error), format, args);
    va_end(args);
    return -EINVAL;
}

int json_walk_shown(const struct json_walk *w)
{
    const char *p = w->p;
    int n = 0;

    while (n < SHOWN_BYTES && p + n < w->end && p[n] > ' ' && p[n] < 0x7f &&
           (n == 0 || !strchr(",[]{}", p[n])))
        n++;
    return n;
}

static void skip_space(struct json_walk *w)
{
    while (w->p < w->end && json_is_space(*w->p))
        w->p++;
}

char json_walk_peek(struct json_walk *w)
{
    skip_space(w);
    return w->p < w->end ? *w->p : '\0';
}

int json_walk_fail_syntax(struct json_walk *w, const char *expected)
{
    size_t at = (size_t)(w->p - w->body);

    if (w->p == w->end)
        return json_walk_fail(w, "the body ends at byte %zu; expected %s", at,
                              expected);
    return json_walk_fail(
        w, "the body isn't valid JSON at byte %zu: expected %s", at, expected);
}
