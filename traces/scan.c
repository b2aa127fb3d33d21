/* The line scanner; see scan.h. Reads no byte at or after `end`. */
#include "traces/scan.h"

#include <stdbool.h>
#include <string.h>

struct cursor {
    const char *p;
    const char *end;
    struct trace_error *error;
};

enum field { TIMESTAMP, INPUT, OUTPUT, HASH_IDS, TENANT, PRIORITY, N_FIELDS };

/* Fields from TENANT on are optional. */
static const struct {
    const char *name;
    uint64_t max;
} fields[N_FIELDS] = {
    [TIMESTAMP] = {"timestamp", TRACE_TIMESTAMP_MAX_MS},
    [INPUT] = {"input_length", TRACE_TOKENS_MAX},
    [OUTPUT] = {"output_length", TRACE_TOKENS_MAX},
    [HASH_IDS] = {"hash_ids", TRACE_ID_MAX},
    [TENANT] = {"tenant", TRACE_ID_MAX},
    [PRIORITY] = {"priority", INT32_MAX},
};

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
        return trace_error_set(c->error, field, "", 0, "%s, but the line ends",
                               why);
    return trace_error_set(c->error, field, c->p, token_bytes(c), "%s", why);
}

static bool take(struct cursor *c, char wanted)
{
    skip_spaces(c);
    if (c->p >= c->end || *c->p != wanted)
        return false;
    c->p++;
    return true;
}

/* Reads a string without its quotes; escapes stay unchanged. */
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
    const char *name = fields[field].name;

    skip_spaces(c);
    const char *start = c->p;
    uint64_t n = 0;
    while (c->p < c->end && *c->p >= '0' && *c->p <= '9') {
        uint64_t digit = (uint64_t)(*c->p - '0');

        if (n > (fields[field].max - digit) / 10) {
            c->p = start;
            return trace_error_set(c->error, name, start, token_bytes(c),
                                   "must be at most %llu",
                                   (unsigned long long)fields[field].max);
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
        return refuse(c, fields[HASH_IDS].name, "must be an array");
    if (take(c, ']'))
        return 0;
    for (;;) {
        uint64_t id = 0;
        int rc = scan_integer(c, HASH_IDS, &id);

        if (rc != 0)
            return rc;
        if (request->block_count == TRACE_BLOCKS_MAX)
            return refuse(c, fields[HASH_IDS].name, "has too many ids");
        rc = trace_request_reserve(request, request->block_count + 1);
        if (rc != 0)
            return rc;
        request->hash_ids[request->block_count++] = id;
        if (take(c, ']'))
            return 0;
        if (!take(c, ','))
            return refuse(c, fields[HASH_IDS].name, "expected , or ]");
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
        return trace_error_set(c->error, "", name, name_bytes,
                               "unknown field with a value that is no number, "
                               "string, true, false or null");
    }
    c->p += bytes;
    return 0;
}

/* Returns the field of a name; N_FIELDS = none. */
static enum field find_field(const char *name, size_t bytes)
{
    int i = 0;

    while (i < N_FIELDS && (strlen(fields[i].name) != bytes ||
                            memcmp(fields[i].name, name, bytes) != 0))
        i++;
    return (enum field)i;
}

static int scan_field(struct cursor *c, struct trace_request *request,
                      uint64_t values[N_FIELDS], bool seen[N_FIELDS])
{
    const char *name = NULL;
    size_t bytes = 0;
    int rc = scan_string(c, &name, &bytes);

    if (rc != 0)
        return rc;
    if (!take(c, ':'))
        return refuse(c, "", "expected : after a field name");
    enum field field = find_field(name, bytes);
    if (field == N_FIELDS)
        return skip_value(c, name, bytes);
    if (seen[field])
        return refuse(c, fields[field].name, "appears twice");
    seen[field] = true;
    if (field == HASH_IDS)
        return scan_ids(c, request);
    bool below = field == PRIORITY && take(c, '-');
    rc = scan_integer(c, field, &values[field]);
    if (below)
        values[field] = -values[field];
    return rc;
}

int trace_scan_line(const char *line, size_t bytes,
                    struct trace_request *request, struct trace_error *error)
{
    struct cursor c = {line, line + bytes, error};
    uint64_t values[N_FIELDS] = {0};
    bool seen[N_FIELDS] = {false};

    if (!take(&c, '{'))
        return refuse(&c, "", "expected a JSON object");
    do {
        int rc = scan_field(&c, request, values, seen);

        if (rc != 0)
            return rc;
    } while (take(&c, ','));
    if (!take(&c, '}'))
        return refuse(&c, "", "expected , or } after a value");
    skip_spaces(&c);
    if (c.p != c.end)
        return refuse(&c, "", "more than one value in a line");
    for (int i = 0; i < TENANT; i++)
        if (!seen[i])
            return trace_error_set(error, fields[i].name, "", 0, "is missing");
    request->arrival_us = (int64_t)values[TIMESTAMP] * 1000;
    request->input_tokens = (uint32_t)values[INPUT];
    request->output_tokens = (uint32_t)values[OUTPUT];
    request->tenant = values[TENANT];
    request->priority = (int32_t)values[PRIORITY];
    if (request->input_tokens == 0)
        return trace_error_set(error, fields[INPUT].name, "0", 1,
                               "must be at least 1");
    return 0;
}
