/* The line scanner; see scan.h. Never looks past `end`. */
#include "traces/scan.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct cursor {
    const char *p;
    const char *end;
    struct trace_error *error;
};

/* Fields from TENANT on are optional. */
enum field {
    TIMESTAMP,
    INPUT,
    OUTPUT,
    HASH_IDS,
    TENANT,
    PRIORITY,
    FIELD_COUNT,
    OTHER
};

static const char *const field_names[FIELD_COUNT] = {
    "timestamp", "input_length", "output_length",
    "hash_ids",  "tenant",       "priority"};

static const uint64_t field_max[FIELD_COUNT] = {
    TRACE_TIMESTAMP_MAX_MS, TRACE_TOKENS_MAX, TRACE_TOKENS_MAX,
    TRACE_ID_MAX,           TRACE_ID_MAX,     INT32_MAX};

static void skip_spaces(struct cursor *c)
{
    while (c->p < c->end &&
           (*c->p == ' ' || *c->p == '\t' || *c->p == '\r' || *c->p == '\n'))
        c->p++;
}

static bool ends_token(char c)
{
    return c == ',' || c == ']' || c == '}' || c == ' ' || c == '\t' ||
           c == '\r' || c == '\n';
}

/* Returns the bytes up to the next separator, for error messages. */
static size_t token_bytes(const struct cursor *c)
{
    const char *p = c->p;

    while (p < c->end && !ends_token(*p))
        p++;
    return p == c->p && p < c->end ? 1 : (size_t)(p - c->p);
}

static int refuse(struct cursor *c, const char *field, const char *why)
{
    skip_spaces(c);
    if (c->p >= c->end)
        trace_error_set(c->error, field, "", 0, "%s, but the line ends", why);
    else
        trace_error_set(c->error, field, c->p, token_bytes(c), "%s", why);
    return -EINVAL;
}

static bool take(struct cursor *c, char wanted)
{
    skip_spaces(c);
    if (c->p >= c->end || *c->p != wanted)
        return false;
    c->p++;
    return true;
}

/* A string without its quotes; escapes are kept as they are. */
static int scan_string(struct cursor *c, const char **text, size_t *bytes)
{
    if (!take(c, '"'))
        return refuse(c, "", "expected a field name in quotes");
    *text = c->p;
    while (c->p < c->end && *c->p != '"') {
        if ((unsigned char)*c->p < ' ')
            return refuse(c, "", "control character in a string");
        c->p += *c->p == '\\' && c->end - c->p > 1 ? 2 : 1;
    }
    if (c->p >= c->end)
        return refuse(c, "", "expected a closing quote");
    *bytes = (size_t)(c->p - *text);
    c->p++;
    return 0;
}

static int scan_integer(struct cursor *c, enum field field, uint64_t *value)
{
    const char *name = field_names[field];

    skip_spaces(c);
    const char *start = c->p;
    uint64_t n = 0;
    while (c->p < c->end && *c->p >= '0' && *c->p <= '9') {
        uint64_t digit = (uint64_t)(*c->p - '0');

        if (n > (field_max[field] - digit) / 10) {
            c->p = start;
            trace_error_set(c->error, name, start, token_bytes(c),
                            "must be at most %llu",
                            (unsigned long long)field_max[field]);
            return -EINVAL;
        }
        n = n * 10 + digit;
        c->p++;
    }
    bool ends = c->p >= c->end || ends_token(*c->p);
    bool zeros = c->p - start > 1 && *start == '0';
    if (c->p == start || !ends || zeros) {
        c->p = start;
        return refuse(c, name,
                      field == PRIORITY ? "must be an integer"
                                        : "must be a non-negative integer");
    }
    *value = n;
    return 0;
}

static int scan_ids(struct cursor *c, struct trace_request *request)
{
    request->block_count = 0;
    if (!take(c, '['))
        return refuse(c, field_names[HASH_IDS], "must be an array");
    if (take(c, ']'))
        return 0;
    for (;;) {
        uint64_t id = 0;
        int rc = scan_integer(c, HASH_IDS, &id);

        if (rc != 0)
            return rc;
        if (request->block_count == TRACE_BLOCKS_MAX)
            return refuse(c, field_names[HASH_IDS], "has too many ids");
        rc = trace_request_reserve(request, request->block_count + 1);
        if (rc != 0)
            return rc;
        request->hash_ids[request->block_count++] = id;
        if (take(c, ']'))
            return 0;
        if (!take(c, ','))
            return refuse(c, field_names[HASH_IDS], "expected , or ]");
    }
}

/* Skips the value of an unknown field: a string or a bare word, nothing nested.
 */
static int skip_value(struct cursor *c, const char *name, size_t name_bytes)
{
    const char *text = NULL;
    size_t bytes = 0;

    skip_spaces(c);
    if (c->p < c->end && *c->p == '"')
        return scan_string(c, &text, &bytes);
    bytes = token_bytes(c);
    if (bytes == 0 || memchr("[{,]}:", *c->p, 6)) {
        trace_error_set(c->error, "", name, name_bytes,
                        "unknown field with a value that is no number, "
                        "string, true, false or null");
        return -EINVAL;
    }
    c->p += bytes;
    return 0;
}

static enum field find_field(const char *name, size_t bytes)
{
    for (int i = 0; i < FIELD_COUNT; i++)
        if (strlen(field_names[i]) == bytes &&
            memcmp(field_names[i], name, bytes) == 0)
            return (enum field)i;
    return OTHER;
}

static int scan_value(struct cursor *c, enum field field,
                      struct trace_request *request)
{
    if (field == HASH_IDS)
        return scan_ids(c, request);
    uint64_t value = 0;
    bool below = field == PRIORITY && take(c, '-');
    int rc = scan_integer(c, field, &value);
    if (rc != 0)
        return rc;
    if (field == TENANT)
        request->tenant = value;
    else if (field == PRIORITY)
        request->priority = below ? -(int32_t)value : (int32_t)value;
    else if (field == TIMESTAMP)
        request->arrival_us = (int64_t)value * 1000;
    else if (field == INPUT)
        request->input_tokens = (uint32_t)value;
    else
        request->output_tokens = (uint32_t)value;
    return 0;
}

static int scan_field(struct cursor *c, struct trace_request *request,
                      bool seen[FIELD_COUNT])
{
    const char *name = NULL;
    size_t bytes = 0;
    int rc = scan_string(c, &name, &bytes);

    if (rc != 0)
        return rc;
    if (!take(c, ':'))
        return refuse(c, "", "expected : after a field name");
    enum field field = find_field(name, bytes);
    if (field == OTHER)
        return skip_value(c, name, bytes);
    if (seen[field])
        return refuse(c, field_names[field], "appears twice");
    seen[field] = true;
    return scan_value(c, field, request);
}

int trace_scan_line(const char *line, size_t bytes,
                    struct trace_request *request, struct trace_error *error)
{
    struct cursor c = {line, line + bytes, error};
    bool seen[FIELD_COUNT] = {false};

    request->tenant = 0;
    request->priority = 0;
    if (!take(&c, '{'))
        return refuse(&c, "", "expected a JSON object");
    do {
        int rc = scan_field(&c, request, seen);

        if (rc != 0)
            return rc;
    } while (take(&c, ','));
    if (!take(&c, '}'))
        return refuse(&c, "", "expected , or } after a value");
    skip_spaces(&c);
    if (c.p != c.end)
        return refuse(&c, "", "more than one value in a line");
    for (int i = 0; i < TENANT; i++) {
        if (!seen[i]) {
            trace_error_set(error, field_names[i], "", 0, "is missing");
            return -EINVAL;
        }
    }
    if (request->input_tokens == 0) {
        trace_error_set(error, field_names[INPUT], "0", 1,
                        "must be at least 1");
        return -EINVAL;
    }
    return 0;
}
