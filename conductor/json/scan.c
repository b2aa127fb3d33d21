/*
 * Members that hold prompts are cut out as the walk comes by; everything else
 * is copied to the rest.
 *
 *   body[0 .. copied)  is in rest, less what was cut
 *   copied <= p <= end
 */
#include "conductor/json/scan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "conductor/json/ids.h"
#include "conductor/json/text.h"
#include "conductor/json/text_buf.h"
#include "conductor/json/walk.h"

struct cutter {
    struct json_walk walk; /* first, so that the walk's pointer is ours */
    const char *copied;
    enum json_scan_kind kind;
    const struct json_scan_limits *limits;
    struct json_scan *out;
    struct text_buf rest;
    size_t cap_spans;
    size_t message; /* index of the message being walked */
};

static struct cutter *of(struct json_walk *w)
{
    return (struct cutter *)(void *)w;
}

/* Copies the bytes between the last cut and p into the rest. */
static int flush_rest(struct json_walk *w)
{
    text_buf_add(&of(w)->rest, of(w)->copied, (size_t)(w->p - of(w)->copied));
    of(w)->copied = w->p;
    if (of(w)->rest.error != -ENOBUFS)
        return of(w)->rest.error;
    if (*of(w)->out->large)
        w->param = of(w)->out->large;
    return json_walk_fail(
        w, "%s%sthe body holds more than %zu bytes beside the prompt",
        of(w)->out->large, *of(w)->out->large ? ": " : "",
        of(w)->limits->max_rest_bytes);
}

/* Cuts the bytes since the last flush; `stand_in` takes their place. */
static int replace(struct json_walk *w, const char *stand_in)
{
    of(w)->copied = w->p;
    text_buf_puts(&of(w)->rest, stand_in);
    return flush_rest(w);
}

static int add_span(struct json_walk *w, size_t start, size_t count)
{
    struct json_scan *out = of(w)->out;

    if (out->n_spans >= of(w)->limits->max_spans)
        return json_walk_fail(w,
                              "%s: must hold at most %zu texts or token arrays",
                              w->param, of(w)->limits->max_spans);
    if (array_reserve(out->spans, of(w)->cap_spans, out->n_spans + 1))
        return -ENOMEM;
    out->spans[out->n_spans++] = (struct json_span){start, count};
    return 0;
}

/* Returns where the value at p must have ended; a value far longer than a
 * window is not read to its end. */
static const char *must_end(struct json_walk *w, size_t taken)
{
    size_t most = of(w)->limits->max_span_bytes;

    return most ? json_walk_within(w, most > taken ? most - taken : 0) : w->end;
}

static int fail_long(struct json_walk *w)
{
    return json_walk_fail(w,
                          "%s: longer than %zu bytes: must fit into the "
                          "model's window",
                          w->param, of(w)->limits->max_span_bytes);
}

/* Reads a string, from its opening quote, into a span of bytes. */
static int take_text(struct json_walk *w, const char *)
{
    struct json_scan *out = of(w)->out;
    const char *why;
    size_t n;

    if (w->p == w->end || *w->p != '"')
        return json_walk_fail(w,
                              "%s[%zu]: %.*s: must be a text, as the first is",
                              w->param, out->n_spans, json_walk_shown(w), w->p);
    if (!out->bytes) /* of all texts that may still come */
        out->bytes = malloc((size_t)(w->end - w->p) + JSON_TEXT_SLACK_BYTES);
    if (!out->bytes)
        return -ENOMEM;
    w->p++;
    const char *end =
        must_end(w, of(w)->kind == JSON_SCAN_MESSAGES ? out->n_bytes : 0);

    if (json_text_read(&w->p, end, out->bytes + out->n_bytes, &n, &why))
        return end < w->end && (w->p >= end || end - w->p < 16)
                   ? fail_long(w)
                   : json_walk_fail(w, "%s: %s, at byte %zu of the body",
                                    w->param, why, (size_t)(w->p - w->body));
    out->n_bytes += n;
    return add_span(w, out->n_bytes - n, n);
}

/* Reads an array of ids, from its '[', into a span of ids. */
static int take_ids(struct json_walk *w, const char *)
{
    struct json_scan *out = of(w)->out;
    const char *why;
    size_t n, index = out->n_spans;
    char outer[32] = "";

    if (w->p == w->end || *w->p != '[')
        return json_walk_fail(w,
                              "%s[%zu]: %.*s: must be an array of token ids, "
                              "as the first is",
                              w->param, index, json_walk_shown(w), w->p);
    if (!out->ids) /* of all ids that may still come */
        out->ids =
            malloc(((size_t)(w->end - w->p) / 2 + 2) * sizeof(*out->ids));
    if (!out->ids)
        return -ENOMEM;
    w->p++;
    const char *end = must_end(w, 0);

    if (json_ids_read(&w->p, end, out->ids + out->n_ids, &n, &why) == 0) {
        out->n_ids += n;
        return add_span(w, out->n_ids - n, n);
    }
    if (end < w->end && w->p >= end)
        return fail_long(w);
    if (out->form == JSON_FORM_ID_ARRAYS)
        snprintf(outer, sizeof(outer), "[%zu]", index);
    return json_walk_fail(w, "%s%s[%zu]: %.*s: %s", w->param, outer, n,
                          json_walk_shown(w), w->p, why);
}

/* "prompt": a text, ids, texts, or arrays of ids. */
static int take_prompt(struct json_walk *w)
{
    const char *first = json_skip_space(w->p + (w->p < w->end), w->end);
    char c = first < w->end ? *first : '\0';
    int rc = flush_rest(w);

    if (rc)
        return rc;
    w->param = "prompt";
    if (json_walk_peek(w) == '"') {
        of(w)->out->form = JSON_FORM_TEXT;
        rc = take_text(w, NULL);
    } else if (json_walk_peek(w) == '[') {
        of(w)->out->form = c == '"'   ? JSON_FORM_TEXTS
                           : c == '[' ? JSON_FORM_ID_ARRAYS
                                      : JSON_FORM_IDS;
        rc = c == '"'   ? json_walk_array(w, take_text)
             : c == '[' ? json_walk_array(w, take_ids)
                        : take_ids(w, NULL);
    } else if (w->end - w->p >= 4 && memcmp(w->p, "null", 4) == 0) {
        w->param = NULL;
        return json_walk_skip(w);
    } else if (w->p == w->end) {
        w->param = NULL;
        return json_walk_fail_syntax(w, "a value");
    } else {
        return json_walk_fail(
            w,
            "prompt: %.*s: must be a text, an array of token ids, or an "
            "array of either",
            json_walk_shown(w), w->p);
    }
    if (rc)
        return rc;
    w->param = NULL;
    return replace(w, "null");
}

/* Reads a text of a message; the rest has true in its place. */
static int take_message_text(struct json_walk *w)
{
    int rc = flush_rest(w);

    if (rc)
        return rc;
    rc = take_text(w, NULL);
    return rc ? rc : replace(w, "true");
}

static int on_part_member(struct json_walk *w, const char *key)
{
    char c = json_walk_peek(w);

    if (strcmp(key, "text") != 0)
        return json_walk_skip(w);
    if (c != '"')
        return json_walk_fail(w,
                              "messages[%zu].content[].text: %.*s: must be a "
                              "string",
                              of(w)->message, json_walk_shown(w), w->p);
    return take_message_text(w);
}

static int on_part(struct json_walk *w, const char *)
{
    return json_walk_peek(w) == '{' ? json_walk_object(w, on_part_member)
                                    : json_walk_skip(w);
}

static int on_message_member(struct json_walk *w, const char *key)
{
    char c = json_walk_peek(w);

    if (strcmp(key, "content") != 0)
        return json_walk_skip(w);
    if (c == '"')
        return take_message_text(w);
    if (c == '[')
        return json_walk_array(w, on_part);
    if (c == 'n') /* null: its role says whether it needs content */
        return json_walk_skip(w);
    return json_walk_fail(
        w,
        "messages[%zu].content: %.*s: must be a string or an array of "
        "parts",
        of(w)->message, json_walk_shown(w), w->p);
}

static int on_message(struct json_walk *w, const char *)
{
    int rc = json_walk_peek(w) == '{' ? json_walk_object(w, on_message_member)
                                      : json_walk_skip(w);

    of(w)->message++;
    return rc;
}

/* Skips a member, which goes to the rest as it is. */
static int skip_member(struct json_walk *w, const char *key)
{
    const char *from = w->p;
    struct json_scan *out = of(w)->out;
    int rc = json_walk_skip(w);
    bool many = w->max_skipped && w->skipped > w->max_skipped;

    if ((many || (size_t)(w->p - from) > of(w)->limits->max_rest_bytes / 2) &&
        strlen(key) < sizeof(out->large))
        memcpy(out->large, key, strlen(key) + 1);
    if (!many)
        return rc;
    w->param = *out->large ? out->large : NULL;
    return json_walk_fail(
        w, "%s%sthe body holds more than %zu values beside the prompt",
        out->large, *out->large ? ": " : "", w->max_skipped);
}

static int on_member(struct json_walk *w, const char *key)
{
    if (of(w)->kind == JSON_SCAN_PROMPT && strcmp(key, "prompt") == 0)
        return take_prompt(w);
    if (of(w)->kind == JSON_SCAN_PROMPT || strcmp(key, "messages") != 0 ||
        json_walk_peek(w) != '[')
        return skip_member(w, key);
    w->param = "messages";
    of(w)->out->form = JSON_FORM_MESSAGES;
    int rc = json_walk_array(w, on_message);
    if (rc == 0)
        w->param = NULL;
    return rc;
}

int json_scan(const char *body, size_t n, enum json_scan_kind kind,
              const struct json_scan_limits *limits, struct json_scan *out)
{
    struct cutter c = {.walk = {.p = body,
                                .body = body,
                                .end = body + n,
                                .max_depth = limits->max_depth,
                                .max_skipped = limits->max_rest_values},
                       .copied = body,
                       .kind = kind,
                       .limits = limits,
                       .out = out};
    struct json_walk *w = &c.walk;
    int rc;

    *out = (struct json_scan){0};
    text_buf_init(&c.rest, limits->max_rest_bytes);
    rc = json_walk_open(w);
    if (rc == 0)
        rc = json_walk_object(w, on_member);
    if (rc == 0)
        rc = json_walk_peek(w) || w->p < w->end
                 ? json_walk_fail_syntax(w, "the end")
                 : flush_rest(w);
    if (rc) {
        text_buf_fini(&c.rest);
        out->error_at = w->error_at;
        out->error_param = w->error_param;
        memcpy(out->error, w->error, sizeof(out->error));
        return rc;
    }
    out->rest = c.rest.data;
    out->rest_bytes = c.rest.len;
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
