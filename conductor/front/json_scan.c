/*
 * A recursive walk, at most four levels deep (body, messages, message, part),
 * that knows just enough JSON to find the members it cuts out; other values
 * are skipped bracket by bracket and checked later by the parser of the rest.
 *
 *   body[0 .. copied)  is in rest, less what was cut
 *   copied <= p <= end
 */
#include "conductor/front/json_scan.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/json_ids.h"
#include "conductor/front/json_text.h"
#include "conductor/front/text_buf.h"

#define MAX_KEY_BYTES 256

struct walk {
    const char *p;
    const char *body;
    const char *end;
    const char *copied;
    const char *param; /* what the walk is inside of, for messages */
    enum json_scan_kind kind;
    const struct json_scan_limits *limits;
    struct json_scan *out;
    struct text_buf rest;
    size_t cap_spans;
    size_t index; /* of the element being walked, at the level of messages */
};

typedef int value_fn(struct walk *w, const char *key);

__attribute__((format(printf, 2, 3))) static int fail(struct walk *w,
                                                      const char *format, ...)
{
    va_list args;

    w->out->error_at = (size_t)(w->p - w->body);
    w->out->error_param = w->param;
    va_start(args, format);
    vsnprintf(w->out->error, sizeof(w->out->error), format, args);
    va_end(args);
    return -EINVAL;
}

static void skip_space(struct walk *w)
{
    while (w->p < w->end &&
           (*w->p == ' ' || *w->p == '\n' || *w->p == '\r' || *w->p == '\t'))
        w->p++;
}

/* The next byte that isn't white space, NUL at the end. */
static char peek(struct walk *w)
{
    skip_space(w);
    return w->p < w->end ? *w->p : '\0';
}

static int fail_json(struct walk *w, const char *expected)
{
    size_t at = (size_t)(w->p - w->body);

    if (w->p == w->end)
        return fail(w, "the body ends at byte %zu; expected %s", at, expected);
    return fail(w, "the body isn't valid JSON at byte %zu: expected %s", at,
                expected);
}

/* Copy what lies between the last cut and here into the rest. */
static int flush_rest(struct walk *w)
{
    text_buf_add(&w->rest, w->copied, (size_t)(w->p - w->copied));
    w->copied = w->p;
    if (w->rest.error == -ENOBUFS)
        return fail(w, "the body holds more than %zu bytes beside the prompt",
                    w->limits->max_rest_bytes);
    return w->rest.error;
}

/* Everything since the last flush is cut; `stand_in` takes its place. */
static int replace(struct walk *w, const char *stand_in)
{
    w->copied = w->p;
    text_buf_puts(&w->rest, stand_in);
    return flush_rest(w);
}

static int add_span(struct walk *w, size_t start, size_t count)
{
    struct json_scan *out = w->out;

    if (out->n_spans >= w->limits->max_spans)
        return fail(w, "'%s' holds more than %zu texts or token arrays",
                    w->param, w->limits->max_spans);
    if (out->n_spans == w->cap_spans) {
        size_t cap = w->cap_spans ? 2 * w->cap_spans : 8;
        struct json_span *spans = realloc(out->spans, cap * sizeof(*spans));

        if (!spans)
            return -ENOMEM;
        out->spans = spans;
        w->cap_spans = cap;
    }
    out->spans[out->n_spans++] = (struct json_span){start, count};
    return 0;
}

/* The rest of the body bounds what can still come, so one allocation does. */
static int reserve_ids(struct walk *w)
{
    struct json_scan *out = w->out;
    size_t cap = (size_t)(w->end - w->p) / 2 + 2;

    if (out->ids)
        return 0;
    out->ids = malloc(cap * sizeof(*out->ids));
    return out->ids ? 0 : -ENOMEM;
}

static int reserve_bytes(struct walk *w)
{
    struct json_scan *out = w->out;

    if (out->bytes)
        return 0;
    out->bytes = malloc((size_t)(w->end - w->p) + JSON_TEXT_SLACK_BYTES);
    return out->bytes ? 0 : -ENOMEM;
}

/* A value that stays in the rest. */
static int skip_value(struct walk *w)
{
    const char *start = w->p;
    size_t depth = 0;

    while (w->p < w->end) {
        char c = *w->p;

        if (depth == 0 && (c == ',' || c == '}' || c == ']'))
            break;
        if (c == '"') {
            const char *after = json_text_skip(w->p + 1, w->end);

            if (!after)
                return fail_json(w, "a closing quote");
            w->p = after;
            continue;
        }
        if ((c == '{' || c == '[') && ++depth > w->limits->max_depth)
            return fail(w, "the body is nested deeper than %zu levels",
                        w->limits->max_depth);
        if (c == '}' || c == ']')
            depth--;
        w->p++;
    }
    return w->p > start ? 0 : fail_json(w, "a value");
}

/* A member's key, unescaped into key[MAX_KEY_BYTES + 1]. */
static int read_key(struct walk *w, char *key)
{
    char text[MAX_KEY_BYTES + JSON_TEXT_SLACK_BYTES];
    const char *after = json_text_skip(w->p + 1, w->end), *why;
    size_t n = 0;

    if (!after)
        return fail_json(w, "a closing quote");
    w->p++;
    if (after - w->p > MAX_KEY_BYTES)
        return fail(w, "a member's name is longer than %d bytes",
                    MAX_KEY_BYTES);
    if (json_text_read(&w->p, after, text, &n, &why))
        return fail(w, "%s, in a member's name", why);
    if (memchr(text, '\0', n))
        return fail(w, "a member's name holds a NUL character");
    memcpy(key, text, n);
    key[n] = '\0';
    return 0;
}

/* Walk an object from its '{', handing each member's value to `on_value`
 * with p at the value's first byte. */
static int walk_object(struct walk *w, value_fn *on_value)
{
    char key[MAX_KEY_BYTES + 1];
    int rc;

    w->p++;
    if (peek(w) == '}') {
        w->p++;
        return 0;
    }
    for (;;) {
        if (peek(w) != '"')
            return fail_json(w, "a member's name");
        rc = read_key(w, key);
        if (rc)
            return rc;
        if (peek(w) != ':')
            return fail_json(w, "':'");
        w->p++;
        skip_space(w);
        rc = on_value(w, key);
        if (rc)
            return rc;
        if (peek(w) == '}')
            break;
        if (peek(w) != ',')
            return fail_json(w, "',' or '}'");
        w->p++;
    }
    w->p++;
    return 0;
}

/* Walk an array from its '[', each element as in walk_object. */
static int walk_array(struct walk *w, value_fn *on_value)
{
    int rc;

    w->p++;
    if (peek(w) == ']') {
        w->p++;
        return 0;
    }
    for (;;) {
        skip_space(w);
        rc = on_value(w, NULL);
        if (rc)
            return rc;
        if (peek(w) == ']')
            break;
        if (peek(w) != ',')
            return fail_json(w, "',' or ']'");
        w->p++;
    }
    w->p++;
    return 0;
}

/* A string, from its opening quote, becomes a span of bytes. */
static int take_text(struct walk *w, const char *key)
{
    struct json_scan *out = w->out;
    const char *why;
    size_t n;
    int rc;

    (void)key;
    if (w->p == w->end || *w->p != '"')
        return fail(w, "'%s' mixes texts with something else at index %zu",
                    w->param, out->n_spans);
    rc = reserve_bytes(w);
    if (rc)
        return rc;
    w->p++;
    if (json_text_read(&w->p, w->end, out->bytes + out->n_bytes, &n, &why))
        return fail(w, "%s, in '%s' at byte %zu of the body", why, w->param,
                    (size_t)(w->p - w->body));
    rc = add_span(w, out->n_bytes, n);
    out->n_bytes += n;
    return rc;
}

/* How much of a wrong value to show: up to a delimiter, 24 bytes at most. */
static int shown_bytes(const char *p, const char *end)
{
    int n = 0;

    while (n < 24 && p + n < end && p[n] > ' ' && p[n] < 0x7f &&
           !strchr(",[]{}", p[n]))
        n++;
    return n;
}

/* An array of ids, from its '[', becomes a span of ids. */
static int take_ids(struct walk *w, const char *key)
{
    struct json_scan *out = w->out;
    const char *why;
    size_t n, index = out->n_spans;
    int rc;
    char outer[32] = "";

    (void)key;
    if (w->p == w->end || *w->p != '[')
        return fail(w,
                    "'%s' mixes token arrays with something else at "
                    "index %zu",
                    w->param, index);
    rc = reserve_ids(w);
    if (rc)
        return rc;
    w->p++;
    if (json_ids_read(&w->p, w->end, out->ids + out->n_ids, &n, &why) == 0) {
        rc = add_span(w, out->n_ids, n);
        out->n_ids += n;
        return rc;
    }
    if (out->form == JSON_FORM_ID_ARRAYS)
        snprintf(outer, sizeof(outer), "[%zu]", index);
    return fail(w, "%s%s[%zu] is '%.*s': %s", w->param, outer, n,
                shown_bytes(w->p, w->end), w->p, why);
}

/* "prompt": a text, ids, texts, or arrays of ids. */
static int take_prompt(struct walk *w)
{
    const char *open = w->p;
    char c;
    int rc;

    w->param = "prompt";
    rc = flush_rest(w);
    if (rc)
        return rc;
    if (peek(w) == '"') {
        w->out->form = JSON_FORM_TEXT;
        rc = take_text(w, NULL);
    } else if (peek(w) == '[') {
        w->p++;
        c = peek(w);
        w->p = open;
        w->out->form = c == '"'   ? JSON_FORM_TEXTS
                       : c == '[' ? JSON_FORM_ID_ARRAYS
                                  : JSON_FORM_IDS;
        rc = c == '"'   ? walk_array(w, take_text)
             : c == '[' ? walk_array(w, take_ids)
                        : take_ids(w, NULL);
    } else if (w->end - w->p >= 4 && memcmp(w->p, "null", 4) == 0) {
        w->param = NULL;
        return skip_value(w);
    } else if (w->p == w->end) {
        w->param = NULL;
        return fail_json(w, "a value");
    } else {
        return fail(w, "'prompt' must be a text, an array of token ids, or "
                       "an array of either");
    }
    if (rc)
        return rc;
    w->param = NULL;
    return replace(w, "null");
}

/* A text of a message, which the rest shows as true. */
static int take_message_text(struct walk *w)
{
    int rc = flush_rest(w);

    if (rc)
        return rc;
    rc = take_text(w, NULL);
    return rc ? rc : replace(w, "true");
}

static int on_part_member(struct walk *w, const char *key)
{
    char c = peek(w);

    if (strcmp(key, "text") != 0)
        return skip_value(w);
    if (c != '"')
        return fail(w, "'messages[%zu].content[].text' must be a string",
                    w->index);
    return take_message_text(w);
}

static int on_part(struct walk *w, const char *key)
{
    (void)key;
    return peek(w) == '{' ? walk_object(w, on_part_member) : skip_value(w);
}

static int on_message_member(struct walk *w, const char *key)
{
    char c = peek(w);

    if (strcmp(key, "content") != 0)
        return skip_value(w);
    if (c == '"')
        return take_message_text(w);
    if (c == '[')
        return walk_array(w, on_part);
    return fail(w,
                "'messages[%zu].content' must be a string or an array of "
                "parts",
                w->index);
}

static int on_message(struct walk *w, const char *key)
{
    int rc;

    (void)key;
    rc = peek(w) == '{' ? walk_object(w, on_message_member) : skip_value(w);
    w->index++;
    return rc;
}

static int on_member(struct walk *w, const char *key)
{
    int rc;

    if (w->kind == JSON_SCAN_PROMPT && strcmp(key, "prompt") == 0)
        return take_prompt(w);
    if (w->kind == JSON_SCAN_PROMPT || strcmp(key, "messages") != 0 ||
        peek(w) != '[')
        return skip_value(w);
    w->param = "messages";
    w->out->form = JSON_FORM_MESSAGES;
    rc = walk_array(w, on_message);
    if (rc == 0)
        w->param = NULL;
    return rc;
}

int json_scan(const char *body, size_t n, enum json_scan_kind kind,
              const struct json_scan_limits *limits, struct json_scan *out)
{
    struct walk w = {.p = body,
                     .body = body,
                     .end = body + n,
                     .copied = body,
                     .kind = kind,
                     .limits = limits,
                     .out = out};
    int rc;

    *out = (struct json_scan){0};
    text_buf_init(&w.rest, limits->max_rest_bytes);
    if (peek(&w) != '{')
        rc = fail_json(&w, "an object");
    else
        rc = walk_object(&w, on_member);
    if (rc == 0) {
        skip_space(&w);
        if (w.p != w.end)
            rc = fail_json(&w, "the end");
    }
    if (rc == 0)
        rc = flush_rest(&w);
    if (rc) {
        text_buf_fini(&w.rest);
        return rc;
    }
    out->rest = w.rest.data;
    out->rest_bytes = w.rest.len;
    return 0;
}

void json_scan_fini(struct json_scan *scan)
{
    free(scan->ids);
    free(scan->bytes);
    free(scan->spans);
    free(scan->rest);
    *scan = (struct json_scan){0};
}
