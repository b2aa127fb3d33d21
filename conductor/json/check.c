/* Checks that a value is JSON, up to its end, without making an object of any
 * part of it; and says where a walk is and what is wrong there. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "conductor/json/text.h"
#include "conductor/json/walk.h"

#define DEPTH_MOST JSON_WALK_DEPTH_MOST
/* A number of fewer bytes and without an exponent is finite as a double. */
#define PLAIN_BYTES 300
#define NUMBER_BYTES 1024
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

char json_walk_peek(struct json_walk *w)
{
    w->p = json_skip_space(w->p, w->end);
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

int json_walk_open(struct json_walk *w)
{
    char c = json_walk_peek(w);

    if (c == '{')
        return 0;
    if (c && strchr("[\"-0123456789tfn", c))
        return json_walk_fail(
            w, "the body must be a JSON object; it begins with %c", c);
    return json_walk_fail_syntax(w, "an object");
}

/* The open brackets, and for each whether it opened an object. */
struct brackets {
    uint64_t objects[DEPTH_MOST / 64];
    size_t n;
};

static bool in_object(const struct brackets *b)
{
    return b->objects[(b->n - 1) / 64] >> ((b->n - 1) % 64) & 1;
}

static int open_bracket(struct json_walk *w, struct brackets *b, bool object)
{
    uint64_t bit = UINT64_C(1) << (b->n % 64);

    if (b->n >= w->max_depth || b->n >= DEPTH_MOST)
        return json_walk_fail(w, "the body is nested deeper than %zu levels",
                              b->n);
    b->objects[b->n / 64] &= ~bit;
    if (object)
        b->objects[b->n / 64] |= bit;
    b->n++;
    w->p++;
    return 0;
}

/* Passes a string; p is at its quote. */
static int pass_text(struct json_walk *w)
{
    const char *at = w->p + 1, *why;

    if (json_text_check(&at, w->end, &why)) {
        if (at == w->end)
            return json_walk_fail_syntax(w, "a closing quote");
        w->p = at;
        return json_walk_fail(w, "the body isn't valid JSON at byte %zu: %s",
                              (size_t)(at - w->body), why);
    }
    w->p = at;
    return 0;
}

static const char *pass_digits(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

/* Whether a number of n bytes is finite as a double; a reader would take 1e999
 * for infinite. */
static bool is_finite(const char *at, size_t n, bool exponent)
{
    char text[NUMBER_BYTES];

    if (!exponent && n < PLAIN_BYTES)
        return true;
    if (n >= sizeof(text))
        return false;
    memcpy(text, at, n);
    text[n] = '\0';
    return isfinite(strtod(text, NULL));
}

/* Fails: there is no value at p. */
static int fail_value(struct json_walk *w)
{
    return json_walk_fail_syntax(w, text_is_nan(w->p, (size_t)(w->end - w->p))
                                        ? TEXT_NO_NAN
                                        : "a value");
}

static int pass_number(struct json_walk *w)
{
    const char *from = w->p, *end = w->end;
    const char *whole = from < end && *from == '-' ? from + 1 : from;
    const char *p = pass_digits(whole, end);
    bool exponent = false;

    if (p == whole || (*whole == '0' && p > whole + 1))
        return fail_value(w);
    if (p < end && *p == '.') {
        const char *part = p + 1;

        p = pass_digits(part, end);
        if (p == part)
            return json_walk_fail_syntax(w, "a value");
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        const char *sign = p + 1;
        const char *part =
            sign < end && (*sign == '+' || *sign == '-') ? sign + 1 : sign;

        exponent = true;
        p = pass_digits(part, end);
        if (p == part)
            return json_walk_fail_syntax(w, "a value");
    }
    if (!is_finite(from, (size_t)(p - from), exponent))
        return json_walk_fail_syntax(w, "a smaller number");
    w->p = p;
    return 0;
}

static int pass_word(struct json_walk *w, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(w->end - w->p) < n || memcmp(w->p, word, n) != 0)
        return fail_value(w);
    w->p += n;
    return 0;
}

/* Passes a text, number or word. */
static int pass_scalar(struct json_walk *w)
{
    switch (w->p < w->end ? *w->p : '\0') {
    case '"':
        return pass_text(w);
    case 't':
        return pass_word(w, "true");
    case 'f':
        return pass_word(w, "false");
    case 'n':
        return pass_word(w, "null");
    default:
        return pass_number(w);
    }
}

/* Passes a member's name and its colon. Returns 0, -EINVAL, or what on_name()
 * returned for the name; it is called if `told`. */
static int pass_name(struct json_walk *w, bool told)
{
    char key[JSON_WALK_KEY_BYTES + 1 + JSON_TEXT_SLACK_BYTES];
    const char *at, *why;
    size_t n = 0;
    bool known;

    if (json_walk_peek(w) != '"')
        return json_walk_fail_syntax(w, "a member's name");
    w->name = at = w->p;
    if (pass_text(w))
        return -EINVAL;
    at++;
    known = w->p - 1 - at <= JSON_WALK_KEY_BYTES &&
            json_text_read(&at, w->p, key, &n, &why) == 0 &&
            !memchr(key, '\0', n);
    if (json_walk_peek(w) != ':')
        return json_walk_fail_syntax(w, "':'");
    w->p++;
    json_walk_peek(w);
    if (!known || !told || !w->on_name)
        return 0;
    key[n] = '\0';
    return w->on_name(w, key);
}

/* Passes closing brackets and a comma, up to where a value or a name must
 * begin; `opened`: the byte before p opened a bracket. Returns 0; 1 when the
 * outermost bracket has closed; or -EINVAL. */
static int pass_ends(struct json_walk *w, struct brackets *b, bool opened)
{
    for (;;) {
        char next = json_walk_peek(w);

        if (b->n == 0)
            return 1;
        if (next == (in_object(b) ? '}' : ']')) {
            w->p++;
            w->depth = b->n;
            if (next == '}' && w->on_end)
                w->on_end(w);
            b->n--;
            opened = false;
            continue;
        }
        if (opened)
            return 0;
        if (next != ',')
            return json_walk_fail_syntax(w, in_object(b) ? "',' or '}'"
                                                         : "',' or ']'");
        w->p++;
        return 0;
    }
}

static int check(struct json_walk *w)
{
    struct brackets b = {.n = 0};
    size_t quiet = SIZE_MAX; /* names deeper than this are not reported */
    int rc;

    for (;;) {
        char first = json_walk_peek(w);
        bool opens = first == '{' || first == '[';

        rc = opens ? open_bracket(w, &b, first == '{') : pass_scalar(w);
        if (rc == 0)
            rc = pass_ends(w, &b, opens);
        if (rc)
            return rc < 0 ? rc : 0;
        if (b.n < quiet)
            quiet = SIZE_MAX;
        if (!in_object(&b))
            continue;
        w->depth = b.n;
        rc = pass_name(w, quiet == SIZE_MAX);
        if (rc < 0)
            return rc;
        if (rc > 0)
            quiet = b.n + 1;
    }
}

int json_walk_check(struct json_walk *w)
{
    const char *name = w->name;
    int rc = check(w);

    w->name = name;
    w->depth = 0;
    return rc;
}
