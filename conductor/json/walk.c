/* Walking over JSON. */
#include "conductor/json/walk.h"

#include <errno.h>
#include <string.h>

#include "conductor/json/text.h"

int json_walk_skip(struct json_walk *w)
{
    if (w->strict)
        return json_walk_check(w);

    const char *start = w->p;
    size_t depth = 0;

    while (w->p < w->end) {
        char c = *w->p;

        if (depth == 0 && (c == ',' || c == '}' || c == ']'))
            break;
        if (c == '"') {
            const char *after = json_text_skip(w->p + 1, w->end);

            if (!after)
                return json_walk_fail_syntax(w, "a closing quote");
            w->p = after;
            continue;
        }
        if (w->max_skipped && (c == ',' || c == '{' || c == '[') &&
            ++w->skipped > w->max_skipped)
            return json_walk_fail(w,
                                  "the body holds more than %zu values that "
                                  "are not the prompt",
                                  w->max_skipped);
        if ((c == '{' || c == '[') && ++depth > w->max_depth)
            return json_walk_fail(
                w, "the body is nested deeper than %zu levels", w->max_depth);
        if (c == '}' || c == ']')
            depth--;
        w->p++;
    }
    return w->p > start ? 0 : json_walk_fail_syntax(w, "a value");
}

/* Reads a member's name, unescaped, into key[JSON_WALK_KEY_BYTES + 1]. */
static int read_key(struct json_walk *w, char *key)
{
    char text[JSON_WALK_KEY_BYTES + 1 + JSON_TEXT_SLACK_BYTES];
    const char *after = json_text_skip(w->p + 1, w->end), *why;
    size_t n = 0;

    if (!after)
        return json_walk_fail_syntax(w, "a closing quote");
    w->p++;
    if (after - 1 - w->p > JSON_WALK_KEY_BYTES)
        return json_walk_fail(w, "a member's name is longer than %d bytes",
                              JSON_WALK_KEY_BYTES);
    if (json_text_read(&w->p, after, text, &n, &why))
        return json_walk_fail(w, "%s, in a member's name", why);
    if (memchr(text, '\0', n))
        return json_walk_fail(w, "a member's name holds a NUL character");
    memcpy(key, text, n);
    key[n] = '\0';
    return 0;
}

bool json_walk_bits(struct json_walk *w, uint64_t *out)
{
    bool minus = json_walk_peek(w) == '-';
    const char *p = w->p + minus, *from = p;
    uint64_t n = 0;

    for (; p < w->end && *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n))
            return false;
    if (p == from || (*from == '0' && p > from + 1) ||
        (p < w->end && strchr(".eE", *p)) || (minus && n > UINT64_C(1) << 63))
        return false;
    w->p = p;
    *out = minus ? ~n + 1 : n;
    return true;
}

/* Reads a member's name and its colon. */
static int read_name(struct json_walk *w, char *key)
{
    if (json_walk_peek(w) != '"')
        return json_walk_fail_syntax(w, "a member's name");
    w->name = w->p;
    int rc = read_key(w, key);
    if (rc)
        return rc;
    if (json_walk_peek(w) != ':')
        return json_walk_fail_syntax(w, "':'");
    w->p++;
    return 0;
}

/* Reads the values up to the bracket `close`. `key` has room for a member's
 * name; NULL in an array. */
static int walk(struct json_walk *w, char close, char *key, json_value_fn *read)
{
    w->p++;
    if (json_walk_peek(w) == close) {
        w->p++;
        return 0;
    }
    for (;; w->p++) {
        int rc = key ? read_name(w, key) : 0;

        if (rc == 0 && key && ++w->members > w->max_members && w->max_members)
            rc = json_walk_fail(w, "the body has more than %zu members",
                                w->max_members);

        json_walk_peek(w);
        if (rc == 0)
            rc = read(w, key);
        if (rc)
            return rc;
        if (json_walk_peek(w) == close)
            break;
        if (json_walk_peek(w) != ',')
            return json_walk_fail_syntax(w, key ? "',' or '}'" : "',' or ']'");
    }
    w->p++;
    return 0;
}

int json_walk_object(struct json_walk *w, json_value_fn *read)
{
    char key[JSON_WALK_KEY_BYTES + 1];

    return walk(w, '}', key, read);
}

int json_walk_array(struct json_walk *w, json_value_fn *read)
{
    return walk(w, ']', NULL, read);
}
