/* Reads the CSV of a profile, strictly. See profile_csv.h. */
#include "predictor/profile_csv.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE_BYTES 512
#define COLUMNS 6

static const char header_line[] =
    "kind,uncached_tokens,cached_tokens,batch,kv_tokens,us";
static const char *const column_names[COLUMNS] = {
    "kind", "uncached_tokens", "cached_tokens", "batch", "kv_tokens", "us"};

enum column {
    COLUMN_KIND,
    COLUMN_UNCACHED,
    COLUMN_CACHED,
    COLUMN_BATCH,
    COLUMN_KV,
    COLUMN_US
};

/* The kinds of row: which columns carry a and b, and which stay empty. */
struct row_kind {
    const char *name;
    enum column a;
    enum column b;
    enum column empty[2];
};

static const struct row_kind prefill_kind = {
    "prefill", COLUMN_UNCACHED, COLUMN_CACHED, {COLUMN_BATCH, COLUMN_KV}};
static const struct row_kind decode_kind = {
    "decode", COLUMN_BATCH, COLUMN_KV, {COLUMN_UNCACHED, COLUMN_CACHED}};

/* One pass over one file. `meta` is checked against the profile when the
 * header line has come. */
struct parser {
    struct profile *profile;
    const char *name;
    int64_t line;
    bool in_rows;
    struct profile meta;
    char *err;
    size_t err_size;
};

__attribute__((format(printf, 3, 4))) static int
refuse(const struct parser *s, int rc, const char *format, ...)
{
    char what[256];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    for (char *c = what; *c != '\0'; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
    (void)snprintf(s->err, s->err_size, "%s:%lld: %s", s->name,
                   (long long)s->line, what);
    return rc;
}

/* A plain decimal integer from least to PROFILE_MAX_TOKENS, no sign. */
static bool parse_integer(const char *text, int64_t least, int64_t *number)
{
    size_t length = strlen(text);

    if (length == 0 || length > 18 || strspn(text, "0123456789") != length)
        return false;
    *number = strtoll(text, NULL, 10);
    return *number >= least && *number <= PROFILE_MAX_TOKENS;
}

static int parse_us(const struct parser *s, const char *text, double *us)
{
    char *end = NULL;
    /* strtod alone also takes spaces, signs, hexadecimals, inf and nan. */
    bool ok = isdigit((unsigned char)text[0]) != 0 &&
              strspn(text, "0123456789.eE+-") == strlen(text);

    if (ok) {
        *us = strtod(text, &end);
        ok = *end == '\0' && *us > 0.0 && *us <= (double)COST_MODEL_MAX_US;
    }
    if (!ok)
        return refuse(s, -EINVAL, "us: expected a time above 0, got \"%.40s\"",
                      text);
    return 0;
}

static int append_row(const struct parser *s, struct profile_rows *rows,
                      const struct profile_row *row)
{
    if (rows->count == PROFILE_MAX_ROWS)
        return refuse(s, -EFBIG, "more than %d rows of one kind",
                      PROFILE_MAX_ROWS);
    if (rows->count == rows->capacity) {
        size_t capacity = rows->capacity == 0 ? 64 : rows->capacity * 2;
        struct profile_row *grown =
            realloc(rows->row, capacity * sizeof(*grown));

        if (!grown)
            return refuse(s, -ENOMEM, "out of memory");
        rows->row = grown;
        rows->capacity = capacity;
    }
    rows->row[rows->count++] = *row;
    return 0;
}

/* Cuts `line` at its commas, in place. Returns the number of columns, at most
 * COLUMNS + 1. */
static size_t split(char *line, char *columns[COLUMNS])
{
    size_t count = 0;

    for (char *at = line; at && count <= COLUMNS; count++) {
        char *column = strsep(&at, ",");

        if (count < COLUMNS)
            columns[count] = column;
    }
    return count;
}

static int parse_row(const struct parser *s, char *line)
{
    char *columns[COLUMNS];
    size_t count = split(line, columns);

    if (count != COLUMNS)
        return refuse(s, -EINVAL, "expected %d columns, got %s%zu", COLUMNS,
                      count > COLUMNS ? "more than " : "",
                      count > COLUMNS ? (size_t)COLUMNS : count);
    bool prefill = strcmp(columns[COLUMN_KIND], prefill_kind.name) == 0;
    if (!prefill && strcmp(columns[COLUMN_KIND], decode_kind.name) != 0)
        return refuse(s, -EINVAL,
                      "kind: expected prefill or decode, got \"%.40s\"",
                      columns[COLUMN_KIND]);
    const struct row_kind *kind = prefill ? &prefill_kind : &decode_kind;
    struct profile_row row = {0};
    if (!parse_integer(columns[kind->a], 1, &row.a))
        return refuse(
            s, -EINVAL, "%s: expected an integer of 1 to %d, got \"%.40s\"",
            column_names[kind->a], PROFILE_MAX_TOKENS, columns[kind->a]);
    if (!parse_integer(columns[kind->b], 0, &row.b))
        return refuse(
            s, -EINVAL, "%s: expected an integer of 0 to %d, got \"%.40s\"",
            column_names[kind->b], PROFILE_MAX_TOKENS, columns[kind->b]);
    for (size_t i = 0; i < 2; i++)
        if (columns[kind->empty[i]][0] != '\0')
            return refuse(s, -EINVAL,
                          "%s: expected nothing in a %s row, got \"%.40s\"",
                          column_names[kind->empty[i]], kind->name,
                          columns[kind->empty[i]]);
    int rc = parse_us(s, columns[COLUMN_US], &row.us);
    if (rc != 0)
        return rc;
    return append_row(s, prefill ? &s->profile->prefill : &s->profile->decode,
                      &row);
}

static int set_name(const struct parser *s, const char *key,
                    char name[COST_MODEL_NAME_BYTES], const char *value)
{
    size_t length = strlen(value);
    bool ok = length >= 1 && length < COST_MODEL_NAME_BYTES;

    for (size_t i = 0; ok && i < length; i++)
        ok = iscntrl((unsigned char)value[i]) == 0;
    if (!ok)
        return refuse(s, -EINVAL,
                      "%s: expected a text of 1 to %d bytes, got \"%.80s\"",
                      key, COST_MODEL_NAME_BYTES - 1, value);
    memcpy(name, value, length + 1);
    return 0;
}

static int set_integer(const struct parser *s, const char *key, int64_t *number,
                       const char *value)
{
    char *end = NULL;

    errno = 0;
    int64_t parsed = strtoll(value, &end, 10);
    if (!isdigit((unsigned char)value[0]) || *end != '\0' || errno != 0)
        return refuse(s, -EINVAL, "%s: expected an integer, got \"%.40s\"", key,
                      value);
    *number = parsed;
    return 0;
}

/* "# key: value"; any other line after the # is a comment. */
static int parse_meta(struct parser *s, char *line)
{
    char *value = line + 1;
    char *key = strsep(&value, ":");

    key += strspn(key, " \t");
    if (!value || s->in_rows)
        return 0;
    value += strspn(value, " \t");
    for (size_t n = strlen(value); n > 0 && value[n - 1] == ' '; n--)
        value[n - 1] = '\0';
    if (strcmp(key, "engine") == 0)
        return set_name(s, key, s->meta.engine, value);
    if (strcmp(key, "model") == 0)
        return set_name(s, key, s->meta.model, value);
    if (strcmp(key, "machine") == 0)
        return set_name(s, key, s->meta.machine, value);
    if (strcmp(key, "date") == 0)
        return set_name(s, key, s->meta.date, value);
    if (strcmp(key, "block_tokens") == 0)
        return set_integer(s, key, &s->meta.block_tokens, value);
    if (strcmp(key, "seed") == 0)
        return set_integer(s, key, &s->meta.seed, value);
    return 0;
}

/* One name in this file: it must be there, and equal to that of an earlier
 * file. */
static int merge_name(const struct parser *s, const char *key, const char *name,
                      char of_profile[COST_MODEL_NAME_BYTES], bool must_agree)
{
    if (name[0] == '\0')
        return refuse(s, -EINVAL, "no line \"# %s: ...\" before the header",
                      key);
    if (must_agree && of_profile[0] != '\0' && strcmp(name, of_profile) != 0)
        return refuse(s, -EINVAL,
                      "%s: got \"%s\", but another file is of \"%s\"", key,
                      name, of_profile);
    memcpy(of_profile, name, COST_MODEL_NAME_BYTES);
    return 0;
}

/* The blocks' size shapes what attention costs, so sizes are not mixed. A file
 * that does not give one goes with any. */
static int merge_block_tokens(const struct parser *s, int64_t *of_profile)
{
    int64_t tokens = s->meta.block_tokens;

    if (tokens != 0 && *of_profile != 0 && tokens != *of_profile)
        return refuse(s, -EINVAL,
                      "block_tokens: got %lld, but another file is of %lld",
                      (long long)tokens, (long long)*of_profile);
    if (tokens != 0)
        *of_profile = tokens;
    return 0;
}

static int parse_header(struct parser *s, const char *line)
{
    struct profile *p = s->profile;

    if (strcmp(line, header_line) != 0)
        return refuse(s, -EINVAL, "expected the header %s, got \"%.80s\"",
                      header_line, line);
    int rc = merge_name(s, "engine", s->meta.engine, p->engine, true);
    if (rc == 0)
        rc = merge_name(s, "model", s->meta.model, p->model, true);
    if (rc == 0)
        rc = merge_name(s, "machine", s->meta.machine, p->machine, true);
    if (rc == 0)
        rc = merge_name(s, "date", s->meta.date, p->date, false);
    if (rc == 0)
        rc = merge_block_tokens(s, &p->block_tokens);
    if (rc != 0)
        return rc;
    p->seed = s->meta.seed;
    s->in_rows = true;
    return 0;
}

static int parse_line(struct parser *s, const char *text, size_t length)
{
    char line[MAX_LINE_BYTES + 1];

    if (length > 0 && text[length - 1] == '\r')
        length--;
    if (length > MAX_LINE_BYTES)
        return refuse(s, -EINVAL, "longer than %d bytes", MAX_LINE_BYTES);
    if (memchr(text, '\0', length))
        return refuse(s, -EINVAL, "a NUL byte");
    memcpy(line, text, length);
    line[length] = '\0';
    if (length == 0)
        return 0;
    if (line[0] == '#')
        return parse_meta(s, line);
    return s->in_rows ? parse_row(s, line) : parse_header(s, line);
}

int profile_add_buffer(struct profile *p, const char *text, size_t size,
                       const char *name, char *err, size_t err_size)
{
    struct parser s = {
        .profile = p, .name = name, .err = err, .err_size = err_size};

    for (size_t at = 0; at < size;) {
        const char *newline = memchr(text + at, '\n', size - at);
        size_t length = newline ? (size_t)(newline - (text + at)) : size - at;

        s.line++;
        int rc = parse_line(&s, text + at, length);
        if (rc != 0)
            return rc;
        at += length + 1;
    }
    s.line++;
    if (!s.in_rows)
        return refuse(&s, -EINVAL, "the file ends before the header %s",
                      header_line);
    return 0;
}

int profile_add_file(struct profile *p, const char *path, char *err,
                     size_t err_size)
{
    const size_t size = PROFILE_MAX_FILE_BYTES + 1;
    int rc = -ENOMEM;
    size_t have = 0;
    /* One byte more than allowed shows whether the file is too large. Memory
     * that no byte is read into is never touched. */
    char *text = malloc(size);
    FILE *file = text ? fopen(path, "re") : NULL;

    if (!text)
        goto say;
    if (!file) {
        rc = -errno;
        goto say;
    }
    errno = 0;
    have = fread(text, 1, size, file);
    rc = ferror(file) != 0 ? -(errno != 0 ? errno : EIO) : 0;
    if (rc == 0 && have == size)
        rc = -EFBIG;
    if (rc != 0)
        goto say;
    rc = profile_add_buffer(p, text, have, path, err, err_size);
    goto close_file;
say:
    (void)snprintf(err, err_size, "%s: %s", path, strerror(-rc));
close_file:
    if (file)
        (void)fclose(file);
    free(text);
    return rc;
}

void profile_fini(struct profile *p)
{
    free(p->prefill.row);
    free(p->decode.row);
    *p = (struct profile){0};
}
